import numpy as np
import pytest
from scipy import stats

from headspaces.geometry.statistics import (
    above_all,
    below_all,
    isotropic_mean,
    isotropic_sd,
    mean_ratio,
    monte_carlo_p,
    pair_statistics,
    quantile_band,
    rho_differences,
    spread_ratio,
    upper_median_layer,
)

NAN = np.nan


@pytest.mark.parametrize(
    ("d_model", "d_head", "printed"), [(768, 64, 0.0017), (512, 64, 0.0024), (4096, 128, 0.0003), (3584, 128, 0.00035)]
)
def test_isotropic_deviation_is_what_the_paper_prints(d_model, d_head, printed):
    """RW 5.1 and 5.3."""
    assert isotropic_sd(d_model, d_head) == pytest.approx(printed, abs=0.00006 if printed > 0.001 else 0.00005)
    equal_ranks = np.sqrt(2 * (d_model - d_head) ** 2 / (d_model**2 * (d_model - 1) * (d_model + 2)))
    assert isotropic_sd(d_model, d_head) == pytest.approx(equal_ranks, rel=1e-14)


def test_isotropic_values_of_lines_in_a_plane():
    """The squared cosine of a uniform angle has mean 1/2 and variance 1/8."""
    assert isotropic_mean(2, 1) == 0.5
    assert isotropic_sd(2, 1) == pytest.approx(np.sqrt(1 / 8), rel=1e-15)


def test_isotropic_values_where_nothing_varies():
    assert (isotropic_mean(1, 1), isotropic_sd(1, 1)) == (1.0, 0.0)
    assert (isotropic_mean(4, 6), isotropic_sd(4, 6)) == (1.0, 0.0)
    assert (isotropic_mean(10, 2, 10), isotropic_sd(10, 2, 10)) == (1.0, 0.0)


def test_isotropic_values_of_unequal_ranks():
    """A line and a hyperplane: one minus the squared cosine with its normal, a Beta(1/2, (D - 1)/2) variable."""
    law = stats.beta(0.5, 4.5)
    assert isotropic_mean(10, 1, 9) == pytest.approx(1 - law.mean(), rel=1e-14)
    assert isotropic_sd(10, 9, 1) == pytest.approx(law.std(), rel=1e-12)


def test_pair_statistics_by_hand():
    found = pair_statistics(np.array([[1.0, 2.0, 3.0, 4.0], [1.0, NAN, 5.0, NAN], [NAN] * 4, [0.3] * 4]))
    np.testing.assert_allclose(found["spread"], [1.118033988749895, 2.0, NAN, 0.0], rtol=1e-15)
    np.testing.assert_allclose(found["mean"], [2.5, 3.0, NAN, 0.3], rtol=1e-15)
    np.testing.assert_allclose(found["median"], [2.5, 3.0, NAN, 0.3], rtol=1e-15)
    np.testing.assert_allclose(found["p95"], [3.85, 4.8, NAN, 0.3], rtol=1e-15)


def test_pair_statistics_of_many_conditions(rng):
    rho = rng.random((3, 4, 50))
    found = pair_statistics(rho)
    for condition in np.ndindex(3, 4):
        values = rho[condition]
        assert found["spread"][condition] == pytest.approx(np.std(values), rel=1e-13)
        assert found["mean"][condition] == pytest.approx(np.mean(values), rel=1e-13)
        assert found["median"][condition] == pytest.approx(np.median(values), rel=1e-13)
        assert found["p95"][condition] == pytest.approx(np.quantile(values, 0.95), rel=1e-13)


def test_spread_of_large_values_does_not_cancel():
    found = pair_statistics(1e9 + np.array([4.0, 7.0, 13.0, 16.0]))
    assert found["spread"] == pytest.approx(np.sqrt(22.5), rel=1e-12)


def test_constant_rho_has_exactly_no_spread():
    """Rounding of the overlaps must not become a spread whose ratios mean nothing."""
    assert pair_statistics(np.array([0.1, 0.1 + 3e-14, 0.1 - 5e-14]))["spread"] == 0.0
    assert pair_statistics(np.array([0.7]))["spread"] == 0.0


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0,)])
def test_no_pairs_leave_the_statistics_undefined(shape):
    for values in pair_statistics(np.empty(shape)).values():
        assert values.shape == shape[:-1]
        assert np.isnan(values).all()


def test_r_is_the_ratio_to_the_largest_of_all_samples():
    rotation = np.array([[1.0, 1.0, NAN, 0.0], [2.0, NAN, NAN, 0.0]])
    reassignment = np.array([[4.0, 0.5, NAN, 0.0], [3.0, 0.1, NAN, 0.0], [1.0, 0.2, NAN, 0.0]])
    r = spread_ratio(np.array([6.0, 3.0, 1.0, 2.0]), rotation, reassignment)
    np.testing.assert_allclose(r, [1.5, 3.0, NAN, NAN])
    assert np.isnan(spread_ratio(np.array([NAN]), rotation[:, :1], reassignment[:, :1]))


def test_ratio_to_the_mean_sample():
    samples = np.array([[1.0, 1.0, NAN, 0.0], [3.0, NAN, NAN, 0.0]])
    np.testing.assert_allclose(mean_ratio(np.array([6.0, 3.0, 1.0, 1.0]), samples), [3.0, 3.0, NAN, NAN])


def test_no_samples_say_nothing():
    none, observed = np.empty((0, 2)), np.array([0.5, 0.7])
    assert not above_all(observed, none).any()
    assert not below_all(observed, none, none).any()
    assert monte_carlo_p(observed, none).tolist() == [1.0, 1.0]
    for undefined in (spread_ratio(observed, none, none), mean_ratio(observed, none), *quantile_band(none)):
        assert np.isnan(undefined).all()
        assert undefined.shape == (2,)


def test_above_and_below_every_sample_of_every_null():
    observed = np.array([5.0, 3.0, 0.0, 5.0, NAN, 1.0])
    one = np.array([[4.0, 4.0, 1.0, NAN, 1.0, 1.0]])
    other = np.array([[1.0, 1.0, 2.0, 4.9, 2.0, 0.0], [2.0, 2.0, 0.5, 4.8, 3.0, 0.5]])
    assert above_all(observed, one, other).tolist() == [True, False, False, True, False, False]
    assert below_all(observed, one, other).tolist() == [False, False, True, False, False, False]


def test_a_tie_to_rounding_is_not_beyond():
    """Rho summed in another order: with d_head = 1 every reassignment gives the same pairs."""
    observed = np.array([0.1 + 0.2])
    samples = np.array([[0.3], [0.25]])
    assert observed[0] > samples[0, 0]
    assert not above_all(observed, samples).any()
    assert monte_carlo_p(observed, samples)[0] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("hits", "draws", "p"), [(0, 999, 0.001), (999, 999, 1), (0, 1000, 1 / 1001), (3, 30, 4 / 31)])
def test_p_values_are_never_zero(hits, draws, p):
    samples = np.r_[np.ones(hits), np.zeros(draws - hits)][:, None]
    assert monte_carlo_p(np.array([0.5]), samples)[0] == pytest.approx(p, rel=1e-15)
    assert monte_carlo_p(np.array([0.5]), 1 - samples, "less")[0] == pytest.approx(p, rel=1e-15)


@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_p_values_agree_with_scipy(alternative, rng):
    samples, observed = rng.standard_normal(200), 0.8

    def first(x, axis):
        return np.take(x, 0, axis=axis)

    expected = stats.monte_carlo_test(
        [observed],
        lambda size: samples.reshape(size),
        first,
        n_resamples=200,
        alternative=alternative,
    )
    assert monte_carlo_p(np.array([observed]), samples[:, None], alternative)[0] == pytest.approx(expected.pvalue)


def test_undefined_samples_count_for_nothing_in_p_values():
    samples = np.array([[1.0, NAN], [NAN, NAN], [0.0, NAN]])
    np.testing.assert_allclose(monte_carlo_p(np.array([0.5, 0.5]), samples), [2 / 3, 1.0])
    assert np.isnan(monte_carlo_p(np.array([NAN]), samples[:, :1]))[0]


def test_beyond_all_samples_is_the_smallest_p_value(rng):
    observed, samples = rng.standard_normal(500), rng.standard_normal((5, 500))
    smallest = np.isclose(monte_carlo_p(observed, samples), 1 / 6)
    assert 50 < smallest.sum() < 120
    np.testing.assert_array_equal(above_all(observed, samples), smallest)
    np.testing.assert_array_equal(below_all(-observed, -samples), smallest)


def test_bands_are_quantiles_over_the_samples(rng):
    samples = rng.random((30, 4))
    low, high = quantile_band(samples)
    np.testing.assert_allclose([low, high], np.quantile(samples, [0.05, 0.95], axis=0), rtol=1e-14)
    samples[3, 0], samples[:, 1] = NAN, NAN
    low, high = quantile_band(samples, 0.25, 0.75)
    np.testing.assert_allclose(
        [low[[0, 2, 3]], high[[0, 2, 3]]], np.nanquantile(samples[:, [0, 2, 3]], [0.25, 0.75], axis=0), rtol=1e-12
    )
    assert np.isnan([low[1], high[1]]).all()


@pytest.mark.parametrize(
    ("spreads", "layer"),
    [
        ([3.0, 1.0, 2.0], 2),
        ([3.0, 1.0, 2.0, 4.0], 0),
        ([12, 3, 7, 1, 9, 5, 11, 2, 8, 4, 10, 6], 2),
        ([1.0, NAN, 3.0, NAN], 2),
        ([0.0, 0.0, 0.0], 1),
        ([NAN, NAN], None),
        ([0.5], 0),
        ([], None),
    ],
)
def test_the_layer_of_figure_2_is_at_the_upper_median(spreads, layer):
    """Of 12 layers the one with the 7th smallest spread."""
    assert upper_median_layer(np.array(spreads, dtype=float)) == layer


def test_differences_by_hand():
    one, other = np.array([[0.1, 0.2], [0.4, 0.0]]), np.array([[0.11, 0.2], [0.3, 0.0]])
    found = rho_differences(one, other)
    assert found["n_pairs"] == 4
    assert found["max_abs_difference"] == pytest.approx(0.1)
    assert found["median_abs_difference"] == pytest.approx(0.005)
    assert found["max_relative_difference"] == pytest.approx(0.25)
    # The relative difference is to the first model's.
    assert rho_differences(other, one)["max_relative_difference"] == pytest.approx(1 / 3)


def test_undefined_pairs_are_left_out():
    one, other = np.array([0.1, np.nan, 0.3]), np.array([0.2, 0.5, np.nan])
    assert rho_differences(one, other)["n_pairs"] == 1
    nothing = rho_differences(np.array([np.nan]), np.array([0.1]))
    assert nothing["n_pairs"] == 0
    assert np.isnan(nothing["max_abs_difference"])


def test_a_change_from_zero_is_infinite_relative():
    assert rho_differences(np.array([0.0, 0.5]), np.array([0.1, 0.5]))["max_relative_difference"] == np.inf
