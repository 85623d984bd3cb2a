import h5py
import numpy as np
import pytest

import headspaces
from headspaces.errors import DamagedFileError, InputError
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
    with pytest.raises(InputError, match=r"cannot read .*none\.h5: No such file or directory; the file is as it was, see whether it was moved"):
        read_attributes(tmp_path / "none.h5", "bases")


def test_an_open_reader_does_not_stop_a_writer(file):
    with h5py.File(file, "r") as reader:
        write_arrays(file, "bases", {"two": np.array([7.0])}, {})
        assert "x/one" in reader
    assert read_arrays(file, "bases")["two"].tolist() == [7.0]
