"""The propositions of RW on random weights: what the definitions promise, by the package's own functions."""

import numpy as np
import pytest
from scipy.linalg import null_space, subspace_angles

from headspaces.geometry.angles import smallest_angles
from headspaces.geometry.bases import direct_sum, orthonormal_bases
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.geometry.kernel import squared_overlaps


def spaces(rng, n_heads, d_model, d_head):
    return orthonormal_bases(rng.standard_normal((n_heads, d_model, d_head)))


def layer(factors, kind, norm):
    return LayerHeads(0, {kind: factors}, norm)


def test_a_read_factors_through_its_read_space(rng):
    """RW section 3: W x = W P_R x, and W is injective on R."""
    read = rng.standard_normal((1, 30, 5))
    basis = orthonormal_bases(read).basis[0]
    x = rng.standard_normal(30)
    np.testing.assert_allclose(read[0].T @ x, read[0].T @ (basis @ (basis.T @ x)), atol=1e-12)
    assert np.linalg.matrix_rank(read[0].T @ basis) == 5
    assert np.abs(basis.T @ null_space(read[0].T)).max() < 1e-13


def test_spaces_are_invariant_under_a_change_of_basis_in_the_head(rng):
    """RW appendix A: W_Q -> A W_Q, W_O -> W_O A^-1."""
    factors = rng.standard_normal((4, 30, 5))
    changed = factors @ rng.standard_normal((4, 5, 5))
    one, two = orthonormal_bases(factors).basis, orthonormal_bases(changed).basis
    np.testing.assert_allclose(one @ one.swapaxes(1, 2), two @ two.swapaxes(1, 2), atol=1e-11)


@pytest.mark.parametrize(("n_heads", "deficiency"), [(3, 0), (6, 0), (7, 5), (12, 30)])
def test_direct_sum_up_to_the_dimension(n_heads, deficiency, rng):
    """RW section 4.1 (a): generic spaces are a direct sum while H d <= D; beyond, dimension forces a deficiency."""
    found = direct_sum(spaces(rng, n_heads, 30, 5))
    assert (found.rank, found.deficiency) == (min(30, 5 * n_heads), deficiency)
    assert (found.lambda_min > 0) == (n_heads >= 6)


def test_layer_norm_leaves_one_dimension_less(rng):
    """RW section 4.1: centring maps every read space into the mean-free vectors, so H d = D reads are no direct sum."""
    factors, gain = rng.standard_normal((6, 30, 5)), rng.uniform(0.5, 2, 30)
    centred = direct_sum(orthonormal_bases(fold(layer(factors, "Q", Norm("layernorm", gain)), "Q")))
    assert (centred.rank, centred.deficiency) == (29, 1)
    scaled = direct_sum(orthonormal_bases(fold(layer(factors, "Q", Norm("rmsnorm", gain)), "Q")))
    assert (scaled.rank, scaled.deficiency) == (30, 0)


def test_generic_pairs_are_disjoint_and_not_orthogonal(rng):
    """RW section 4.1 (b): a smallest angle above 0, an overlap above 0."""
    bases = spaces(rng, 8, 40, 20).basis
    pairs = np.triu_indices(8, 1)
    assert smallest_angles(bases, bases)[pairs].min() > 1e-3
    assert squared_overlaps(bases, bases)[pairs].min() > 0.1


def test_pk_bounds_every_write(rng):
    """RW section 4.2: ||P_V u||^2 <= cos^2 theta_1 <= min(1, PK)."""
    for d_model in (12, 200):
        u, v = spaces(rng, 2, d_model, 4).basis
        pk = squared_overlaps(u[None], v[None])[0, 0]
        cosine = np.cos(np.radians(smallest_angles(u[None], v[None])[0, 0]))
        writes = u @ rng.standard_normal((4, 1000))
        shares = np.sum((v.T @ writes) ** 2, axis=0) / np.sum(writes**2, axis=0)
        assert shares.max() <= cosine**2 + 1e-12
        assert cosine**2 <= min(1, pk) + 1e-12


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.4])
def test_the_bound_is_sharp(alpha):
    """RW appendix D: for alpha <= 1 one angle carries all, beyond it theta_1 = 0 and the rest is shared out."""
    m, d_model = 4, 12
    squares = np.zeros(m)
    squares[0] = min(1, alpha)
    squares[1:] = max(0, alpha - 1) / (m - 1)
    u = np.eye(d_model)[:, :m]
    v = np.zeros((d_model, m))
    v[:m] = np.diag(np.sqrt(squares))
    v[m : 2 * m] = np.diag(np.sqrt(1 - squares))
    assert squared_overlaps(u[None], v[None])[0, 0] == pytest.approx(alpha, abs=1e-14)
    assert np.linalg.norm(v.T @ u[:, 0]) == pytest.approx(np.sqrt(min(1, alpha)), abs=1e-14)
    np.testing.assert_allclose(np.cos(subspace_angles(u, v)) ** 2, np.sort(squares), atol=1e-14)


def test_isotropic_writes_arrive_with_share_rho(rng):
    """RW section 4.2: E ||P_V u||^2 = rho for unit writes that are isotropic in U."""
    u, v = spaces(rng, 2, 30, 4).basis
    writes = u @ rng.standard_normal((4, 200_000))
    shares = np.sum((v.T @ writes) ** 2, axis=0) / np.sum(writes**2, axis=0)
    rho = squared_overlaps(u[None], v[None])[0, 0] / 4
    assert shares.mean() == pytest.approx(rho, abs=5 * shares.std() / np.sqrt(shares.size))


@pytest.mark.parametrize("n_heads", [6, 9])
def test_some_reader_must_overlap(n_heads, rng):
    """RW section 4.3: sum_i PK(W, V_i) >= lambda_min(S) d, so max_i rho >= lambda_min(S) / H."""
    writes = spaces(rng, n_heads, 30, 5)
    reads = spaces(rng, 50, 30, 5).basis
    pk = squared_overlaps(reads, writes.basis)
    bound = direct_sum(writes).lambda_min
    assert 0 < bound < 1.5
    assert np.all(pk.sum(axis=1) >= bound * 5 - 1e-12)
    assert np.all(pk.max(axis=1) / 5 >= bound / n_heads - 1e-12)


def test_an_orthogonal_layer_reaches_the_isotropic_value(rng):
    """RW appendix C: S = I makes the bound d / D."""
    columns = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    layer_spaces = orthonormal_bases(columns.reshape(30, 6, 5).swapaxes(0, 1))
    assert direct_sum(layer_spaces).lambda_min == pytest.approx(1, abs=1e-12)
    reads = spaces(rng, 20, 30, 5).basis
    np.testing.assert_allclose(squared_overlaps(reads, layer_spaces.basis).sum(axis=1), 5, atol=1e-11)


def test_disjoint_spaces_interact_through_the_projection():
    """RW section 4.2: two lines at one degree are disjoint, and nearly the whole write arrives."""
    u, v = np.eye(2)[:, :1], np.array([[np.cos(np.radians(1))], [np.sin(np.radians(1))]])
    assert smallest_angles(u[None], v[None])[0, 0] == pytest.approx(1, abs=1e-12)
    assert squared_overlaps(u[None], v[None])[0, 0] == pytest.approx(np.cos(np.radians(1)) ** 2, abs=1e-15)


def test_the_norm_lets_an_orthogonal_write_through():
    """RW appendix D: RMSNorm in two dimensions, x = (1, 1), u = (0, 1): the reader of (1, 0) falls from 1 to 0.63."""
    reader, x, u = np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([0.0, 1.0])
    assert reader @ u == 0

    def read(residual):
        return reader @ residual / np.sqrt(np.mean(residual**2))

    assert read(x) == pytest.approx(1)
    assert read(x + u) == pytest.approx(0.63, abs=0.005)
