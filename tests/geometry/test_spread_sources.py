"""What the spread is made of, against QR, scipy and closed forms."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import subspace_angles
from support.gpt2_affinity import gpt2_layers

from headspaces.geometry import spread_sources as module
from headspaces.geometry.bases import block_bases, orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.spread_sources import (
    REMOVED,
    closest_participation,
    layer_singular_values,
    layer_sources,
    sources_across,
    spread_sources,
    top_directions,
    without_directions,
)

PAIRS = list(itertools.combinations(range(5), 2))


@pytest.fixture
def bases(rng):
    """Five heads of four dimensions in 90 that share a direction."""
    return np.linalg.qr(rng.standard_normal((5, 90, 4)) + 2 * rng.standard_normal((90, 1)))[0]


def rho(bases):
    return np.array([np.mean(np.cos(subspace_angles(bases[i], bases[j])) ** 2) for i, j in PAIRS])


def test_what_is_left_is_what_qr_of_the_projected_bases_gives(bases):
    found = layer_sources(bases, np.full(5, 4))
    stacked = np.concatenate(list(bases), axis=1)
    vectors = np.linalg.eigh(stacked @ stacked.T)[1][:, ::-1]
    by_size = np.eye(90)[:, np.argsort(-np.diag(stacked @ stacked.T))]
    for at, k in enumerate(REMOVED):
        for name, removed in (("directions", vectors[:, :k]), ("coordinates", by_size[:, :k])):
            # S has rank 20: nothing is left without its first 64 eigenvectors.
            if (name, k) == ("directions", 64):
                assert np.isnan(found["directions_mean"][at])
                continue
            left = rho(np.linalg.qr(bases - removed @ (removed.T @ bases))[0])
            assert found[f"{name}_mean"][at] == pytest.approx(left.mean(), abs=1e-8)
            assert found[f"{name}_spread"][at] == pytest.approx(left.std(), abs=1e-8)


def test_a_common_direction_is_the_source_and_goes_with_the_first_eigenvector(rng):
    """Heads that share one direction and are orthogonal otherwise: nothing is left without it."""
    frame = np.linalg.qr(rng.standard_normal((40, 16)))[0]
    heads = np.stack([frame[:, [0, 1 + i, 6 + i]] for i in range(5)])
    found = layer_sources(heads, np.full(5, 3))
    assert found["directions_mean"][0] == pytest.approx(0, abs=1e-12)
    rest, ranks = without_directions(heads, np.full(5, 3), frame[:, :1])
    assert ranks.tolist() == [2] * 5
    np.testing.assert_allclose(rest[1] @ rest[1].T, frame[:, [2, 7]] @ frame[:, [2, 7]].T, atol=1e-12)


def test_one_outlier_gain_is_one_coordinate(rng):
    """A gain of 50 at one coordinate: the overlaps fall to the isotropic value without it, and it alone is close."""
    gain = np.ones(256)
    gain[17] = 50
    heads = LayerHeads(0, {"Q": rng.standard_normal((8, 256, 16))}, Norm("rmsnorm", gain))
    found = spread_sources([(block_bases([heads], fold_norms=True), [heads])], fold_norms=True)
    bases = orthonormal_bases(fold(heads, "Q")).basis
    observed = np.mean([np.mean(np.cos(subspace_angles(bases[i], bases[j])) ** 2)
                        for i, j in itertools.combinations(range(8), 2)])  # fmt: skip
    assert observed > 0.11
    assert found["sources/Q/coordinates_mean"][0, 0] == pytest.approx(16 / 255, abs=0.003)
    assert found["sources/Q/participation"][0] == pytest.approx(1, abs=0.2)
    assert (found["sources/gain_max"][0], found["sources/gain_median"][0]) == (50, 1)


@pytest.mark.parametrize("n", [1, 16, 40])
def test_participation_counts_coordinates(n, rng):
    """Two heads that share the direction spread evenly over n coordinates."""
    shared = np.zeros(64)
    shared[:n] = n**-0.5
    rest = np.linalg.qr(rng.standard_normal((64, 8)) - np.outer(shared, shared @ rng.standard_normal((64, 8))))[0]
    rest = np.linalg.qr(np.column_stack([shared, rest]))[0][:, 1:]
    heads = np.stack([np.column_stack([shared, rest[:, :3]]), np.column_stack([shared, rest[:, 3:6]])])
    assert closest_participation(heads) == pytest.approx(n)
    assert np.isnan(closest_participation(heads[:1]))


def test_lanczos_finds_the_same_directions(bases, monkeypatch):
    stacked = np.concatenate(list(bases), axis=1)
    dense = top_directions(stacked, 3)
    monkeypatch.setattr(module, "DENSE_SIDE", 10)
    np.testing.assert_allclose(np.abs(top_directions(stacked, 3).T @ dense), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 30, 4), (3, 8, 4)])
def test_the_spectrum_of_a_layer_is_scipys(shape, rng):
    factors = 1e-20 * rng.standard_normal(shape)
    expected = scipy.linalg.svdvals(np.concatenate(list(factors), axis=1))
    np.testing.assert_allclose(layer_singular_values(factors), expected, atol=1e-7 * expected[0])


def test_every_layer_of_every_block(rng):
    layers = [
        LayerHeads(i, {kind: rng.standard_normal((n, 80, 3)) for kind, n in {"O": 4, "K": 1}.items()}, Norm("none"))
        for i in range(3)
    ]
    blocks = [(block_bases(part, fold_norms=False), part) for part in (layers[:2], layers[2:])]
    found = spread_sources(blocks, fold_norms=False)
    for name in ("directions_mean", "coordinates_spread"):
        for layer in range(3):
            own = layer_sources(orthonormal_bases(layers[layer].factors["O"]).basis, np.full(4, 3))
            np.testing.assert_allclose(found[f"sources/O/{name}"][layer], own[name], atol=1e-12)
    # One head has no pair; no norm has no gain.
    assert np.isnan(found["sources/K/directions_mean"]).all()
    assert np.isnan(found["sources/K/participation"]).all()
    assert np.isnan(found["sources/gain_max"]).all()
    assert found["sources/K/singular_values"].shape == (3, 3)


@pytest.mark.parametrize("d_model", [90, 24])
def test_across_layers_the_writes_lose_what_their_layer_shares(d_model, rng):
    """Against projections of the spaces; the smaller stream loses whole directions, and at last everything."""
    n_heads = {"O": 4, "Q": 4, "K": 2}
    factors = {kind: rng.standard_normal((3, n, d_model, 5)) for kind, n in n_heads.items()}
    factors["O"] += 2 * rng.standard_normal((3, 1, d_model, 5))  # what the heads of a layer share
    bases = {kind: np.stack([orthonormal_bases(layer).basis for layer in stack]) for kind, stack in factors.items()}
    found = sources_across(bases, {kind: np.full((3, n), 5) for kind, n in n_heads.items()})
    assert {name.split("/")[1] for name in found} == {"OQ", "OK"}
    for kind, (writer, reader) in itertools.product("QK", [(0, 1), (0, 2), (1, 2)]):
        s = sum(u @ u.T for u in bases["O"][writer])
        order = {
            "directions": np.linalg.eigh(s)[1][:, ::-1],
            "coordinates": np.eye(d_model)[:, np.argsort(-np.diag(s))],
        }
        for (name, vectors), (at, k) in itertools.product(order.items(), enumerate(REMOVED)):
            away = np.eye(d_model) - vectors[:, :k] @ vectors[:, :k].T
            svds = [np.linalg.svd(away @ u, full_matrices=False) for u in bases["O"][writer]]
            left = [directions[:, sizes > 1e-6] for directions, sizes, _ in svds]
            rho = [
                np.linalg.norm(u.T @ r) ** 2 / min(u.shape[1], 5) if u.shape[1] else np.nan
                for u in left
                for r in bases[kind][reader]
            ]
            values = [found[f"sources/O{kind}/{name}_{what}"][writer, reader, at] for what in ("mean", "spread")]
            np.testing.assert_allclose(values, [np.mean(rho), np.std(rho)], atol=1e-10)
    assert np.isnan(found["sources/OQ/directions_mean"][np.tril_indices(3)]).all()


@pytest.mark.slow
def test_what_the_top_directions_make_of_gpt2s_spread(gpt2_folder, tmp_path):
    """Without S's top 16 eigenvectors the spread falls by 15 %, 33 %, 26 % and 21 %, median over the layers."""
    layers = gpt2_layers(gpt2_folder, tmp_path / "layers.safetensors")
    block = block_bases(layers, fold_norms=True)
    found = spread_sources([(block, layers)], fold_norms=True)
    pairs = np.triu_indices(12, 1)
    for kind, fall in {"O": 0.15, "Q": 0.33, "K": 0.26, "V": 0.21}.items():
        rho = [squared_overlaps(bases, bases)[pairs] / 64 for bases in block[f"{kind}/basis"]]
        left = found[f"sources/{kind}/directions_spread"][:, 2] / np.std(rho, axis=1)
        assert 1 - np.median(left) == pytest.approx(fall, abs=0.007)
