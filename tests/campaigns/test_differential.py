"""A differential campaign: random tiny checkpoints in every form, against the maps of the model's own modules.

Weights are rounded to what the form stores before the model's modules are asked, so that all pairs of spaces must agree
to the rounding of float64 whatever the form.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from support.gguf_files import ARCHITECTURES, can_quantise, converted, write_gguf
from support.hub_double import Content
from support.tiny_models import MODELS, build, record_maps

import headspaces as hs
from headspaces.spaces import WITHIN

FORMS = ("folder", "shards", "bin", "bin shards", "pt", "gguf", "hub", "model in memory", "tensors in memory")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
GGUF_TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
SIZES = {
    "num_attention_heads": ("n_head", "num_heads", "n_heads"), "num_key_value_heads": ("num_kv_heads",),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"), "hidden_size": ("n_embd", "d_model"), "head_dim": (),
}  # fmt: skip
"""Keys of a configuration, and what they are called elsewhere."""
OF_TWO_LAYERS = ("gpt_neo", "smollm3", "exaone4")
"""Models whose configuration lists what each layer is."""
FIXED = (*(name for name, tiny in MODELS.items() if tiny.vision), "helium")
"""Models whose widths hang together with others that a random one would contradict."""


IN_FLOAT32 = ("olmo", "helium")
"""Models whose own norms round in float32 by the axis: their maps are known to a part in 10^7."""


def random_sizes(name: str, rng: np.random.Generator) -> dict[str, int]:
    """Numbers of layers and heads, and widths, under the names that a configuration has for them."""
    heads = int(rng.choice([2, 4, 8]))
    kv = int(rng.choice([n for n in (1, 2, 4, 8) if heads % n == 0]))
    free = "head_dim" in MODELS[name].config
    d_head = int(rng.choice([8, 16]))
    d_model = int(rng.choice([32, 64])) if free else heads * d_head if heads > 2 else 2 * 16
    sizes = {
        "num_attention_heads": heads, "num_hidden_layers": int(rng.integers(1, 4)), "num_key_value_heads": kv,
        "hidden_size": d_model, "head_dim": d_head,
    }  # fmt: skip
    if name in OF_TWO_LAYERS or name in FIXED:
        del sizes["num_hidden_layers"]
    if name in FIXED:
        return {}
    own = MODELS[name].config
    found = {}
    for key, value in sizes.items():
        known = [other for other in (key, *SIZES[key]) if other in own]
        if known or key not in ("num_key_value_heads", "head_dim"):
            found[known[0] if known else key] = value
    return found


def rounded(name: str, model: torch.nn.Module, dtype: str) -> None:
    """Round a model's weights to what a form stores, in place; ggml's blocks lie along the rows that it has."""
    for key, parameter in model.named_parameters():
        if parameter.ndim == 1:
            # What norms and llama.cpp do to gains of few bits in float32 is exact.
            values = parameter.to(torch.bfloat16)
        elif dtype in DTYPES or parameter.ndim > 2:
            values = parameter.to(DTYPES.get(dtype, torch.float32))
        else:
            turned = name == "gpt2" and key.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
            rows = (parameter.T if turned else parameter).detach().float().contiguous().numpy()
            kept = torch.from_numpy(quantised_rows(rows, dtype))
            values = kept.T if turned else kept
        parameter.data.copy_(values.data)


def quantised_rows(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Give rows back as a type of ggml keeps them; as they are where its blocks do not divide them."""
    number = gguf.GGMLQuantizationType[dtype]
    if not can_quantise(rows, number):
        return rows
    return gguf.dequantize(gguf.quantize(rows, number), number).reshape(rows.shape)


def stored(name: str, form: str, model: torch.nn.Module, dtype: str, folder: Path, double) -> object:
    """Store a model in some form; return what :func:`headspaces.load` is given, and with what."""
    state = {key: value.to(DTYPES.get(dtype, torch.float32)) for key, value in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    if form == "model in memory":
        return model
    if form == "tensors in memory":
        return state
    if form == "gguf":
        config, path = model.config.get_text_config(), folder / "model.gguf"
        arrays = {key: value.double().numpy() for key, value in model.state_dict().items() if ".masked_bias" not in key}
        quantise = gguf.GGMLQuantizationType[dtype]
        write_gguf(path, ARCHITECTURES[name], config, converted(name, arrays, config), quantise)
        return path
    if form in ("bin", "pt"):
        torch.save(state, folder / ("pytorch_model.bin" if form == "bin" else "weights.pt"))
        return folder if form == "bin" else folder / "weights.pt"
    if form == "bin shards":
        names = [f"pytorch_model-{number:05d}-of-00002.bin" for number in (1, 2)]
        placed = {key: names[number % 2] for number, key in enumerate(state)}
        for own in names:
            torch.save({key: value for key, value in state.items() if placed[key] == own}, folder / own)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
        return folder
    # transformers' own writing, with what it renames on the way.
    model.to(DTYPES[dtype]).save_pretrained(folder, max_shard_size="60KB" if form != "folder" else "1GB")
    model.double()
    if form != "hub":
        return folder
    files = {one.name: Content.of(one.read_bytes(), large=one.suffix == ".safetensors") for one in folder.iterdir()}
    double.repository(f"tiny/{folder.name}").commit(files)
    return f"hub:tiny/{folder.name}"


def expected_rho(maps: list[dict[str, np.ndarray]], spaces: str) -> np.ndarray:
    """Overlaps of all pairs of a comparison, one by one, from bases by QR."""
    bases = [{kind: np.linalg.qr(own)[0] for kind, own in layer.items()} for layer in maps]

    def rho(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.einsum("idk,jdl->ijkl", one, other, optimize=True).__pow__(2).sum(axis=(2, 3)) / one.shape[2]

    if spaces in WITHIN:
        return np.stack([rho(layer[spaces], layer[spaces]) for layer in bases])
    full = np.full((len(maps), len(maps), len(maps[0][spaces[0]]), len(maps[0][spaces[1]])), np.nan)
    for writer, reader in zip(*np.triu_indices(len(maps), 1), strict=True):
        full[writer, reader] = rho(bases[writer][spaces[0]], bases[reader][spaces[1]])
    return full


def difference(seed: int, folder: Path, double) -> str | None:
    """Try one random checkpoint; return what is wrong with it, if anything."""
    rng = np.random.default_rng([14, seed])
    form = FORMS[seed % len(FORMS)]
    name = str(rng.choice(sorted(ARCHITECTURES if form == "gguf" else MODELS)))
    dtype = str(rng.choice(GGUF_TYPES if form == "gguf" else list(DTYPES)))
    sizes = random_sizes(name, rng)
    what = f"seed {seed}: {name}, {form}, {dtype}, {sizes}"
    model = build(name, sizes, seed)
    rounded(name, model, dtype)
    config, tiny = model.config.get_text_config(), MODELS[name]
    maps = [record_maps(model, tiny, layer, config.hidden_size) for layer in range(config.num_hidden_layers)]
    source = stored(name, form, model, dtype, folder, double)
    try:
        extra = {"config": model.config.to_dict()} if form == "tensors in memory" else {}
        found = hs.load(source, **extra)
        bound = 1e-7 if name in IN_FLOAT32 else 1e-12
        for spaces in found.comparisons:
            error = np.abs(found.overlaps(spaces).values - expected_rho(maps, spaces))
            if error.shape != expected_rho(maps, spaces).shape or np.nanmax(error, initial=0) > bound:
                return f"{what}: {spaces} differs by {np.nanmax(error, initial=0):.1e}"
        return None if len(found.comparisons) == 7 else f"{what}: only {found.comparisons}"
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(18), id="some"), pytest.param(range(18, 320), id="many", marks=pytest.mark.campaign)],
)
def test_random_checkpoints_have_the_spaces_of_the_models_own_modules(seeds, double, tmp_path):
    wrong = [fault for seed in seeds if (fault := difference(seed, tmp_path / f"m{seed}", double))]
    print(f"\nrandom checkpoints: {len(seeds)} inputs, 0 refused")
    assert not wrong, "\n".join(wrong)
