"""How sure conditions and pairs are, against numbers computed by hand and by scipy."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.tiny_results import only_row, random_model

from headspaces.affinity.graph import build_graph, edges_with_tests
from headspaces.geometry.statistics import pair_statistics
from headspaces.nulls.significance import max_statistic_p, tail_statistics
from headspaces.report.pair_tests import edge_tests, pair_tests
from headspaces.report.tables.registry import TABLES

HEADS = {"O": 4, "Q": 4, "K": 2, "V": 2}
N_SAMPLES = 9


@pytest.fixture(scope="module")
def drawn():
    """Five layers: by comparison, all pairs of nine swap samples; keys and values have a single pair and none."""
    rng = np.random.default_rng(5)
    within = {kind: rng.gamma(20, 0.01, (N_SAMPLES, 5, 6)) for kind in "OQ"}
    across = {f"O{kind}": rng.gamma(20, 0.01, (N_SAMPLES, 5, 5, 4 * HEADS[kind])) for kind in "QKV"}
    for pairs in across.values():
        pairs[:, *np.tril_indices(5)] = np.nan
    return within | across


@pytest.fixture(scope="module")
def tested(drawn):
    """A model with these samples, whose layer 3 has one writer of lower rank and whose head pair 0.1 -> 2.3 shines."""
    model = random_model("m", stages=("nulls",))
    nulls, overlaps = dict(model.nulls), dict(model.overlaps)
    for spaces, pairs in drawn.items():
        place = f"{'within' if len(spaces) == 1 else 'cross'}/{spaces}/swap"
        nulls |= {f"{place}/{name}": array for name, array in (pair_statistics(pairs) | tail_statistics(pairs)).items()}
    for kind, n in HEADS.items():
        overlaps[f"rank/{kind}"] = np.full((5, n), 4)
    overlaps["rank/O"][3, 2] = 3
    # The observed pairs are those of one more sample, but for one.
    rng = np.random.default_rng(6)
    for spaces in ("OQ", "OK", "OV"):
        shape = overlaps[f"cross/{spaces}/rho"].shape
        rho = rng.gamma(20, 0.01, shape)
        rho[*np.tril_indices(5)] = np.nan
        overlaps[f"cross/{spaces}/rho"] = rho
    overlaps["cross/OQ/rho"][0, 2, 1, 3] = 0.9
    pk = {f"pk/{spaces}": 4 * overlaps[f"cross/{spaces}/rho"] for spaces in ("OQ", "OK", "OV")}
    return dataclasses.replace(model, nulls=nulls, overlaps=overlaps, affinity=pk)


def test_every_condition_has_its_p_and_its_corrections(tested):
    frame = TABLES["significance"]([tested]).frame
    for null in ("rotation", "reassignment", "swap"):
        parts, samples, observed = {}, [], []
        for comparison in tested.compare_all():
            if "spread" not in comparison.nulls.get(null, {}):
                continue
            own = comparison.nulls[null]["spread"]
            samples.append(own)
            observed.append(comparison.spread)
            p = [(1 + (column >= spread * (1 - 1e-12)).sum()) / (1 + len(column))
                 for column, spread in zip(own.T, comparison.spread, strict=True)]  # fmt: skip
            rows = frame[(frame["null"] == null) & (frame["spaces"] == comparison.spaces)]
            if comparison.n_pairs == 1:
                assert rows.empty
                continue
            np.testing.assert_allclose(rows["p"], p)
            np.testing.assert_allclose(rows["q"], stats.false_discovery_control(p))
            assert rows["layer"].tolist() == comparison.layers[:, 0].tolist()
            parts[comparison.spaces] = rows
        everywhere = max_statistic_p(np.concatenate(observed), np.concatenate(samples, axis=1))
        found = np.concatenate([rows["p_all"] for rows in parts.values()])
        assert set(found) <= set(everywhere)
        assert (found >= np.concatenate([rows["p"] for rows in parts.values()]) - 1e-12).all()


def test_conditions_are_counted_for_the_reader(tested):
    table = TABLES["significance"]([tested])
    counts = dataclasses.replace(table, frame=table.printed)
    row = only_row(counts, spaces="OQ", null="swap")
    assert (row["n_conditions"], row["n_samples"], row["expected_above_all"]) == (10, 9, pytest.approx(1))
    rows = table.frame[(table.frame["spaces"] == "OQ") & (table.frame["null"] == "swap")]
    assert row["n_above_all"] == (rows["p"] < 0.11).sum()
    assert row["n_fdr_5"] == (rows["q"] <= 0.05).sum()
    assert row["n_all_5"] == (rows["p_all"] <= 0.05).sum()
    assert only_row(counts, spaces="OQ", null="rotation")["n_samples"] == 6


def test_pairs_are_scored_against_all_pairs_of_all_samples_of_their_condition(tested, drawn):
    tests = pair_tests(tested.across("Q"))
    for at, (writer, reader) in enumerate(tests.comparison.layers):
        if writer == 3:
            assert np.isnan([tests.z[at], tests.p[at], tests.q[at], tests.p_condition[at]]).all()
            continue
        pooled, rho = drawn["OQ"][:, writer, reader].ravel(), tests.comparison.rho[at]
        z = (rho - pooled.mean()) / pooled.std()
        np.testing.assert_allclose(tests.z[at], z)
        np.testing.assert_allclose(tests.p[at], stats.pearson3.sf(z, stats.skew(pooled)), rtol=1e-6)
        largest = drawn["OQ"][:, writer, reader].max(axis=1)
        np.testing.assert_allclose(tests.p_condition[at], (1 + (largest[:, None] >= rho).sum(axis=0)) / 10)
    some = np.isfinite(tests.p)
    np.testing.assert_allclose(tests.q[some], stats.false_discovery_control(tests.p[some]))


def test_the_pair_that_was_planted_stands_alone(tested):
    """Between heads 1 of layer 0 and 3 of layer 2."""
    table = TABLES["standing_pairs"]([tested])
    found = only_row(table, spaces="OQ")
    assert [found[name] for name in ("scope", "layer", "head", "later_layer", "later_head")] == ["across", 0, 1, 2, 3]
    assert (found["rho"], found["n_fdr_1"], found["p_condition"]) == (0.9, 1, 0.1)
    counts = only_row(TABLES["pair_findings"]([tested]), spaces="OQ")
    # Layer 3 has writers of two ranks: nine of ten layer pairs, sixteen pairs each.
    assert (counts["n_pairs"], counts["n_fdr_5"], counts["n_fdr_1"]) == (144, 1, 1)
    assert (counts["n_strongest"], counts["n_strongest_fdr_1"]) == (20, 1)
    assert counts["expected_above_all_pairs"] == pytest.approx(0.9)
    assert counts["largest_z"] == pytest.approx(found["z"])
    assert "m, OQ: 1 conditions have heads of different ranks, or no samples: not tested." in (
        TABLES["pair_findings"]([tested]).notes
    )


def test_within_layers_the_pairs_are_named_by_both_heads(tested):
    tests = pair_tests(tested.within("Q"))
    frame = tests.frame(np.isfinite(tests.q))
    assert len(frame) == 30
    for row in frame.to_dict("records"):
        assert row["layer"] == row["later_layer"]
        assert row["head"] < row["later_head"]
        assert row["rho"] == tested.overlaps["within/Q/rho"][row["layer"], row["head"], row["later_head"]]
    assert frame["p"].is_monotonic_increasing


def test_the_graph_has_the_strongest_edges_and_those_that_stand(tested):
    tests = edge_tests(tested)
    edges = edges_with_tests(tested.affinity, tests, k=3)
    graph = build_graph(edges, "pk", tested.shape)
    standing = set(tests[tests["standing"]].itertuples(index=False, name=None))
    assert len(standing) >= 1
    assert graph.size() == len(edges) == 9 + sum(pd.isna(edges["rank"]))
    planted = graph["0.1"]["2.3"]["OQ"]
    assert (planted["weight"], planted["rank"], planted["rho"]) == (3.6, 1, 0.9)
    assert planted["q"] < 0.01
    for source, target, data in graph.edges(data=True):
        assert data.get("rank", 0) in range(4)
        # Writers of layer 3 differ in rank: their edges were not tested.
        assert ("q" in data) == (graph.nodes[source]["layer"] != 3), (source, target)


def test_without_the_swap_null_it_is_said(tested):
    bare = random_model("bare", stages=("nulls",))
    for name in ("pair_findings", "standing_pairs"):
        table = TABLES[name]([bare])
        assert table.frame.empty
        assert table.notes[0] == "bare: no samples of the swap null."
    assert edge_tests(bare).empty
    observed = dataclasses.replace(bare, nulls=None)
    assert TABLES["significance"]([observed]).notes == ("No null samples: bare.",)
    assert edges_with_tests(tested.affinity, edge_tests(bare), k=2)["rank"].tolist() == [1, 2] * 3
