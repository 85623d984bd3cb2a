"""Rows of large tensors, block by block, against whole tensors in numpy."""

import json

import numpy as np
import pytest
import torch
from support.checkpoints import safetensors

from headspaces.errors import DamagedFileError, InputError
from headspaces.weights.blocks import read_metadata
from headspaces.weights.fetch import fetch_stream
from headspaces.weights.source import read_headers
from headspaces.weights.stream_headers import stream_headers
from headspaces.weights.tensor_rows import read_rows, tensor_rows

CONFIG = {
    "model_type": "llama", "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
DOWN = "model.layers.0.mlp.down_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


def checkpoint(folder, rng, block=None, **changed):
    """A folder whose MLP may be 8-bit floats; the stream's files of it and what is to be read."""
    tensors = {
        EMBEDDING: rng.normal(size=(50, 24)).astype("float32"),
        "model.norm.weight": np.ones(24, "float32"), "model.layers.0.input_layernorm.weight": np.ones(24, "float32"),
        "model.layers.0.post_attention_layernorm.weight": np.ones(24, "float32"),
        DOWN: rng.normal(size=(24, 40)).astype("float32"),
    }  # fmt: skip
    tensors |= {f"model.layers.0.mlp.{name}_proj.weight": rng.normal(size=(40, 24)).astype("float32")
                for name in ("gate", "up")}  # fmt: skip
    tensors |= {f"model.layers.0.self_attn.{name}_proj.weight": rng.normal(size=shape).astype("float32")
                for name, shape in {"q": (32, 24), "k": (32, 24), "v": (32, 24), "o": (24, 32)}.items()}  # fmt: skip
    packed = {"quantization_config": {"quant_method": "fp8", "weight_block_size": list(block)}} if block else {}
    (folder / "config.json").write_text(json.dumps(CONFIG | packed))
    (folder / "model.safetensors").write_bytes(safetensors(tensors | changed))
    stream = stream_headers(read_headers(str(folder)))
    fetch_stream(stream, None, folder / "ends.safetensors")
    fetch_stream(stream, range(1), folder / "layers.safetensors")
    return tensors


@pytest.mark.parametrize("block_bytes", [1, 24 * 8 * 7, 10**9])
def test_blocks_of_rows_are_the_tensor(block_bytes, rng, tmp_path):
    tensors = checkpoint(tmp_path, rng)
    blocks = list(tensor_rows(tmp_path / "ends.safetensors", EMBEDDING, block_bytes))
    assert [len(rows) for rows in blocks] == {1: [1] * 50, 24 * 8 * 7: [7] * 7 + [1], 10**9: [50]}[block_bytes]
    np.testing.assert_array_equal(np.concatenate(blocks), tensors[EMBEDDING].astype(float))
    np.testing.assert_array_equal(read_rows(tmp_path / "ends.safetensors", "model.norm.weight"), np.ones((1, 24)))


@pytest.mark.parametrize("scales", [(), (24, 1), (3, 3)])
@pytest.mark.parametrize("block_bytes", [1, 40 * 8 * 9, 10**9])
def test_eight_bit_floats_have_their_scales(scales, block_bytes, rng, tmp_path):
    """One for all, one a row, one a block of 10 rows and 16 columns, of which the last ones are cut off."""
    codes = torch.from_numpy(rng.normal(size=(24, 40))).to(torch.float8_e4m3fn)
    factors = rng.uniform(0.5, 2, size=scales).astype("float32")
    stored = ("F8_E4M3", (24, 40), codes.view(torch.uint8).numpy().tobytes())
    block = (10, 16)
    checkpoint(tmp_path, rng, block, **{DOWN: stored, f"{DOWN}_scale_inv": factors})
    expected = codes.double().numpy()
    if scales == (3, 3):
        expected *= factors.astype(float).repeat(10, 0)[:24].repeat(16, 1)[:, :40]
    else:
        expected *= factors
    found = np.concatenate(list(tensor_rows(tmp_path / "layers.safetensors", DOWN, block_bytes)))
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_a_damaged_tensor_is_named_behind_its_last_row(rng, tmp_path):
    checkpoint(tmp_path, rng)
    path = tmp_path / "ends.safetensors"
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    assert read_metadata(path)["stream"]
    with pytest.raises(DamagedFileError, match="is damaged"):
        [*tensor_rows(path, EMBEDDING), *tensor_rows(path, "model.norm.weight")]
    with pytest.raises(DamagedFileError, match="no tensor 'other'"):
        list(tensor_rows(path, "other"))


def test_a_nan_is_refused(rng, tmp_path):
    broken = rng.normal(size=(50, 24)).astype("float32")
    broken[7, 3] = np.nan
    checkpoint(tmp_path, rng, **{EMBEDDING: broken})
    with pytest.raises(InputError, match=r"embed_tokens.weight' holds NaN or infinite values"):
        read_rows(tmp_path / "ends.safetensors", EMBEDDING)


def test_an_mlp_of_some_layers_only_is_an_error(rng, tmp_path):
    checkpoint(tmp_path, rng)
    headers = read_headers(str(tmp_path))
    del headers.checkpoint.tensors["model.layers.0.mlp.up_proj.weight"]
    with pytest.raises(InputError, match=r"missing tensor 'model.layers.0.mlp.up_proj.weight' of the stream"):
        stream_headers(headers)
