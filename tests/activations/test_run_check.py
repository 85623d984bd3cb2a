"""Which checkpoints can be run, told from their headers."""

import json
import subprocess
import sys

import gguf
import numpy as np
import pytest
from support.checkpoints import LLAMA, llama_tensors, safetensors
from support.tiny_models import build
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

from headspaces.activations.run_check import GGUF_OF_TRANSFORMERS, SEES, reason_not_to_run
from headspaces.study.own_models import own_model
from headspaces.weights.layouts import known_model_types


@pytest.fixture
def folder(tmp_path, rng):
    """Make a folder in which something may be missing."""

    def make(without="", files=("tokenizer.json",), **config):
        tensors = {name: array for name, array in llama_tensors(rng).items() if not without or without not in name}
        (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **config}))
        for file in files:
            (tmp_path / file).write_text("{}")
        return str(tmp_path)

    return make


def test_a_whole_checkpoint_can_be_run(folder):
    assert reason_not_to_run(folder(), "OQKV") is None


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ({"without": ".mlp."}, "holds no MLP tensors"),
        ({"without": "embed_tokens"}, "holds no embedding tensors"),
        ({"files": ()}, "holds no tokenizer"),
        ({"model_type": "bert"}, "bert is not supported"),
    ],
)
def test_what_is_missing_is_named(folder, missing, reason):
    assert reason in reason_not_to_run(folder(**missing), "OQKV")


def test_gpt2s_attention_alone_cannot_be_run(gpt2_folder):
    assert reason_not_to_run(str(gpt2_folder), "OQKV") == "the checkpoint holds no MLP tensors"


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (("token_embd.weight", "blk.0.ffn_up.weight"), None),
        (("token_embd.weight", "blk.0.ffn_up_exps.weight"), None),
        (("blk.0.ffn_up.weight",), "the file holds no embedding tensors (token_embd.weight)"),
        (("token_embd.weight",), "the file holds no MLP tensors (blk.0.ffn_…)"),
    ],
)
def test_gguf_files(tmp_path, tensors, reason):
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "llama")
    for name in tensors:
        writer.add_tensor(name, np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert reason_not_to_run(str(tmp_path / "a.gguf"), "OQKV") == reason


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "smolvlm"])
def test_a_decoder_inside_another_model_is_not_run_alone(name, tmp_path):
    build(name).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").touch()
    assert reason_not_to_run(str(tmp_path), "OQKV") == SEES
    assert own_model(str(tmp_path)).kinds == "OQKV"


def test_gguf_files_that_transformers_does_not_read_are_named(tmp_path):
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "olmo2")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "reads no GGUF file of the architecture 'olmo2'" in reason_not_to_run(str(tmp_path / "a.gguf"), "OQKV")
    names = {name.replace("moe", "_moe").replace("-", "_") for name in GGUF_OF_TRANSFORMERS}
    served = {kind.removeprefix("gguf:") for kind in known_model_types() if kind.startswith("gguf:")}
    assert set(GGUF_OF_TRANSFORMERS) <= served
    assert names <= set(GGUF_SUPPORTED_ARCHITECTURES)
    # What transformers reads under its own names, and we serve, is all there.
    assert {name for name in GGUF_SUPPORTED_ARCHITECTURES if name in served} <= set(GGUF_OF_TRANSFORMERS)


def test_of_what_is_not_here_nothing_is_known():
    assert reason_not_to_run("hub:owner/name", "OQKV") is None
    assert reason_not_to_run("wheel:a==1:b.gguf@sha256=0", "OQKV") is None
    assert reason_not_to_run("hub:owner/name", "O").startswith("only the kinds O are analysed")
    assert "PyTorch file" in reason_not_to_run("model.pt", "OQKV")
    assert reason_not_to_run("/nowhere", "OQKV") == "/nowhere is neither a folder nor a .gguf file"


def test_asking_imports_nothing_heavy():
    heavy = "{'numpy', 'torch', 'transformers', 'h5py'}"
    code = f"import sys, headspaces.activations.run_check; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
