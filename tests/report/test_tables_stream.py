"""Tables and figure of the stream: numbers by hand, and those of random maps near 1."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from headspaces.report.figures.stream_figure import stream
from headspaces.report.figures.stream_graph import stream_graph
from headspaces.report.results import ModelResults
from headspaces.report.tables.stream import stream_effects, stream_neurons, stream_scores, stream_tokens
from headspaces.spaces import Shape

SHAPE = Shape(n_layers=2, d_model=10, n_query_heads=2, n_kv_heads=1, d_head=2)
ISOTROPIC = 0.2


@pytest.fixture
def model():
    """Purities of 0.1 = 1 / D have no deviation; of 0.2 and 0.5 the variance of a score is 2 (0.1) (0.4) 100 / 108."""
    nan = np.nan
    arrays = {
        "score/EQ": np.array([[[[2.0, 1.0]], [[4.0, 1.0]]]]), "purity/E": np.array([[0.2]]),
        "purity/Q": np.full((2, 2), 0.5), "purity/K": np.full((2, 1), 0.5),
        "score/MK": np.array([[[[nan]], [[3.0]]], [[[nan]], [[nan]]]]), "purity/M": np.full((2, 1), 0.1),
        "centred_score/EQ": np.full((1, 2, 1, 2), 0.5), "centred_purity/E": np.array([[0.1]]),
        "score/OU": np.array([[[[1.0], [5.0]]], [[[1.0], [1.0]]]]), "purity/O": np.full((2, 2), 0.2),
        "purity/U": np.array([[0.5]]), "purity/G": np.full((2, 1), 0.2),
        "centred_fraction/EQ": np.array([[[[0.4, 0.2]], [[0.1, 0.1]]]]),
        "fraction/OG": np.array([[[[0.2], [0.6]], [[0.2], [0.2]]], [[[nan], [nan]], [[0.1], [0.3]]]]),
        "neurons/O/layer": np.array([[[1, 0], [1, -1]], [[1, -1], [1, -1]]]),
        "neurons/O/neuron": np.array([[[7, 3], [8, -1]], [[9, -1], [9, -1]]]),
        "neurons/O/matrix": np.array([[[0, 0], [0, -1]], [[0, -1], [0, -1]]]),
        "neurons/O/share": np.array([[[0.5, 0.4], [0.8, nan]], [[0.3, nan], [0.2, nan]]]),
        "neurons/K/layer": np.array([[[-1, -1]], [[0, -1]]]), "neurons/K/neuron": np.array([[[-1, -1]], [[4, -1]]]),
        "neurons/K/share": np.array([[[nan, nan]], [[0.25, nan]]]),
        "tokens/V/token": np.array([[[3, 1]], [[2, 0]]]), "tokens/V/share": np.array([[[0.9, 0.8]], [[0.4, 0.3]]]),
        "tokens/V/text": np.array([[[b" a", b"\n"]], [[b"\xe2\x86\x92", b"|"]]]),
        "left_out": np.array([b"no learnt positions: left out"]),
    }  # fmt: skip
    return ModelResults("m", asdict(SHAPE), {}, stream=arrays)


def test_scores_are_means_and_largest_ones_with_where_they_are(model):
    table = stream_scores([model])
    frame = table.frame.set_index(["writer", "reader", "vectors"])
    row = frame.loc[("embedding", "Q", "as they are")]
    sd = 10 * np.sqrt(2 * 0.1 * 0.4 / (9 * 12))
    assert (row["n_pairs"], row["mean_score"], row["largest_score"]) == (4, 2.0, 4.0)
    assert row["mean_z"] == pytest.approx(1 / (sd * np.sqrt(4) / 4))
    assert row["largest_z"] == pytest.approx(3 / sd)
    assert (row["reader_layer"], row["reader_head"]) == (1, 0)
    assert row[["writer_layer", "writer_head"]].isna().all()
    row = frame.loc[("MLP", "K", "as they are")]
    assert (row["n_pairs"], row["mean_score"], row["writer_layer"], row["reader_layer"]) == (1, 3.0, 0, 1)
    assert np.isnan(row["mean_z"])  # an operator that no rotation changes
    row = frame.loc[("O", "unembedding", "as they are")]
    assert (row["writer_layer"], row["writer_head"], row["largest_score"]) == (0, 1, 5.0)
    assert ("embedding", "Q", "less their mean") in frame.index
    assert table.notes == ("m: no learnt positions: left out.",)


def test_effects_are_sums_and_largest_ones_over_edges(model):
    nan = np.nan
    heads = np.array([[[[nan, nan]] * 2, [[1.0, -4.0], [0.5, 0.5]]], [[[nan, nan]] * 2] * 2])
    arrays = {
        "Q/effect": heads, "stream/EM/effect": np.array([[[[2.0]], [[-1.0]]]]),
        "repeats/Q/effect": -heads, "stream/MM/effect": np.array([[[[nan]], [[3.0]]], [[[nan]], [[nan]]]]),
    }  # fmt: skip
    frame = stream_effects([replace(model, attribution=arrays)]).frame.set_index(["loss", "writer", "reader"])
    row = frame.loc[("text", "O", "Q")]
    assert row[["n_edges", "effect", "absolute_effect", "largest_effect"]].tolist() == [4, -2.0, 6.0, -4.0]
    assert row[["writer_layer", "writer_head", "reader_layer", "reader_head"]].tolist() == [0, 0, 1, 1]
    assert frame.loc[("repeats", "O", "Q"), "largest_effect"] == 4.0
    row = frame.loc[("text", "embedding", "MLP")]
    assert row[["n_edges", "effect", "absolute_effect", "reader_layer"]].tolist() == [2, 1.0, 3.0, 0]
    assert row[["writer_layer", "reader_head"]].isna().all()
    assert frame.loc[("text", "MLP", "MLP"), "n_edges"] == 1
    assert len(frame) == 4


def test_the_graph_has_the_effects_of_its_edges_on_the_first_loss(model):
    arrays = {"Q/effect": np.zeros((2, 2, 2, 2)), "stream/OU/effect": np.arange(4.0).reshape(2, 1, 2, 1)}
    arrays["repeats/Q/effect"] = arrays["Q/effect"]
    model.stream["centred_score/OU"], model.stream["centred_purity/U"] = model.stream["score/OU"], np.array([[0.5]])
    drawn = stream_graph([replace(model, attribution=arrays | {"repeats/stream/OU/effect": np.zeros((2, 1, 2, 1))})])
    edges = drawn.set_index(["writer", "reader"])
    assert edges.loc[[("O", "unembedding")], "effect"].tolist() == [1.0]
    assert edges.loc[[("MLP", "K")], "effect"].isna().all()  # not in the file


def test_neurons_and_tokens_are_rows_of_places(model):
    table = stream_neurons([model])
    assert len(table.frame) == 6  # places without a neuron are none
    first = table.frame.iloc[0]
    assert first[["spaces", "layer", "head", "place", "neuron_layer", "neuron", "matrix"]].tolist() == [
        "O", 0, 0, 0, 1, 7, "MLP in",
    ]  # fmt: skip
    assert first["isotropic_ratio"] == pytest.approx(0.5 / ISOTROPIC)
    assert table.frame.iloc[-1][["spaces", "layer", "neuron", "matrix"]].tolist() == ["K", 1, 4, "MLP out"]
    assert table.printed["place"].tolist() == [0] * 5
    tokens = stream_tokens([model])
    assert tokens.frame["text"].tolist() == ["' a'", "'\\n'", "'→'", "'|'"]
    assert tokens.frame["token"].tolist() == [3, 1, 2, 0]
    assert tokens.notes == ()


def test_tokens_without_a_tokenizer_are_numbers_and_said(model):
    del model.stream["tokens/V/text"]
    table = stream_tokens([model])
    assert table.frame["text"].tolist() == [""] * 4
    assert table.notes == ("m: no tokenizer, tokens by their numbers.",)


def test_the_figures_shares_are_means_over_heads_and_what_they_meet(model):
    numbers = stream([model])
    tokens = numbers[numbers["quantity"] == "E"]
    np.testing.assert_allclose(tokens["share_ratio"], [0.3 / ISOTROPIC, 0.1 / ISOTROPIC])
    np.testing.assert_allclose(tokens["high"], 1.0)  # a purity of 1 / D leaves no deviation
    mlps = numbers[numbers["quantity"] == "M"]
    assert mlps["spaces"].tolist() == ["O", "O"]
    np.testing.assert_allclose(mlps["share_ratio"], [0.3 / ISOTROPIC, 0.2 / ISOTROPIC])
    sd = 10 * np.sqrt(2 * (0.2 - 0.1) * (0.5 - 0.1) / (9 * 12))
    np.testing.assert_allclose(mlps["high"] - 1, [2 * sd / np.sqrt(4), 2 * sd / np.sqrt(2)])


def test_the_graph_has_the_strongest_edges_of_every_kind_above_one(model):
    nan = np.nan
    weighted = np.array([[[[nan], [nan]], [[0.9], [7.0]]], [[[nan], [nan]], [[nan], [nan]]]])
    overlaps = {"cross/OK/weighted": weighted}
    model.stream["centred_purity/U"] = np.array([[0.5]])
    model.stream["centred_score/OU"] = np.array([[[[1.5], [1.2]]], [[[2.5], [1.1]]]])
    numbers = stream_graph([ModelResults("m", asdict(SHAPE), overlaps, stream=model.stream)])
    kinds = numbers[["writer", "reader"]].agg(" ".join, axis=1).tolist()
    # Centred tokens (0.5) have none above 1, and those as they are do not count where the centred are there.
    assert kinds == ["O unembedding"] * 3 + ["MLP K", "O K"]
    assert numbers["score"].tolist() == [2.5, 1.5, 1.2, 3.0, 7.0]
    assert numbers["writer_layer"].tolist() == [1, 0, 0, 0, 0]
    assert numbers["writer_head"].fillna(-1).tolist() == [0, 0, 1, -1, 1]
    assert numbers["reader_layer"].fillna(-1).tolist() == [-1, -1, -1, 1, 1]
    # Heads stand in the upper part in order, one key-value head in its middle, MLPs at the bottom.
    np.testing.assert_allclose(numbers["writer_y"], [0.4, 0.4, 0.8, 0.0, 0.8])
    np.testing.assert_allclose(numbers["reader_y"], [0.6, 0.6, 0.6, 0.6, 0.6])
