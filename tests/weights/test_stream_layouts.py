"""Rows of the stream against tiny models' own modules: all that is written adds up, and reads see what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.gguf_files import ARCHITECTURES, converted, write_gguf
from support.project import ROOT
from support.streams import TOKENS, biased, record_stream
from support.tiny_models import D_MODEL, MODELS, N_LAYERS, build
from transformers.activations import ACT2FN

from headspaces.errors import InputError
from headspaces.geometry.heads import fold
from headspaces.stream.parts import StreamParts
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block, fetch_stream
from headspaces.weights.layouts import NORMALISED_STREAM, known_model_types
from headspaces.weights.source import read_headers
from headspaces.weights.stream_headers import stream_headers
from headspaces.weights.stream_layouts import MIXTURE, ROWS, find_stream_row

AGREES, DIFFERS = 1e-4, 1e-2  # norms compute in float32 in most of the models, and add their epsilon
CHANGES = {"opt": {"word_embed_proj_dim": D_MODEL}}
CASES = {name: (name, CHANGES.get(name, {})) for name in MODELS if name not in NORMALISED_STREAM} | {
    "gpt_neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "stablelm-parallel": ("stablelm", {"use_parallel_residual": True}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "gpt2-tied": ("gpt2", {"tie_word_embeddings": True}),
}
SCALED = {"gemma", "gemma2", "gemma3_text"}
"""Models that multiply the embedding by the square root of D."""


TIED = {"gemma", "gemma2", "cohere", "cohere2"}
"""Architectures of which llama.cpp knows no unembedding of its own."""


def opened(folder, headers):
    stream = stream_headers(headers)
    fetch_stream(stream, None, folder / "ends.safetensors")
    fetch_stream(stream, range(N_LAYERS), folder / "stream.safetensors")
    fetch_block(headers, range(N_LAYERS), folder / "heads.safetensors")
    parts = StreamParts(folder / "ends.safetensors", [folder / "stream.safetensors"])
    return stream, parts, read_block(folder / "heads.safetensors")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    made = {}

    def make(case):
        if case not in made:
            name, changes = CASES[case]
            model, folder = build(name, changes), tmp_path_factory.mktemp(case)
            model.save_pretrained(folder)
            made[case] = (model, MODELS[name], *opened(folder, read_headers(str(folder))))
        return made[case]

    return make


def all_rows(parts, letter):
    return np.concatenate(list(parts.end_rows(letter)))


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def rms(values):
    return np.sqrt(np.mean(values**2, axis=-1, keepdims=True))


def errors(case, model, tiny, stream, parts, heads):
    """Relative errors of the residuals, of the MLP's reads, of the gate's role and of the logits."""
    row, layout = stream.row, stream.headers.row
    inner = tiny.layers.rpartition(".")[0]
    prefix = stream.headers.prefix

    def module(name, layer=None):
        if not name:
            return None
        place = f"{tiny.layers}.{layer}.{name}" if layer is not None else f"{inner}.{name.removeprefix(prefix)}"
        return model.get_submodule(place.removesuffix(".weight"))

    wanted = [tiny.attention + "." + tiny.output] + [
        name.removesuffix(".weight") for name in (row.gate, row.up, row.gate_up, row.down) if name
    ]
    run = record_stream(model, tiny, [f"{tiny.layers}.{layer}.{name}" for layer in range(N_LAYERS) for name in wanted])
    at = lambda layer, name: f"{tiny.layers}.{layer}.{name.removesuffix('.weight')}"  # noqa: E731
    written = all_rows(parts, "E")[TOKENS] * (np.sqrt(D_MODEL) if CASES[case][0] in SCALED else 1)
    if "X" in parts.ends:
        written = written + all_rows(parts, "X")[: len(TOKENS)]
    if row.embedding_norm:
        written = written + module(row.embedding_norm).bias.detach().numpy()
    scale = getattr(model.config.get_text_config(), "residual_multiplier", 1.0)
    found = {"residuals": [relative(written, run.residuals[0])]}
    centre = lambda x, norm: x - x.mean(axis=-1, keepdims=True) if norm == "layernorm" else x  # noqa: E731
    for layer in range(N_LAYERS):
        output = at(layer, f"{tiny.attention}.{tiny.output}")
        attention = np.einsum("hij,thj->ti", fold(heads[layer], "O"), cut(run.inputs[output], heads[layer]))
        attention += biased(model.get_submodule(output), None) if layout.write_norm == "" else 0
        attention = scale * attention / (rms(run.outputs[output]) if layout.write_norm else 1)
        x = written if row.parallel else written + attention
        mlp = parts.mlp_rows(layer)
        sigma = 1.0 if layout.norm == "none" else rms(centre(x, layout.norm))
        norm = module(row.mlp_norm, layer)
        names = [row.gate_up] if row.gate_up else [name for name in (row.gate, row.up) if name]
        reads = np.concatenate([x @ mlp[letter].T / sigma for letter in mlp if letter != "M"], axis=1)
        reads += np.concatenate([biased(model.get_submodule(at(layer, name)), norm) for name in names])
        recorded = np.concatenate([run.outputs[at(layer, name)] for name in names], axis=1)
        found.setdefault("reads", []).append(relative(reads, recorded))
        neurons = run.inputs[at(layer, row.down)]
        if len(mlp) == 3:
            config = model.config.get_text_config()
            act = ACT2FN[getattr(config, "hidden_activation", None) or config.hidden_act]
            gate, up = (torch.from_numpy(half) for half in np.split(recorded, 2, axis=1))
            found.setdefault("gate", []).append(relative((act(gate) * up).numpy(), neurons))
        out = neurons @ mlp["M"] / (rms(run.outputs[at(layer, row.down)]) if row.mlp_write_norm else 1)
        out += biased(model.get_submodule(at(layer, row.down)), None) if not row.mlp_write_norm else 0
        written = written + attention + scale * out
        found["residuals"].append(relative(written, run.residuals[layer + 1]))
    kind = row.final_norm_kind or layout.norm
    logits = written @ all_rows(parts, "U").T / rms(centre(written, kind))
    logits += biased(model.get_output_embeddings(), module(row.final_norm))
    return {name: max(values) for name, values in (found | {"logits": [relative(logits, run.logits)]}).items()}


def cut(outputs, heads):
    n_heads, _, d_head = heads.factors["O"].shape
    return outputs.reshape(-1, n_heads, d_head)


@pytest.mark.parametrize("case", sorted(CASES))
def test_all_that_is_written_adds_up_to_the_residual_and_reads_see_it(cases, case):
    """Of mixtures of experts, whose MLPs are left out, the ends alone: what stands before the first layer."""
    model, tiny, stream, parts, heads = cases(case)
    if MIXTURE in stream.notes:
        run = record_stream(model, tiny, [])
        assert (parts.inputs, parts.ends) == ("", "EU")
        assert relative(all_rows(parts, "E")[TOKENS], run.residuals[0]) < AGREES
        return
    found = errors(case, model, tiny, stream, parts, heads)
    assert max(found.values()) < AGREES, found
    assert ("gate" in found) == (parts.inputs == "GI")


@pytest.mark.parametrize("case", ["llama", "gpt2", "gemma2", "gpt_neox", "falcon-groups", "phi3", "bloom"])
def test_a_wrong_row_fails_the_same_check(cases, case):
    """The other residual order, and a norm without its gain: each is seen."""
    model, tiny, stream, parts, heads = cases(case)
    wrong = [replace(stream.row, parallel=not stream.row.parallel)]
    wrong.append(replace(stream.row, mlp_norm=""))
    for row in wrong:
        parts.row, kept = row, parts.row
        found = errors(case, model, tiny, replace(stream, row=row), parts, heads)
        parts.row = kept
        assert found["reads"] > DIFFERS, (row, found)


def test_every_architecture_has_a_row_or_is_refused_by_name():
    served = {name for row in ROWS for name in row.model_types}
    assert served == set(known_model_types())
    with pytest.raises(InputError, match="x: the stream of 'brand-new' is not served: no row of"):
        find_stream_row("llama", "brand-new", {}, "x")
    with pytest.raises(InputError, match="opt-post-norm is not served: the residual stream is normalised after every"):
        find_stream_row("opt-post-norm", "opt", {"do_layer_norm_before": False}, "x")
    with pytest.raises(InputError, match="the stream of bloom is not served with .*post_layernorm': True"):
        find_stream_row("bloom", "bloom", {"apply_residual_connection_post_layernorm": True}, "x")


def test_an_embedding_of_another_width_is_refused(tmp_path):
    build("opt").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"embed_tokens.weight' has the shape \[40, 24\], expected 48 residual"):
        stream_headers(read_headers(str(tmp_path)))


def test_what_an_attention_only_folder_lacks_is_left_out_and_said():
    folder = ROOT.parent / "shared" / "gpt2-small-attention"
    if not folder.is_dir():
        pytest.skip("GPT-2's attention weights are not here")
    stream = stream_headers(read_headers(str(folder)))
    assert stream.notes == (
        "no token embedding: left out", "no learnt positions: left out", "no unembedding: left out",
        "no tensors of the MLPs: left out",
    )  # fmt: skip
    assert (stream.names(), stream.names(range(12)), stream.n_bytes()) == ([], [], 0)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_gguf_file_holds_the_same_stream(name, tmp_path):
    """The rows for llama.cpp's names, against those of the folder that the tests above prove."""
    model = build(name, CHANGES.get(name, {}) | ({"tie_word_embeddings": True} if name in TIED else {}))
    model.save_pretrained(tmp_path / "folder")
    state = {key: value.numpy() for key, value in model.state_dict().items() if ".masked_bias" not in key}
    config = model.config.get_text_config()
    write_gguf(tmp_path / "model.gguf", ARCHITECTURES[name], config, converted(name, state, config))
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    stream, ours, _ = opened(tmp_path / "one", read_headers(str(tmp_path / "model.gguf")))
    original, theirs, _ = opened(tmp_path / "other", read_headers(str(tmp_path / "folder")))
    assert (ours.ends, ours.inputs, stream.row.parallel) == (theirs.ends, theirs.inputs, original.row.parallel)
    for letter in ours.ends:
        np.testing.assert_allclose(all_rows(ours, letter), all_rows(theirs, letter), rtol=1e-5, atol=1e-5)
    for letter, rows in ours.mlp_rows(1).items():
        np.testing.assert_allclose(rows, theirs.mlp_rows(1)[letter], rtol=1e-5, atol=1e-5)
