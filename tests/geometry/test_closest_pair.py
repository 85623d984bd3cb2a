import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from headspaces.geometry import closest_pair as closest
from headspaces.geometry.closest_pair import pairs_within


def orthonormal(rng, *shape):
    return np.linalg.qr(rng.standard_normal(shape))[0]


def by_scipy(bases):
    """PK of the pairs in order, and the smallest angle."""
    pairs = [subspace_angles(u, v) for i, u in enumerate(bases) for v in bases[i + 1 :]]
    return [np.sum(np.cos(angles) ** 2) for angles in pairs], np.degrees(min(angles[-1] for angles in pairs))


def full_ranks(bases):
    return np.full(len(bases), bases.shape[2])


@pytest.mark.parametrize("rows", [3, 7, 512])
@pytest.mark.parametrize(("n", "d_model", "d_head"), [(2, 10, 3), (9, 40, 3), (12, 30, 7), (6, 20, 1), (5, 9, 8)])
def test_pairs_agree_with_scipy(n, d_model, d_head, rows, rng, monkeypatch):
    monkeypatch.setattr(closest, "PRODUCT_ROWS", max(rows, d_head))
    bases = orthonormal(rng, n, d_model, d_head)
    squared, angle = pairs_within(bases, full_ranks(bases))
    expected, expected_angle = by_scipy(bases)
    np.testing.assert_allclose(squared, expected, atol=1e-12)
    assert angle == pytest.approx(expected_angle, abs=1e-9)


@pytest.mark.parametrize("degrees", [1e-7, 1e-3, 0.3, 0.6, 5.0])
def test_the_closest_of_many_alike_pairs_is_found(degrees, rng):
    """A planted pair that is the closest by a hair, beside another that is nearly as close."""
    bases = orthonormal(rng, 20, 100, 4)
    for head, times in ((17, 1.0), (11, 1.001)):
        bases[head, :, 0] = rotated_towards(bases[3, :, 0], np.radians(times * degrees), rng)
        bases[head] = np.linalg.qr(bases[head])[0]
    _, angle = pairs_within(bases, full_ranks(bases))
    # Two heads only are this close to head 3; scipy's own error is 1e-6 degrees here.
    expected = min(np.linalg.svd(u - bases[3] @ (bases[3].T @ u), compute_uv=False)[-1] for u in bases[[11, 17]])
    assert angle == pytest.approx(np.degrees(np.arcsin(expected)), abs=1e-13, rel=1e-9)
    assert angle <= degrees * (1 + 1e-9)


def rotated_towards(axis, radians, rng):
    other = rng.standard_normal(axis.shape)
    other -= (other @ axis) * axis
    return np.cos(radians) * axis + np.sin(radians) * other / np.linalg.norm(other)


def test_identical_spaces_and_constant_rho(rng):
    space = orthonormal(rng, 30, 5)
    bases = np.stack([space @ orthonormal(rng, 5, 5) for _ in range(6)])
    squared, angle = pairs_within(bases, full_ranks(bases))
    np.testing.assert_allclose(squared, 5, atol=1e-13)
    assert np.radians(angle) < 1e-14


def test_orthogonal_spaces():
    bases = np.eye(12).reshape(12, 4, 3).swapaxes(0, 1)
    squared, angle = pairs_within(bases, full_ranks(bases))
    assert (squared.tolist(), angle) == ([0.0] * 6, 90.0)


def test_empty_and_deficient_spaces(rng):
    """An empty space is at no angle to anything; zero columns change nothing."""
    bases = orthonormal(rng, 5, 20, 3)
    bases[1], bases[2, :, 1:] = 0, 0
    _, angle = pairs_within(bases, np.array([3, 0, 1, 3, 3]))
    kept = [bases[0], bases[2, :, :1], bases[3], bases[4]]
    assert angle == pytest.approx(by_scipy(kept)[1], abs=1e-10)
    assert np.isnan(pairs_within(0 * bases, np.zeros(5, int))[1])
    assert np.isnan(pairs_within(bases[:2], np.array([3, 0]))[1])


def test_one_space_has_no_pairs(rng):
    squared, angle = pairs_within(orthonormal(rng, 1, 8, 2), np.array([2]))
    assert squared.shape == (0,)
    assert np.isnan(angle)


def test_float32_and_torch(rng):
    bases = orthonormal(rng, 8, 60, 6)
    squared, angle = pairs_within(bases, full_ranks(bases))
    single = pairs_within(bases.astype(np.float32), full_ranks(bases))
    np.testing.assert_allclose(single[0], squared, rtol=1e-5)
    assert single[1] == pytest.approx(angle, abs=1e-3)
    tensors = pairs_within(torch.from_numpy(bases), full_ranks(bases))
    np.testing.assert_allclose(tensors[0], squared, rtol=1e-13)
    assert tensors[1] == pytest.approx(angle, abs=1e-9)


def test_few_eigenvalues_are_computed(rng, monkeypatch):
    """What the bounds are for: 780 pairs, of which a handful may be the closest."""
    counts = []
    eigvalsh = np.linalg.eigvalsh
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda a: (counts.append(len(a)), eigvalsh(a))[1])
    bases = orthonormal(rng, 40, 200, 16)
    _, angle = pairs_within(bases, full_ranks(bases))
    assert angle == pytest.approx(by_scipy(bases)[1], abs=1e-9)
    assert 1 <= sum(counts) < 78
