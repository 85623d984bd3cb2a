"""Tables of single conditions and of ranks, against numbers by hand and scipy on random overlaps."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from scipy import stats
from support.tiny_results import PAIRS, RANDOM_SD, SHAPE, WRITE_SPREAD, only_row, overlaps, square

from headspaces.geometry.bases import direct_sum, orthonormal_bases
from headspaces.report.results import ModelResults
from headspaces.report.tables.registry import TABLES


def test_right_tail_of_a_condition(model):
    values = only_row(TABLES["right_tail"]([model]), spaces="O", layer=0)
    assert values["median_rho"] == 0.2
    assert values["p95_rho"] == pytest.approx(0.2 + 0.9 * 0.4)
    assert values["max_rho"] == 0.6
    assert values["share_above_twice_isotropic"] == pytest.approx(1 / 3)  # 0.2 is twice, not above
    assert values["share_below_half_isotropic"] == pytest.approx(1 / 3)
    assert values["mean_rho"] == pytest.approx(0.28)
    assert values["spread_rho"] == pytest.approx(WRITE_SPREAD)
    assert values["mean_isotropic_ratio"] == pytest.approx(2.8)
    assert values["spread_random_sd_ratio"] == pytest.approx(WRITE_SPREAD / RANDOM_SD)
    assert values["skewness"] == pytest.approx((-(0.24**3) - 0.08**3 + 0.32**3) / 3 / WRITE_SPREAD**3)
    assert values["min_angle_deg"] == 5.0
    assert pd.isna(values["later_layer"])


def test_shares_of_the_tail_count_pairs_beyond_the_limits(model):
    values = only_row(TABLES["right_tail"]([model]), spaces="OQ")
    # Of nine, 0.3 is above 0.2 and 0.02 below 0.05; 0.2 and 0.05 are on the limits.
    assert values["share_above_twice_isotropic"] == pytest.approx(1 / 9)
    assert values["share_below_half_isotropic"] == pytest.approx(1 / 9)


def test_right_tail_of_constant_rho_has_no_skewness(model):
    values = only_row(TABLES["right_tail"]([model]), spaces="O", layer=1)
    assert (values["spread_rho"], values["spread_random_sd_ratio"]) == (0, 0)
    assert pd.isna(values["skewness"])


def test_right_tail_shows_the_widest_condition_of_each_comparison(model):
    table = TABLES["right_tail"]([model])
    shown_rows = list(zip(table.printed["spaces"], table.printed["layer"]))
    assert shown_rows == [("O", 0), ("Q", 1), ("OQ", 0), ("OK", 0), ("OV", 0)]
    assert len(table.frame) == 4 * 2 + 3


def test_right_tail_ranks_spreads_and_averages_angles(model):
    frame = TABLES["right_tail"]([model]).frame
    assert frame["spread_rank"].tolist() == [1, 2, 2, 1, pd.NA, pd.NA, pd.NA, pd.NA, 1, 1, 1]
    assert frame["mean_min_angle_deg"].head(4).tolist() == pytest.approx([95 / 3, 20.0, 8.0, 146.5 / 3])


def test_equal_spreads_rank_in_layer_order(writes_only):
    rho = np.array([[0.1, 0.2, 0.3], [0.1, 0.5, 0.9], [0.4, 0.4, 0.4], [0.3, 0.2, 0.1], [np.nan] * 3])
    arrays = {"within/O/rho": square(rho), "within/O/angle": square(rho)}
    frame = TABLES["right_tail"]([dataclasses.replace(writes_only, overlaps=arrays)]).frame
    assert frame["spread_rank"].tolist()[1:] == [1, 4, 3, pd.NA]
    assert frame["spread_rank"].tolist()[0] == 2


def test_conditions_stand_beside_the_samples(model, observed):
    table = TABLES["conditions"]([model])
    writes = only_row(table, spaces="O", layer=0)
    assert (writes["n_pairs"], writes["min_angle_deg"]) == (3, 5.0)
    assert (writes["mean_rho"], writes["spread"]) == pytest.approx((0.28, WRITE_SPREAD))
    assert (writes["rotation_spread_mean"], writes["reassignment_spread_mean"]) == pytest.approx((0.1, 0.15))
    assert (writes["rotation_spread_max"], writes["reassignment_spread_max"]) == (0.15, 0.2)
    assert (writes["rotation_mean_rho"], writes["reassignment_mean_rho"]) == pytest.approx((0.325, 0.345))
    assert writes["r"] == pytest.approx(WRITE_SPREAD / 0.2)
    # No sample has this spread: 1 / (2 + 1); in OK both of reassignment's are 0.3 and 0.15, one above 0.163.
    assert (writes["rotation_spread_p"], writes["reassignment_spread_p"]) == pytest.approx((1 / 3, 1 / 3))
    keys = only_row(table, spaces="OK")
    assert (keys["layer"], keys["later_layer"]) == (0, 1)
    assert (keys["rotation_spread_p"], keys["reassignment_spread_p"]) == pytest.approx((1 / 3, 2 / 3))
    # Queries have no samples; layer 1 has no r, all its spreads are 0.
    assert pd.isna(only_row(table, spaces="Q", layer=0)["rotation_spread_mean"])
    assert pd.isna(only_row(table, spaces="O", layer=1)["r"])
    assert list(zip(table.printed["spaces"], table.printed["layer"])) == [
        ("O", 0), ("Q", 0), ("OQ", 0), ("OK", 0), ("OV", 0),
    ]  # fmt: skip
    bare = TABLES["conditions"]([observed])
    assert "rotation_spread_p" not in bare.printed
    assert list(bare.frame.columns) == list(table.frame.columns)
    assert bare.frame[["rotation_mean_rho", "r"]].isna().all(axis=None)
    assert bare.printed["layer"].iloc[0] == 1  # of the writes, layer 1 is constant


def test_small_angles_count_pairs_below_a_degree(model):
    arrays = overlaps()
    arrays["within/O/angle"] = square([[50.0, 0.999, 0.39], [30.0, 1.0, 10.0]])
    table = TABLES["small_angles"]([dataclasses.replace(model, overlaps=arrays)])
    writes = only_row(table, spaces="O")
    assert (writes["n_pairs"], writes["n_pairs_below_1deg"], writes["min_angle_deg"]) == (6, 2, 0.39)
    assert round(writes["min_angle_sine"], 3) == 0.007  # RW section 4.1
    assert only_row(table, spaces="OQ")["n_pairs_below_1deg"] == 0
    assert pd.isna(only_row(table, spaces="K")["min_angle_sine"])


def test_direct_sum_of_real_bases_and_what_dimensions_force(writes_only):
    # Layer 0: three planes in four dimensions; layer 1: the same plane twice and a line.
    rng = np.random.default_rng(2)
    maps = rng.standard_normal((2, 3, 4, 2))
    maps[1, 1] = maps[1, 0] @ rng.standard_normal((2, 2))
    maps[1, 2, :, 1] = 0
    bases = [orthonormal_bases(layer) for layer in maps]
    sums = [direct_sum(one) for one in bases]
    arrays = {
        "within/O/rho": np.ones((2, 3, 3)), "within/O/angle": np.zeros((2, 3, 3)),
        "rank/O": np.stack([one.rank for one in bases]),
        "direct_sum/O/deficiency": np.array([one.deficiency for one in sums]),
        "direct_sum/O/lambda_min": np.array([one.lambda_min for one in sums]),
        "direct_sum/O/condition": np.array([0.25, 1.19e-6]), "direct_sum/O/random_condition": np.array(3.2e-4),
    }  # fmt: skip
    shape = {**SHAPE, "d_model": 4, "d_head": 2, "rank_rtol": 1e-6}
    table = TABLES["direct_sum"]([ModelResults("m", shape, arrays)])
    values = only_row(table)
    (note,) = table.notes
    assert note.startswith("m, O: the rank of layer 1 is marginal: σ / σ max 1.19e-06 is within a factor of 10 of the")
    assert note.endswith("heads of random directions have 3.20e-04.")
    assert (values["condition_low"], values["random_condition"]) == (1.19e-6, 3.2e-4)
    assert (values["total_width"], values["forced_deficiency"]) == (6, 2)
    assert (values["rank_low"], values["rank_high"]) == (1, 2)
    dimension = [np.linalg.matrix_rank(np.concatenate(list(layer), axis=1)) for layer in maps]
    assert dimension == [4, 3]
    assert (values["deficiency_low"], values["deficiency_high"]) == (6 - 4, 5 - 3)
    projections = sum(scipy.linalg.orth(one) @ scipy.linalg.orth(one).T for one in maps[0])
    assert values["lambda_min_high"] == pytest.approx(np.linalg.eigvalsh(projections)[0])
    assert values["lambda_min_low"] == pytest.approx(0, abs=1e-25)
    assert TABLES["direct_sum"]([writes_only]).frame.empty
    for counts, said in (
        ([[0, 3, 0], [0, 1, 0]], "4 directions of 2 heads are within"),
        ([[-1] * 3] * 2, "is not known"),
    ):
        arrays["within_rounding/O"] = np.array(counts)
        assert said in TABLES["direct_sum"]([ModelResults("m", shape, arrays)]).notes[0]
    arrays["within_rounding/O"] = np.array([[0, 3, 0], [0, 1, 0]])
    for left_out, said in ((False, "the ranks count them"), (True, "they are left out of the spaces")):
        attributes = {**shape, "leave_out_rounding": left_out}
        assert said in TABLES["direct_sum"]([ModelResults("m", attributes, arrays)]).notes[0]


def test_right_tail_agrees_with_scipy(writes_only):
    rng = np.random.default_rng(5)
    rho = rng.uniform(size=(4, 3, 3))
    model = dataclasses.replace(writes_only, overlaps={"within/O/rho": rho, "within/O/angle": rho})
    frame = TABLES["right_tail"]([model]).frame
    for layer, values in frame.iterrows():
        pairs = [rho[layer, one, other] for one, other in PAIRS]
        assert values["skewness"] == pytest.approx(stats.skew(pairs))
        assert values["spread_rho"] == pytest.approx(np.sqrt(stats.moment(pairs, order=2)))
        assert values["p95_rho"] == pytest.approx(np.percentile(pairs, 95))


def test_random_overlaps_agree_with_a_loop_over_pairs(writes_only):
    """Every statistic of the across comparison from a plain loop, so that no pair is dropped or taken twice."""
    rng = np.random.default_rng(3)
    rho = np.full((3, 3, 3, 2), np.nan)
    for writer, reader in PAIRS:
        rho[writer, reader] = rng.uniform(size=(3, 2))
    model = dataclasses.replace(writes_only, overlaps={"cross/OV/rho": rho, "cross/OV/angle": rho * 90})
    frame = TABLES["right_tail"]([model]).frame
    assert list(zip(frame["layer"], frame["later_layer"])) == PAIRS
    for (writer, reader), (_, values) in zip(PAIRS, frame.iterrows(), strict=True):
        pairs = [rho[writer, reader, head, other] for head in range(3) for other in range(2)]
        assert values["mean_rho"] == pytest.approx(sum(pairs) / 6)
        assert values["max_rho"] == max(pairs)
        assert values["min_angle_deg"] == pytest.approx(min(pairs) * 90)


def test_which_means_lie_outside_all_samples(model):
    """Means 0.28 and 0.4 beside samples of 0.29 to 0.4 and 0.3 to 0.39; across, keys' 0.3 on the largest of 0.25."""
    frame = TABLES["conditions"]([model]).frame
    outside = frame.set_index(["spaces", "layer"])["mean_outside"]
    assert [outside["O", 0], outside["O", 1], outside["OK", 0], outside["OV", 0]] == [-1, 1, 1, 1]
    assert pd.isna(outside["Q", 0])
