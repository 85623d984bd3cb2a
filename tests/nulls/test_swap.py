"""The swap null model: what it keeps, which law it keeps, and that nothing but the spaces enters it."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import subspace_angles
from support.project import ROOT

from headspaces.geometry.bases import Bases, block_bases, direct_sum, orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.statistics import above_all, below_all, monte_carlo_p, pair_statistics
from headspaces.nulls.draws import random_subspaces
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.nulls.shards import Shard, merge_shards, shard_attributes
from headspaces.nulls.swap import _by_eigenvectors, _by_singular_values, rounds, swapped
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.spaces import Shape
from headspaces.store import read_arrays
from headspaces.weights.blocks import each_layer

STATISTICS = ("spread", "mean", "median", "p95", "min_angle")


def projections(bases):
    return bases @ bases.swapaxes(1, 2)


def spaces(ranks, d_model, d_head, rng):
    """Orthonormal bases of these ranks that share a common direction, zero beyond the rank."""
    factors = rng.standard_normal((len(ranks), d_model, d_head)) + 2 * rng.standard_normal((d_model, 1))
    for factor, rank in zip(factors, ranks, strict=True):
        factor[:, rank:] = 0
    return orthonormal_bases(factors).basis


# The order of the pairs


@pytest.mark.parametrize("n", range(8))
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(n, rng):
    heads = np.arange(10, 10 + n)
    met = []
    for first, second in rounds(heads, rng):
        assert len({*first, *second}) == 2 * len(first) == 2 * (n // 2)
        met += [tuple(sorted(pair)) for pair in zip(first.tolist(), second.tolist(), strict=True)]
    assert sorted(met) == list(itertools.combinations(heads.tolist(), 2))


def test_every_order_of_the_rounds_and_its_reverse_are_as_likely(rng):
    """Of four heads: three rounds, in six orders."""
    orders = [
        tuple(min(int(two) for one, two in zip(first, second, strict=True) if 0 in (one, two)) or
              max(int(one) for one, two in zip(first, second, strict=True) if 0 in (one, two))
              for first, second in rounds(np.arange(4), rng))
        for _ in range(1200)
    ]  # fmt: skip
    counts = [orders.count(order) for order in itertools.permutations((1, 2, 3))]
    assert sum(counts) == 1200
    assert stats.chisquare(counts).pvalue > 1e-3


# One exchange


@pytest.mark.parametrize(("ranks", "d_model"), [((4, 4), 12), ((2, 4), 12), ((4, 3), 12), ((3, 4), 5)])
def test_an_exchange_is_that_of_the_principal_vectors(ranks, d_model, rng):
    """By their definition, with the numbers that were drawn; in 5 dimensions some angles are zero."""
    bases = spaces(ranks, d_model, 4, rng)
    seed = int(rng.integers(2**32))
    found = swapped(bases, np.array(ranks), np.random.default_rng(seed), 1)
    same = np.random.default_rng(seed)
    next(iter(rounds(np.arange(2), same)))
    exchanged = same.integers(0, 2, (1, 4), dtype=bool)[0]
    U, V = (basis[:, :rank] for basis, rank in zip(bases, ranks, strict=True))
    left, cosines, right = np.linalg.svd(U.T @ V)
    own, partners = U @ left, V @ right.T
    expected = [own.copy(), partners.copy()]
    for k in np.flatnonzero(exchanged[: len(cosines)]):
        expected[0][:, k], expected[1][:, k] = partners[:, k], own[:, k]
    if d_model > sum(ranks):
        np.testing.assert_allclose(projections(found), [one @ one.T for one in expected], atol=1e-12)
    np.testing.assert_allclose(projections(found).sum(axis=0), projections(bases).sum(axis=0), atol=1e-13)
    new = [basis[:, :rank] for basis, rank in zip(found, ranks, strict=True)]
    np.testing.assert_allclose(np.cos(subspace_angles(*new)), np.cos(subspace_angles(U, V)), atol=1e-12)
    assert not np.allclose(projections(found), projections(bases), atol=1e-3)


def test_a_vector_and_its_partner_are_exchanged_with_probability_one_half(rng):
    bases = spaces((2, 2), 8, 2, rng)
    stayed = [round(2 * np.sum((bases[0].T @ swapped(bases, np.array([2, 2]), rng, 1)[0]) ** 2), 6) for _ in range(400)]
    values, counts = np.unique(stayed, return_counts=True)
    assert len(values) == 4
    assert stats.chisquare(counts).pvalue > 1e-3


# What a hundred sweeps keep


@pytest.mark.parametrize("ranks", [(4, 4, 4, 4, 4), (4, 2, 4, 3, 1, 0), (4, 4, 4, 4, 4, 4, 4)])
def test_the_sum_of_the_projections_stays(ranks, rng):
    bases, readers = spaces(ranks, 24, 4, rng), spaces((4, 4, 4), 24, 4, rng)
    ranks = np.array(ranks)
    found = swapped(bases, ranks, rng, 100)
    of_readers = swapped(readers, np.full(3, 4), rng, 100)
    assert np.linalg.norm(projections(found) - projections(bases)) > 1
    for basis, rank in zip(found, ranks, strict=True):
        np.testing.assert_allclose(basis[:, :rank].T @ basis[:, :rank], np.eye(rank), atol=1e-14)
        assert not basis[:, rank:].any()
    np.testing.assert_allclose(projections(found).sum(axis=0), projections(bases).sum(axis=0), atol=1e-12)
    pairs = np.triu_indices(len(ranks), 1)
    means = [squared_overlaps(one, one)[pairs].mean() for one in (bases, found)]
    assert means[1] == pytest.approx(means[0], abs=1e-12)
    across = [squared_overlaps(one, two).mean() for one, two in ((bases, readers), (found, of_readers))]
    assert across[1] == pytest.approx(across[0], abs=1e-12)
    before, after = (direct_sum(Bases(one, np.ones((len(ranks), 4)), ranks)) for one in (bases, found))
    assert (after.rank, after.deficiency) == (before.rank, before.deficiency)
    assert after.lambda_min == pytest.approx(before.lambda_min, abs=1e-12)
    spreads = [squared_overlaps(one, one)[pairs].std() for one in (bases, found)]
    assert spreads[1] != pytest.approx(spreads[0], rel=1e-3)


def test_a_small_lambda_min_stays(rng):
    """Heads that nearly fill the space: the smallest eigenvalue of S is 1e-4 and less."""
    bases = random_subspaces(6, 24, 4, rng)
    ranks = np.full(6, 4)
    found = swapped(bases, ranks, rng, 100)
    before, after = (direct_sum(Bases(one, np.ones((6, 4)), ranks)) for one in (bases, found))
    assert 0 < before.lambda_min < 0.01
    assert after.lambda_min == pytest.approx(before.lambda_min, abs=1e-12)


def test_single_precision_keeps_means_to_its_rounding(rng):
    bases = spaces((8,) * 6, 64, 8, rng)
    found = swapped(bases.astype(np.float32), np.full(6, 8), rng, 20)
    assert found.dtype == np.float32
    pairs = np.triu_indices(6, 1)
    np.testing.assert_allclose(found.swapaxes(1, 2) @ found, np.tile(np.eye(8), (6, 1, 1)), atol=2e-6)
    means = [squared_overlaps(one, one)[pairs].mean() / 8 for one in (bases, found)]
    assert means[1] == pytest.approx(means[0], abs=1e-6)


def test_single_precision_finds_the_principal_vectors_of_the_singular_values(rng):
    """Also where a cosine is small; where one is too small for eigenvectors, or ranks differ, they are not asked."""
    for smallest in (1e-2, 1e-4, 0.0):
        left, right = (np.linalg.qr(rng.standard_normal((3, 8, 8)))[0] for _ in range(2))
        cosines = np.array([0.9, 0.5, 0.3, 0.2, 0.1, 0.06, 0.03, smallest])
        grams = (left * cosines) @ right.swapaxes(1, 2)
        found = _by_eigenvectors(grams)
        assert (found is None) == (smallest == 0.0)
        w, v = found or _by_singular_values(grams)
        for rotation in (w, v):
            np.testing.assert_allclose(
                rotation @ rotation.swapaxes(1, 2), np.broadcast_to(np.eye(8), (3, 8, 8)), atol=1e-14
            )
        diagonal = w.swapaxes(1, 2) @ grams @ v.swapaxes(1, 2)
        np.testing.assert_allclose(diagonal, np.broadcast_to(np.diag(cosines), (3, 8, 8)), atol=1e-11)


def test_torch_gives_the_same_spaces(rng):
    """What a GPU would run, on the CPU."""
    ranks = np.array([4, 2, 4, 0, 3])
    bases, seed = spaces(ranks.tolist(), 24, 4, rng), int(rng.integers(2**32))
    expected = swapped(bases, ranks, np.random.default_rng(seed), 2)
    found = swapped(torch.asarray(bases), ranks, np.random.default_rng(seed), 2)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(projections(found.numpy()), projections(expected), atol=1e-9)


# The law


def invariants(bases):
    """Of the first three spaces together, and of the first one beside a fixed space."""
    P = projections(bases[:3])
    return np.trace(P[0] @ P[1] @ P[2]), np.sum(bases[0, :3] ** 2)


def test_uniform_spaces_stay_uniform(rng):
    """Independent uniform spaces before a sweep and other ones after it: two samples of one law."""
    ranks = np.full(4, 3)
    before = np.array([invariants(random_subspaces(4, 8, 3, rng)) for _ in range(700)])
    after = np.array([invariants(swapped(random_subspaces(4, 8, 3, rng), ranks, rng, 1)) for _ in range(700)])
    for one, other in zip(before.T, after.T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-3


def clustered(rng):
    """Two pairs of nearly equal spaces."""
    factors = np.repeat(rng.standard_normal((2, 8, 3)), 2, axis=0) + 0.2 * rng.standard_normal((4, 8, 3))
    return np.linalg.qr(factors)[0]


def four_heads_spread(bases):
    return np.std([np.sum((bases[i].T @ bases[j]) ** 2) for i, j in itertools.combinations(range(4), 2)])


def test_different_starts_end_alike_and_one_sweep_is_not_enough(rng):
    """A clustered start, many times, and the chain's own states from its 50th sweep on."""
    start, ranks = clustered(rng), np.full(4, 3)
    state, long_run = swapped(start, ranks, rng, 50), []
    for _ in range(150):
        state = swapped(state, ranks, rng, 2)
        long_run.append(four_heads_spread(state))
    assert four_heads_spread(start) > 2 * np.mean(long_run)
    ends = {sweeps: [four_heads_spread(swapped(start, ranks, rng, sweeps)) for _ in range(150)] for sweeps in (1, 12)}
    assert stats.ks_2samp(ends[12], long_run).pvalue > 1e-3
    assert stats.ks_2samp(ends[1], long_run).pvalue < 1e-9


# Samples of a model


def synthetic(shape, kinds, rng):
    """Weights with a common direction, layer by layer."""
    return [
        LayerHeads(layer, {
            kind: rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head))
            + rng.standard_normal((shape.d_model, 1))
            for kind in kinds
        }, Norm("none"))
        for layer in range(shape.n_layers)
    ]  # fmt: skip


def run_of(layers, shape, kinds, burn_in=2, first=0, **settings):
    bases = block_bases(layers, fold_norms=False)
    dtype = settings.get("dtype", "float64")
    start = burnt_in(bases, first, seed=7, model="model", burn_in=burn_in, dtype=dtype)
    return SwapRun(
        lambda layer, kind: start[f"{layer}/{kind}"], shape, kinds, "model", 7, burn_in=burn_in, **settings
    )  # fmt: skip


@pytest.fixture(scope="module")
def small():
    shape = Shape(n_layers=3, d_model=24, n_query_heads=4, n_kv_heads=3, d_head=4)
    layers = synthetic(shape, "OQKV", np.random.default_rng(1))
    return run_of(layers, shape, "OQKV", figure_layers={"O": 1, "Q": 0, "K": 2, "V": None})


def observed(run):
    """Rho of the burnt-in bases themselves, within and across."""
    heads = {
        (layer, kind): run.factors(layer, kind)
        for layer, kind in itertools.product(range(run.shape.n_layers), run.kinds)
    }
    return {
        (*one, *other): squared_overlaps(heads[one], heads[other]) / run.shape.d_head
        for one in heads for other in heads
    }  # fmt: skip


def test_a_sample_has_all_fields_and_keeps_every_mean(small):
    found = null_shard(small, "swap", range(3))
    others = null_shard(NullRun(small.factors, small.shape, "OQKV", "model", 7,
                                figure_layers=small.figure_layers), "rotation", range(3))  # fmt: skip
    tails = {
        f"{place}/swap/{name}"
        for place in [*(f"within/{kind}" for kind in "OQKV"), *(f"cross/O{kind}" for kind in "QKV")]
        for name in ("max", "skewness")
    }
    assert set(found) == {name.replace("rotation", "swap") for name in others} | tails
    assert all(found[name.replace("rotation", "swap")].shape == array.shape for name, array in others.items())
    np.testing.assert_array_equal(found["within/K/swap/max"][:, 2], found["pairs/K/swap/rho"].max(axis=1))
    rho = observed(small)
    for kind in "OQKV":
        pairs = np.triu_indices(small.shape.n_heads(kind), 1)
        for layer in range(3):
            expected = rho[layer, kind, layer, kind][pairs]
            np.testing.assert_allclose(found[f"within/{kind}/swap/mean"][:, layer], expected.mean(), atol=1e-13)
            assert len({expected.std(), *found[f"within/{kind}/swap/spread"][:, layer]}) == 4
    for kind, (writer, reader) in itertools.product("QKV", itertools.combinations(range(3), 2)):
        expected = rho[writer, "O", reader, kind]
        np.testing.assert_allclose(found[f"cross/O{kind}/swap/mean"][:, writer, reader], expected.mean(), atol=1e-13)
        assert len({expected.std(), *found[f"cross/O{kind}/swap/spread"][:, writer, reader]}) == 4


@pytest.mark.parametrize("size", [1, 2, 6])
def test_shards_of_any_size_merge_to_the_same_bits(size, small):
    undivided = null_shard(small, "swap", range(6))
    shards = [
        Shard(f"swap-{start}.h5", shard_attributes(small, "swap", range(start, start + size)),
              null_shard(small, "swap", range(start, start + size)))
        for start in range(0, 6, size)
    ]  # fmt: skip
    assert (shards[0].attributes["burn_in"], shards[0].attributes["sweeps"]) == (2, 1)
    for name, array in merge_shards(shards[::-1], 6).items():
        np.testing.assert_array_equal(array, undivided[name])


def test_shards_of_other_settings_are_refused_and_other_nulls_have_none(small):
    def shard(run, null, start, **changed):
        samples = range(start, start + 1)
        return Shard(f"{null}-{start}.h5", shard_attributes(run, null, samples) | changed, {})

    plain = NullRun(small.factors, small.shape, "OQKV", "model", 7)
    good = [shard(plain, "rotation", 0, code_sha256="a"), shard(small, "swap", 0, code_sha256="b")]
    merge_shards([*good, shard(small, "swap", 1, code_sha256="b")], 1)
    for key, value in (("sweeps", 3), ("burn_in", 9), ("code_sha256", "a")):
        other = shard(small, "swap", 1, **{"code_sha256": "b", key: value})
        with pytest.raises(ValueError, match=rf"^swap-1\.h5: {key} is {value!r}, expected"):
            merge_shards([*good, other], 1)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    shape = Shape(n_layers=2, d_model=160, n_query_heads=5, n_kv_heads=5, d_head=32)
    layers = synthetic(shape, "OQ", np.random.default_rng(2))
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(null_shard(run_of(layers, shape, "OQ"), "swap", range(2)))
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


def test_the_burn_in_does_not_depend_on_the_block(rng):
    shape = Shape(n_layers=3, d_model=20, n_query_heads=3, n_kv_heads=3, d_head=2)
    layers = synthetic(shape, "OQ", rng)
    settings = {"seed": 1, "model": "m", "burn_in": 2, "dtype": "float64"}
    whole = burnt_in(block_bases(layers, fold_norms=False), 0, **settings)
    part = burnt_in(block_bases(layers[1:], fold_norms=False), 1, **settings)
    assert set(part) == {"1/O", "1/Q", "2/O", "2/Q"}
    for name, bases in part.items():
        np.testing.assert_array_equal(bases, whole[name])
    for changed in ({"seed": 2}, {"model": "n"}, {"burn_in": 3}):
        other = burnt_in(block_bases(layers[1:], fold_norms=False), 1, **settings | changed)
        assert all(not np.allclose(projections(other[name]), projections(part[name])) for name in part)


def test_only_the_spaces_count(rng):
    """Another basis inside every head: the same draw gives the same sample; RW's nulls give another one."""
    shape = Shape(n_layers=2, d_model=24, n_query_heads=4, n_kv_heads=4, d_head=4)
    layers = synthetic(shape, "OQ", rng)
    changed = [
        dataclasses.replace(layer, factors={
            kind: factors @ rng.standard_normal((4, 4, 4)) for kind, factors in layer.factors.items()
        })
        for layer in layers
    ]  # fmt: skip
    one, other = (null_shard(run_of(maps, shape, "OQ", burn_in=1), "swap", range(2)) for maps in (layers, changed))
    for name, array in one.items():
        np.testing.assert_allclose(other[name], array, atol=1e-6 if name.endswith("angle") else 1e-8)
    for null in ("rotation", "reassignment"):
        plain = [
            null_shard(NullRun(lambda layer, kind, maps=maps: maps[layer].factors[kind], shape, "OQ", "model", 7),
                       null, range(2))
            for maps in (layers, changed)
        ]  # fmt: skip
        for name in (f"within/O/{null}/mean", f"within/O/{null}/spread"):
            assert abs(plain[0][name] - plain[1][name]).min() > 1e-3


def test_two_live_heads_are_undefined_within_and_move_across(rng):
    shape = Shape(n_layers=2, d_model=20, n_query_heads=4, n_kv_heads=2, d_head=3)
    layers = synthetic(shape, "OQK", rng)
    layers[0].factors["Q"][:2] = 0
    found = null_shard(run_of(layers, shape, "OQK", figure_layers={"K": 1}), "swap", range(3))
    for name in STATISTICS:
        assert np.isnan(found[f"within/K/swap/{name}"]).all()
        assert np.isnan(found[f"within/Q/swap/{name}"][:, 0]).all()
        assert np.isfinite(found[f"within/Q/swap/{name}"][:, 1]).all()
        assert np.isfinite(found[f"within/O/swap/{name}"]).all()
    assert np.isnan(found["pairs/K/swap/rho"]).all()
    assert len(np.unique(found["cross/OK/swap/spread"][:, 0, 1])) == 3


def test_dead_heads_are_left_alone(rng):
    shape = Shape(n_layers=1, d_model=20, n_query_heads=5, n_kv_heads=5, d_head=3)
    layers = synthetic(shape, "O", rng)
    layers[0].factors["O"][2] = 0
    run = run_of(layers, shape, "O", figure_layers={"O": 0})
    rho = null_shard(run, "swap", range(2))["pairs/O/swap/rho"]
    with_the_dead = np.array([2 in pair for pair in itertools.combinations(range(5), 2)])
    assert np.isnan(rho[:, with_the_dead]).all()
    assert np.isfinite(rho[:, ~with_the_dead]).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_samples_in_torch(dtype, rng):
    shape = Shape(n_layers=2, d_model=24, n_query_heads=4, n_kv_heads=4, d_head=4)
    run = run_of(synthetic(shape, "OQ", rng), shape, "OQ", dtype=dtype)
    field = next(name for name in ("to_device", "place") if hasattr(run, name))
    expected = null_shard(run, "swap", range(1))
    found = null_shard(dataclasses.replace(run, **{field: torch.asarray}), "swap", range(1))
    for name, array in expected.items():
        exact = dtype == "float64"
        tolerance = (1e-6 if exact else 0.5) if name.endswith("angle") else (1e-9 if exact else 1e-3)
        np.testing.assert_allclose(found[name], array, atol=tolerance)


def test_nothing_is_found_where_there_is_nothing():
    """Heads that are drawn from the null's own law: burnt in as long as a sample takes, p is uniform exactly."""
    shape = Shape(n_layers=100, d_model=12, n_query_heads=4, n_kv_heads=4, d_head=3)
    rng = np.random.default_rng(3)
    layers = [
        LayerHeads(layer, {"O": rng.standard_normal((4, 12, 3))}, Norm("none")) for layer in range(shape.n_layers)
    ]
    run = run_of(layers, shape, "O", burn_in=1)
    samples = null_shard(run, "swap", range(4))["within/O/swap/spread"]
    pairs = np.triu_indices(4, 1)
    bases = block_bases(layers, fold_norms=False)["O/basis"]
    spreads = pair_statistics(np.stack([squared_overlaps(one, one)[pairs] / 3 for one in bases]))["spread"]
    counts = np.bincount(np.rint(5 * monte_carlo_p(spreads, samples)).astype(int), minlength=6)[1:]
    assert counts.sum() == shape.n_layers
    assert stats.chisquare(counts).pvalue > 1e-3


def test_planted_clusters_are_found(rng):
    shape = Shape(n_layers=4, d_model=24, n_query_heads=5, n_kv_heads=5, d_head=4)
    layers = synthetic(shape, "O", rng)
    layers[2].factors["O"][4] = layers[2].factors["O"][1] + 0.4 * rng.standard_normal((24, 4))
    samples = null_shard(run_of(layers, shape, "O", burn_in=4), "swap", range(19))["within/O/swap/spread"]
    bases = block_bases(layers, fold_norms=False)["O/basis"]
    pairs = np.triu_indices(5, 1)
    spreads = np.array([squared_overlaps(one, one)[pairs].std() / 4 for one in bases])
    assert spreads[2] > 1.5 * samples[:, 2].max()
    assert (spreads[[0, 1, 3]] < 1.5 * samples[:, [0, 1, 3]].max(axis=0)).all()


# SmolLM2, where the demo has been run

DEMO = "smollm2-135m-instruct"
DEMO_SHAPE = Shape(n_layers=30, d_model=576, n_query_heads=9, n_kv_heads=3, d_head=64)


@pytest.fixture(scope="module")
def demo():
    """Give observed overlaps, bases and folded factors of the demo's trained model."""
    folders = {name: ROOT / "results" / name / DEMO for name in ("bases", "weights")}
    if not all(folder.is_dir() for folder in folders.values()):
        pytest.skip("the demo has not been run here")
    (bases,) = folders["bases"].glob("*.h5")
    factors = {
        (layer.layer, kind): fold(layer, kind)
        for block in sorted(folders["weights"].glob("*.safetensors"))
        for layer in each_layer(block)
        for kind in "OQKV"
    }
    overlaps = read_arrays(ROOT / "results" / "overlaps" / f"{DEMO}.h5", "overlaps")
    return overlaps, read_arrays(bases, "bases"), factors


def within(overlaps, kind):
    rho = overlaps[f"within/{kind}/rho"]
    return pair_statistics(rho[:, *np.triu_indices(rho.shape[1], 1)])


@pytest.mark.campaign
def test_the_trained_model_against_the_swap_null(demo):
    overlaps, bases, _ = demo
    start = burnt_in(bases, 0, seed=0, model=DEMO, burn_in=10, dtype="float64")
    run = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], DEMO_SHAPE, "OQKV", DEMO, 0, burn_in=10)
    samples = null_shard(run, "swap", range(10))
    for kind, r in {"O": 20.6, "Q": 10.4, "K": 4.6, "V": 6.4}.items():
        observed, spread = within(overlaps, kind), samples[f"within/{kind}/swap/spread"]
        assert above_all(observed["spread"], spread).all()
        assert np.median(observed["spread"] / spread.max(axis=0)) == pytest.approx(r, rel=0.2)
        means = samples[f"within/{kind}/swap/mean"]
        np.testing.assert_allclose(means, np.tile(observed["mean"], (10, 1)), atol=1e-13)
    writer, reader = np.triu_indices(30, 1)
    for kind, r in {"Q": 4.4, "K": 4.4, "V": 6.1}.items():
        observed = pair_statistics(overlaps[f"cross/O{kind}/rho"][writer, reader].reshape(435, -1))
        spread, mean = (samples[f"cross/O{kind}/swap/{name}"][:, writer, reader] for name in ("spread", "mean"))
        assert 415 <= above_all(observed["spread"], spread).sum() <= 430
        assert np.median(observed["spread"] / spread.max(axis=0)) == pytest.approx(r, rel=0.1)
        np.testing.assert_allclose(mean, np.tile(observed["mean"], (10, 1)), atol=1e-13)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["O", "K"])
def test_where_the_mean_lies_beside_the_mixing_nulls_is_a_matter_of_the_basis(kind, demo):
    """The same spaces, given by the stored and by orthonormal columns: below all samples, and above nearly all."""
    overlaps, bases, factors = demo
    mean, orthonormal = within(overlaps, kind)["mean"], bases[f"{kind}/basis"]
    columns = {"stored": lambda layer, kind: factors[layer, kind], "orthonormal": lambda layer, _: orthonormal[layer]}
    below, above = {}, {}
    for name, of_layer in columns.items():
        run = NullRun(of_layer, DEMO_SHAPE, kind, DEMO, 0)
        samples = [
            null_shard(run, null, range(10))[f"within/{kind}/{null}/mean"] for null in ("rotation", "reassignment")
        ]
        below[name], above[name] = below_all(mean, *samples).sum(), above_all(mean, *samples).sum()
    assert (below["stored"], above["stored"]) == (pytest.approx(27, abs=2), 0)
    assert (below["orthonormal"], above["orthonormal"]) == (0, pytest.approx(29, abs=1))
