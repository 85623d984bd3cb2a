import errno
import os
import shutil

import h5py
import numpy as np
import pytest
from support.checkpoints import LLAMA, llama_tensors, safetensors, write_folder
from support.tiny_results import SHAPE, overlaps

import headspaces
from headspaces import command_line, files, store
from headspaces.errors import DamagedFileError, InputError
from headspaces.fields import find_field
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.spaces import Shape
from headspaces.store import dataset_names, read_arrays, read_attributes, write_arrays


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "folder" / "a.h5"
    write_arrays(
        path, "bases", {"x/one": np.arange(6.0).reshape(2, 3), "two": np.array([np.nan, 1])}, {"model": "m", "d": 4}
    )
    return path


def test_what_is_written_is_read(file):
    arrays = read_arrays(file, "bases")
    np.testing.assert_array_equal(arrays["x/one"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(arrays["two"], [np.nan, 1])
    assert dataset_names(file, "bases") == ["two", "x/one"]
    assert list(read_arrays(file, "bases", ["two"])) == ["two"]
    attributes = read_attributes(file, "bases")
    assert attributes["model"] == "m"
    assert attributes["d"] == 4
    assert attributes["format"] == "headspaces-bases"
    assert attributes["package_version"] == headspaces.__version__


def test_attributes_handed_on_do_not_change_the_format(file, tmp_path):
    write_arrays(tmp_path / "b.h5", "overlaps", {}, read_attributes(file, "bases"))
    assert read_attributes(tmp_path / "b.h5", "overlaps")["format"] == "headspaces-overlaps"


def test_a_file_repeats_byte_for_byte(file, tmp_path):
    arrays = {"x/one": np.arange(6.0).reshape(2, 3), "two": np.array([np.nan, 1])}
    write_arrays(tmp_path / "again.h5", "bases", arrays, {"model": "m", "d": 4})
    assert (tmp_path / "again.h5").read_bytes() == file.read_bytes()


def test_another_kind_is_refused(file):
    with pytest.raises(
        InputError, match=r"a\.h5: expected the format headspaces-overlaps, version 1, found headspaces-bases"
    ):
        read_arrays(file, "overlaps")


def test_a_missing_dataset_is_named(file):
    with pytest.raises(InputError, match="no dataset 'three'"):
        read_arrays(file, "bases", ["three"])


def test_a_changed_value_is_noticed(file):
    with h5py.File(file, "r+") as opened:
        opened["x/one"][1, 1] += 1e-9
    with pytest.raises(DamagedFileError, match=r"a\.h5: not a readable HDF5 file .cut off or changed"):
        read_arrays(file, "bases")


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_a_truncated_file_is_named(file, keep):
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DamagedFileError, match=r"a\.h5: not a readable HDF5 file"):
        read_arrays(file, "bases")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        InputError,
        match=r"cannot read .*none\.h5: No such file or directory; ",
    ):
        read_attributes(tmp_path / "none.h5", "bases")


def test_an_open_reader_does_not_stop_a_writer(file):
    with h5py.File(file, "r") as reader:
        write_arrays(file, "bases", {"two": np.array([7.0])}, {})
        assert "x/one" in reader
    assert read_arrays(file, "bases")["two"].tolist() == [7.0]


# Errors of the system


def failing(monkeypatch, number, times):
    """Let the next openings of a file fail; gives the list of those that did."""
    failed = []

    class Failing(files.SteadyFile):
        def __init__(self, *arguments):
            if len(failed) < times:
                failed.append(arguments)
                raise OSError(number, os.strerror(number), str(arguments[0]))
            super().__init__(*arguments)

    store._attributes.cache_clear()
    monkeypatch.setattr(files, "WAITS", (0, 0, 0))
    monkeypatch.setattr(files, "SteadyFile", Failing)
    monkeypatch.setattr(store, "SteadyFile", Failing)
    return failed


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EINTR, errno.EAGAIN])
def test_an_error_that_passes_is_tried_again(number, file, monkeypatch):
    failed = failing(monkeypatch, number, 3)
    assert read_arrays(file, "bases")["x/one"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert len(failed) == 3


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES])
def test_an_error_of_the_system_is_never_damage(number, file, monkeypatch):
    whole = file.read_bytes()
    failed = failing(monkeypatch, number, 100)
    with pytest.raises(
        InputError, match=rf"^cannot read .*a\.h5: {os.strerror(number)}; the file is as it was, "
    ) as error:
        read_arrays(file, "bases")
    assert not isinstance(error.value, DamagedFileError)
    assert len(failed) == (4 if number in files.PASSING else 1)
    assert file.read_bytes() == whole


# Annotated files


def test_an_annotated_file_is_named_and_a_mere_reader_leaves_it(tmp_path, capsys):
    """The command line moves nothing, and promises nothing that it does not do; the copy may be written on."""
    tensors = safetensors(llama_tensors(np.random.default_rng(0)))
    model = write_folder(tmp_path / "m", LLAMA, {"model.safetensors": tensors})
    path = tmp_path / "results/overlaps/m.h5"
    write_arrays(path, "overlaps", overlaps(), {**SHAPE, "model": "m"})
    shutil.copy(path, tmp_path / "supplement.h5")
    for annotated in (path, tmp_path / "supplement.h5"):
        with h5py.File(annotated, "r+") as opened:
            opened.attrs["note"] = "for the supplement"
    before = path.read_bytes()
    assert command_line.main(["pairs", str(model), "--results", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err == (
        f"error: {path}: not a readable HDF5 file (cut off or changed: its checksum differs); the file, made by the "
        "rule 'overlaps', stays where it is: move it away and run the workflow to make it anew\n"
    )
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["m.h5"]
    with h5py.File(tmp_path / "supplement.h5") as copy:
        np.testing.assert_array_equal(copy["within/O/rho"], overlaps()["within/O/rho"])


# What a file says of itself


def test_a_shard_of_fewer_samples_than_it_says_is_refused(tmp_path):
    shape = Shape(2, 12, 2, 1, 3)
    maps = np.random.default_rng(0).normal(size=(2, 12, 3))
    run = NullRun(lambda _, kind: maps[: shape.n_heads(kind)], shape, "OQKV", "m", 7, figure_layers={"O": 1})
    arrays, says = null_shard(run, "rotation", range(3)), {"n_samples": 3, "n_layers": 2}
    write_arrays(tmp_path / "whole.h5", "null-shard", arrays, says)
    assert read_arrays(tmp_path / "whole.h5", "null-shard").keys() == arrays.keys()
    assert all(find_field("null-shard", name) for name in arrays)
    write_arrays(tmp_path / "short.h5", "null-shard", arrays, says | {"n_samples": 4})
    with pytest.raises(
        DamagedFileError, match=r"short\.h5: n_samples is 4, but '.*/rotation/\w+' has 3 in dimension 0"
    ):
        read_arrays(tmp_path / "short.h5", "null-shard")


@pytest.mark.parametrize(
    ("kind", "name", "shape", "key"),
    [
        ("bases", "K/basis", (2, 1, 12, 3), "block_layers"), ("bases", "rank/Q", (3, 1), "n_query_heads"),
        ("overlaps", "within/V/rho", (4, 3, 3), "n_kv_heads"), ("overlaps", "cross/OQ/angle", (4, 3, 2, 2), "n_layers"),
        ("nulls", "within/O/rotation/mean", (5, 4), "samples"), ("nulls", "pairs/O/random/rho", (7, 1), "samples"),
        ("self_heads", "QK/rho", (4, 2, 2), "n_kv_heads"), ("affinity", "pk/OV", (4, 4, 2, 2), "n_kv_heads"),
        ("activations", "V/total", (4, 4, 2, 3), "n_kv_heads"), ("attention", "induction", (4, 3), "n_query_heads"),
    ],
)  # fmt: skip
def test_every_kind_of_file_is_held_against_what_it_says(kind, name, shape, key, tmp_path):
    says = {"n_layers": 4, "block_layers": 3, "samples": 6, "n_query_heads": 2, "n_kv_heads": 1, "d_model": 12}
    write_arrays(tmp_path / "a.h5", kind, {name: np.zeros(shape)}, says)
    with pytest.raises(DamagedFileError, match=rf"{key} is {says[key]}, but '{name}' has \d in dimension \d"):
        read_arrays(tmp_path / "a.h5", kind)
