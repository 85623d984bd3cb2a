"""Where a job computes. A GPU is played by torch's CPU: what runs on one runs here, in the same tiles."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.project import ROOT
from support.workflow_runs import save_tiny, snakemake

from headspaces import devices
from headspaces.devices import choose_device, device_setting, tile_rows, to_numpy
from headspaces.errors import InputError
from headspaces.geometry.overlaps import observed_overlaps
from headspaces.store import read_arrays, read_attributes

NO_GPU = r"^device is cuda, but torch \S+ sees no GPU; say cpu or auto, or see docs/cluster.md"


@pytest.fixture
def played(monkeypatch):
    """Torch's CPU as the GPU."""
    monkeypatch.setattr(devices, "GPU", "cpu")
    monkeypatch.setattr(devices, "DRIVER_FILES", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a played GPU")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def test_the_setting_is_one_word_or_a_word_by_stage():
    assert [device_setting("cuda", stage) for stage in ("nulls", "overlaps")] == ["cuda", "cuda"]
    by_stage = {"nulls": "cuda", "affinity": "cpu"}
    assert [device_setting(by_stage, stage) for stage in ("nulls", "affinity", "overlaps")] == ["cuda", "cpu", "cpu"]


@pytest.mark.parametrize(("setting", "files"), [("cpu", ("/",)), ("auto", ("/no/driver",))])
def test_torch_is_not_imported_where_no_gpu_can_be(setting, files):
    code = f"""
import sys
from headspaces import devices
devices.DRIVER_FILES = {files!r}
print(devices.choose_device({setting!r}, 1).name, "torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu", "False"]


def test_the_cpu_leaves_arrays_where_they_are():
    array = np.ones(3)
    assert choose_device("cpu", 1).to_device(array) is array


@pytest.mark.parametrize("setting", ["auto", "cuda"])
def test_a_gpu_holds_torch_tensors(setting, played, caplog):
    caplog.set_level(logging.INFO)
    device = choose_device(setting, 3)
    moved = device.to_device(np.arange(6.0, dtype=np.float32).reshape(2, 3).T)
    assert device.name == "cuda"
    assert isinstance(moved, torch.Tensor)
    assert moved.dtype == torch.float32
    np.testing.assert_array_equal(to_numpy(moved), [[0, 3], [1, 4], [2, 5]])
    assert caplog.messages == ["device: cuda, a played GPU, 3 MiB kept for this job"]


def test_float32_is_float32(played):
    """Products in TensorFloat-32 have three digits."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        choose_device("cuda", 1)
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_no_gpu_where_one_is_requested_is_one_line(no_gpu):
    with pytest.raises(InputError, match=NO_GPU) as error:
        choose_device("cuda", 1)
    assert "\n" not in str(error.value)


def test_a_torch_without_gpu_code_is_said(no_gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(InputError, match=r"torch \S+, which is built for the CPU alone, sees no GPU"):
        choose_device("cuda", 1)


def test_auto_without_a_usable_gpu_is_the_cpu(no_gpu, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(devices, "DRIVER_FILES", ("/",))
    assert choose_device("auto", 1) is devices.CPU
    assert caplog.messages == [f"device: cpu, since torch {torch.__version__} sees no GPU"]


def test_a_gpu_that_is_full_is_left_alone(played, caplog):
    """More memory than there is anywhere: auto computes on the CPU, cuda stops before it starts."""
    caplog.set_level(logging.INFO)
    assert choose_device("auto", 2**40).name == "cpu"
    assert f"device: cpu, since the GPU cannot be used with {2**40} MiB of its memory (" in caplog.text
    with pytest.raises(
        InputError, match=r"cannot be used with .* fewer jobs at a time may help; say cpu or auto"
    ) as error:
        choose_device("cuda", 2**40)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("heads", "rows"), [(4, 256), (2048, 256), (2049, 128), (8192, 128), (2**17, 32), (2**20, 32)])
def test_tiles_shrink_as_heads_grow(heads, rows):
    assert tile_rows(8 * heads) == rows
    assert rows == 32 or rows**2 * 8 * heads <= devices.WORK_BYTES


# The workflow

PLAYED = """
from headspaces import devices

devices.GPU, devices.DRIVER_FILES = "cpu", ("/",)
trouble = devices._gpu_trouble


def played(needed_mb):
    import torch

    torch.cuda.is_available, torch.cuda.get_device_name = lambda: True, lambda: "a played GPU"
    return trouble(needed_mb)


devices._gpu_trouble = played
"""


def test_stages_and_samples_on_different_devices(tmp_path):
    """As a user would: the overlaps on the GPU, later more null samples and the affinity there too."""
    save_tiny(tmp_path / "tiny")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "sitecustomize.py").write_text(PLAYED)
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path / 'gpu'}"}
    results = tmp_path / "results"

    def run(device, samples, *targets):
        return snakemake(
            ROOT, *(f"results/{target}/tiny.h5" for target in targets), "--directory", str(tmp_path), "--config",
            f"model={tmp_path / 'tiny'}", f"device={device}", f"nulls={{samples: {samples}}}", **environment,
        )  # fmt: skip

    def devices_of(*files):
        return [read_attributes(results / file, kind)["device"] for kind, file in files]

    run("{overlaps: cuda, nulls: cpu}", 1, "nulls")
    files = [("overlaps", "overlaps/tiny.h5"), ("nulls", "nulls/tiny.h5")]
    assert devices_of(*files) == ["cuda", "cpu"]
    assert "INFO device: cuda, a played GPU, " in (results / "logs/overlaps/tiny.log").read_text()
    (block,) = (results / "bases/tiny").glob("*.h5")
    found = read_arrays(results / "overlaps/tiny.h5", "overlaps")
    for name, expected in observed_overlaps([read_arrays(block, "bases")]).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-9 if name.endswith("angle") else 1e-12)

    first = read_arrays(results / "nulls/tiny.h5", "nulls")
    run("cuda", 16, "nulls", "affinity")
    assert devices_of(*files, ("affinity", "affinity/tiny.h5")) == ["cuda", "cpu, cuda", "cuda"]
    more = read_arrays(results / "nulls/tiny.h5", "nulls")
    # The earlier samples were not drawn anew.
    np.testing.assert_array_equal(more["cross/OQ/rotation/spread"][0], first["cross/OQ/rotation/spread"][0])
    assert len(more["cross/OQ/rotation/spread"]) == 16
