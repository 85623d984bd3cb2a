import re

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy import stats
from support.project import ROOT

from headspaces.geometry.statistics import isotropic_mean, isotropic_sd
from headspaces.nulls import draws
from headspaces.nulls.draws import generator, orthonormalised, random_subspaces, reassigned, rotated

SOURCE = ROOT / "src"


def haar(n, rng, count):
    """Draws of the rotation itself."""
    return np.stack([rotated(np.eye(n), rng) for _ in range(count)])


def within_standard_errors(samples, expected, errors=5.0):
    samples = np.asarray(samples)
    assert abs(samples.mean() - expected) < errors * samples.std() / np.sqrt(samples.size)


# Generators


def test_a_stream_is_named_by_what_is_drawn():
    names = [
        (seed, model, layer, kind, null, sample)
        for seed in (0, 1)
        for model in ("gpt2", "gpt2x", "OO")
        for layer in range(3)
        for kind in "OQ"
        for null in ("rotation", "reassignment")
        for sample in range(4)
    ]
    first = [generator(*name).standard_normal() for name in names]
    assert len(set(first)) == len(names) == 288
    assert [generator(*name).standard_normal() for name in reversed(names)] == first[::-1]


def test_streams_do_not_overlap_along_any_argument():
    """As seed + i would: seed 0, sample 1 is not seed 1, sample 0, and a name is not the end of another."""
    pairs = [
        ((0, "m", 1, "O", "rotation", 0), (1, "m", 0, "O", "rotation", 0)),
        ((0, "m", 0, "O", "rotation", 1), (1, "m", 0, "O", "rotation", 0)),
        ((0, "m", 1, "O", "rotation", 0), (0, "m", 0, "O", "rotation", 1)),
        ((0, "mO", 0, "O", "rotation", 0), (0, "m", 0, "OO", "rotation", 0)),
    ]
    for one, other in pairs:
        assert not np.isclose(generator(*one).random(100), generator(*other).random(100)).any()


def test_draws_stay_what_they_were():
    """A change here changes every published null sample: it belongs into the changelog."""
    found = generator(0, "gpt2", 3, "Q", "rotation", 7).standard_normal(3)
    np.testing.assert_allclose(found, DRAWS, rtol=1e-12)


DRAWS = [-1.9425267586744397, -0.28090520960186127, 0.757132654635537]


def test_numpys_global_generator_is_used_nowhere():
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"np\.random\.(\w+)", text)) <= {"default_rng", "SeedSequence", "Generator"}, file
        assert not re.search(r"^\s*(import random$|from random import)", text, re.MULTILINE), file


# Rotation


@pytest.mark.parametrize(("d_model", "columns"), [(40, 12), (30, 30), (20, 45), (7, 1), (1, 1), (1, 4)])
def test_rotation_keeps_the_operator_and_changes_the_columns(d_model, columns, rng):
    matrix = rng.standard_normal((d_model, columns)) * np.geomspace(1, 1e-3, columns)
    drawn = rotated(matrix, rng)
    assert drawn.shape == matrix.shape
    np.testing.assert_allclose(drawn @ drawn.T, matrix @ matrix.T, atol=1e-12)
    if columns > 1:
        assert np.abs(drawn - matrix).max() > 1e-3


def test_rotation_keeps_the_operator_of_a_large_matrix(rng):
    matrix = rng.standard_normal((300, 1100))
    drawn = rotated(matrix, rng)
    np.testing.assert_allclose(drawn @ drawn.T, matrix @ matrix.T, atol=1e-10 * 1100)
    np.testing.assert_allclose(
        np.linalg.svd(drawn, compute_uv=False), np.linalg.svd(matrix, compute_uv=False), rtol=1e-12
    )


def test_rotation_leaves_its_input(rng):
    matrix = rng.standard_normal((6, 4))
    before = matrix.copy()
    rotated(matrix, rng)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("block", [2, 6, 128])
def test_rotation_is_the_product_of_its_reflectors(block, monkeypatch):
    """The blocks change nothing: each reflector as a matrix of its own."""
    monkeypatch.setattr(draws, "BLOCK", block)
    n = 10
    found = rotated(np.eye(n), np.random.default_rng(5))
    size = block if n > 8 * block else block // 2
    source = np.random.default_rng(5)
    expected, signs = np.eye(n), np.empty(n)
    for start in range(0, n, size):
        gaussian = source.standard_normal((n - start, min(size, n - start)))
        for k in range(gaussian.shape[1]):
            x = np.zeros(n)
            x[start + k :] = gaussian[k:, k]
            v = x.copy()
            v[start + k] += np.copysign(np.linalg.norm(x), x[start + k])
            reflector = np.eye(n) - 2 * np.outer(v, v) / (v @ v)
            signs[start + k] = np.sign((reflector @ x)[start + k])
            expected = expected @ reflector
    np.testing.assert_allclose(found, expected * signs, atol=1e-14)


def test_rotation_agrees_with_a_decomposition_of_the_same_gaussian_matrix():
    """What Stewart's method saves: Q of a Gaussian matrix, with a positive diagonal of R."""
    n, source = 9, np.random.default_rng(3)
    tail = source.standard_normal((n, n))
    # Work backwards: the Gaussian matrix whose k-th reflector is that of the k-th drawn vector.
    gaussian = np.zeros((n, n))
    applied = np.eye(n)
    for k in range(n):
        x = np.zeros(n)
        x[k:] = tail[k:, k]
        gaussian[:, k] = applied @ (x + np.r_[source.standard_normal(k), np.zeros(n - k)])
        v = x.copy()
        v[k] += np.copysign(np.linalg.norm(x), x[k])
        applied = applied @ (np.eye(n) - 2 * np.outer(v, v) / (v @ v))
    q, r = scipy.linalg.qr(gaussian)
    np.testing.assert_allclose(rotated(np.eye(n), np.random.default_rng(3)), q * np.sign(np.diag(r)), atol=1e-12)


def test_signs_of_a_plane_rotation_are_fair(rng):
    """The known fault of a QR decomposition without the sign: this share is 0."""
    planes = haar(2, rng, 4000)
    assert abs((planes[:, 0, 0] > 0).mean() - 0.5) < 0.03
    assert abs((np.linalg.det(planes) > 0).mean() - 0.5) < 0.03
    angles = np.arctan2(planes[:, 1, 0], planes[:, 0, 0])
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


@pytest.mark.parametrize("block", [4, 128])
def test_moments_of_a_haar_matrix(block, rng, monkeypatch):
    monkeypatch.setattr(draws, "BLOCK", block)
    n = 12
    q = haar(n, rng, 3000)
    for row, column in ((0, 0), (3, 7), (n - 1, n - 1), (n - 1, 0)):
        entry = q[:, row, column]
        within_standard_errors(entry, 0)
        within_standard_errors(entry**2, 1 / n)
        within_standard_errors(entry**4, 3 / (n * (n + 2)))
        # The square of one coordinate of a uniform unit vector.
        assert stats.kstest(entry**2, stats.beta(0.5, (n - 1) / 2).cdf).pvalue > 1e-3
    within_standard_errors(q[:, 0, 0] ** 2 * q[:, 0, 1] ** 2, 1 / (n * (n + 2)))
    within_standard_errors(q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2, (n + 1) / (n * (n - 1) * (n + 2)))
    within_standard_errors(q[:, 0, 0] * q[:, 1, 1] * q[:, 0, 1] * q[:, 1, 0], -1 / (n * (n - 1) * (n + 2)))
    reference = stats.ortho_group(n, seed=rng).rvs(3000)
    for power in (1, 2):
        one, other = (np.trace(np.linalg.matrix_power(x, power), axis1=1, axis2=2) for x in (q, reference))
        assert stats.ks_2samp(one, other).pvalue > 1e-3


def test_overlap_of_two_rotated_heads_follows_the_closed_form(rng):
    """Heads of two independent rotations, of dimension 3 and 5, cut anywhere out of Q."""
    n, p, q = 12, 3, 5
    one, other = haar(n, rng, 3000), haar(n, rng, 3000)
    for left, right in ((0, 0), (n - p, n - q), (4, 2)):
        heads = one[:, :, left : left + p], other[:, :, right : right + q]
        rho = np.sum((heads[0].swapaxes(1, 2) @ heads[1]) ** 2, axis=(1, 2)) / p
        within_standard_errors(rho, isotropic_mean(n, p, q))
        within_standard_errors((rho - isotropic_mean(n, p, q)) ** 2, isotropic_sd(n, p, q) ** 2)


def test_rotation_in_float32_and_torch_is_the_same_draw(rng):
    matrix = rng.standard_normal((50, 90))
    exact = rotated(matrix, np.random.default_rng(1))
    single = rotated(matrix.astype(np.float32), np.random.default_rng(1))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, atol=1e-5)
    tensor = rotated(torch.from_numpy(matrix), np.random.default_rng(1))
    np.testing.assert_allclose(tensor, exact, atol=1e-13)


@pytest.mark.parametrize("draw", [rotated, reassigned])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_device_and_dtype_draws_the_same_random_numbers(draw, dtype, rng):
    """The generator is left where it is after numpy's draw, so that no later draw differs either."""
    matrix = rng.standard_normal((30, 140))
    sources = [generator(0, "gpt2", 1, "O", "rotation", 2) for _ in range(2)]
    drawn = [draw(*pair) for pair in zip((matrix, torch.from_numpy(matrix.astype(dtype))), sources, strict=True)]
    assert sources[0].bit_generator.state == sources[1].bit_generator.state
    np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-12 if dtype == np.float64 else 1e-4)


# Reassignment


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_reassignment_keeps_the_multiset_of_columns(library, rng):
    matrix = rng.standard_normal((5, 24))
    matrix[:, 3] = matrix[:, 4]
    drawn = np.asarray(reassigned(library(matrix), rng))
    assert sorted(map(tuple, drawn.T)) == sorted(map(tuple, matrix.T))
    assert not np.array_equal(drawn, matrix)


def test_reassignment_is_uniform(rng):
    permutations = np.array([reassigned(np.arange(4.0)[None], rng)[0] for _ in range(4800)])
    _, counts = np.unique(permutations, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


# Orthonormal bases


def spectrum(rng, d_model, singular):
    left, right = (np.linalg.qr(rng.standard_normal((size, len(singular))))[0] for size in (d_model, len(singular)))
    return (left * singular) @ right.T, left


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3, 1e5, 9e5])
def test_bases_of_ill_conditioned_heads(condition, dtype, rng):
    factors, left = spectrum(rng, 80, np.geomspace(1, 1 / condition, 12))
    basis, rank = orthonormalised(factors.astype(dtype)[None])
    assert (basis.dtype, rank.tolist()) == (dtype, [12])
    rounding = np.finfo(dtype).eps
    np.testing.assert_allclose(basis[0].T @ basis[0], np.eye(12), atol=20 * rounding)
    # No algorithm can do better: the weakest direction is known to rounding times the condition number.
    assert np.linalg.norm(left - basis[0] @ (basis[0].T @ left), 2) < 30 * rounding * condition


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1.0])
def test_every_head_of_a_mixed_stack_has_its_true_space(scale, dtype, rng):
    """Sound heads, a zero head, deficient ones, and one whose columns differ in length, in one stack."""
    heads = rng.standard_normal((6, 40, 5))
    heads[1] = 0
    heads[2, :, 4] = heads[2, :, 0] - 2 * heads[2, :, 1]
    heads[3, :, 1:] = 0
    heads[4] *= np.geomspace(1, 1e-5, 5)
    heads[5] = spectrum(rng, 40, np.array([1, 0.5, 0.1, 2e-7, 1e-8]))[0]
    basis, rank = orthonormalised((scale * heads).astype(dtype))
    assert rank.tolist() == [5, 0, 4, 1, 5, 3]
    for own, found, k in zip(heads, basis, rank, strict=True):
        expected = scipy.linalg.orth(own, rcond=1e-6) if k else np.zeros((40, 0))
        np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9 if dtype == np.float64 else 2e-2)
        assert np.all(found[:, k:] == 0) or k == 5
        np.testing.assert_allclose(found.T @ found, np.diag(np.arange(5) < k), atol=1e-5)


@pytest.mark.parametrize("d_head", [4, 5, 9])
def test_heads_as_wide_as_the_residual_stream_and_wider(d_head, rng):
    basis, rank = orthonormalised(rng.standard_normal((3, 5, d_head)))
    assert basis.shape == (3, 5, min(5, d_head))
    assert rank.tolist() == [min(5, d_head)] * 3
    np.testing.assert_allclose(basis.swapaxes(1, 2) @ basis, [np.eye(min(5, d_head))] * 3, atol=1e-13)


def test_bases_in_torch_are_the_same(rng):
    heads = rng.standard_normal((4, 30, 6))
    heads[1], heads[2, :, 0] = 0, 0
    expected, rank = orthonormalised(heads)
    basis, torch_rank = orthonormalised(torch.from_numpy(heads))
    assert isinstance(basis, torch.Tensor)
    np.testing.assert_array_equal(rank, torch_rank)
    np.testing.assert_allclose(basis @ basis.swapaxes(1, 2), expected @ expected.swapaxes(1, 2), atol=1e-13)


# Random subspaces


def test_random_subspaces_match_the_analytic_mean_and_variance(rng):
    bases = random_subspaces(4000, 24, 4, rng)
    pairs = bases[::2], bases[1::2]
    rho = np.sum((pairs[0].swapaxes(1, 2) @ pairs[1]) ** 2, axis=(1, 2)) / 4
    within_standard_errors(rho, isotropic_mean(24, 4))
    within_standard_errors((rho - isotropic_mean(24, 4)) ** 2, isotropic_sd(24, 4) ** 2)
    np.testing.assert_allclose(bases.swapaxes(1, 2) @ bases, [np.eye(4)] * 4000, atol=1e-13)


def test_random_subspaces_wider_than_the_residual_stream_are_all_of_it(rng):
    bases = random_subspaces(2, 3, 7, rng)
    np.testing.assert_allclose(bases @ bases.swapaxes(1, 2), [np.eye(3)] * 2, atol=1e-14)
