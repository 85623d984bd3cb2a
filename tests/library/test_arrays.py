"""The kernel on plain arrays, against scipy and closed forms."""

import numpy as np
import pytest
import torch
from scipy.linalg import orth, subspace_angles

import headspaces as hs


@pytest.mark.parametrize(("a", "b"), [(3, 3), (2, 5), (5, 2), (1, 1), (12, 4)])
def test_all_principal_angles_are_scipys(a: int, b: int, rng: np.random.Generator) -> None:
    one, other = (np.linalg.qr(rng.normal(size=(12, width)))[0] for width in (a, b))
    expected = np.degrees(subspace_angles(one, other))[::-1]
    np.testing.assert_allclose(hs.principal_angles(one, other), expected, rtol=0, atol=1e-9)
    assert hs.projection_kernel(one, other) == pytest.approx(np.sum(np.cos(np.radians(expected)) ** 2), abs=1e-12)


@pytest.mark.parametrize("exponent", [-15, -12, -9, -6, -3, -1, 0])
def test_angles_are_exact_where_cosines_are_flat(exponent: int) -> None:
    small = 10.0**exponent
    one = np.eye(5)[:, :2]
    other = np.stack([np.cos(small) * one[:, 0] + np.sin(small) * np.eye(5)[:, 2], np.eye(5)[:, 3]], axis=1)
    np.testing.assert_allclose(hs.principal_angles(one, other), [np.degrees(small), 90], rtol=1e-12)


def test_stacks_give_all_pairs_and_lower_ranks_have_fewer_angles(rng: np.random.Generator) -> None:
    left, right = rng.normal(size=(3, 10, 4)), rng.normal(size=(2, 10, 3))
    left[1, :, 2:] = left[1, :, :2]
    left[2] = 0
    bases = [hs.orthonormal_bases(factors) for factors in (left, right)]
    assert bases[0].rank.tolist() == [4, 2, 0]
    angles = hs.principal_angles(bases[0].basis, bases[1].basis)
    kernel = hs.projection_kernel(bases[0].basis, bases[1].basis)
    assert (angles.shape, kernel.shape) == ((3, 2, 3), (3, 2))
    for i, j in np.ndindex(2, 2):
        expected = np.degrees(subspace_angles(orth(left[i]), orth(right[j])))[::-1]
        np.testing.assert_allclose(angles[i, j, : len(expected)], expected, atol=1e-9)
        assert np.isnan(angles[i, j, len(expected) :]).all()
        assert kernel[i, j] == pytest.approx(np.sum(np.cos(np.radians(expected)) ** 2))
    assert np.isnan(angles[2]).all()
    assert kernel[2].tolist() == [0, 0]


def test_a_rotation_changes_nothing(rng: np.random.Generator) -> None:
    one, other = (np.linalg.qr(rng.normal(size=(3, 9, 2)))[0] for _ in range(2))
    rotation, inside = np.linalg.qr(rng.normal(size=(9, 9)))[0], np.linalg.qr(rng.normal(size=(2, 2)))[0]
    for function in (hs.projection_kernel, hs.principal_angles):
        np.testing.assert_allclose(function(rotation @ one, rotation @ other @ inside), function(one, other), atol=1e-9)


def test_bases_span_what_came_in(rng: np.random.Generator) -> None:
    factors = rng.normal(size=(10, 3)) @ np.diag([100, 1, 1e-4])
    found = hs.orthonormal_bases(factors)
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(found.basis @ found.basis.T @ factors, factors, atol=1e-10)
    np.testing.assert_allclose(found.singular_values, np.linalg.svd(factors, compute_uv=False))
    assert hs.orthonormal_bases(factors, rank_rtol=1e-3).rank == 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_come_back_as_tensors(dtype: torch.dtype, rng: np.random.Generator) -> None:
    factors = torch.asarray(rng.normal(size=(2, 8, 2))).to(dtype)
    found = hs.orthonormal_bases(factors)
    assert all(isinstance(part, torch.Tensor) for part in found)
    kernel = hs.projection_kernel(found.basis, found.basis)
    assert isinstance(kernel, torch.Tensor)
    np.testing.assert_allclose(kernel.diagonal().numpy(), [2, 2])
    assert isinstance(hs.principal_angles(found.basis, found.basis), torch.Tensor)
    expected = hs.orthonormal_bases(factors.double().numpy()).basis
    np.testing.assert_array_equal(found.basis.numpy(), expected)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (2 * np.eye(3), np.eye(3), "U: expected orthonormal columns, their products are off by 3"),
        (np.eye(3), np.eye(4), "U lies in 3 dimensions, V in 4; expected one residual stream"),
        (np.eye(3), np.eye(3)[0], r"V: expected .d_model, d_head. or .*, got the shape \(3,\)"),
        (np.full((3, 1), np.nan), np.eye(3), "U: holds NaN or infinite values"),
        (np.zeros((3, 0)), np.eye(3), r"U: .* got the shape \(3, 0\)"),
        (1j * np.eye(3), np.eye(3), "U: holds complex numbers; expected real ones"),
        (np.eye(3), torch.eye(3, dtype=torch.complex64), "V: holds complex numbers"),
    ],
)
def test_what_is_no_basis_is_refused(one: np.ndarray, other: np.ndarray, message: str) -> None:
    for function in (hs.projection_kernel, hs.principal_angles):
        with pytest.raises(hs.InputError, match=message):
            function(one, other)


@pytest.mark.parametrize("rank_rtol", [-1e-9, 1.0, np.nan, np.inf])
def test_a_tolerance_that_makes_no_sense_is_refused(rank_rtol: float) -> None:
    with pytest.raises(hs.InputError, match="rank_rtol is .*, expected a number from 0 to below 1"):
        hs.orthonormal_bases(np.eye(3), rank_rtol=rank_rtol)
