/* Faults at system calls: preloaded, it lets chosen calls on files below one folder fail with a chosen error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, RENAME, FSYNC, MMAP, CALLS };
enum { FILES = 1 << 16 };

static char root[4096], below[FILES];
static int chosen = -1, number, first, again, seen[CALLS], injected;

/* From now on the `at`-th call (and with `always` every later one) of one sort fails; a sort of -1 only counts. */
void arm(const char *folder, int sort, int error, int at, int always) {
    strncpy(root, folder, sizeof root - 1);
    memset(seen, 0, sizeof seen);
    chosen = sort, number = error, first = at, again = always, injected = 0;
}
void disarm(void) { root[0] = 0, chosen = -1; }
int calls(int sort) { return seen[sort]; }
int faults(void) { return injected; }

static int inside(const char *path) { return root[0] && path && !strncmp(path, root, strlen(root)); }
static int known(int file) { return root[0] && file >= 0 && file < FILES && below[file]; }
static int fails(int sort, int ours) {
    if (!ours) return 0;
    int n = __sync_add_and_fetch(&seen[sort], 1);
    if (sort != chosen || !(n == first || (again && n > first))) return 0;
    __sync_add_and_fetch(&injected, 1);
    errno = number;
    return 1;
}
#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

static int opened(int file, int ours) {
    if (file >= 0 && file < FILES) below[file] = ours;
    return file;
}
#define OPENS(name, ARGUMENTS, TYPES, PASSED)                                                                          \
    int name ARGUMENTS {                                                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                      \
        va_end(rest);                                                                                                  \
        int ours = inside(path);                                                                                       \
        return fails(OPEN, ours) ? -1 : opened(((int(*) TYPES)dlsym(RTLD_NEXT, #name))PASSED, ours);                   \
    }
OPENS(open, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), (const char *, int, ...), (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), (int, const char *, int, ...), (at, path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), (int, const char *, int, ...), (at, path, flags, mode))

int close(int file) {
    if (file >= 0 && file < FILES) below[file] = 0;
    return REAL(int, close, int)(file);
}
ssize_t read(int file, void *data, size_t size) {
    return fails(READ, known(file)) ? -1 : REAL(ssize_t, read, int, void *, size_t)(file, data, size);
}
ssize_t pread64(int file, void *data, size_t size, off64_t at) {
    return fails(READ, known(file)) ? -1 : REAL(ssize_t, pread64, int, void *, size_t, off64_t)(file, data, size, at);
}
ssize_t write(int file, const void *data, size_t size) {
    return fails(WRITE, known(file)) ? -1 : REAL(ssize_t, write, int, const void *, size_t)(file, data, size);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return fails(WRITE, known(file)) ? -1
                                     : REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)(file, data, size, at);
}
int rename(const char *from, const char *to) {
    return fails(RENAME, inside(from)) ? -1 : REAL(int, rename, const char *, const char *)(from, to);
}
/* One that succeeds does nothing: no power is cut here, and disks are slow. */
int fsync(int file) { return fails(FSYNC, known(file)) ? -1 : 0; }
void *mmap64(void *start, size_t size, int rights, int flags, int file, off64_t at) {
    return fails(MMAP, known(file)) ? MAP_FAILED
                                    : REAL(void *, mmap64, void *, size_t, int, int, int, off64_t)(start, size, rights,
                                                                                                   flags, file, at);
}
void *mmap(void *start, size_t size, int rights, int flags, int file, off_t at) {
    return mmap64(start, size, rights, flags, file, at);
}
