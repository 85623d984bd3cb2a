import numpy as np
import pytest
from scipy import stats

from headspaces.geometry.statistics import monte_carlo_p, pair_statistics
from headspaces.nulls.significance import (
    benjamini_hochberg,
    expected_above_all,
    largest_pair_p,
    max_statistic_p,
    pair_scores,
    tail_statistics,
)


def test_tail_statistics_are_scipys(rng):
    rho = rng.gamma(2, size=(3, 4, 20))
    rho[0, 1, 3:7] = np.nan
    rho[2, 2] = 0.25
    rho[1, 3] = np.nan
    found = tail_statistics(rho)
    for layer in np.ndindex(3, 4):
        row = rho[layer][np.isfinite(rho[layer])]
        if not row.size:
            assert np.isnan([found["max"][layer], found["skewness"][layer]]).all()
            continue
        assert found["max"][layer] == row.max()
        expected = 0.0 if np.ptp(row) == 0 else stats.skew(row)
        assert found["skewness"][layer] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(tail_statistics(np.empty((2, 0)))["max"]).all()


def test_expected_number_is_what_chance_gives(rng):
    """Half of 400 conditions have 9 samples, half 4."""
    values = rng.standard_normal((2000, 10, 40))
    values[:, 5:, 20:] = np.nan
    above = [(one[0] > np.nanmax(one[1:], axis=0)).sum() for one in values]
    expected = expected_above_all(values[0, 0], values[0, 1:])
    assert expected == pytest.approx(20 / 10 + 20 / 5)
    assert np.mean(above) == pytest.approx(expected, abs=5 * np.std(above) / np.sqrt(2000))
    values[0, 0, :3], values[0, 1:, 3] = np.nan, np.nan
    assert expected_above_all(values[0, 0], values[0, 1:]) == pytest.approx(16 / 10 + 20 / 5)


def test_benjamini_hochberg_is_scipys_and_keeps_nan_out(rng):
    p = rng.uniform(size=(5, 8)) ** 3
    p[1, 2] = p[3, 4] = np.nan
    found = benjamini_hochberg(p)
    assert np.isnan(found).sum() == 2
    tests = np.isfinite(p)
    np.testing.assert_allclose(found[tests], stats.false_discovery_control(p[tests]), rtol=1e-12)
    assert benjamini_hochberg(np.array([])).shape == (0,)


def test_one_false_finding_in_twenty_families(rng):
    """Twelve conditions of different scales that hang together: some p up to 0.1 in a tenth of the families."""
    families = 600
    scale, common = np.geomspace(1e-3, 10, 12), rng.standard_normal((families, 20, 1))
    values = scale * (np.exp(rng.standard_normal((families, 20, 12))) + common)
    smallest = np.array([max_statistic_p(one[0], one[1:]).min() for one in values])
    counts = np.bincount(np.rint(20 * smallest).astype(int), minlength=21)[1:]
    assert counts[:2].sum() / families == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / families))
    single = np.array([monte_carlo_p(one[0], one[1:]).min() for one in values])
    assert (single <= 0.1).mean() > 0.4


def test_a_finding_among_many_conditions_is_found_with_few_samples(rng):
    values = rng.standard_normal((10, 30, 15))
    values[0, 7, 3] = 30
    values[:, 0, 0] = 1
    values[4, 1, 1] = np.nan
    p = max_statistic_p(values[0], values[1:])
    assert p[7, 3] == 1 / 10
    assert np.isnan(p[1, 1])
    assert np.isnan(p).sum() == 1
    assert p[0, 0] == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_of_a_gamma_law_get_its_tail(sign, rng):
    """Moments of samples, joined, are those of all their pairs; p is the law's own."""
    pairs = sign * rng.gamma(3, 0.1, (40, 2, 5000))
    statistics = pair_statistics(pairs) | tail_statistics(pairs)
    rho = sign * rng.gamma(3, 0.1, (2, 50))
    z, p = pair_scores(rho, *(statistics[name] for name in ("mean", "spread", "skewness")))
    for condition in range(2):
        pooled = pairs[:, condition].ravel()
        expected = (rho[condition] - pooled.mean()) / pooled.std()
        np.testing.assert_allclose(z[condition], expected, rtol=1e-9)
        np.testing.assert_allclose(p[condition], stats.pearson3.sf(expected, stats.skew(pooled)), rtol=1e-6, atol=1e-12)
        exact = stats.gamma(3, scale=0.1)
        np.testing.assert_allclose(
            p[condition], (exact.sf if sign > 0 else exact.cdf)(sign * rho[condition]), atol=0.01
        )


def test_pairs_of_a_law_without_skewness_and_without_variation(rng):
    mean, spread, none = np.full((3, 2), 0.5), np.array([[0.1, 0.0]] * 3), np.zeros((3, 2))
    z, p = pair_scores(np.array([[0.6, 0.3], [0.6, 0.3]]), mean, spread, none)
    np.testing.assert_allclose(z[0], [1, -2])
    np.testing.assert_allclose(p[0], stats.norm.sf([1, -2]))
    assert np.isnan(z[1]).all()
    assert np.isnan(p[1]).all()


def test_the_largest_pair_of_every_sample(rng):
    largest = np.array([[0.3, np.nan], [0.4, np.nan], [0.5, np.nan]])
    rho = np.array([[0.2, 0.4, 0.45, 0.9, np.nan], [0.1, 0.2, 0.3, 0.4, 0.5]])
    p = largest_pair_p(rho, largest)
    np.testing.assert_array_equal(p[0], [1, 0.75, 0.5, 0.25, np.nan])
    assert np.isnan(p[1]).all()
