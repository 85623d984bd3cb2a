"""Informativeness without bins, against quantiles, closed forms and other scales."""

import dataclasses

import numpy as np
import pytest
from scipy import stats
from support.tiny_results import SHAPE, only_row, tiny_model

from headspaces.affinity.informativeness import distance, left_out, reference_moments
from headspaces.report.tables.registry import TABLES


def test_reference_moments_are_the_paper_s():
    d, D = 64, 576
    mean, sd = reference_moments(D, d)
    assert mean == pytest.approx(d * d / D)
    assert sd == pytest.approx(np.sqrt(2 * d**2 * (D - d) ** 2 / (D**2 * (D - 1) * (D + 2))))


def test_the_distance_is_the_mean_distance_of_quantiles(rng):
    mean, sd = reference_moments(576, 64)
    for values in (mean + sd * rng.standard_t(3, 50), np.array([mean + 2 * sd]), mean + 5 * rng.gamma(2, size=200)):
        quantiles = mean + sd * stats.norm.ppf((np.arange(400_000) + 0.5) / 400_000)
        expected = stats.wasserstein_distance(values, quantiles) / sd
        pk = np.concatenate([values, [np.nan]])
        assert distance(pk, 576, 64) == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("shift", [3.0, -2.0])
def test_a_shifted_law_is_as_far_as_its_shift(shift):
    mean, sd = reference_moments(768, 64)
    pk = mean + sd * (shift + stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000))
    assert distance(pk, 768, 64) == pytest.approx(abs(shift), abs=1e-3)
    # A wider law: by (k - 1) E|x|.
    wider = mean + 4 * (pk - mean - shift * sd)
    assert distance(wider, 768, 64) == pytest.approx(3 * np.sqrt(2 / np.pi), abs=1e-2)


def test_the_same_law_is_as_far_in_models_of_any_width():
    quantiles = stats.norm.ppf((np.arange(5000) + 0.5) / 5000)
    found = []
    for d_model, d_head in ((576, 64), (3584, 128), (48, 12)):
        mean, sd = reference_moments(d_model, d_head)
        found.append(distance(mean + sd * (1 + 2 * quantiles), d_model, d_head))
    np.testing.assert_allclose(found, found[0], rtol=1e-9)


def test_where_there_is_nothing_to_compare():
    assert np.isnan(distance(np.array([np.nan]), 576, 64))
    assert np.isnan(distance(np.array([8.0]), 8, 8))
    assert left_out(np.array([0.1, 0.6, 0.3]), np.array([0, 5, 0])) == pytest.approx(0.4)


def test_the_table_has_the_distance_beside_the_divergences(rng):
    model = tiny_model()
    pk = {f"pk/{x}{y}": rng.uniform(0, 1, (2, 2, 3, 3)) for x in "QKVO" for y in "QKVO"}
    pk["pk/QK"][:] = np.nan
    table = TABLES["informativeness"]([dataclasses.replace(model, affinity=pk)])
    assert len(table.frame) == 16
    row, values = only_row(table, source="O", target="V"), pk["pk/OV"].ravel()
    mean, sd = reference_moments(SHAPE["d_model"], SHAPE["d_head"])
    assert row["n_pairs"] == 36
    assert row["mean_sds"] == pytest.approx((values.mean() - mean) / sd)
    assert row["sd_ratio"] == pytest.approx(values.std() / sd)
    assert row["distance_sds"] == distance(values, 10, 1)
    edges = np.linspace(0, 1, 256)
    empty = np.histogram(values, edges)[0] == 0
    assert row["left_out_256"] == pytest.approx(np.diff(stats.norm.cdf(edges, mean, sd))[empty].sum())
    assert len({row["kl_128"], row["kl_256"], row["kl_1024"]}) == 3
    nothing = only_row(table, source="Q", target="K")
    assert (nothing["n_pairs"], np.isnan(nothing["distance_sds"])) == (0, True)
