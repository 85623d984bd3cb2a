"""Which score predicts effects, against scipy; and the table of exact ablations."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headspaces.affinity.graph import build_graph
from headspaces.report.effect_results import edge_effects, effects, precision_of_strongest, rank_correlation
from headspaces.report.figures.effect_figures import effect_against_rho, effect_predictors
from headspaces.report.results import ModelResults
from headspaces.report.tables.effects import attribution_ablation, predictors
from headspaces.spaces import Shape

SHAPE = Shape(n_layers=4, d_model=16, n_query_heads=4, n_kv_heads=2, d_head=3)


def pairs(rng, n_readers):
    values = rng.random((4, 4, 4, n_readers))
    values[~np.triu(np.ones((4, 4), bool), 1)] = np.nan
    return values


@pytest.fixture
def model():
    """Effects through Q are a growing function of rho; those through K have nothing to do with it."""
    rng = np.random.default_rng(0)
    overlaps, attribution, affinity = {}, {"O/write_norm": rng.random((4, 4))}, {}
    for kind in "QKV":
        n_readers = SHAPE.n_heads(kind)
        rho = pairs(rng, n_readers)
        effect = -(rho**3) if kind == "Q" else pairs(rng, n_readers) - 0.5
        overlaps |= {f"cross/O{kind}/rho": rho, f"cross/O{kind}/weighted": pairs(rng, n_readers)}
        overlaps[f"cross/O{kind}/simple_composition"] = pairs(rng, n_readers)
        attribution |= {f"{kind}/effect": effect, f"{kind}/absolute": np.abs(effect) + 0.1}
        attribution[f"{kind}/gradient_norm"] = rng.random((4, n_readers))
        affinity[f"cs/O{kind}"] = pairs(rng, 4)
    attribution |= {f"repeats/{name}": values * 2 for name, values in attribution.items()}
    nulls = {f"cross/O{kind}/swap/{name}": rng.random((5, 4, 4)) for kind in "QKV" for name in ("mean", "spread")}
    n_edges = 4
    ablation = {
        "kind": np.array([b"Q", b"Q", b"Q", b"K"]), "chosen_by": np.array([b"rho"] * n_edges),
        "writer_layer": np.arange(n_edges), "writer_head": np.arange(n_edges),
        "reader_layer": np.arange(n_edges) + 1, "reader_head": np.zeros(n_edges, int),
        "first_order": np.array([1.0, -2.0, 3.0, 4.0]), "second_order": np.array([2.5, -2.0, -1.0, 3.9]),
        "zero": np.array([[-1.0, -1.4], [2.0, 2.2], [3.0, 3.0], [-4.0, -4.0]]),
        "mean": np.ones((n_edges, 2)), "random_zero": np.full((n_edges, 2), 0.5),
    }  # fmt: skip
    return ModelResults(
        "m", asdict(SHAPE), overlaps, nulls=nulls, affinity=affinity, attribution=attribution, ablation=ablation
    )


def test_rank_correlations_are_those_of_scipy(model):
    frame = predictors([model]).frame.set_index(["loss", "spaces", "predictor"])
    later = np.triu_indices(4, k=1)
    for kind in "QKV":
        effect = np.abs(model.attribution[f"{kind}/effect"][later]).ravel()
        absolute = model.attribution[f"{kind}/absolute"][later].ravel()
        z = [np.mean(model.nulls[f"cross/O{kind}/swap/{name}"], axis=0)[..., None, None] for name in ("mean", "spread")]
        rho = model.overlaps[f"cross/O{kind}/rho"]
        write, gradient = model.attribution["O/write_norm"], model.attribution[f"{kind}/gradient_norm"]
        expected = {
            "rho": rho,
            "simple_cs": model.overlaps[f"cross/O{kind}/simple_composition"],
            "swap_z": (rho - z[0]) / z[1],
            "norms": np.einsum("ab,cd->acbd", write, gradient),
            "cs": model.affinity[f"cs/O{kind}"].reshape(*rho.shape, -1).max(axis=4),
        }
        for name, score in expected.items():
            row, values = frame.loc["text", f"O{kind}", name], score[later].ravel()
            assert row["spearman_effect"] == pytest.approx(stats.spearmanr(values, effect).statistic)
            assert row["spearman_absolute"] == pytest.approx(stats.spearmanr(values, absolute).statistic)
            assert row["spearman_effect_low"] <= row["spearman_effect"] <= row["spearman_effect_high"]
            assert row["n_pairs"] == values.size
    assert frame.loc["text", "OQ", "rho"]["spearman_effect"] == pytest.approx(1)
    assert frame.loc["text", "OQ", "rho"]["within_layer_pairs_effect"] == pytest.approx(1)
    # Twice all effects have the same ranks.
    twice, once = (frame.loc[loss].drop(columns="model").to_numpy(float) for loss in ("repeats", "text"))
    np.testing.assert_allclose(twice, once)


def test_within_layer_pairs_only_ranks_inside_one_count():
    rng = np.random.default_rng(1)
    levels = np.kron(rng.random((3, 3)), np.ones((5, 4)))  # of layer pairs: the same for both
    one, other = (10 * levels + rng.random((15, 12)) for _ in range(2))
    over_all, within = rank_correlation(one, other)[0], rank_correlation(one, other, (5, 4))[0]
    assert over_all > 0.9
    tiles = [values.reshape(3, 5, 3, 4).transpose(0, 2, 1, 3).reshape(9, 20) for values in (one, other)]
    # Each pair of layers has as many ranks of the same spread: the pooled correlation is the mean of the nine.
    assert within == pytest.approx(np.mean([stats.spearmanr(x, y).statistic for x, y in zip(*tiles, strict=True)]))


def test_the_bootstrap_spans_the_correlation_of_new_heads():
    """Heads without any relation: the interval holds 0 about as often as it should."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(40):
        writer, reader = rng.standard_normal((2, 25, 1)), rng.standard_normal((2, 1, 25))
        one, other = (writer[at] + reader[at] + rng.standard_normal((25, 25)) for at in range(2))
        _, low, high = rank_correlation(one, other)
        inside += low <= 0 <= high
    assert inside >= 32


def test_precision_counts_the_strongest_hundredth():
    effect = np.arange(400.0).reshape(20, 20)
    assert precision_of_strongest(effect, effect) == 1
    assert precision_of_strongest(-effect, effect) == 0
    two = effect.copy()
    two.ravel()[-2:] = -1
    assert precision_of_strongest(two, effect) == 0.5
    assert np.isnan(precision_of_strongest(effect[:2, :2], effect[:2, :2]))


def test_ablations_are_means_over_windows_and_signs_are_counted(model):
    table = attribution_ablation([model, ModelResults("n", {}, {})])
    frame = table.frame
    assert frame["ablated"].tolist() == pytest.approx([-1.2, 2.1, 3.0, -4.0])
    assert frame["second_order"].tolist() == [2.5, -2.0, -1.0, 3.9]
    assert frame["spaces"].tolist() == ["OQ", "OQ", "OQ", "OK"]
    assert frame["random_reference"].tolist() == [0.5] * 4
    assert table.notes == (
        (
            "m, OQ: signs of the first order agree for 2 of 3 edges, Spearman of the sizes 1.00; "
            "signs of the second order agree for 3 of 3 edges, Spearman of the sizes -1.00."
        ),
        "m, OK: signs of the first order agree for 1 of 1 edges; signs of the second order agree for 1 of 1 edges.",
    )


def test_figures_have_the_numbers_of_the_table(model):
    table = predictors([model]).frame
    drawn = effect_predictors([model])
    np.testing.assert_allclose(drawn["spearman_effect"], table["spearman_effect"])
    points = effect_against_rho([model])
    assert set(points["loss"]) == {"text"}
    assert len(points) == 6 * 4 * (4 + 2 + 2)
    of_q = points[points["spaces"] == "OQ"]
    np.testing.assert_allclose(of_q["effect"], of_q["rho"] ** 3)


def test_edges_of_the_graph_have_their_effect(model):
    ends = {"source_layer": [0, 1], "source_head": [3, 0], "target_layer": [2, 3], "target_head": [1, 1]}
    edges = pd.DataFrame({"type": ["OK", "OQ"], **ends, "pk": [1.0, 2.0]})
    arrays = model.attribution
    expected = [arrays["K/effect"][0, 2, 3, 1], arrays["Q/effect"][1, 3, 0, 1]]
    assert edge_effects(model, edges) == expected
    graph = build_graph(edges.assign(effect=expected), "pk", SHAPE)
    assert graph.edges["0.3", "2.kv.1", "OK"]["effect"] == expected[0]
    toy = ModelResults("t", asdict(SHAPE), {}, attribution={k: v for k, v in arrays.items() if "repeats" in k})
    assert edge_effects(toy, edges) == [2 * one for one in expected]
    without = edges.assign(effect=edge_effects(ModelResults("n", asdict(SHAPE), {}), edges))
    assert "effect" not in build_graph(without, "pk", SHAPE).edges["0.3", "2.kv.1", "OK"]


def test_a_model_that_was_not_run_has_no_rows(model):
    bare = ModelResults("n", asdict(SHAPE), model.overlaps)
    assert list(effects([bare])) == []
    assert len(predictors([bare]).frame) == 0
