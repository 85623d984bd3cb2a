"""Checkpoints as people really have them: wrapped, mixed, scaled, unindexed; and what is said of those not read."""

import json

import numpy as np
import pytest
import torch
from support.checkpoints import LLAMA, llama_tensors, safetensors, shards, write_folder
from support.tiny_models import build

import headspaces as hs
from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers_file import load_headers, write_headers
from headspaces.weights.source import read_headers

ATTENTION = "model.layers.{}.self_attn.{}_proj.weight"


@pytest.fixture
def tensors(rng):
    return llama_tensors(rng)


def heads_of(source, folder):
    """Heads by way of headers.json and a block, as the workflow reads them."""
    write_headers(read_headers(str(source)), folder / "headers.json")
    fetch_block(load_headers(folder / "headers.json"), range(3), folder / "block.safetensors.part")
    return read_block(folder / "block.safetensors.part")


def same(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for kind in "OQKV":
            np.testing.assert_array_equal(fold(one, kind), fold(other, kind))


# Decoders inside other models


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_the_older_configuration_of_qwens_vision_models_is_flat(name, tmp_path):
    build(name).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    flat = {**config["text_config"], "model_type": name, "vision_config": config["vision_config"]}
    nested = read_headers(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(flat))
    headers = read_headers(str(tmp_path))
    assert (headers.model_type, headers.shape, headers.prefix) == (name, nested.shape, "model.")
    assert nested.model_type == f"{name}_text"


@pytest.mark.parametrize(("key", "prefix", "tower"), [
    ("text_config", "model.text_model.", "model.vision_model.encoder."),
    ("llm_config", "language_model.model.", "vision_model.encoder."),
    ("language_config", "language.model.", "vision.blocks."),
    ("text_config", "model.language_model.", "model.visual.blocks."),
])  # fmt: skip
def test_the_decoder_is_found_and_the_tower_is_not_it(key, prefix, tower, tmp_path, rng):
    tensors = llama_tensors(rng, prefix=prefix)
    config = {"model_type": "sees", "auto_map": {}, key: LLAMA, "vision_config": {"model_type": "llama"}}
    seeing = {f"{tower}layers.{layer}.self_attn.{name}_proj.weight": rng.normal(size=(4, 4)) for layer in range(9)
              for name in "qkvo"}  # fmt: skip
    folder = write_folder(tmp_path / "a", config, {"model.safetensors": safetensors({**seeing, **tensors})})
    plain = {name.replace(prefix, "model."): array for name, array in tensors.items()}
    other = write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors(plain)})
    assert read_headers(str(folder)).shape.n_layers == 3
    same(heads_of(folder, tmp_path), heads_of(other, tmp_path))


@pytest.mark.parametrize("wrapper", [
    "_fsdp_wrapped_module.", "_forward_module.", "module.", "_orig_mod.", "_forward_module._orig_mod.module.",
])  # fmt: skip
def test_wrappers_at_the_root(wrapper, tensors, tmp_path):
    wrapped = {wrapper + name: array for name, array in tensors.items()}
    folder = write_folder(tmp_path / "a", LLAMA, {"model.safetensors": safetensors(wrapped)})
    other = write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors(tensors)})
    same(heads_of(folder, tmp_path), heads_of(other, tmp_path))


# Scales and mixed checkpoints


def e4m3(array) -> tuple[tuple[str, tuple[int, ...], bytes], np.ndarray]:
    codes = torch.tensor(array).to(torch.float8_e4m3fn)
    return ("F8_E4M3", array.shape, codes.view(torch.uint8).numpy().tobytes()), codes.double().numpy()


def bf16(array) -> tuple[str, tuple[int, ...], bytes]:
    return "BF16", array.shape, torch.tensor(array).bfloat16().view(torch.uint8).numpy().tobytes()


FP8 = {
    "compressed-tensors": {"quant_method": "compressed-tensors", "format": "float-quantized"},
    "fbgemm": {"quant_method": "fbgemm_fp8"},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "fp8": {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
    "blocks": {"quant_method": "fp8", "weight_block_size": [5, 7]},
    "compressed-blocks": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"strategy": "block", "block_structure": [5, 7]}}},
    },
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("method", "scale_shape", "end"), [
    ("compressed-tensors", lambda rows, _: (rows, 1), "_scale"), ("compressed-tensors", lambda *_: (1,), "_scale"),
    ("fbgemm", lambda rows, _: (rows, 1), "_scale"), ("fbgemm", lambda rows, _: (rows,), "_scale"),
    ("modelopt", lambda *_: (), "_scale"), ("fp8", lambda *_: (), "_scale_inv"),
    ("blocks", lambda rows, columns: (-(-rows // 5), -(-columns // 7)), "_scale_inv"),
    ("compressed-blocks", lambda rows, columns: (-(-rows // 5), -(-columns // 7)), "_scale"),
])  # fmt: skip
def test_eight_bit_floats_times_their_scales(method, scale_shape, end, nested, tensors, tmp_path, rng):
    """Every element against its own code times its own scale."""
    stored, expected = dict(tensors), {}
    for name, array in tensors.items():
        if "self_attn" not in name:
            continue
        stored[name], values = e4m3(array)
        scales = rng.uniform(0.01, 2, size=scale_shape(*array.shape)).astype("float32")
        stored[name + end] = scales if scales.shape else ("F32", (), scales.tobytes())
        grid = scales.reshape(scales.shape if scales.ndim == 2 else (-1, 1)).astype(float)
        block = [-(-length // n) for length, n in zip(array.shape, grid.shape, strict=True)]
        block = [5, 7] if "blocks" in method else block
        expected[name] = np.array([
            [values[i, j] * grid[i // block[0], j // block[1]] for j in range(array.shape[1])]
            for i in range(array.shape[0])
        ])  # fmt: skip
    config = {**LLAMA, "quantization_config": FP8[method]}
    config = {"model_type": "sees", "text_config": config} if nested else config
    folder = write_folder(tmp_path, config, {"model.safetensors": safetensors(stored)})
    for heads in heads_of(folder, tmp_path):
        rows = heads.factors["K"].transpose(0, 2, 1).reshape(16, 24)
        np.testing.assert_allclose(rows, expected[ATTENTION.format(heads.layer, "k")], rtol=1e-14)
        np.testing.assert_allclose(
            heads.factors["O"][3], expected[ATTENTION.format(heads.layer, "o")][:, 24:], rtol=1e-14
        )


def test_scales_that_fit_no_way_are_refused(tensors, tmp_path):
    name = ATTENTION.format(1, "k")
    stored = {**tensors, name: e4m3(tensors[name])[0], name + "_scale": np.ones((3, 2), "float32")}
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors(stored)})
    with pytest.raises(
        InputError, match=r"k_proj.weight_scale' has the shape \[3, 2\]; expected one scale, one for each"
    ):
        read_headers(str(folder))


MIXED = {
    "compressed-tensors": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*self_attn.*", "lm_head"],
    },
    "ModelOpt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]},
    "AWQ": {"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["self_attn"]},
    "GPTQ": {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*attn.*": {}}},
}  # fmt: skip


@pytest.mark.parametrize("method", MIXED)
def test_packed_mlps_leave_plain_attention_readable(method, tensors, tmp_path):
    packed = {name.replace("weight", "qweight"): ("I32", (2, 3), bytes(24)) for name in tensors if "mlp" in name}
    plain = {name: bf16(array) for name, array in tensors.items() if "mlp" not in name}
    config = {**LLAMA, "quantization_config": MIXED[method]}
    folder = write_folder(tmp_path / "a", config, {"model.safetensors": safetensors({**packed, **plain})})
    other = write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors(plain)})
    note = f"the configuration speaks of quantised weights ({method}); the attention's are stored as they are"
    assert read_headers(str(folder)).notes == (note,)
    same(heads_of(folder, tmp_path), heads_of(other, tmp_path))


@pytest.mark.parametrize(("quantisation", "end", "message"), [
    (MIXED["AWQ"], "qweight", r"o_proj.qweight' says that the attention's weights are quantised \(AWQ\)"),
    ({"quant_method": "hqq"}, "W_q", r"o_proj.W_q' says .* \(HQQ\): the file holds codes"),
    ({"quant_method": "novel"}, "payload", r"the attention's weights are quantised \(novel\): the file holds codes"),
    ({"load_in_4bit": True}, "payload", r"quantised \(bitsandbytes\)"),
    ({"quant_method": "bitnet"}, "weight", r"quantised \(BitNet\): they are made ternary when they are used"),
])  # fmt: skip
def test_packed_attention_is_refused_by_the_methods_name(quantisation, end, message, tensors, tmp_path):
    packed = {name.replace("proj.weight", f"proj.{end}") if "attn" in name else name: array
              for name, array in tensors.items()}  # fmt: skip
    config = {**LLAMA, "quantization_config": quantisation}
    with pytest.raises(InputError, match=message):
        read_headers(str(write_folder(tmp_path, config, {"model.safetensors": safetensors(packed)})))


# Files


@pytest.mark.parametrize("number", [1, 3])
def test_shards_without_an_index_are_read_where_none_is_missing(number, tensors, tmp_path):
    files = {name: data for name, data in shards(tensors, number).items() if "index" not in name}
    folder = write_folder(tmp_path / "a", LLAMA, files)
    other = write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors(tensors)})
    same(heads_of(folder, tmp_path), heads_of(other, tmp_path))
    if number > 1:
        with pytest.raises(
            InputError, match=r"model-00002-of-00003.safetensors: is one of 3 files .*; name their folder"
        ):
            read_headers(str(folder / "model-00002-of-00003.safetensors"))
        (folder / "model-00003-of-00003.safetensors").write_bytes(files["model-00001-of-00003.safetensors"])
        with pytest.raises(InputError, match=r"is in model-00001-of-00003.safetensors, too, and no index says which"):
            read_headers(str(folder))
        (folder / "model-00003-of-00003.safetensors").unlink()
        with pytest.raises(InputError, match="has no index beside it, and not all of its parts are there"):
            read_headers(str(folder))


def test_a_file_with_another_name_is_listed_and_read_when_it_is_named(tensors, tmp_path):
    folder = write_folder(tmp_path / "a", LLAMA, {"weights.safetensors": safetensors(tensors), "README.md": b""})
    with pytest.raises(
        InputError,
        match=r"an index of several files is there; there is weights.safetensors, README.md, config.json. A ",
    ):
        read_headers(str(folder))
    other = write_folder(tmp_path / "b", LLAMA, {"model.safetensors": safetensors(tensors)})
    same(heads_of(folder / "weights.safetensors", tmp_path), heads_of(other, tmp_path))
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"weights.safetensors: no config.json beside it"):
        read_headers(str(folder / "weights.safetensors"))
    with pytest.raises(InputError, match=r"no config.json; .* There is weights.safetensors, README.md"):
        read_headers(str(folder))


@pytest.mark.parametrize(("file", "message"), [
    ("consolidated.safetensors", r"consolidated.safetensors \(Mistral's own format, with names that no layout has"),
    ("consolidated.00.pth", r"\(Meta's own format"), ("model-q4_k_m.gguf", r"\(GGUF: name the file itself\)"),
    ("adapter_model.safetensors", r"\(an adapter alone: merge it"), ("flax_model.msgpack", r"\(Flax: save it with"),
    ("zero_pp_rank_0_mp_rank_00_model_states.pt", r"\(DeepSpeed's parts: join them with the zero_to_fp32.py"),
    ("__0_0.distcp", r"\(PyTorch's distributed checkpoint"),
])  # fmt: skip
def test_weight_files_that_are_known_and_not_read_are_explained(file, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_headers(str(write_folder(tmp_path, LLAMA, {file: b""})))


def test_a_piece_of_a_gguf_file_is_no_split_file(tmp_path):
    (tmp_path / "m.gguf-split-a").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"m.gguf-split-a is a piece of a .gguf file: join the pieces with `cat`"):
        read_headers(str(tmp_path / "m.gguf-split-a"))


# Names of another format, layers without keys


@pytest.mark.parametrize(("name", "message"), [
    ("layers.0.attention.wq.weight", "names of Meta's and Mistral's own format"),
    ("model.decoder.layers.0.self_attention.linear_qkv.weight", r"Megatron's \(or NeMo's\) names"),
    ("language_model.encoder.layers.0.self_attention.query_key_value.weight", "Megatron's names"),
    ("blk.0.attn_q.weight", "llama.cpp's names"),
])  # fmt: skip
def test_a_known_format_is_named_before_anything_is_called_missing(name, message, tmp_path):
    config = {**LLAMA, "num_hidden_layers": 1}
    folder = write_folder(tmp_path, config, {"model.safetensors": safetensors({name: np.zeros((4, 4))})})
    with pytest.raises(
        InputError, match=f"tensor '{name}': these are {message}|tensor '{name}': .*{message}"
    ) as caught:
        read_headers(str(folder))
    assert "missing" not in str(caught.value)


@pytest.mark.parametrize(("lacking", "what"), [("kv", "keys and values"), ("v", "values"), ("k", "keys")])
def test_a_layer_without_its_own_keys_is_refused_as_sharing(lacking, what, tensors, tmp_path):
    shared = {name: array for name, array in tensors.items() if name not in [ATTENTION.format(2, x) for x in lacking]}
    folder = write_folder(tmp_path, LLAMA, {"model.safetensors": safetensors(shared)})
    with pytest.raises(InputError, match=rf"the layer 'model.layers.2.' has queries and no {what} of its own. A model"):
        read_headers(str(folder))


def test_a_scale_changes_spaces_and_is_applied_or_refused(tensors, tmp_path):
    """Two heads that are one once their blocks are scaled: rho 1; without the scales far from it, and never silent."""
    key = ATTENTION.format(0, "q")
    codes = np.zeros((32, 24), "float32")
    codes[:8, :] = codes[8:16, :] = np.round(tensors[key][:8] * 4) / 4
    codes[8:16, 12:] /= 8
    codes[16:] = tensors[key][16:]
    raw, values = e4m3(codes)
    scales = np.ones((4, 2), "float32")
    scales[1, 1] = 8
    plain = tensors | {f"{key}_scale_inv": scales}
    stored = {**plain, key: raw}
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [8, 12]}}
    names = [name for name in tensors if "self_attn" in name and name != key]
    for name in names:
        stored[name] = e4m3(tensors[name])[0]
        stored[f"{name}_scale_inv"] = np.ones([-(-n // b) for n, b in zip(tensors[name].shape, (8, 12))], "float32")
    folder = write_folder(tmp_path / "fp8", config, {"model.safetensors": safetensors(stored)})
    rho = hs.load(folder).overlaps("Q", fold=False).sel(layer=0, head=0, other_head=1)
    assert float(rho) == pytest.approx(1, abs=1e-12)
    one, other = (np.linalg.qr(values[rows].T)[0] for rows in (slice(0, 8), slice(8, 16)))
    assert np.linalg.norm(one.T @ other) ** 2 / 8 < 0.8
    folder = write_folder(tmp_path / "plain", LLAMA, {"model.safetensors": safetensors(plain)})
    with pytest.raises(InputError, match=f"{key}_scale_inv' scales '{key}' .F32., and whether it is applied already"):
        hs.load(folder)
