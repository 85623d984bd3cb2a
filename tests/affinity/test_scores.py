import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from support.gpt2_affinity import gpt2_affinity, gpt2_layers

from headspaces.affinity.informativeness import (
    bin_edges,
    divergence,
    informativeness,
    observed_counts,
    random_fractions,
)
from headspaces.affinity.run import SCORES, affinity
from headspaces.affinity.scores import nuclear_norms
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm, kv_heads_of
from headspaces.geometry.statistics import isotropic_sd

D_MODEL, D_HEAD, N_QUERY, N_KV = 20, 3, 4, 2
HEADS = {"O": N_QUERY, "Q": N_QUERY, "K": N_KV, "V": N_KV}


def random_layers(rng, n_layers=3, d_model=D_MODEL, heads=HEADS):
    return [
        LayerHeads(
            layer,
            {kind: rng.standard_normal((n, d_model, D_HEAD)) for kind, n in heads.items()},
            Norm("layernorm", rng.uniform(0.5, 2, d_model)),
        )
        for layer in range(n_layers)
    ]


def later_pairs(n_layers, n_source, n_target):
    return [
        (source, target, i, j)
        for source in range(n_layers)
        for target in range(source + 1, n_layers)
        for i in range(n_source)
        for j in range(n_target)
    ]


def pk(a, b):
    return np.sum(np.cos(scipy.linalg.subspace_angles(a, b)) ** 2)


def simple_cs(a, b):
    return np.linalg.norm(a.T @ b) / (np.linalg.norm(a) * np.linalg.norm(b))


def cka(a, b):
    """Linear CKA as Kornblith et al. write it: samples in rows, centred columns."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    return np.linalg.norm(a.T @ b) ** 2 / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))


def procrustes(a, b):
    rotation, _ = scipy.linalg.orthogonal_procrustes(b, a)
    return 1 - np.linalg.norm(a - b @ rotation) ** 2 / (np.linalg.norm(a) ** 2 + np.linalg.norm(b) ** 2)


def uncentred_cka(a, b):
    return np.sum((a @ a.T) * (b @ b.T)) / (np.linalg.norm(a @ a.T) * np.linalg.norm(b @ b.T))


ORACLES = {
    "simple_cs": simple_cs,
    "cka": lambda a, b: cka(a.T, b.T),
    "procrustes": lambda a, b: procrustes(a.T, b.T),
    "cka_invariant": uncentred_cka,
    "procrustes_invariant": procrustes,
}


@pytest.fixture(scope="module")
def layers():
    return random_layers(np.random.default_rng(1))


@pytest.fixture(scope="module")
def arrays(layers):
    return affinity([lambda: layers], same_kind=True)


class TestScores:
    @pytest.mark.parametrize("spaces", [x + y for x in "OQKV" for y in "OQKV"])
    def test_pk_is_the_sum_of_squared_cosines(self, layers, arrays, spaces):
        x, y = spaces
        assert arrays[f"pk/{spaces}"].shape == (3, 3, HEADS[x], HEADS[y])
        for source, target, i, j in later_pairs(3, HEADS[x], HEADS[y]):
            expected = pk(layers[source].factors[x][i], layers[target].factors[y][j])
            assert arrays[f"pk/{spaces}"][source, target, i, j] == pytest.approx(expected, abs=1e-12)

    def test_the_tolerance_of_ranks_reaches_pk(self, layers):
        """A space of which a tolerance leaves k directions has PK k with itself, and no more than k with any other."""
        rtol, ranks = 0.5, []
        found = affinity([lambda: layers], scores=[], rtol=rtol)
        for source, target, i, j in later_pairs(3, N_QUERY, N_QUERY):
            bases = []
            for factors in (layers[source].factors["O"][i], layers[target].factors["Q"][j]):
                u, s, _ = np.linalg.svd(factors, full_matrices=False)
                bases.append(u[:, s > rtol * s[0]])
            expected = np.sum((bases[0].T @ bases[1]) ** 2)
            assert found["pk/OQ"][source, target, i, j] == pytest.approx(expected, abs=1e-12)
            ranks += [basis.shape[1] for basis in bases]
        assert min(ranks) < layers[0].factors["O"].shape[2]

    @pytest.mark.parametrize("score", sorted(ORACLES))
    @pytest.mark.parametrize("kind", "QKV")
    def test_scores_of_the_weights(self, layers, arrays, score, kind):
        assert arrays[f"{score}/O{kind}"].shape == (3, 3, N_QUERY, HEADS[kind])
        for source, target, i, j in later_pairs(3, N_QUERY, HEADS[kind]):
            expected = ORACLES[score](layers[source].factors["O"][i], layers[target].factors[kind][j])
            assert arrays[f"{score}/O{kind}"][source, target, i, j] == pytest.approx(expected, abs=1e-12)

    def test_composition_score_of_full_products(self, layers, arrays):
        own = [0, 0, 1, 1]  # query heads 0, 1 read key-value head 0; 2, 3 read 1
        for source, target, i, j in later_pairs(3, N_QUERY, N_QUERY):
            one, other = layers[source].factors, layers[target].factors
            writes = one["O"][i] @ one["V"][own[i]].T
            matches = other["Q"][j] @ other["K"][own[j]].T
            moves = other["O"][j] @ other["V"][own[j]].T
            for kind, product, size in (
                ("Q", matches.T @ writes, matches), ("K", matches @ writes, matches), ("V", moves @ writes, moves),
            ):  # fmt: skip
                expected = np.linalg.norm(product) / (np.linalg.norm(writes) * np.linalg.norm(size))
                assert arrays[f"cs/O{kind}"][source, target, i, j] == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("score", ["pk", *sorted(ORACLES)])
    @pytest.mark.parametrize("kind", "OQKV")
    def test_pairs_of_one_kind_include_the_own_layer(self, layers, arrays, score, kind):
        oracle = ORACLES.get(score, pk)
        values = arrays[f"same_kind/{score}/{2 * kind}"]
        for source, target in [(0, 0), (1, 1), (0, 2)]:
            for i, j in np.ndindex(HEADS[kind], HEADS[kind]):
                expected = oracle(layers[source].factors[kind][i], layers[target].factors[kind][j])
                # A space's angles to itself are rounding errors: their squares stay below 1e-12.
                assert values[source, target, i, j] == pytest.approx(expected, abs=1e-11)
        assert np.isnan(values[2, 0]).all()

    def test_only_later_targets_have_values(self, arrays):
        for name, values in arrays.items():
            if name != "kl" and not name.startswith("same_kind"):
                defined = np.isfinite(values).all(axis=(2, 3))
                assert np.array_equal(defined, np.triu(np.ones((3, 3), bool), 1)), name
                assert np.isnan(values[~defined]).all()

    def test_blocks_change_nothing(self, layers, arrays):
        calls = []

        def reader(part):
            return lambda: calls.append(len(part)) or part

        parts = affinity([reader(layers[:1]), reader(layers[1:])], same_kind=True)
        assert parts.keys() == arrays.keys()
        for name, values in arrays.items():
            np.testing.assert_allclose(parts[name], values, atol=1e-13, err_msg=name)
        assert calls == [1, 2, 2]

    @pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
    def test_torch_gives_the_same_numbers(self, dtype, tolerance, layers, arrays):
        """What a GPU would run, on the CPU: one block, and a pair of blocks."""
        for blocks in ([layers], [layers[:2], layers[2:]]):
            readers = [lambda block=block: block for block in blocks]
            found = affinity(readers, same_kind=True, dtype=dtype, to_device=torch.asarray)
            assert found.keys() == arrays.keys()
            for name, values in arrays.items():
                if name != "kl":
                    assert isinstance(found[name], np.ndarray)
                    np.testing.assert_allclose(found[name], values, atol=tolerance, err_msg=name)

    def test_only_the_scores_asked_for(self, layers):
        groups = {name.split("/")[0] for name in affinity([lambda: layers], scores=["cs"])}
        assert groups == {"pk", "cs", "kl"}

    def test_bases_inside_heads(self, layers, arrays, rng):
        """Only the aligned forms of CKA and Procrustes depend on the basis that a head's dimensions happen to have."""
        rotated = [
            LayerHeads(
                one.layer,
                {
                    kind: stack @ np.linalg.qr(rng.standard_normal((len(stack), D_HEAD, D_HEAD)))[0]
                    for kind, stack in one.factors.items()
                },
                one.read_norm,
            )
            for one in layers
        ]
        turned = affinity([lambda: rotated])
        change = {
            score: np.nanmax(abs(turned[f"{score}/OQ"] - arrays[f"{score}/OQ"])) for score in ("pk", *SCORES)
            if score != "cs"
        }  # fmt: skip
        assert max(change[name] for name in ("pk", "simple_cs", "cka_invariant", "procrustes_invariant")) < 1e-12
        assert min(change[name] for name in ("cka", "procrustes")) > 0.05

    def test_pk_depends_on_the_spaces_alone(self, layers, arrays, rng):
        mixed = [
            LayerHeads(
                one.layer,
                {
                    kind: stack @ rng.standard_normal((len(stack), D_HEAD, D_HEAD))
                    for kind, stack in one.factors.items()
                },
                one.read_norm,
            )
            for one in layers
        ]
        changed = affinity([lambda: mixed], scores=["simple_cs"])
        np.testing.assert_allclose(changed["pk/KV"], arrays["pk/KV"], atol=1e-12)
        assert np.nanmax(abs(changed["simple_cs/OV"] - arrays["simple_cs/OV"])) > 0.01

    def test_folding_is_an_option_of_pk(self, layers, arrays):
        folded = affinity([lambda: layers], scores=["simple_cs"], fold_pk=True)
        gain = layers[1].read_norm.gain
        read = gain[:, None] * layers[1].factors["Q"][2]
        expected = pk(layers[0].factors["O"][3], read - read.mean(axis=0))
        assert folded["pk/OQ"][0, 1, 3, 2] == pytest.approx(expected, abs=1e-12)
        assert abs(expected - arrays["pk/OQ"][0, 1, 3, 2]) > 1e-3
        np.testing.assert_array_equal(folded["simple_cs/OQ"], arrays["simple_cs/OQ"])

    def test_float32(self, layers, arrays):
        single = affinity([lambda: layers], dtype="float32")
        for name, values in arrays.items():
            if name in single and name != "kl":
                assert single[name].dtype == np.float64
                np.testing.assert_allclose(single[name], values, atol=2e-5, err_msg=name)

    def test_a_zero_head_has_no_value(self):
        layers = random_layers(np.random.default_rng(2))
        layers[0].factors["O"][1] = 0
        arrays = affinity([lambda: layers])
        assert (arrays["pk/OQ"][0, 1:, 1] == 0).all()
        for score in SCORES:
            values = arrays[f"{score}/OQ"][0, 1:, 1]
            assert (values == 0).all() if score.startswith("procrustes") else np.isnan(values).all(), score
            assert np.isfinite(arrays[f"{score}/OQ"][0, 1:, 0]).all(), score

    def test_one_layer_has_no_pairs(self, layers):
        arrays = affinity([lambda: layers[:1]])
        assert arrays["pk/OQ"].shape == (1, 1, N_QUERY, N_QUERY)
        assert np.isnan(arrays["procrustes/OV"]).all()
        assert np.isnan(arrays["kl"]).all()

    def test_missing_kinds_are_named(self, layers):
        writes = [LayerHeads(one.layer, {"O": one.factors["O"]}, one.read_norm) for one in layers]
        with pytest.raises(InputError, match=r"layer 0: no weights of kind Q, K, V"):
            affinity([lambda: writes])


def test_query_heads_share_key_value_heads_in_runs():
    assert kv_heads_of(8, 2).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert kv_heads_of(3, 3).tolist() == [0, 1, 2]


def test_nuclear_norms_in_batches(rng, monkeypatch):
    left, right = rng.standard_normal((3, 7, 2)), rng.standard_normal((5, 7, 4))
    expected = [[np.linalg.norm(a.T @ b, "nuc") for b in right] for a in left]
    np.testing.assert_allclose(nuclear_norms(left, right), expected, rtol=1e-12)
    monkeypatch.setattr("headspaces.affinity.scores.GRAM_BYTES", 1)
    np.testing.assert_allclose(nuclear_norms(left, right), expected, rtol=1e-12)


class TestInformativeness:
    def test_reference_has_the_moments_of_random_subspaces(self):
        edges = bin_edges(64)
        assert len(edges) == 256
        assert (edges[0], edges[-1]) == (0, 64)
        fine = np.linspace(4, 7, 3001)
        fractions = random_fractions(fine, 768, 64)
        middles = (fine[1:] + fine[:-1]) / 2
        mean = fractions @ middles
        assert mean == pytest.approx(64 * 64 / 768, abs=1e-6)
        assert math.sqrt(fractions @ (middles - mean) ** 2) == pytest.approx(64 * isotropic_sd(768, 64), abs=1e-5)
        assert 64 * isotropic_sd(768, 64) == pytest.approx(0.10796, abs=5e-6)

    @pytest.mark.parametrize(("d_model", "d_head", "bin_of_all"), [(8, 8, 254), (8, 16, 127)])
    def test_heads_as_wide_as_the_stream_all_overlap_alike(self, d_model, d_head, bin_of_all):
        edges = bin_edges(d_head)
        assert edges[bin_of_all] <= d_model <= edges[bin_of_all + 1]
        fractions = random_fractions(edges, d_model, d_head)
        assert np.flatnonzero(fractions).tolist() == [bin_of_all]
        assert fractions.sum() == 1
        kl = informativeness({x + y: np.full(20, float(d_model)) for x in "QKVO" for y in "QKVO"}, d_model, d_head)
        assert (kl == 0).all()

    def test_divergence_is_that_of_scipy(self, rng):
        reference, counts = rng.dirichlet(np.ones(9)), rng.integers(1, 50, 9)
        assert divergence(reference, counts) == pytest.approx(scipy.stats.entropy(reference, counts))
        assert divergence(np.array([0.25, 0.75]), np.array([10, 30])) == pytest.approx(0, abs=1e-15)

    def test_empty_bins(self):
        # Where ten pairs are expected and none is found the divergence is infinite; a bin of few says nothing.
        assert divergence(np.array([0.8, 0.2]), np.array([50, 0])) == math.inf
        assert divergence(np.array([0.8, 0.2]), np.array([49, 0])) == pytest.approx(0, abs=1e-15)
        assert divergence(np.array([0.0, 0.1, 0.9]), np.array([49, 0, 0])) == math.inf
        assert divergence(np.array([0.0, 0.0]), np.array([4, 0])) == math.inf
        assert math.isnan(divergence(np.array([0.8, 0.2]), np.array([0, 0])))

    def test_counts_leave_out_what_is_no_pair(self):
        pairs = np.array([[np.nan, 0.5], [1.5, 4 + 1e-12]])
        assert observed_counts(np.array([0.0, 1, 2, 3, 4]), pairs).tolist() == [1, 1, 0, 1]

    def test_random_subspaces_are_not_informative(self, rng):
        bases = np.linalg.qr(rng.standard_normal((400, 96, 8)))[0]
        grams = np.einsum("ndi,mdj->nmij", bases[:200], bases[200:])
        pairs = (grams**2).sum(axis=(2, 3))
        kl = informativeness({x + y: pairs + 1.5 * (x != y) for x in "QKVO" for y in "QKVO"}, 96, 8)
        assert kl.shape == (4, 4)
        assert np.diag(kl).max() < 0.01
        assert kl[0, 1] == math.inf


KL = {
    "QQ": 2.876, "QK": 2.373, "QV": 1.493, "QO": 1.293, "KQ": 2.041, "KK": 2.559, "KV": 1.476, "KO": 1.263,
    "VQ": 1.686, "VK": 1.531, "VV": 1.659, "VO": 1.149, "OQ": 2.129, "OK": 2.194, "OV": 2.040, "OO": 1.704,
}  # fmt: skip


@pytest.fixture(scope="module")
def gpt2(gpt2_folder, tmp_path_factory):
    return gpt2_affinity(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")


class TestGPT2:
    """PK's published numbers on the weights that they were measured on."""

    def test_means(self, gpt2):
        assert np.isfinite(gpt2["pk/QQ"]).sum() == 9504
        assert np.nanmean(gpt2["pk/QQ"]) == pytest.approx(8.467, abs=5e-4)
        assert np.nanmean(gpt2["pk/VO"]) == pytest.approx(5.664, abs=5e-4)

    def test_divergences(self, gpt2):
        measured = {x + y: gpt2["kl"][i, j] for i, x in enumerate("QKVO") for j, y in enumerate("QKVO")}
        assert measured == pytest.approx(KL, abs=0.002)

    def test_folding_moves_the_mean(self, gpt2_folder, tmp_path_factory):
        layers = gpt2_layers(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")
        folded = affinity([lambda: layers], scores=[], fold_pk=True)
        assert np.nanmean(folded["pk/QQ"]) == pytest.approx(8.404, abs=5e-4)

    @pytest.mark.parametrize(
        ("score", "spaces", "cutoff", "limit"),
        [
            ("pk", "OQ", 12.25, 25.68), ("pk", "OK", 10.80, 38.51), ("pk", "OV", 10.45, 21.62),
            ("cs", "OQ", 0.0635, 0.1181), ("cs", "OK", 0.0619, 0.1043), ("cs", "OV", 0.0572, 0.1001),
        ],
    )  # fmt: skip
    def test_top_three_percent_and_limits(self, gpt2, score, spaces, cutoff, limit):
        found = np.nanpercentile(gpt2[f"{score}/{spaces}"], [97, 99.99])
        assert found == pytest.approx([cutoff, limit], abs=0.02 if score == "pk" else 0.0002)
