"""Self-head overlap: permutation tests against enumeration and null simulations, overlaps against scipy (RW H)."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import subspace_angles

from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.nulls.self_heads import COMPARISONS, label_matrix, label_test, self_heads

D, WIDTH = 24, 3


def random_block(rng, n_layers=2, n_query=4, n_kv=2, first=0):
    heads = {"O": n_query, "Q": n_query, "K": n_kv, "V": n_kv}
    layers = [
        LayerHeads(
            first + number, {kind: rng.normal(size=(count, D, WIDTH)) for kind, count in heads.items()}, Norm("none")
        )
        for number in range(n_layers)
    ]
    return layers, block_bases(layers, fold_norms=True)


def strong_diagonal(labels):
    return np.eye(labels) + np.random.default_rng(0).uniform(0, 0.1, size=(labels, labels))


@pytest.mark.parametrize(("labels", "smallest"), [(4, 1 / 24), (3, 1 / 6), (2, 1 / 2), (1, 1.0)])
def test_the_smallest_p_of_all_permutations_is_one_over_their_number(rng, labels, smallest):
    assert label_test(strong_diagonal(labels), rng)["p"] == pytest.approx(smallest, rel=1e-15)
    assert label_test(-strong_diagonal(labels), rng)["p"] == 1.0


def test_the_smallest_p_of_random_permutations_is_never_zero(rng):
    found = label_test(strong_diagonal(12), rng)
    assert (found["p"], found["n_permutations"], found["exhaustive"]) == (1 / 10_001, 10_000, 0)
    assert label_test(-strong_diagonal(12), rng)["p"] == 1.0


def test_all_permutations_are_counted(rng):
    for _ in range(20):
        overlaps = rng.uniform(size=(4, 4))
        sums = [sum(overlaps[i, j] for i, j in enumerate(order)) for order in itertools.permutations(range(4))]
        found = label_test(overlaps, rng)
        assert found["p"] == pytest.approx(sum(value >= np.trace(overlaps) - 1e-12 for value in sums) / 24, abs=1e-15)
        assert found["own"] == pytest.approx(np.trace(overlaps) / 4)
        assert found["others"] == pytest.approx(overlaps[~np.eye(4, dtype=bool)].mean())
        assert (found["n_permutations"], found["exhaustive"]) == (24, 1)


def test_random_permutations_come_near_all_of_them(rng):
    overlaps = rng.uniform(size=(6, 6))
    exact = label_test(overlaps, rng)
    sampled = label_test(overlaps, rng, n_permutations=700)
    assert (exact["exhaustive"], sampled["exhaustive"], sampled["n_permutations"]) == (1, 0, 700)
    assert sampled["p"] == pytest.approx(exact["p"], abs=4 * np.sqrt(0.25 / 700))


def test_equal_overlaps_are_no_evidence(rng):
    # 0.1 summed in another order rounds differently: that must not look like less.
    assert label_test(np.full((5, 5), 0.1), rng)["p"] == 1.0
    assert label_test(np.full((9, 9), 0.1), rng)["p"] == 1.0


@pytest.mark.parametrize(("labels", "n_permutations"), [(5, 10_000), (9, 999)])
def test_p_is_uniform_where_labels_mean_nothing(labels, n_permutations):
    rng = np.random.default_rng(5)
    p = np.array([label_test(rng.normal(size=(labels, labels)), rng, n_permutations)["p"] for _ in range(400)])
    assert stats.kstest(p, "uniform").pvalue > 0.05
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 400))


def test_an_undefined_overlap_leaves_no_p(rng):
    overlaps = rng.uniform(size=(3, 3))
    overlaps[0, 0] = np.nan
    found = label_test(overlaps, rng)
    assert np.isnan(found["own"])
    assert np.isnan(found["p"])


def test_groups_average_over_their_query_heads():
    rho = np.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(label_matrix(rho), [[1, 4], [7, 10]])
    np.testing.assert_array_equal(label_matrix(rho.T), [[1, 7], [4, 10]])
    square = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(label_matrix(square), square)


def test_overlaps_are_those_of_the_layers_own_spaces(rng):
    layers, block = random_block(rng)
    found = self_heads([block], seed=0, model="m")
    for spaces in COMPARISONS:
        one, other = (layers[1].factors[kind] for kind in spaces)
        expected = [[np.mean(np.cos(subspace_angles(left, right)) ** 2) for right in other] for left in one]
        np.testing.assert_allclose(found[f"{spaces}/rho"][1], expected, rtol=1e-10)
    # Query heads 0, 1 belong to key-value head 0, heads 2, 3 to head 1.
    rho = found["VO/rho"][1]
    own = [rho[0, 0], rho[0, 1], rho[1, 2], rho[1, 3]]
    assert found["VO/own"][1] == pytest.approx(np.mean(own))
    assert found["VO/others"][1] == pytest.approx((rho.sum() - np.sum(own)) / 4)
    assert found["VO/n_permutations"].tolist() == [2, 2]
    assert found["QO/n_permutations"].tolist() == [24, 24]


def test_a_head_that_reads_what_it_writes_is_found(rng):
    layers, _ = random_block(rng, n_query=5, n_kv=5)
    for layer in layers:
        layer.factors["V"][:] = layer.factors["O"] @ rng.normal(size=(WIDTH, WIDTH))
    found = self_heads([block_bases(layers, fold_norms=True)], seed=0, model="m")
    np.testing.assert_allclose(found["VO/own"], 1.0, rtol=1e-12)
    np.testing.assert_allclose(found["VO/p"], 1 / 120)
    assert (found["QK/own"] < 0.5).all()


def test_the_draws_depend_on_the_layer_and_not_on_the_blocks(rng):
    layers, _ = random_block(rng, n_layers=3, n_query=9, n_kv=9)
    # Three layers with the same spaces: only the draws can differ.
    layers = [LayerHeads(number, layers[0].factors, Norm("none")) for number in range(3)]
    whole = self_heads([block_bases(layers, fold_norms=True)], seed=0, model="m", n_permutations=500)
    parts = [block_bases(part, fold_norms=True) for part in (layers[:1], layers[1:])]
    np.testing.assert_array_equal(self_heads(parts, seed=0, model="m", n_permutations=500)["QO/p"], whole["QO/p"])
    assert len(set(whole["QO/p"])) > 1
    other_seed = self_heads(parts, seed=1, model="m", n_permutations=500)
    other_model = self_heads(parts, seed=0, model="n", n_permutations=500)
    for other in (other_seed, other_model):
        assert (other["QO/p"] != whole["QO/p"]).any()
        np.testing.assert_array_equal(other["QO/own"], whole["QO/own"])


def test_kinds_that_are_missing_are_left_out(rng):
    _, block = random_block(rng)
    without = {name: array for name, array in block.items() if "V" not in name}
    assert {name[:2] for name in self_heads([without], seed=0, model="m")} == {"QK", "QO"}
