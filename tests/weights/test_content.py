"""A local checkpoint counts by its content: under the same name, size and date, through links, read once."""

import os
from pathlib import Path

import pytest

from headspaces.errors import InputError
from headspaces.weights import content
from headspaces.weights.content import content_sum


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"one")
    return path


def summed(folder):
    return content_sum(str(folder), folder.parent / "memory" / "content.json")


def test_a_file_replaced_with_its_size_and_an_older_date_is_seen(folder):
    before, state = summed(folder), (folder / "model.safetensors").stat()
    other = folder.parent / "other"
    other.write_bytes(b"two")
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns - 10**9))
    other.replace(folder / "model.safetensors")
    assert summed(folder) != before


def test_a_file_overwritten_in_place_with_its_own_date_is_seen(folder):
    file = folder / "model.safetensors"
    before, state = summed(folder), file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert summed(folder) != before


def test_another_target_of_a_link_is_seen(folder):
    for name in ("a", "b"):
        (folder.parent / name).write_bytes(name.encode())
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder.parent / "a")
    before = summed(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder.parent / "b")
    assert summed(folder) != before


def test_a_touch_changes_nothing_and_a_second_look_reads_nothing(folder, monkeypatch):
    before = summed(folder)
    monkeypatch.setattr(content.hashlib, "file_digest", None)
    assert summed(folder) == before
    monkeypatch.undo()
    (folder / "model.safetensors").touch()
    assert summed(folder) == before


def test_the_configuration_belongs_to_it(folder):
    before = summed(folder)
    (folder / "config.json").write_text('{"a": 1}')
    assert summed(folder) != before


def test_sources_elsewhere_have_none_and_memory_is_not_needed(folder, tmp_path):
    assert content_sum("hub:a/b", tmp_path / "memory") == ""
    assert content_sum("/nonexistent", tmp_path / "memory") == ""
    before = summed(folder)
    assert content_sum(str(folder), Path("/proc/nowhere/content.json")) == before
    (tmp_path / "broken.json").write_text("[")
    assert content_sum(str(folder), tmp_path / "broken.json") == before


def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "gone")
    with pytest.raises(InputError, match="model.safetensors: cannot be read"):
        summed(folder)
