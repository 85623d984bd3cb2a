import errno
import os
import platform
import subprocess
import sys
import threading

import pytest
from support.project import ROOT
from threadpoolctl import threadpool_info

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.jobs.code import SOURCE
from headspaces.threads import map_in_order, worker_count


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "new" / "file"
    with whole_file(path) as beside:
        beside.write_text("content")
        assert not path.exists()
    assert path.read_text() == "content"
    assert os.listdir(path.parent) == ["file"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with whole_file(path) as beside:
            beside.write_text("half")
            raise KeyError("broken")

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_said(tmp_path):
    def fail():
        with whole_file(tmp_path / "file"):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="cannot write .*file: No space left on device; free space"):
        fail()


def test_results_come_in_order_on_bounded_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    seen = set()

    def work(number):
        seen.add(threading.get_ident())
        blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        return number, max(blas)

    assert list(map_in_order(work, range(50))) == [(number, 1) for number in range(50)]
    assert len(seen) <= 2


@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("0", None), ("", None), ("many", None), ("100000", None)])
def test_worker_count(value, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert worker_count() == (expected or len(os.sched_getaffinity(0)))


SCRIPTS = ROOT / "workflow" / "scripts"


SCRIPT = """
import sys
from headspaces.errors import InputError
from headspaces.jobs.job import job
with job(sys.argv[1], 1) as log:
    log.info("started")
    {body}
"""


def run_job(tmp_path, body):
    command = [sys.executable, "-c", SCRIPT.format(body=body), str(tmp_path / "job.log")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=False
    )
    return done, (tmp_path / "job.log").read_text()


def test_a_wrong_input_ends_a_job_with_one_line(tmp_path):
    done, log = run_job(tmp_path, 'raise InputError("the file x is empty; fetch it again")')
    assert done.returncode == 1
    assert done.stderr == "started\nerror: the file x is empty; fetch it again\n"
    assert "error: the file x is empty" in log
    assert str(SOURCE) in log


def test_a_fault_ends_a_job_with_its_traceback(tmp_path):
    done, log = run_job(tmp_path, "1 / 0")
    assert done.returncode == 1
    for text in (done.stderr, log):
        assert "Traceback" in text
        assert "ZeroDivisionError" in text


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.EACCES])
def test_an_error_of_the_system_ends_a_job_in_the_systems_words(number, tmp_path):
    done, log = run_job(tmp_path, f"raise OSError({number}, 'said', 'a.txt')")
    assert done.returncode == 1
    assert done.stderr == f"started\nerror: a.txt: {os.strerror(number)}; mend that and run again\n"
    assert "Traceback" in log


def test_a_damaged_file_is_set_aside_and_never_deleted(tmp_path):
    """Twice: what was set aside before is not overwritten."""
    path = tmp_path / "results/nulls/m/rotation.0000-0000.h5"
    path.parent.mkdir(parents=True)
    for name, content in (("damaged", "first"), ("damaged.1", "second")):
        path.write_text(content)
        done, _ = run_job(tmp_path, f"from headspaces.errors import DamagedFileError as E; raise E({str(path)!r}, 'x')")
        assert done.stderr.splitlines()[1].startswith(f"error: {path}: x; the rule 'null_shard' makes it, it is set ")
        assert done.stderr.endswith(f"aside as {path.name}.{name}: run again to make it anew\n")
        assert path.with_name(f"{path.name}.{name}").read_text() == content
        assert not path.exists()


FAULTS = """
import resource, sys
import numpy as np
from headspaces.threads import reuse_memory
if sys.argv[1] == "reused":
    reuse_memory()
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    np.ones(3 * 2**20), np.ones(3 * 2**20)
before = pages()
for _ in range(20):
    np.ones(3 * 2**20), np.ones(3 * 2**20)
print(pages() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_memory_of_large_arrays_is_reused():
    """Forty arrays of 24 MiB, two at a time, need the pages of two."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}

    def new_pages(how):
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)

    assert new_pages("reused") < 100 < new_pages("returned")
