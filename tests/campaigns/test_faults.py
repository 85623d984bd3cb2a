"""A fault campaign on the workflow: kills at any moment, a full disk, damaged and swapped caches.

Every fault ends in a result that is byte for byte that of an undisturbed run, or in one line that says what is wrong.
"""

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import safetensors, write_folder
from support.project import ROOT
from support.workflow_runs import snakemake

from headspaces.errors import DamagedFileError
from headspaces.files import whole_file, writer_name
from headspaces.jobs.code import SOURCE
from headspaces.jobs.locks import release_dead_locks
from headspaces.store import read_arrays, read_attributes
from headspaces.weights.blocks import read_block
from headspaces.weights.headers_file import load_headers

pytestmark = pytest.mark.slow

N_LAYERS, D_MODEL, N_HEADS, N_KV, D_HEAD = 6, 192, 6, 2, 32
KILLS = 30
STAGES = ("headers", "weights", "bases", "overlaps", "nulls/first/", "nulls/first.log")
"""What a kill waits for: the log of the first job of a stage (the shards' lie in a folder, the merging's beside it)."""
TARGET = "results/nulls/{}.h5"
RESULTS = (".h5", ".safetensors", ".json")


def save_model(folder, seed):
    """A model whose jobs take a moment: 6 layers of 6 heads of width 32."""
    rng = np.random.default_rng(seed)
    config = {
        "model_type": "llama", "hidden_size": D_MODEL, "num_hidden_layers": N_LAYERS, "head_dim": D_HEAD,
        "num_attention_heads": N_HEADS, "num_key_value_heads": N_KV,
    }  # fmt: skip
    tensors = {}
    queries, keys = N_HEADS * D_HEAD, N_KV * D_HEAD
    for layer in range(N_LAYERS):
        start = f"model.layers.{layer}."
        for name, shape in (("q", (queries, D_MODEL)), ("k", (keys, D_MODEL)), ("v", (keys, D_MODEL)),
                            ("o", (D_MODEL, queries))):  # fmt: skip
            tensors[f"{start}self_attn.{name}_proj.weight"] = rng.standard_normal(shape).astype(np.float32)
        tensors[f"{start}input_layernorm.weight"] = rng.uniform(0.5, 2, D_MODEL).astype(np.float32)
    return write_folder(folder, config, {"model.safetensors": safetensors(tensors)})


def run(project, directory, model="first", check=True, target=TARGET):
    arguments = ["--directory", str(directory), "--config", f"model={project / model}", "nulls={samples: 4}"]
    return snakemake(project, target.format(model), *arguments, check=check)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project with two models, blocks of two layers and a shard a sample."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("workflow", "config", "src", "envs", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    models = folder / "src/headspaces/study/models.py"
    text, changes = models.read_text(), 0
    block = 2 * 8 * D_MODEL * D_HEAD * (2 * N_HEADS + 2 * N_KV)
    for name, value in (("BLOCK_BYTES", block), ("SHARD_SAMPLES", 1)):
        text, n = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        changes += n
    assert changes == 2
    models.write_text(text)
    for seed, name in enumerate(("first", "second")):
        save_model(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def reference(project, tmp_path_factory):
    """An undisturbed run of both models."""
    folder = tmp_path_factory.mktemp("reference")
    for model in ("first", "second"):
        run(project, folder, model)
    files = contents(folder, "first")
    # Headers and content, weights, bases, overlaps, starts and shards of three null models, and these together.
    assert len(files) == 2 + 3 + 3 + 1 + 3 + 12 + 1
    return folder


def contents(directory, model):
    """Bytes of all results of a model, by path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted((directory / "results").rglob("*"))
        if path.suffix in RESULTS and model in path.relative_to(directory).as_posix()
    }


def parts(directory):
    return sorted(path.name for path in (directory / "results").rglob("*") if path.name.endswith(".part"))


def assert_same(directory, reference, model="first"):
    found, expected = contents(directory, model), contents(reference, model)
    assert found.keys() == expected.keys()
    assert [name for name, data in found.items() if data != expected[name]] == []


def start(project, directory):
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(project / "Snakefile"), "--cores", "2", "--nocolor",
        TARGET.format("first"), "--directory", str(directory),
        "--config", f"model={project / 'first'}", "nulls={samples: 4}",
    ]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        command, cwd=project, env=clean, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def killed_in(stage, project, directory, delay):
    """Start the workflow and kill its whole process group in a stage; False if it ended before."""
    logs = directory / "results" / "logs"
    begun = time.time()
    driver = start(project, directory)
    while driver.poll() is None:
        if any(stage in str(log.relative_to(logs)) and log.stat().st_mtime > begun for log in logs.rglob("*.log")):
            time.sleep(delay)
            break
        time.sleep(0.02)
    alive = driver.poll() is None
    if alive:
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    return alive


def finished_shards(directory):
    """Shards that the workflow has recorded as whole, with their time of change."""
    incomplete = {base64.b64decode(path.name).decode() for path in (directory / ".snakemake/incomplete").glob("*")}
    return {
        path: path.stat().st_mtime_ns
        for path in (directory / "results/nulls/first").glob("[!.]*.h5")
        if path.relative_to(directory).as_posix() not in incomplete
    }


def test_thirty_kills_change_no_byte(project, reference, tmp_path):
    moments, hits, runs = np.random.default_rng(9), Counter(), 0
    while hits.total() < KILLS:
        directory = tmp_path / f"run{runs}"
        directory.mkdir()
        runs += 1
        finished = {}
        for stage in STAGES:
            hits[stage] += killed_in(stage, project, directory, moments.uniform(0, 0.8))
            for path, changed in finished.items():
                assert path.stat().st_mtime_ns == changed, f"{path.name} was made again"
            finished = finished_shards(directory)
        # A part of the last kill may lie about: the resume makes that file and takes the part away.
        run(project, directory)
        for path, changed in finished.items():
            assert path.stat().st_mtime_ns == changed, f"{path.name} was made again"
        assert_same(directory, reference)
        assert parts(directory) == []
        shutil.rmtree(directory)
    print(f"\n{hits.total()} kills in {runs} runs: {dict(hits)}")
    assert all(hits[stage] for stage in STAGES[:-1]), hits


WRITER = """
import sys, numpy as np
from headspaces.store import write_arrays
print("ready", flush=True)
while True:
    for value in (1.0, 2.0):
        write_arrays(sys.argv[1], "bases", {"x": np.full(2_000_000, value)}, {"value": value})
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path):
    """Kills inside the writing itself: the name always holds one whole version, and one leftover at most stays."""
    path, moments, leftovers = tmp_path / "a.h5", np.random.default_rng(1), 0
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    for _ in range(15):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, env=environment)
        writer.stdout.readline()
        time.sleep(moments.uniform(0.05, 0.5))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        if path.exists():
            value = read_attributes(path, "bases")["value"]
            np.testing.assert_array_equal(read_arrays(path, "bases")["x"], value)
        left = {name for name in os.listdir(tmp_path) if name != "a.h5"}
        assert len(left) <= 1
        leftovers += len(left)
    assert leftovers > 3
    with whole_file(path) as beside:
        beside.write_bytes(b"")
    assert os.listdir(tmp_path) == ["a.h5"]


def test_only_what_was_left_behind_is_removed(tmp_path):
    host = writer_name().rpartition("-")[0]
    old, recent = time.time() - 2 * 24 * 3600, time.time()
    for name, changed in (
        (f".a.{host}-{2**22 + 1}.part", recent), (f".a.{host}-1.part", recent), (".a.elsewhere-7.part", recent),
        (".a.elsewhere-8.part", old), (f".b.{host}-{2**22 + 1}.part", recent), (".a.part", recent),
    ):  # fmt: skip
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (changed, changed))
    with whole_file(tmp_path / "a") as beside:
        beside.write_text("whole")
    kept = {"a", f".a.{host}-1.part", ".a.elsewhere-7.part", f".b.{host}-{2**22 + 1}.part", ".a.part"}
    assert set(os.listdir(tmp_path)) == kept


@pytest.mark.parametrize(
    ("drivers", "released"),
    [
        ([f"HOST-{2**22 + 1}"], True), ([f"HOST-{2**22 + 1}", f"HOST-{2**22 + 2}"], True), (["HOST-1"], False),
        ([f"HOST-{2**22 + 1}", "HOST-1"], False), ([f"HOST-{2**22 + 1}", "elsewhere-5"], False), ([], False),
    ],
)  # fmt: skip
def test_locks_are_released_when_every_holder_is_dead(drivers, released, tmp_path):
    host = writer_name().rpartition("-")[0]
    for folder in ("drivers", "locks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "locks/0.output.lock").write_text("results/a.h5")
    for driver in drivers:
        (tmp_path / "drivers" / driver.replace("HOST", host)).touch()
    release_dead_locks(tmp_path)
    assert (tmp_path / "locks/0.output.lock").exists() != released
    kept = {driver.replace("HOST", host) for driver in drivers if str(2**22)[:4] not in driver}
    assert set(os.listdir(tmp_path / "drivers")) == kept | {writer_name()}


@pytest.fixture
def small_disk(tmp_path):
    """Mount a small disk as the results' folder; gives a function that changes its size."""
    results = tmp_path / "results"
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", results], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", results], check=True)
    subprocess.run(["umount", "--lazy", results], check=True)


@pytest.mark.parametrize("share", [0.15, 0.7], ids=["weights", "later"])
def test_a_full_disk_is_said_and_the_run_goes_on_with_space(share, project, reference, small_disk, tmp_path):
    needed = sum(map(len, contents(reference, "first").values()))
    small_disk(f"{int(needed * share / 1024)}k")
    done = run(project, tmp_path, check=False)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(r"^error: cannot write results/\S+: No space left on device; free space", output, re.MULTILINE), (
        output
    )
    assert "Traceback" not in output
    assert parts(tmp_path) == []
    small_disk("64m")
    run(project, tmp_path)
    assert_same(tmp_path, reference)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


CACHES = {
    "results/weights/first/headers.json": load_headers,
    "results/weights/first/layers002-003.safetensors": read_block,
    "results/bases/first/layers002-003.h5": lambda path: read_arrays(path, "bases"),
    "results/overlaps/first.h5": lambda path: read_attributes(path, "overlaps"),
    "results/nulls/first/rotation.0001-0001.h5": lambda path: read_arrays(path, "null-shard"),
}


@pytest.mark.parametrize("damage", [flipped, cut])
@pytest.mark.parametrize("cache", CACHES)
def test_a_damaged_cache_is_named_when_it_is_read(cache, damage, reference, tmp_path):
    path = tmp_path / Path(cache).name
    shutil.copy(reference / cache, path)
    CACHES[cache](path)
    damage(path)
    with pytest.raises(DamagedFileError) as error:
        CACHES[cache](path)
    assert error.value.path == path
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_every_flipped_bit_of_a_header_is_noticed(reference, tmp_path):
    """The part of a block that says what the tensors are: no bit of it may change unseen."""
    path = tmp_path / "block.safetensors"
    whole = (reference / "results/weights/first/layers002-003.safetensors").read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    for place in range(length):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFileError):
            read_block(path)


OVERLAPS = "results/overlaps/{}.h5"
SWAPS = {
    "headers": ("results/weights/first/headers.json", "results/weights/second/headers.json",
                "results/weights/first/*.safetensors", "source is '.*second', expected '.*first'"),
    "weights": ("results/weights/first/layers002-003.safetensors", "results/weights/second/layers002-003.safetensors",
                "results/bases/first/layers002-003.h5", "source is '.*second', expected '.*first'"),
    "layers": ("results/weights/first/layers002-003.safetensors", "results/weights/first/layers000-001.safetensors",
               "results/bases/first/layers002-003.h5", "first_layer is 0, expected 2"),
    "bases": ("results/bases/first/layers000-001.h5", "results/bases/second/layers000-001.h5",
              "results/overlaps/first.h5", "source is '.*second', expected '.*first'"),
    "overlaps": ("results/overlaps/first.h5", "results/overlaps/second.h5",
                 "results/nulls/first/rotation.0000-0000.h5", "source is '.*second', expected '.*first'"),
    "shard": ("results/nulls/first/rotation.0001-0001.h5", "results/nulls/first/rotation.0002-0002.h5",
              "results/nulls/first.h5", "first_sample is 2, expected 1"),
    "flipped_shard": ("results/nulls/first/rotation.0001-0001.h5", None,
                      "results/nulls/first.h5", "cut off or changed"),
}  # fmt: skip
"""By name: a cache, what is put in its place, the file whose job reads it, and what that job says."""


@pytest.mark.parametrize("name", SWAPS)
def test_a_swapped_cache_is_set_aside_and_made_again(name, project, reference, tmp_path):
    cache, instead, reader, why = SWAPS[name]
    shutil.copytree(reference / "results", tmp_path / "results")
    shutil.copytree(reference / ".snakemake", tmp_path / ".snakemake")
    path = tmp_path / cache
    before = path.stat()
    if instead:
        shutil.copy(tmp_path / instead, path)
    else:
        flipped(path)
    damaged = path.read_bytes()
    # As a restored backup or a failing disk does it: the time of change tells nothing.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    target = TARGET if "nulls" in reader else OVERLAPS
    # What follows the reader's file is gone, too, so that the run asks for it.
    for file in (*tmp_path.glob(reader), tmp_path / target.format("first")):
        file.unlink(missing_ok=True)
    if name == "headers":
        shutil.rmtree(tmp_path / "results/bases/first")
    done = run(project, tmp_path, check=False, target=target)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(f"^error: {re.escape(cache)}: .*{why}.*run again to make it anew$", output, re.MULTILINE), output
    assert "Traceback" not in output
    assert f"it is set aside as {path.name}.damaged" in output
    assert not path.exists()
    assert path.with_name(f"{path.name}.damaged").read_bytes() == damaged
    path.with_name(f"{path.name}.damaged").unlink()
    run(project, tmp_path, target=target)
    assert_same(tmp_path, reference)
