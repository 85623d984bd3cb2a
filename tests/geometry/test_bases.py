import numpy as np
import pytest
from scipy.linalg import orth, subspace_angles

from headspaces.geometry.bases import Bases, block_bases, direct_sum, orthonormal_bases, random_condition
from headspaces.geometry.heads import LayerHeads, Norm


def test_bases_span_the_factors_and_are_orthonormal(rng):
    factors = rng.standard_normal((6, 50, 7))
    bases = orthonormal_bases(factors)
    for basis, factor in zip(bases.basis, factors, strict=True):
        np.testing.assert_allclose(basis.T @ basis, np.eye(7), atol=1e-14)
        assert subspace_angles(basis, factor)[0] < 1e-13
    np.testing.assert_allclose(bases.singular_values, np.linalg.svd(factors, compute_uv=False), rtol=1e-13)
    assert bases.rank.tolist() == [7] * 6


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_numerical_rank(scale, rng):
    """Singular values at 2e-6 count, those at 5e-7 do not; the scale of a head does not matter."""
    left, right = np.linalg.qr(rng.standard_normal((40, 4)))[0], np.linalg.qr(rng.standard_normal((4, 4)))[0]
    factor = scale * (left * np.array([1, 0.5, 2e-6, 5e-7])) @ right
    bases = orthonormal_bases(factor[None])
    assert bases.rank.tolist() == [3]
    assert np.all(bases.basis[0, :, 3] == 0)
    assert subspace_angles(bases.basis[0, :, :2], left[:, :2])[0] < 1e-8
    np.testing.assert_allclose(bases.singular_values[0] / scale, [1, 0.5, 2e-6, 5e-7], rtol=1e-8)


def test_duplicated_and_zero_columns(rng):
    factor = rng.standard_normal((30, 3))
    bases = orthonormal_bases(np.stack([factor[:, [0, 1, 1]], 0 * factor]))
    assert bases.rank.tolist() == [2, 0]
    assert np.all(bases.basis[1] == 0)
    assert subspace_angles(bases.basis[0, :, :2], orth(factor[:, :2]))[0] < 1e-14


def test_a_head_wider_than_the_residual_stream(rng):
    bases = orthonormal_bases(rng.standard_normal((2, 6, 9)))
    assert bases.rank.tolist() == [6, 6]
    np.testing.assert_allclose(bases.basis @ bases.basis.swapaxes(1, 2), np.stack([np.eye(6)] * 2), atol=1e-14)


@pytest.mark.parametrize(
    ("n_heads", "d_model", "d_head"), [(4, 64, 16), (3, 64, 16), (6, 64, 16), (20, 320, 16), (12, 600, 64)]
)
def test_direct_sum_against_the_singular_values(n_heads, d_model, d_head, rng):
    bases = orthonormal_bases(rng.standard_normal((n_heads, d_model, d_head)))
    found = direct_sum(bases)
    singular = np.linalg.svd(np.concatenate(list(bases.basis), axis=1), compute_uv=False)
    assert found.rank == min(d_model, n_heads * d_head)
    assert found.deficiency == max(0, n_heads * d_head - d_model)
    smallest = singular[d_model - 1] ** 2 if n_heads * d_head >= d_model else 0.0
    assert found.lambda_min == pytest.approx(smallest, rel=1e-9)
    assert found.condition == pytest.approx(singular[min(d_model, n_heads * d_head) - 1] / singular[0], rel=1e-3)


def test_rank_at_a_large_tolerance(rng):
    """Also where more directions than dimensions are far from singular."""
    bases = orthonormal_bases(rng.standard_normal((6, 300, 64)), 0.2)
    singular = np.linalg.svd(np.concatenate(list(bases.basis), axis=1), compute_uv=False)
    rank = int(np.sum(singular > 0.2 * singular[0]))
    assert 0 < rank < 300
    found = direct_sum(bases, 0.2)
    assert (found.rank, found.deficiency) == (rank, bases.rank.sum() - rank)
    assert found.lambda_min == pytest.approx(singular[-1] ** 2, rel=1e-9)


def test_lambda_min_of_nearly_dependent_spaces(rng):
    """1e-10 and less, where an eigenvalue solver on S would only see rounding."""
    d_model, tilt = 320, 3e-6
    rotation = np.linalg.qr(rng.standard_normal((d_model, d_model)))[0]
    axes = np.eye(d_model)
    axes[:, 160] = np.cos(tilt) * axes[:, 0] + np.sin(tilt) * axes[:, 160]
    stacked = (rotation @ axes).reshape(d_model, 20, 16).swapaxes(0, 1)
    found = direct_sum(orthonormal_bases(stacked))
    # Two unit vectors at the angle t have the smallest singular value sqrt(1 - cos t).
    assert found.lambda_min == pytest.approx(2 * np.sin(tilt / 2) ** 2, rel=1e-6)
    assert (found.rank, found.deficiency) == (d_model, 0)


@pytest.mark.parametrize(("ratio", "deficiency"), [(1.19e-6, 0), (0.9e-6, 1)])
@pytest.mark.parametrize("d_model", [64, 320])
def test_the_margin_of_a_rank_is_seen_from_both_sides(d_model, ratio, deficiency, rng):
    """A second pair of heads that share a direction exactly does not hide the one at the edge."""
    for shared in (0, 1):
        axes = np.eye(d_model)
        # Two unit vectors at the angle t have singular values of the ratio tan(t / 2).
        tilt = 2 * np.arctan(ratio)
        axes[:, d_model // 2] = np.cos(tilt) * axes[:, 0] + np.sin(tilt) * axes[:, d_model // 2]
        if shared:
            axes[:, d_model // 2 + 1] = axes[:, 1]
        rotation = np.linalg.qr(rng.standard_normal((d_model, d_model)))[0]
        found = direct_sum(orthonormal_bases((rotation @ axes).reshape(d_model, d_model // 16, 16).swapaxes(0, 1)))
        assert found.condition == pytest.approx(ratio, rel=2e-3)
        assert found.deficiency == deficiency + shared


@pytest.mark.parametrize(("n_heads", "d_model", "d_head"), [(4, 576, 64), (16, 576, 64), (3, 600, 20)])
def test_random_heads_have_the_condition_of_free_projections(n_heads, d_model, d_head):
    """Eigenvalues of a sum of n free projections of trace a fill 1 + (n - 2) a ± 2 sqrt((n - 1) a (1 - a))."""
    trace = d_head / d_model
    centre, half = 1 + (n_heads - 2) * trace, 2 * np.sqrt((n_heads - 1) * trace * (1 - trace))
    expected = np.sqrt((centre - half) / (centre + half))
    assert random_condition(n_heads, d_model, d_head) == pytest.approx(expected, rel=0.1)
    # Where the heads just fill the stream, the edge is at 0 and the smallest value is of the order of 1 / D.
    full = random_condition(d_model // d_head, d_model, d_head)
    assert 0.01 < full * d_model < 1


@pytest.mark.parametrize("n_heads", [4, 20])
def test_a_shared_direction_makes_the_sum_deficient(n_heads, rng):
    spaces = np.linalg.qr(rng.standard_normal((n_heads, n_heads * 16, 16)))[0]
    spaces[1, :, 0] = spaces[0, :, 0]
    found = direct_sum(orthonormal_bases(spaces))
    assert (found.rank, found.deficiency) == (n_heads * 16 - 1, 1)
    assert found.lambda_min < 1e-25


def test_an_empty_layer_spans_nothing():
    empty = Bases(np.zeros((2, 8, 3)), np.zeros((2, 3)), np.zeros(2, dtype=np.int64))
    assert direct_sum(empty).rank == 0


def test_block_holds_folded_or_bare_spaces(rng):
    gain = rng.uniform(0.5, 2, 24)
    factors = {"O": rng.standard_normal((3, 24, 4)), "K": rng.standard_normal((1, 24, 4))}
    layers = [LayerHeads(layer, factors, Norm("layernorm", gain)) for layer in (5, 6)]
    arrays = block_bases(layers, fold_norms=True)
    assert arrays["O/basis"].shape == (2, 3, 24, 4)
    assert arrays["direct_sum/O/rank"].tolist() == [12, 12]
    scaled = gain[:, None] * factors["K"][0]
    assert subspace_angles(arrays["K/basis"][1, 0], scaled - scaled.mean(axis=0))[0] < 1e-13
    bare = block_bases(layers, fold_norms=False, dtype="float32")
    assert bare["K/basis"].dtype == np.float32
    assert subspace_angles(bare["K/basis"][0, 0].astype(float), factors["K"][0])[0] < 1e-6


def test_the_slower_driver_serves_where_the_fast_one_fails(rng, monkeypatch):
    factors = rng.standard_normal((2, 20, 4))
    expected = orthonormal_bases(factors).singular_values

    def failing(*args, **options):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr("headspaces.geometry.bases.np.linalg.svd", failing)
    np.testing.assert_allclose(orthonormal_bases(factors).singular_values, expected, rtol=1e-13)
