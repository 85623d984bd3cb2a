import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from headspaces.geometry.travel import own_angle, own_overlap


def bases(rng, ranks, d_model=20, d_head=4):
    stack = np.zeros((*np.shape(ranks), d_model, d_head))
    for at in np.ndindex(*np.shape(ranks)):
        rank = ranks[at]
        stack[at][:, :rank] = np.linalg.qr(rng.normal(size=(d_model, rank)))[0]
    return stack


@pytest.mark.parametrize("d_model", [20, 6])
def test_against_scipy_with_unequal_ranks(rng, d_model):
    one_ranks, other_ranks = rng.integers(1, 5, (2, 3, 5))
    one, other = bases(rng, one_ranks, d_model), bases(rng, other_ranks, d_model)
    rho, angle = (of(one, other, one_ranks, other_ranks) for of in (own_overlap, own_angle))
    for at in np.ndindex(3, 5):
        angles = subspace_angles(one[at][:, : one_ranks[at]], other[at][:, : other_ranks[at]])
        assert rho[at] == pytest.approx(np.sum(np.cos(angles) ** 2) / len(angles))
        assert angle[at] == pytest.approx(np.degrees(np.sqrt(np.mean(angles**2))), abs=1e-6)


@pytest.mark.parametrize("degrees", [0.0, 1e-6, 30.0, 89.0, 90.0])
def test_a_planted_angle(degrees):
    turn = np.radians(degrees)
    one = np.eye(8)[:, :2]
    other = np.cos(turn) * np.eye(8)[:, :2] + np.sin(turn) * np.eye(8)[:, 4:6]
    full = np.array(2)
    assert own_angle(one, other, full, full) == pytest.approx(degrees, abs=1e-9)
    assert own_overlap(one, other, full, full) == pytest.approx(np.cos(turn) ** 2)


def test_neither_bases_nor_a_common_rotation_count(rng):
    ranks = np.full((2, 3), 4)
    one, other = bases(rng, ranks), bases(rng, ranks)
    turn, inside = ortho_group.rvs(20, random_state=1), ortho_group.rvs(4, random_state=2)
    for of in (own_overlap, own_angle):
        np.testing.assert_allclose(of(turn @ one @ inside, turn @ other, ranks, ranks), of(one, other, ranks, ranks))


def test_random_spaces_overlap_as_the_isotropic_value(rng):
    ranks = np.full(400, 4)
    found = own_overlap(bases(rng, ranks), bases(rng, ranks), ranks, ranks)
    assert found.mean() == pytest.approx(4 / 20, abs=0.02)


def test_an_empty_space_has_none(rng):
    one = bases(rng, np.array([4, 0]))
    ranks = np.array([4, 0])
    for of in (own_overlap, own_angle):
        np.testing.assert_array_equal(np.isnan(of(one, one, ranks, ranks)), [False, True])
