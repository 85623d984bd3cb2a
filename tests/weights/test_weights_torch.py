"""PyTorch files: Hugging Face's ``pytorch_model.bin``, training checkpoints in nanoGPT's naming, and hostile ones."""

import argparse
import json
import os
from collections import OrderedDict

import numpy as np
import pytest
import torch
from support.checkpoints import LLAMA, llama_tensors, write_folder
from support.tiny_models import TINY, build, record

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.spaces import KINDS
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.formats import torch_load as torch_file
from headspaces.weights.source import read_headers


@pytest.fixture
def state(rng):
    return {name: torch.tensor(array) for name, array in llama_tensors(rng).items()}


def block_of(source, folder):
    fetch_block(
        read_headers(str(source)), range(read_headers(str(source)).shape.n_layers), folder / "block.safetensors"
    )
    return read_block(folder / "block.safetensors")


def assert_values(block, state):
    for heads in block:
        weight = state[f"model.layers.{heads.layer}.self_attn.k_proj.weight"].double().numpy()
        np.testing.assert_array_equal(heads.factors["K"].transpose(0, 2, 1).reshape(16, 24), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_file(state, tmp_path, dtype):
    state = {name: tensor.to(dtype) for name, tensor in state.items()}
    write_folder(tmp_path, LLAMA, {})
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_values(block_of(tmp_path, tmp_path), state)


def test_a_file_from_before_archives(state, tmp_path):
    write_folder(tmp_path, LLAMA, {})
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert_values(block_of(tmp_path, tmp_path), state)


def test_views_are_written_as_they_read(state, tmp_path):
    name = "model.layers.0.self_attn.k_proj.weight"
    state[name] = state[name].T.contiguous().T
    assert not state[name].is_contiguous()
    write_folder(tmp_path, LLAMA, {})
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_values(block_of(tmp_path, tmp_path), state)


def test_shards_and_only_those_that_are_needed(state, tmp_path, monkeypatch):
    names = list(state)
    placed = {name: f"pytorch_model-0000{1 + (i >= 8)}-of-00002.bin" for i, name in enumerate(names)}
    index = json.dumps({"weight_map": placed}).encode()
    write_folder(tmp_path, LLAMA, {"pytorch_model.bin.index.json": index})
    for file in set(placed.values()):
        torch.save({name: state[name] for name in names if placed[name] == file}, tmp_path / file)
    headers = read_headers(str(tmp_path))
    opened = []
    original = torch_file._load
    monkeypatch.setattr(torch_file, "_load", lambda path: opened.append(path.name) or original(path))
    fetch_block(headers, range(2, 3), tmp_path / "block.safetensors")
    assert opened == ["pytorch_model-00002-of-00002.bin"]
    assert_values(read_block(tmp_path / "block.safetensors"), state)


def nanogpt(prefix: str = "_orig_mod."):
    """A GPT-2 of transformers under nanoGPT's names, with its Conv1D weights turned into Linear's."""
    model = build("gpt2")
    weights = OrderedDict()
    for name, tensor in model.state_dict().items():
        if name.startswith("transformer.h.") and not name.endswith(("attn.bias", "masked_bias")):
            turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
            weights[prefix + name] = (tensor.T if turned else tensor).contiguous()
    return model, weights, {"n_layer": 2, "n_head": 4, "n_embd": 48, "block_size": 16, "bias": True, "dropout": 0.0}


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "module._orig_mod."])
def test_a_training_checkpoint_reads_as_the_model_computes(tmp_path, prefix):
    model, weights, arguments = nanogpt(prefix)
    content = {
        "model": weights,
        "optimizer": {"state": {}},
        "model_args": arguments,
        "iter_num": 5,
        "config": {"lr": 1e-3},
    }
    torch.save(content, tmp_path / "ckpt.pt")
    headers = read_headers(str(tmp_path / "ckpt.pt"))
    assert (headers.model_type, headers.prefix, headers.kinds) == ("nanogpt", f"{prefix}transformer.", KINDS)
    heads = block_of(tmp_path / "ckpt.pt", tmp_path)[1]
    expected = record(model, TINY["gpt2"], 1)
    for kind in "QKV":
        found = np.einsum("hij,i->hj", fold(heads, kind), expected.residual) / np.std(expected.residual)
        np.testing.assert_allclose(found, expected.reads[kind], rtol=1e-7)
    written = np.einsum("hij,hj->i", heads.factors["O"], expected.head_outputs)
    np.testing.assert_allclose(written, expected.write, rtol=1e-7)


@pytest.mark.parametrize("nest", [("state_dict",), ("model_state_dict",), ("module",), ("model", "state_dict")])
def test_weights_under_other_keys_with_a_config_beside(state, tmp_path, nest):
    content = {f"module.{name}": tensor for name, tensor in state.items()}
    for key in reversed(nest):
        content = {key: content, "epoch": 3}
    write_folder(tmp_path, LLAMA, {})
    torch.save(content, tmp_path / "last.ckpt")
    assert_values(block_of(tmp_path / "last.ckpt", tmp_path), state)


def test_a_checkpoint_that_does_not_say_how_many_heads(state, tmp_path):
    torch.save({"model": state}, tmp_path / "x.pt")
    with pytest.raises(InputError, match="no model_args with n_layer, n_head and n_embd, and no config.json"):
        read_headers(str(tmp_path / "x.pt"))


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_code_in_a_checkpoint_is_not_run(state, tmp_path):
    write_folder(tmp_path, LLAMA, {})
    torch.save({"model": state, "canary": Canary(tmp_path / "sung")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"holds posix.mkdir beside tensors, which could run code"):
        read_headers(str(tmp_path))
    assert not (tmp_path / "sung").exists()


def test_plain_objects_in_a_checkpoint_are_named(state, tmp_path):
    torch.save({"model": state, "args": argparse.Namespace(lr=1)}, tmp_path / "x.pt")
    with pytest.raises(InputError, match=r"holds argparse.Namespace beside tensors.*save the weights alone") as caught:
        read_headers(str(tmp_path / "x.pt"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "message"), [
    (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
    (b"PK\x03\x04 and nothing else", "cannot be read as a PyTorch file"),
    (b"", "cannot be read as a PyTorch file"),
    (b"words", "cannot be read as a PyTorch file|beside tensors"),
])  # fmt: skip
def test_files_that_are_no_checkpoints(tmp_path, content, message):
    write_folder(tmp_path, LLAMA, {"pytorch_model.bin": content})
    with pytest.raises(InputError, match=message):
        read_headers(str(tmp_path))


def test_files_without_weights(tmp_path):
    write_folder(tmp_path, LLAMA, {})
    for content in ([1, 2], {"a": 1}, {"model": {"a": 1}}, torch.zeros(3)):
        torch.save(content, tmp_path / "pytorch_model.bin")
        with pytest.raises(InputError, match="holds no tensors by name"):
            read_headers(str(tmp_path))


def test_a_checkpoint_that_changes_between_header_and_fetch(state, tmp_path):
    write_folder(tmp_path, LLAMA, {})
    torch.save(state, tmp_path / "pytorch_model.bin")
    headers = read_headers(str(tmp_path))
    torch.save({**state, "more": torch.zeros(100)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="has changed since its header was read"):
        fetch_block(headers, range(3), tmp_path / "block.safetensors")
