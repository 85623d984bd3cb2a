"""The jobs of a tiny study, each tried with system calls that fail; run it with ``system_calls.c`` preloaded.

``python -m support.system_calls FOLDER EVERY`` tries every EVERY-th fault and prints JSON: how many faults there were,
how many ended in one line, and what went wrong.
"""

import contextlib
import ctypes
import errno
import io
import json
import os
import shutil
import signal
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import gguf
import numpy as np

from headspaces import command_line, files, store
from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import fold
from headspaces.geometry.overlaps import observed_overlaps
from headspaces.jobs.job import job
from headspaces.jobs.provenance import joined, model_attributes
from headspaces.nulls.samples import NullRun, figure_layers, null_shard, random_reference
from headspaces.nulls.self_heads import self_heads
from headspaces.nulls.shards import Shard, merge_shards, shard_attributes
from headspaces.report.results import read_results
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.spaces import Shape
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.blocks import each_layer, layer_reader, read_metadata
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers_file import load_headers, write_headers
from headspaces.weights.source import read_headers
from support.checkpoints import LLAMA, llama_tensors, safetensors, write_folder

CALLS = ("open", "read", "write", "rename", "fsync", "mmap")
ERRORS = ("EIO", "ESTALE", "EINTR", "EMFILE", "ENFILE", "ENOMEM", "EACCES", "ENOSPC", "EROFS", "EDQUOT")
SHAPE = Shape(n_layers=3, d_model=24, n_query_heads=4, n_kv_heads=2, d_head=8)
WEIGHTS, BASES = "weights/m/layers000-002.safetensors", "bases/m/layers000-002.h5"
SHARDS = [f"nulls/m/{null}.{sample:04d}-{sample:04d}.h5" for null in ("rotation", "reassignment") for sample in (0, 1)]


class Study:
    """A tiny model and the jobs on it: by name, the files that each makes and what it does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        tensors = llama_tensors(np.random.default_rng(3))
        self.model = write_folder(folder / "model", LLAMA, {"model.safetensors": safetensors(tensors)})
        write_gguf(folder / "m.gguf", tensors)
        self.jobs = {
            "headers": (["weights/m/headers.json"], self.headers),
            "weights": ([WEIGHTS], self.weights),
            "gguf": (["weights/g/layers000-002.safetensors"], self.gguf),
            "bases": ([BASES], self.bases),
            "overlaps": (["overlaps/m.h5"], self.overlaps),
            **{path: ([path], lambda path=path: self.shard(path)) for path in SHARDS},
            "nulls": (["nulls/m.h5"], self.nulls),
            "self_heads": (["self_heads/m.h5"], self.self_heads),
            "table": ([f"report/table4.{suffix}" for suffix in ("csv", "md", "tex")], self.table),
        }

    def headers(self) -> None:
        write_headers(read_headers(str(self.model)), self.results / "weights/m/headers.json")

    def weights(self) -> None:
        fetch_block(load_headers(self.results / "weights/m/headers.json"), range(3), self.results / WEIGHTS)

    def gguf(self) -> None:
        path = self.results / "weights/g/layers000-002.safetensors"
        fetch_block(read_headers(str(self.folder / "m.gguf")), range(3), path)

    def bases(self) -> None:
        path = self.results / WEIGHTS
        attributes = {"fold": True, "rank_rtol": 1e-6, "model": "m"} | model_attributes(read_metadata(path))
        write_arrays(self.results / BASES, "bases", block_bases(each_layer(path), fold_norms=True), attributes)

    def overlaps(self) -> None:
        attributes = joined({BASES: read_attributes(self.results / BASES, "bases")})
        arrays = observed_overlaps([read_arrays(self.results / BASES, "bases")])
        write_arrays(self.results / "overlaps/m.h5", "overlaps", arrays, attributes)

    def shard(self, path: str) -> None:
        null, samples, _ = path.rsplit("/", 1)[1].split(".")
        read = layer_reader([self.results / WEIGHTS], 1)
        overlaps = self.results / "overlaps/m.h5"
        chosen = figure_layers(read_arrays(overlaps, "overlaps"))
        run = NullRun(lambda layer, kind: fold(read(layer), kind), SHAPE, "OQKV", "m", 1, figure_layers=chosen)
        numbers = range(int(samples[:4]), int(samples[:4]) + 1)
        attributes = read_attributes(overlaps, "overlaps") | shard_attributes(run, null, numbers)
        write_arrays(self.results / path, "null-shard", null_shard(run, null, numbers), attributes)

    def nulls(self) -> None:
        paths = [self.results / path for path in SHARDS]
        shards = [Shard(str(p), read_attributes(p, "null-shard"), read_arrays(p, "null-shard")) for p in paths]
        arrays = merge_shards(shards, 2) | random_reference(SHAPE, "OQKV", "m", 1, 2)
        write_arrays(self.results / "nulls/m.h5", "nulls", arrays, {"model": "m", "samples": 2})

    def self_heads(self) -> None:
        arrays = self_heads([read_arrays(self.results / BASES, "bases")], seed=1, model="m")
        write_arrays(self.results / "self_heads/m.h5", "self_heads", arrays, {"model": "m"})

    def table(self) -> None:
        read = {stage: self.results / f"{stage}/m.h5" for stage in ("overlaps", "nulls")}
        targets = [self.results / f"report/table4.{suffix}" for suffix in ("csv", "md", "tex", "json")]
        write_table("table4", TABLES["table4"]([read_results("m", read)]), *targets)

    def run(self, name: str) -> tuple[int, str]:
        """Run one job as a script does; return its exit status and what the console said."""
        log, console = self.folder / "logs" / f"{name.replace('/', '-')}.log", io.StringIO()
        with contextlib.redirect_stderr(console):
            try:
                with job(str(log), 1):
                    self.jobs[name][1]()
            except SystemExit as stop:
                return int(stop.code), console.getvalue()
        return 0, console.getvalue()

    def look(self) -> tuple[int, str]:
        """Print the strongest pairs of the results, as the command line does."""
        console, out = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(console), contextlib.redirect_stdout(out):
            status = command_line.main(["pairs", str(self.model), "--results", str(self.results)])
        return status, console.getvalue() if status else out.getvalue()

    def contents(self) -> dict[str, bytes]:
        """Bytes of every file but the logs and what is remembered of the checkpoint's files, times among it."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name != "content.json" and "logs" not in path.relative_to(self.folder).parts
        }


def write_gguf(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """The same tensors as a GGUF file: one that is mapped, not read."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(SHAPE.n_layers)
    writer.add_embedding_length(SHAPE.d_model)
    writer.add_head_count(SHAPE.n_query_heads)
    writer.add_head_count_kv(SHAPE.n_kv_heads)
    writer.add_key_length(SHAPE.d_head)
    writer.add_value_length(SHAPE.d_head)
    parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}  # fmt: skip
    for layer, (old, new) in product(range(SHAPE.n_layers), parts.items()):
        writer.add_tensor(f"blk.{layer}.{new}.weight", tensors[f"model.layers.{layer}.{old}.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Faults:
    """What the preloaded library does, and the account of it."""

    def __init__(self, study: Study, every: int) -> None:
        self.study, self.every, self.library = study, every, ctypes.CDLL(None)
        self.tried, self.count, self.wrong = 0, Counter(), []
        for name in study.jobs:
            status, said = study.run(name)
            assert status == 0, said
        self.whole = study.contents()
        self.pairs = study.look()
        assert self.pairs[0] == 0, self.pairs

    def armed(self, run, call: int, number: int = 0, at: int = 0, always: bool = False):
        """Run with one fault; the sums that were compared before are compared anew."""
        store._attributes.cache_clear()
        self.library.arm(os.fsencode(self.study.folder), call, number, at, always)
        try:
            return run()
        finally:
            self.library.disarm()

    def try_all(self, name: str, run, made: list[str], check) -> None:
        """Let every call of every sort in one job fail in every way, over the old files and without them."""
        for path in made:
            (self.study.results / path).unlink()
        assert self.armed(run, -1)[0] == 0
        numbers = [self.library.calls(call) for call in range(len(CALLS))]
        for call, error, always in product(range(len(CALLS)), ERRORS, (False, True)):
            if always and error == "EINTR":
                continue  # a signal does not come without end, and whoever waits for its end is right to
            for at, keep in product(range(1, numbers[call] + 1), (True, False)):
                self.tried += 1
                if self.tried % self.every == 0:
                    self.try_one(name, run, made if not keep else [], check, call, error, at, always)

    def try_one(self, name, run, absent, check, call, error, at, always) -> None:
        for path in absent:
            (self.study.results / path).unlink()
        status, said, injected = self.forked(lambda: self.armed(run, call, getattr(errno, error), at, always))
        self.count["faults"] += injected > 0
        self.count["refused"] += status != 0
        after, fault = self.study.contents(), check(status, said)
        left_out = {f"results/{path}" for path in absent if status != 0} - after.keys()
        expected = {path: data for path, data in self.whole.items() if path not in left_out}
        if after != expected:
            names = sorted(path for path in {*after, *expected} if after.get(path) != expected.get(path))
            fault = f"files differ: {names}; {fault or said}"
        if after != self.whole:
            self.restore()
        if fault:
            self.wrong.append(f"{name}: {CALLS[call]} {at} {error}{' always' * always}: {fault}")
            print(self.wrong[-1], file=sys.stderr, flush=True)

    def forked(self, run) -> tuple[int, str, int]:
        """Run in a process of its own, as jobs do; return its exit status, what it said, and how many calls failed."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                status, said = run()
            except BaseException as escaped:
                status, said = -1, f"{type(escaped).__name__}: {escaped}"
            os.write(writer, json.dumps([status, said[-2000:], self.library.faults()]).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return tuple(json.loads(answer)) if ended == 0 else (ended, f"ended by signal {-ended}", 1)

    def restore(self) -> None:
        shutil.rmtree(self.study.results)
        for path, data in self.whole.items():
            (self.study.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.study.folder / path).write_bytes(data)


def said_in_one_line(status: int, said: str) -> str:
    """Say what is wrong with the end of a job; nothing for a right one."""
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    if "Traceback" in said or len(lines) != (status == 1) or status not in (0, 1):
        return f"status {status}, said {said!r}"
    return "" if status == 0 or any(os.strerror(getattr(errno, name)) in lines[0] for name in ERRORS) else said


def main(folder: Path, every: int) -> None:
    """Try the faults and print the account."""
    files.WAITS = (0, 0)
    study = Study(folder)
    faults = Faults(study, every)

    def right_pairs(status: int, said: str) -> str:
        if status == 0:
            return "" if said == faults.pairs[1] else f"printed {said!r}"
        return "" if status == 2 and said.startswith("error: ") and said.count("\n") == 1 else f"{status}: {said!r}"

    for name, (made, _) in study.jobs.items():
        faults.try_all(name, lambda name=name: study.run(name), made, said_in_one_line)
    faults.try_all("pairs", study.look, [], right_pairs)
    print(json.dumps({**faults.count, "tried": faults.tried, "wrong": faults.wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
