import dataclasses
import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import subspace_angles

from headspaces.errors import InputError
from headspaces.geometry.closest_pair import pairs_within
from headspaces.geometry.pairs import layer_overlaps
from headspaces.geometry.statistics import (
    above_all,
    isotropic_mean,
    isotropic_sd,
    monte_carlo_p,
    pair_statistics,
    spread_ratio,
)
from headspaces.nulls.draws import generator, reassigned, rotated
from headspaces.nulls.samples import NullRun, null_shard, random_reference
from headspaces.nulls.shards import Shard, merge_shards, shard_attributes
from headspaces.spaces import Shape

NULLS = {"rotation": rotated, "reassignment": reassigned}
STATISTICS = ("spread", "mean", "median", "p95", "min_angle")


def weights(shape, kinds, seed=0):
    rng = np.random.default_rng(seed)
    return {
        (layer, kind): rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head))
        for layer in range(shape.n_layers)
        for kind in kinds
    }


def run_of(maps, shape, kinds, **settings):
    return NullRun(lambda layer, kind: maps[layer, kind], shape, kinds, "model", 7, **settings)


@pytest.fixture(scope="module")
def small():
    """Three layers of a model with grouped queries."""
    shape = Shape(n_layers=3, d_model=24, n_query_heads=4, n_kv_heads=2, d_head=3)
    return run_of(weights(shape, "OQKV"), shape, "OQKV", figure_layers={"O": 1, "Q": 0, "K": 2, "V": None})


def both(run, samples):
    return null_shard(run, "rotation", samples) | null_shard(run, "reassignment", samples)


def stored(run, null, samples, **changed):
    attributes = {**shard_attributes(run, null, samples), "weights": "abc", **changed}
    return Shard(f"{null}-{samples.start}.h5", attributes, null_shard(run, null, samples))


# What a sample is


@pytest.mark.parametrize("null", NULLS)
def test_a_sample_is_the_statistics_of_its_draws(null, small):
    """Every field, from the same draws, by scipy's angles, one pair at a time."""
    found = null_shard(small, null, range(5, 6))
    heads = {}
    for layer, kind in itertools.product(range(3), "OQKV"):
        factors = small.factors(layer, kind)
        matrix = np.concatenate(list(factors), axis=1)
        drawn = NULLS[null](matrix, generator(7, "model", layer, kind, null, 5))
        heads[layer, kind] = np.split(drawn, len(factors), axis=1)

    for kind in "OQKV":
        for layer in range(3):
            pairs = [subspace_angles(u, v) for u, v in itertools.combinations(heads[layer, kind], 2)]
            rho = np.array([np.mean(np.cos(pair) ** 2) for pair in pairs])
            expected = {
                "spread": np.std(rho),
                "mean": np.mean(rho),
                "median": np.median(rho),
                "p95": np.quantile(rho, 0.95),
                "min_angle": np.degrees(min(pair[-1] for pair in pairs)),
            }
            for name in STATISTICS:
                value = found[f"within/{kind}/{null}/{name}"]
                assert value.shape == (1, 3)
                assert value[0, layer] == pytest.approx(expected[name], abs=1e-9 if name == "min_angle" else 1e-12)
            if small.figure_layers.get(kind) == layer:
                np.testing.assert_allclose(found[f"pairs/{kind}/{null}/rho"], [rho], atol=1e-12)
                assert found[f"pairs/{kind}/layer"] == layer
    for kind in "QKV":
        for writer, reader in np.ndindex(3, 3):
            values = [found[f"cross/O{kind}/{null}/{name}"] for name in ("spread", "mean")]
            assert values[0].shape == (1, 3, 3)
            if reader <= writer:
                assert np.isnan([value[0, writer, reader] for value in values]).all()
                continue
            rho = [np.mean(np.cos(subspace_angles(u, v)) ** 2) for u in heads[writer, "O"] for v in heads[reader, kind]]
            np.testing.assert_allclose(
                [value[0, writer, reader] for value in values], [np.std(rho), np.mean(rho)], atol=1e-12
            )
    assert "pairs/V/layer" not in found
    assert f"pairs/V/{null}/rho" not in found


def test_samples_differ_and_writers_and_readers_are_independent(small):
    """Equal weights of O and Q must not be permuted alike."""
    maps = weights(small.shape, "OQ")
    maps |= {(layer, "Q"): maps[layer, "O"] for layer in range(3)}
    found = both(run_of(maps, small.shape, "OQ"), range(6))
    for null in NULLS:
        spreads = {kind: found[f"within/{kind}/{null}/spread"] for kind in "OQ"}
        assert len(np.unique(np.r_[spreads["O"].ravel(), spreads["Q"].ravel()])) == 36


def test_other_kinds_change_nothing(small):
    alone = null_shard(dataclasses.replace(small, kinds="K"), "rotation", range(2))
    together = null_shard(small, "rotation", range(2))
    assert set(alone) == {"pairs/K/rotation/rho", "pairs/K/layer"} | {
        f"within/K/rotation/{name}" for name in STATISTICS
    }
    for name, array in alone.items():
        np.testing.assert_array_equal(array, together[name])


def test_reads_alone_have_no_comparison_across_layers(small):
    found = null_shard(dataclasses.replace(small, kinds="QV"), "reassignment", range(1))
    assert not [name for name in found if name.startswith("cross/")]


@pytest.mark.parametrize("null", NULLS)
def test_scale_and_float32(null, small):
    """The same draws in single precision, of weights of any size."""
    exact = null_shard(small, null, range(2))
    single = dataclasses.replace(small, factors=lambda *which: 1e-25 * small.factors(*which), dtype="float32")
    for name, array in null_shard(single, null, range(2)).items():
        assert array.dtype == exact[name].dtype
        np.testing.assert_allclose(array, exact[name], atol=1e-2 if name.endswith("angle") else 1e-5)


@pytest.mark.parametrize("null", NULLS)
def test_float32_moves_no_statistic_by_a_thousandth_of_its_noise(null):
    """Of heads whose singular values fall by a thousand, as learnt ones do: so small models are sampled in it, too."""
    shape = Shape(n_layers=3, d_model=96, n_query_heads=6, n_kv_heads=6, d_head=16)
    maps = {which: factors * np.logspace(0, -3, 16) for which, factors in weights(shape, "OQ").items()}
    run = run_of(maps, shape, "OQ")
    exact = null_shard(run, null, range(20))
    for name, array in null_shard(dataclasses.replace(run, dtype="float32"), null, range(20)).items():
        noise = np.maximum(exact[name].std(axis=0), 1e-4)
        moved = np.abs(array - exact[name]).max(axis=0) / noise
        assert np.nanmax(moved) < 1e-3, name


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize(("dtype", "rho", "degrees"), [("float64", 1e-12, 1e-9), ("float32", 1e-5, 1e-2)])
def test_torch_gives_the_same_numbers(dtype, rho, degrees, null, small):
    """What a GPU would run, on the CPU."""
    expected = null_shard(small, null, range(2))
    run = dataclasses.replace(small, dtype=dtype, to_device=torch.asarray)
    for name, array in null_shard(run, null, range(2)).items():
        assert isinstance(array, np.ndarray)
        np.testing.assert_allclose(array, expected[name], atol=degrees if name.endswith("angle") else rho)


def test_heads_without_a_full_rank_in_torch():
    """A zero head and equal ones take the longer ways round, and come back to where the others are."""
    shape = Shape(n_layers=2, d_model=20, n_query_heads=4, n_kv_heads=4, d_head=3)
    maps = weights(shape, "OQ")
    maps[0, "O"][:2, :, 1:], maps[1, "Q"][2] = 0, 0
    run = run_of(maps, shape, "OQ", figure_layers={"O": 0})
    expected = null_shard(run, "reassignment", range(4))
    found = null_shard(dataclasses.replace(run, to_device=torch.asarray), "reassignment", range(4))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-9 if name.endswith("angle") else 1e-12)


# Shards


@pytest.fixture(scope="module")
def undivided(small):
    return both(small, range(30))


@pytest.mark.parametrize("size", [1, 7, 30])
def test_shards_of_any_size_merge_to_the_same_bits(size, small, undivided):
    """30 samples in shards that always compute their whole size, given in any order."""
    shards = [stored(small, null, range(start, start + size)) for start in range(0, 30, size) for null in NULLS]
    merged = merge_shards(shards[::-1], 30)
    assert set(merged) == set(undivided)
    for name, array in merged.items():
        np.testing.assert_array_equal(array, undivided[name])


def test_more_samples_keep_the_earlier_ones(small, undivided):
    shards = [stored(small, null, range(start, start + 15)) for start in (0, 15) for null in NULLS]
    few = merge_shards(shards, 4)
    for name, array in merge_shards(shards, 20).items():
        if array.ndim:
            assert (len(array), len(few[name])) == (20, 4)
            np.testing.assert_array_equal(array[:4], few[name])
            np.testing.assert_array_equal(array, undivided[name][:20])


def test_the_number_of_threads_changes_no_bit(small, monkeypatch):
    shape = Shape(n_layers=2, d_model=160, n_query_heads=5, n_kv_heads=5, d_head=32)
    run = run_of(weights(shape, "OQ"), shape, "OQ")
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(both(run, range(2)))
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


@pytest.mark.parametrize("n_samples", [0, 1])
def test_merging_few_samples(n_samples, small):
    merged = merge_shards([stored(small, null, range(1)) for null in NULLS], n_samples)
    assert merged["within/O/rotation/spread"].shape == (n_samples, 3)
    assert merged["cross/OV/reassignment/mean"].shape == (n_samples, 3, 3)
    assert merged["pairs/Q/layer"] == 0


def test_no_shards_merge_to_nothing():
    assert merge_shards([], 0) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 8), ("model", "other"), ("nulls_dtype", "float32"), ("weights", "abd"), ("rank_rtol", 1e-5)],
)
def test_shards_of_different_runs_are_refused(key, value, small):
    shards = [stored(small, "rotation", range(1)), stored(small, "rotation", range(1, 2), **{key: value})]
    with pytest.raises(
        InputError, match=rf"^rotation-1\.h5: {key} is {value!r}, expected .* as in rotation-0\.h5; delete"
    ):
        merge_shards(shards, 2)


def test_shards_of_different_devices_are_one_model(small):
    shards = [stored(small, "rotation", range(i, i + 1), device=device) for i, device in enumerate(("cpu", "cuda"))]
    name = "within/O/rotation/spread"
    np.testing.assert_array_equal(merge_shards(shards, 2)[name][1], shards[1].arrays[name][0])


def test_shards_of_different_figure_layers_are_refused(small):
    other = dataclasses.replace(small, figure_layers={"O": 2, "Q": 0, "K": 2})
    shards = [stored(small, "rotation", range(1)), stored(other, "rotation", range(1, 2))]
    with pytest.raises(InputError, match=r"^rotation-1\.h5: pairs/O/layer is 2, expected 1 as in rotation-0\.h5"):
        merge_shards(shards, 2)


@pytest.mark.parametrize("starts", [(0, 2), (1,), (0, 0)])
def test_gaps_and_doubles_are_refused(starts, small):
    shards = [stored(small, "rotation", range(start, start + 1)) for start in starts]
    with pytest.raises(InputError, match=rf"^rotation-{starts[-1]}\.h5: its first sample .* is {starts[-1]}, expected"):
        merge_shards(shards, 2)


def test_too_few_samples_are_refused(small):
    shards = [stored(small, "rotation", range(2)), stored(small, "reassignment", range(1))]
    with pytest.raises(InputError, match=r"^reassignment-0\.h5: the last sample .* is 0, but 2 samples are wanted"):
        merge_shards(shards, 2)


# Edges


def test_one_space_has_no_statistics():
    shape = Shape(n_layers=2, d_model=12, n_query_heads=3, n_kv_heads=1, d_head=2)
    found = both(run_of(weights(shape, "OQKV"), shape, "OQKV"), range(2))
    for null, name in itertools.product(NULLS, STATISTICS):
        assert np.isnan(found[f"within/K/{null}/{name}"]).all()
        assert found[f"within/K/{null}/{name}"].shape == (2, 2)
        assert np.isfinite(found[f"within/O/{null}/{name}"]).all()
    assert np.isfinite(found["cross/OK/rotation/spread"][:, 0, 1]).all()


def test_one_layer_with_one_head():
    shape = Shape(n_layers=1, d_model=5, n_query_heads=1, n_kv_heads=1, d_head=2)
    for name, array in both(run_of(weights(shape, "OQKV"), shape, "OQKV"), range(3)).items():
        assert len(array) == 3
        assert np.isnan(array).all(), name


def test_heads_wider_than_the_residual_stream():
    """All spaces are the same: rho is 1, and its spread is nothing but 0."""
    shape = Shape(n_layers=2, d_model=3, n_query_heads=3, n_kv_heads=3, d_head=5)
    found = both(run_of(weights(shape, "OQ"), shape, "OQ"), range(2))
    for null in NULLS:
        np.testing.assert_allclose(found[f"within/O/{null}/mean"], 1, rtol=1e-14)
        np.testing.assert_array_equal(found[f"within/O/{null}/spread"], 0)
        assert np.radians(found[f"within/O/{null}/min_angle"]).max() < 1e-14
        np.testing.assert_allclose(found[f"cross/OQ/{null}/mean"][:, 0, 1], 1, rtol=1e-14)


def test_more_columns_than_the_residual_stream_has_dimensions():
    shape = Shape(n_layers=1, d_model=16, n_query_heads=8, n_kv_heads=8, d_head=4)
    found = both(run_of(weights(shape, "O"), shape, "O"), range(20))
    for null in NULLS:
        assert found[f"within/O/{null}/mean"].mean() == pytest.approx(isotropic_mean(16, 4), abs=0.02)


def test_heads_keep_their_true_dimension():
    """A rotation fills every head as far as the layer's rank goes; zero columns stay zero when they are reassigned."""
    shape = Shape(n_layers=1, d_model=20, n_query_heads=2, n_kv_heads=2, d_head=3)
    maps = weights(shape, "O")
    maps[0, "O"][:, :, 1:] = 0
    found = both(run_of(maps, shape, "O", figure_layers={"O": 0}), range(40))
    # Rank 2 in all: both rotated heads are the whole plane.
    np.testing.assert_allclose(found["pairs/O/rotation/rho"], 1, rtol=1e-12)
    rho = found["pairs/O/reassignment/rho"]
    # Both columns in one head: the other is empty. Apart: two lines at a fixed angle.
    together = np.isnan(rho[:, 0])
    assert 5 < together.sum() < 28
    lines = maps[0, "O"][:, :, 0]
    cosine = lines[0] @ lines[1] / np.linalg.norm(lines[0]) / np.linalg.norm(lines[1])
    np.testing.assert_allclose(rho[~together, 0], cosine**2, rtol=1e-10)
    np.testing.assert_array_equal(np.isnan(found["within/O/reassignment/min_angle"][:, 0]), together)


def test_the_tolerance_of_the_rank_is_the_runs():
    """A strong and a weak column in each head, as in two of three orders: lines to one tolerance, planes to another."""
    shape = Shape(n_layers=1, d_model=12, n_query_heads=2, n_kv_heads=2, d_head=2)
    maps = weights(shape, "O")
    maps[0, "O"][:, :, 1] *= 1e-4
    strong = maps[0, "O"][:, :, 0]
    lines = (strong[0] @ strong[1]) ** 2 / np.prod(np.sum(strong**2, axis=1))
    for rtol, fewest, most in ((1e-2, 12, 28), (1e-6, 0, 0)):
        run = run_of(maps, shape, "O", rtol=rtol, figure_layers={"O": 0})
        rho = null_shard(run, "reassignment", range(30))["pairs/O/reassignment/rho"]
        assert fewest <= np.isclose(rho, lines, atol=1e-3).sum() <= most


def test_zero_weights_are_undefined():
    shape = Shape(n_layers=2, d_model=6, n_query_heads=2, n_kv_heads=2, d_head=2)
    maps = {which: 0 * factors for which, factors in weights(shape, "OQ").items()}
    for name, array in both(run_of(maps, shape, "OQ"), range(1)).items():
        assert np.isnan(array).all(), name


@pytest.mark.parametrize("to_device", [None, torch.from_numpy])
@pytest.mark.parametrize("null", NULLS)
def test_zero_heads_are_not_drawn_and_change_nothing_for_the_others(null, to_device):
    """Six live and two zero heads have the null distribution of the six alone, within layers and across."""
    live = [0, 2, 3, 5, 6, 7]
    shapes = [Shape(n_layers=2, d_model=64, n_query_heads=n, n_kv_heads=n, d_head=8) for n in (6, 8)]
    alone = weights(shapes[0], "OQ")
    among = {which: np.zeros((8, 64, 8)) for which in alone}
    for which, factors in alone.items():
        among[which][live] = factors
    settings = {} if to_device is None else {"to_device": to_device}
    expected, found = (
        null_shard(run_of(maps, shape, "OQ", figure_layers={"O": 0}, **settings), null, range(3))
        for maps, shape in zip((alone, among), shapes, strict=True)
    )
    for name, array in expected.items():
        if not name.startswith("pairs/"):
            np.testing.assert_allclose(found[name], array, rtol=1e-9, err_msg=name)
    rho = found[f"pairs/O/{null}/rho"]
    np.testing.assert_allclose(rho[:, np.isfinite(rho[0])], expected[f"pairs/O/{null}/rho"], rtol=1e-9)
    assert np.isnan(rho).sum() == 3 * (28 - 15)


def test_zero_heads_do_not_widen_the_rotation():
    """Six heads of 64 x 8 spread by 0.0179 under the rotation; two zero heads, mixed in, would make that 0.0231."""
    shape = Shape(n_layers=1, d_model=64, n_query_heads=8, n_kv_heads=8, d_head=8)
    maps = {(0, "O"): np.random.default_rng(0).standard_normal((8, 64, 8))}
    maps[0, "O"][[1, 4]] = 0
    name = "within/O/rotation/spread"
    spread = null_shard(run_of(maps, shape, "O"), "rotation", range(30))[name]
    assert spread.mean() == pytest.approx(0.0179, rel=0.08)
    whole = maps[0, "O"].transpose(1, 0, 2).reshape(64, -1)
    mixed = []
    for sample in range(30):
        columns = rotated(whole, np.random.default_rng(sample)).T.reshape(8, 8, 64)
        rho = pairs_within(np.linalg.qr(columns.swapaxes(1, 2))[0], np.full(8, 8))[0] / 8
        mixed.append(rho.std())
    assert np.mean(mixed) == pytest.approx(0.0231, rel=0.08)


def test_single_columns_cannot_be_reassigned():
    """With d_head = 1 every order of the columns has the same pairs: the observed spread is not above them."""
    shape = Shape(n_layers=1, d_model=9, n_query_heads=6, n_kv_heads=6, d_head=1)
    maps = weights(shape, "O")
    observed = observed_statistics(maps, shape, "O")["within/O/spread"]
    samples = both(run_of(maps, shape, "O"), range(20))["within/O/reassignment/spread"]
    np.testing.assert_allclose(samples, np.tile(observed, (20, 1)), rtol=1e-10)
    assert not above_all(observed, samples).any()


# What the comparison finds


def observed_statistics(maps, shape, kinds):
    """Spread and mean of the weights themselves."""
    bases = {kind: np.stack([np.linalg.qr(maps[layer, kind])[0] for layer in range(shape.n_layers)]) for kind in kinds}
    pairs = layer_overlaps(bases)
    found = {}
    for kind in kinds:
        i, j = np.triu_indices(shape.n_heads(kind), 1)
        for name, value in pair_statistics(pairs.within[kind][:, i, j] / shape.d_head).items():
            found[f"within/{kind}/{name}"] = value
    for spaces, squared in pairs.across.items():
        rho = squared.reshape(shape.n_layers, shape.n_layers, -1) / shape.d_head
        for name, value in pair_statistics(rho).items():
            found[f"cross/{spaces}/{name}"] = value
    return found


def test_nothing_is_found_where_there_is_nothing():
    """Isotropic weights are exchangeable with their samples: p-values are uniform, and r is about 1."""
    n_samples = 19
    shape = Shape(n_layers=160, d_model=20, n_query_heads=6, n_kv_heads=6, d_head=3)
    maps = weights(shape, "O", seed=3)
    samples = both(run_of(maps, shape, "O"), range(n_samples))
    observed = observed_statistics(maps, shape, "O")
    for null, name in itertools.product(NULLS, ("spread", "mean", "median")):
        p = monte_carlo_p(observed[f"within/O/{name}"], samples[f"within/O/{null}/{name}"])
        counts = np.bincount(np.rint(p * (n_samples + 1)).astype(int), minlength=n_samples + 2)[1:]
        assert counts.sum() == shape.n_layers
        assert stats.chisquare(counts).pvalue > 1e-3, (null, name)
    spreads = [samples[f"within/O/{null}/spread"] for null in NULLS]
    r = spread_ratio(observed["within/O/spread"], *spreads)
    assert 0.6 < np.median(r) < 0.9
    above = above_all(observed["within/O/spread"], *spreads).mean()
    assert above == pytest.approx(1 / 39, abs=4 * np.sqrt(38 / 39**2 / shape.n_layers))


def test_nothing_is_found_across_layers_where_there_is_nothing():
    shape = Shape(n_layers=12, d_model=20, n_query_heads=4, n_kv_heads=2, d_head=3)
    maps = weights(shape, "OQK", seed=4)
    samples = both(run_of(maps, shape, "OQK"), range(19))
    observed = observed_statistics(maps, shape, "OQK")
    pairs = np.triu_indices(12, 1)
    for null, spaces in itertools.product(NULLS, ("OQ", "OK")):
        p = monte_carlo_p(observed[f"cross/{spaces}/spread"], samples[f"cross/{spaces}/{null}/spread"])
        assert np.isnan(p[np.tril_indices(12)]).all()
        # Layer pairs share layers: a wider margin than 66 independent values would need.
        assert p[pairs].mean() == pytest.approx(0.525, abs=0.12)
        assert (p[pairs] <= 0.05).mean() < 0.2


def test_planted_structure_is_found_and_nothing_else():
    """One pair of heads within a layer, and one across two layers, share most of their directions."""
    shape = Shape(n_layers=5, d_model=48, n_query_heads=8, n_kv_heads=8, d_head=6)
    maps = weights(shape, "OQ", seed=5)
    noise = np.random.default_rng(6)
    maps[2, "O"][4] = maps[2, "O"][1] + 0.3 * noise.standard_normal((48, 6))
    maps[3, "Q"][7] = maps[0, "O"][5] + 0.3 * noise.standard_normal((48, 6))
    samples = both(run_of(maps, shape, "OQ"), range(30))
    observed = observed_statistics(maps, shape, "OQ")

    def r(place):
        return spread_ratio(observed[f"{place}/spread"], *(samples[f"{place}/{null}/spread"] for null in NULLS))

    assert np.flatnonzero(r("within/O") > 1).tolist() == [2]
    assert np.flatnonzero(r("within/Q") > 1).tolist() == []
    assert np.argwhere(r("cross/OQ") > 1).tolist() == [[0, 3]]
    assert r("within/O")[2] > 1.5
    assert r("cross/OQ")[0, 3] > 1.5


# Random subspaces


def test_random_reference():
    shape = Shape(n_layers=4, d_model=30, n_query_heads=5, n_kv_heads=1, d_head=4)
    found = random_reference(shape, "OQKV", "model", 0, 40)
    assert set(found) == {"random/mean", "random/sd", "random/rho", "pairs/O/random/rho", "pairs/Q/random/rho"}
    assert found["random/rho"].shape == (100,)
    assert found["pairs/O/random/rho"].shape == (40, 10)
    mean, sd = isotropic_mean(30, 4), isotropic_sd(30, 4)
    assert (found["random/mean"], found["random/sd"]) == (mean, sd)
    for rho in (found["random/rho"], found["pairs/O/random/rho"].ravel()):
        assert abs(rho.mean() - mean) < 5 * sd / np.sqrt(rho.size)
        deviations = (rho - mean) ** 2
        assert abs(deviations.mean() - sd**2) < 5 * deviations.std() / np.sqrt(rho.size)
        assert len(np.unique(rho)) == rho.size


def test_more_random_samples_keep_the_earlier_ones():
    shape = Shape(n_layers=4, d_model=30, n_query_heads=5, n_kv_heads=2, d_head=4)
    few, many = (random_reference(shape, "OK", "model", 0, n) for n in (3, 5))
    for name, array in few.items():
        np.testing.assert_array_equal(array, many[name][:3] if name.startswith("pairs/") else many[name])
    assert "pairs/O/random/rho" not in random_reference(shape, "OK", "model", 0, 0)


def test_random_subspaces_of_heads_as_wide_as_the_residual_stream():
    found = random_reference(Shape(1, 3, 4, 4, 6), "O", "model", 0, 2)
    assert (found["random/mean"], found["random/sd"]) == (1.0, 0.0)
    np.testing.assert_allclose(found["pairs/O/random/rho"], np.ones((2, 6)), rtol=1e-14)
