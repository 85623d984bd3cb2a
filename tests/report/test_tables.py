"""Tables against numbers computed by hand, and against scipy on random overlaps."""

import csv
import dataclasses
import io
import re
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from scipy import stats
from support.project import ROOT
from support.tiny_results import ISOTROPIC, PAIRS, RANDOM_SD, SHAPE, WRITE_SPREAD, nulls, overlaps, square, tiny_model

from headspaces.errors import InputError
from headspaces.geometry.bases import direct_sum, orthonormal_bases
from headspaces.report.results import ModelResults, read_results
from headspaces.report.tables.headings import heading, shown
from headspaces.report.tables.latex import LONG, TURNED, escape_latex
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import Table, escape_markdown, write_table
from headspaces.report.tidy_frames import exact, extremes, row_means, tidy
from headspaces.store import write_arrays
from headspaces.study import items as report_items
from headspaces.study.published import read_published


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def observed(model):
    return dataclasses.replace(model, nulls=None)


@pytest.fixture
def writes_only():
    kept = {name: array for name, array in overlaps().items() if "/O/" in name}
    return ModelResults("writes", SHAPE, kept)


def row(table, **names):
    frame = table.frame
    for column, value in names.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0].to_dict()


def test_table1_takes_the_smallest_angle_over_all_layers(model):
    table = TABLES["table1"]([model])
    writes = row(table, spaces="O")
    assert (writes["scope"], writes["n_pairs"]) == ("within", 6)
    assert (writes["min_angle_deg"], writes["median_min_angle_deg"]) == (5.0, 25.0)
    across = row(table, spaces="OQ")
    assert (across["scope"], across["n_pairs"]) == ("across", 9)
    assert across["min_angle_deg"] == pytest.approx(60.0)
    assert across["median_min_angle_deg"] == pytest.approx(80.0)
    assert row(table, spaces="OK")["n_pairs"] == 3
    empty = row(table, spaces="K")
    assert empty["n_pairs"] == 0
    assert pd.isna(empty["min_angle_deg"])
    assert "a_b & c, K: no pair to compare" in " ".join(table.notes)


def test_table2_is_the_worst_reader_of_the_best_writer(model, writes_only):
    table = TABLES["table2"]([model, writes_only])
    queries = row(table, spaces="OQ")
    assert queries["min_max_rho"] == 0.08
    assert (queries["n_layer_pairs"], queries["n_below_isotropic"]) == (1, 1)
    assert (queries["lambda_min_low"], queries["lambda_min_high"]) == (1e-11, 2e-7)
    assert (row(table, spaces="OK")["min_max_rho"], row(table, spaces="OK")["n_below_isotropic"]) == (0.5, 0)
    assert set(table.frame["model"]) == {"a_b & c"}
    assert table.notes == ("Nothing across layers in writes: one layer, or no write or read spaces.",)


@pytest.mark.parametrize(
    ("d_model", "d_head", "heads", "pairs", "isotropic"),
    [
        (768, 64, 12, 66, "0.0833"),
        (3584, 128, 28, 378, "0.0357"),
        (4096, 128, 64, 2016, "0.0313"),
        (512, 64, 8, 28, "0.1250"),
    ],
)
def test_table3_gives_the_papers_values(model, d_model, d_head, heads, pairs, isotropic):
    shape = {"d_model": d_model, "d_head": d_head, "n_layers": 7, "n_query_heads": heads, "n_kv_heads": 4}
    values = row(TABLES["table3"]([dataclasses.replace(model, attributes=shape)]))
    assert (values["n_write_pairs"], shown(values["isotropic"], "isotropic")) == (pairs, isotropic)
    assert [values[name] for name in shape] == list(shape.values())


@pytest.mark.parametrize(
    ("d_model", "d_head", "sd"), [(768, 64, 0.0017), (3584, 128, 0.0004), (4096, 128, 0.0003), (512, 64, 0.0024)]
)
def test_table5_gives_the_papers_random_sd(model, d_model, d_head, sd):
    shape = {**SHAPE, "d_model": d_model, "d_head": d_head}
    assert round(row(TABLES["table5"]([dataclasses.replace(model, attributes=shape)]))["random_sd"], 4) == sd


def test_table5_takes_medians_and_ranges_over_layers(model):
    values = row(TABLES["table5"]([model]))
    assert [values[f"mean_rho_{end}"] for end in ("low", "median", "high")] == pytest.approx([0.28, 0.34, 0.4])
    spreads = [values[f"spread_{end}"] for end in ("low", "median", "high")]
    assert spreads == pytest.approx([0, WRITE_SPREAD / 2, WRITE_SPREAD])
    assert values["spread_low"] == 0
    assert values["n_layers_below_10deg"] == 1  # 5 is, 10 is not
    assert (values["n_heads"], values["n_layers"], values["isotropic"]) == (3, 2, ISOTROPIC)
    assert values["random_sd"] == pytest.approx(RANDOM_SD)


def test_table9_keeps_every_layer_pair_and_shows_the_leading_ones(model):
    table = TABLES["table9"]([model])
    assert list(zip(table.frame["spaces"], table.frame["max_rho"], table.frame["max_weighted"])) == [
        ("OQ", 0.3, 9.5), ("OK", 0.5, 4.0), ("OV", 0.09, 70.25),
    ]  # fmt: skip
    assert set(table.frame["writer_layer"]) == {0}
    assert set(table.frame["reader_layer"]) == {1}
    # The two of largest rho are OK and OQ, of largest score OV and OQ.
    assert list(table.printed["spaces"]) == ["OK", "OQ", "OV"]


def test_weighted_means_are_over_layer_pairs(model):
    table = TABLES["weighted_means"]([model])
    assert row(table, spaces="OK")["mean_weighted_median"] == pytest.approx((1 + 4 + 1) / 3)
    together = row(table, spaces="OX")
    assert together["n_layer_pairs"] == 3
    ends = [together[f"mean_weighted_{end}"] for end in ("low", "median", "high")]
    assert ends == pytest.approx([17.5 / 9, 2.0, 72.25 / 3])


def test_right_tail_of_a_condition(model):
    values = row(TABLES["right_tail"]([model]), spaces="O", layer=0)
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
    values = row(TABLES["right_tail"]([model]), spaces="OQ")
    # Of nine, 0.3 is above 0.2 and 0.02 below 0.05; 0.2 and 0.05 are on the limits.
    assert values["share_above_twice_isotropic"] == pytest.approx(1 / 9)
    assert values["share_below_half_isotropic"] == pytest.approx(1 / 9)


def test_right_tail_of_constant_rho_has_no_skewness(model):
    values = row(TABLES["right_tail"]([model]), spaces="O", layer=1)
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
    writes = row(table, spaces="O", layer=0)
    assert (writes["n_pairs"], writes["min_angle_deg"]) == (3, 5.0)
    assert (writes["mean_rho"], writes["spread"]) == pytest.approx((0.28, WRITE_SPREAD))
    assert (writes["rotation_spread_mean"], writes["reassignment_spread_mean"]) == pytest.approx((0.1, 0.15))
    assert (writes["rotation_spread_max"], writes["reassignment_spread_max"]) == (0.15, 0.2)
    assert (writes["rotation_mean_rho"], writes["reassignment_mean_rho"]) == pytest.approx((0.325, 0.345))
    assert writes["r"] == pytest.approx(WRITE_SPREAD / 0.2)
    # No sample has this spread: 1 / (2 + 1); in OK both of reassignment's are 0.3 and 0.15, one above 0.163.
    assert (writes["rotation_spread_p"], writes["reassignment_spread_p"]) == pytest.approx((1 / 3, 1 / 3))
    keys = row(table, spaces="OK")
    assert (keys["layer"], keys["later_layer"]) == (0, 1)
    assert (keys["rotation_spread_p"], keys["reassignment_spread_p"]) == pytest.approx((1 / 3, 2 / 3))
    # Queries have no samples; layer 1 has no r, all its spreads are 0.
    assert pd.isna(row(table, spaces="Q", layer=0)["rotation_spread_mean"])
    assert pd.isna(row(table, spaces="O", layer=1)["r"])
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
    writes = row(table, spaces="O")
    assert (writes["n_pairs"], writes["n_pairs_below_1deg"], writes["min_angle_deg"]) == (6, 2, 0.39)
    assert round(writes["min_angle_sine"], 3) == 0.007  # RW section 4.1
    assert row(table, spaces="OQ")["n_pairs_below_1deg"] == 0
    assert pd.isna(row(table, spaces="K")["min_angle_sine"])


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
    }  # fmt: skip
    shape = {**SHAPE, "d_model": 4, "d_head": 2}
    values = row(TABLES["direct_sum"]([ModelResults("m", shape, arrays)]))
    assert (values["total_width"], values["forced_deficiency"]) == (6, 2)
    assert (values["rank_low"], values["rank_high"]) == (1, 2)
    dimension = [np.linalg.matrix_rank(np.concatenate(list(layer), axis=1)) for layer in maps]
    assert dimension == [4, 3]
    assert (values["deficiency_low"], values["deficiency_high"]) == (6 - 4, 5 - 3)
    projections = sum(scipy.linalg.orth(one) @ scipy.linalg.orth(one).T for one in maps[0])
    assert values["lambda_min_high"] == pytest.approx(np.linalg.eigvalsh(projections)[0])
    assert values["lambda_min_low"] == pytest.approx(0, abs=1e-25)
    assert TABLES["direct_sum"]([writes_only]).frame.empty


def test_random_baseline_is_of_the_sampled_pairs(model):
    arrays = {**nulls(), "random/rho": np.array([0.09, 0.1, 0.14])}
    values = row(TABLES["random_baseline"]([dataclasses.replace(model, nulls=arrays), model]))
    assert (values["n_pairs"], values["isotropic"]) == (3, ISOTROPIC)
    assert values["sampled_mean"] == pytest.approx(0.11)
    assert values["sampled_sd"] == pytest.approx((0.0014 / 3) ** 0.5)
    assert values["random_sd"] == pytest.approx(RANDOM_SD)


def test_every_published_number_of_rw_is_in_a_table():
    path = ROOT / "config" / "published.tsv"
    rows = [row for row in read_published(path) if row.paper == "RW"]
    unknown = {row.address.table for row in rows if row.address} - set(TABLES)
    assert not unknown
    never = {
        "rw-s5.1-124m-steps", "rw-s5.1-124m-epochs", "rw-s5.3-124m-sv_first", "rw-s5.3-124m-sv_second",
        "rw-s5.3-124m-sv_bulk", "rw-f-7b-decay_distance",
    }  # fmt: skip
    assert {row.id for row in rows if row.address is None} == never


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


def test_baseline_ratios_range_over_layers(model):
    values = row(TABLES["baseline_ratios"]([model]), spaces="O")
    assert (values["mean_isotropic_ratio_low"], values["mean_isotropic_ratio_high"]) == pytest.approx((2.8, 4.0))
    spread = values["spread_random_sd_ratio_low"], values["spread_random_sd_ratio_high"]
    assert spread == pytest.approx((0, WRITE_SPREAD / RANDOM_SD))
    assert (values["median_rho_low"], values["median_rho_high"]) == (0.2, 0.4)
    assert (values["median_min_angle_low_deg"], values["median_min_angle_high_deg"]) == (20.0, 40.0)


def test_table4_compares_with_the_largest_sample_of_both_nulls(model):
    table = TABLES["table4"]([model])
    writes = row(table, spaces="O")
    assert (writes["n_conditions"], writes["n_samples"], writes["n_above_all"]) == (2, 2, 1)
    assert writes["r_median"] == pytest.approx(WRITE_SPREAD / 0.2)
    assert writes["rotation_ratio_median"] == pytest.approx(WRITE_SPREAD / 0.1)
    assert writes["reassignment_ratio_median"] == pytest.approx(WRITE_SPREAD / 0.15)
    assert "a_b & c, O: no r in 1 of 2 conditions" in table.notes[0]
    # OK: rho 0.5 0.1 0.3, spread sqrt(0.08 / 3), largest sample 0.3.
    keys = row(table, spaces="OK")
    assert (keys["scope"], keys["n_conditions"], keys["n_above_all"]) == ("across", 1, 0)
    assert keys["r_median"] == pytest.approx((0.08 / 3) ** 0.5 / 0.3)
    assert set(table.frame["spaces"]) == {"O", "OQ", "OK", "OV"}


def test_table4_counts_conditions_that_both_nulls_have(model):
    arrays = nulls()
    arrays["within/O/rotation/spread"][:, 0] = np.nan
    values = row(TABLES["table4"]([dataclasses.replace(model, nulls=arrays)]), spaces="O")
    assert values["n_conditions"] == 1


def test_table6_lists_layers_not_below_all_reassignment_samples(model):
    frame = TABLES["table6"]([model]).frame
    # Layer 0: 5 is above the sample 4.5; layer 1: 10 is below 11 and 12.
    assert frame.to_numpy().tolist() == [["a_b & c", 0, 5.0, 4.5]]
    arrays = nulls()
    arrays["within/O/reassignment/min_angle"] += 1
    table = TABLES["table6"]([dataclasses.replace(model, nulls=arrays)])
    assert table.frame.empty
    assert table.notes == ("a_b & c: below every sample in each layer that has pairs and samples.",)


def test_table7_without_nulls_leaves_their_columns_empty(observed):
    table = TABLES["table7"]([observed])
    queries = row(table, spaces="Q")
    assert (queries["n_pairs"], queries["n_layers"], queries["min_angle_deg"]) == (3, 2, 6.5)
    assert (queries["mean_rho_low"], queries["mean_rho_high"]) == pytest.approx((0.2, 0.6))
    assert (queries["spread_low"], queries["spread_high"]) == pytest.approx(((2 / 300) ** 0.5, 0.02**0.5))
    assert table.frame[["n_mean_below_all", "n_mean_above_all", "n_spread_above_all"]].isna().all(axis=None)
    assert "No null samples: a_b & c." in table.notes
    assert set(table.frame["spaces"]) == {"Q", "K", "V"}


def test_table7_counts_layers_outside_all_samples(model):
    # Queries: means 0.2, 0.6; spreads 0.0816, 0.1414.
    samples = {
        "rotation/mean": [[0.25, 0.3], [0.21, 0.3]], "reassignment/mean": [[0.3, 0.5], [0.4, 0.55]],
        "rotation/spread": [[0.01, 0.1], [0.02, 0.1]], "reassignment/spread": [[0.05, 0.1], [0.08, 0.1]],
    }  # fmt: skip
    arrays = {f"within/Q/{name}": np.array(values) for name, values in samples.items()}
    values = row(TABLES["table7"]([dataclasses.replace(model, nulls=arrays)]), spaces="Q")
    assert (values["n_mean_below_all"], values["n_mean_above_all"], values["n_spread_above_all"]) == (1, 1, 2)


def test_table8_counts_layer_pairs_and_takes_the_ratio_to_rotation(model):
    table = TABLES["table8"]([model])
    # OV: rho 0.01 0.02 0.09, mean 0.04 above 0.03, spread sqrt(0.0038 / 3) above 0.01.
    values = row(table, spaces="OV")
    assert (values["n_layer_pairs"], values["n_spread_above_all"]) == (1, 1)
    assert (values["n_mean_below_all"], values["n_mean_above_all"]) == (0, 1)
    assert values["rotation_ratio_median"] == pytest.approx((0.0038 / 3) ** 0.5 / 0.00375)
    # OQ: mean 1.1 / 9 between the samples 0.05 and 0.2.
    values = row(table, spaces="OQ")
    assert (values["n_mean_below_all"], values["n_mean_above_all"]) == (0, 0)


def test_pair_counts_compare_with_every_pair_of_every_sample(model):
    values = row(TABLES["pair_counts"]([model]))
    assert (values["spaces"], values["layer"], values["n_pairs"], values["n_samples"]) == ("O", 0, 3, 2)
    # rho 0.04 0.2 0.6 against rotation 0.05-0.5, reassignment 0.03-0.7.
    assert (values["n_below_rotation"], values["n_above_rotation"]) == (1, 1)
    assert (values["n_below_reassignment"], values["n_above_reassignment"]) == (0, 0)
    assert (values["n_below_both"], values["n_above_both"]) == (0, 0)


def test_null_counts_of_spreads_and_means(model):
    table = TABLES["null_counts"]([model])
    writes = row(table, spaces="O")
    assert writes["n_conditions"] == 2
    # Spreads 0.2355 and 0 against samples up to 0.15, 0.2 and 0; means 0.28 below 0.29, 0.4 above 0.39.
    assert (writes["n_spread_above_rotation"], writes["n_spread_above_reassignment"]) == (1, 1)
    assert (writes["n_mean_below_all"], writes["n_mean_above_all"]) == (1, 1)
    # OK: spread 0.163 between the samples 0.15 and 0.3; quantiles have no samples across layers.
    keys = row(table, spaces="OK")
    assert (keys["n_spread_above_rotation"], keys["n_spread_above_reassignment"]) == (1, 0)
    assert (keys["n_mean_below_all"], keys["n_mean_above_all"]) == (0, 1)
    assert pd.isna(keys["n_median_below_all"])


def test_null_counts_of_quantiles_and_angles(model):
    values = row(TABLES["null_counts"]([model]), spaces="O")
    # Medians 0.2 < 0.21 and 0.4 > 0.3; p95 0.56 > 0.55 and 0.4 > 0.39.
    assert (values["n_median_below_all"], values["n_p95_above_all"]) == (1, 2)
    # Angles 5 and 10 against rotation 6 7 and 9 20, reassignment 4.5 8 and 11 12.
    assert (values["n_min_angle_below_rotation"], values["n_min_angle_above_rotation"]) == (1, 0)
    assert (values["n_min_angle_below_reassignment"], values["n_min_angle_above_reassignment"]) == (1, 0)


def test_null_ranges_are_over_conditions_and_samples(model):
    values = row(TABLES["null_ranges"]([model]), spaces="O", null="reassignment", quantity="mean")
    assert (values["observed_low"], values["observed_high"]) == pytest.approx((0.28, 0.4))
    assert (values["sample_mean_low"], values["sample_mean_high"]) == pytest.approx((0.325, 0.345))
    assert (values["sample_low"], values["sample_high"]) == (0.29, 0.4)
    assert (values["ratio_low"], values["ratio_high"]) == pytest.approx((0.28 / 0.345, 0.4 / 0.325))


def test_mean_direction_groups_by_distance(writes_only):
    rho = np.full((3, 3, 3, 1), np.nan)
    for pair, mean in {(0, 1): 0.1, (1, 2): 0.2, (0, 2): 0.4}.items():
        rho[pair] = mean + np.array([[-0.05], [0.0], [0.05]])
    arrays = {"cross/OQ/rho": rho, "cross/OQ/angle": rho}
    model = dataclasses.replace(writes_only, overlaps=arrays)
    frame = TABLES["mean_direction"]([model]).frame
    assert frame[["distance", "n_layer_pairs"]].to_numpy().tolist() == [[1, 2], [2, 1]]
    assert frame["mean_rho"].tolist() == pytest.approx([0.15, 0.4])
    assert frame["mean_isotropic_ratio"].tolist() == pytest.approx([1.5, 4.0])
    assert frame["n_mean_above_all"].isna().all()
    assert TABLES["mean_direction"]([model]).printed["distance"].tolist() == [1, 2]
    samples = np.full((1, 3, 3), np.nan)
    samples[0, 0, 1], samples[0, 1, 2], samples[0, 0, 2] = 0.15, 0.15, 0.15
    names = [
        f"cross/OQ/{null}/{statistic}" for null in ("rotation", "reassignment") for statistic in ("mean", "spread")
    ]
    frame = TABLES["mean_direction"]([dataclasses.replace(model, nulls=dict.fromkeys(names, samples))]).frame
    assert frame[["n_mean_below_all", "n_mean_above_all"]].to_numpy().tolist() == [[1, 1], [0, 1]]


def test_pairs_with_an_empty_space_are_left_out_and_said(observed):
    arrays = overlaps()
    for quantity in ("rho", "angle"):
        arrays[f"within/O/{quantity}"][0, [0, 1], [1, 0]] = np.nan
    table = TABLES["table1"]([dataclasses.replace(observed, overlaps=arrays)])
    assert row(table, spaces="O")["median_min_angle_deg"] == 20.0
    assert "a_b & c, O: 1 pairs with a space of dimension zero have no ρ and are left out." in table.notes
    tail = row(TABLES["right_tail"]([dataclasses.replace(observed, overlaps=arrays)]), spaces="O", layer=0)
    assert tail["mean_rho"] == pytest.approx(0.4)
    assert tail["share_above_twice_isotropic"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_from_the_stages_it_needs(name, model, writes_only, tmp_path):
    item = report_items.TABLES[name]
    given = model if "nulls" in item.needs else dataclasses.replace(model, nulls=None)
    one_layer = {f"within/O/{quantity}": np.ones((1, 3, 3)) for quantity in ("rho", "angle")}
    for quantity in ("rho", "angle", "weighted"):
        one_layer[f"cross/OQ/{quantity}"] = np.full((1, 1, 3, 3), np.nan)
    for models in ([given], [writes_only], [given, writes_only], [ModelResults("one", SHAPE, one_layer)], []):
        table = TABLES[name](models)
        paths = [tmp_path / f"{name}.{ending}" for ending in ("csv", "md", "tex")]
        write_table(name, table, *paths)
        with paths[0].open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0] == list(table.frame.columns)
        assert len(rows) == len(table.frame) + 1
        assert not any("nan" in path.read_text(encoding="utf-8").lower().replace("nan-", "") for path in paths)
        assert not any("<NA>" in path.read_text(encoding="utf-8") for path in paths)


def test_columns_are_the_contract():
    contract = {
        "table1": "model, scope, spaces, n_pairs, min_angle_deg, median_min_angle_deg",
        "table2": "model, lambda_min_low, lambda_min_high, n_layer_pairs, spaces, min_max_rho, n_below_isotropic",
        "table3": "model, d_model, d_head, n_query_heads, n_kv_heads, n_layers, n_write_pairs, isotropic",
        "table4": "model, scope, spaces, n_conditions, n_samples, n_above_all, r_median, rotation_ratio_median, "
                  "reassignment_ratio_median",
        "table5": "model, d_model, d_head, n_heads, n_layers, isotropic, mean_rho_median, mean_rho_low, mean_rho_high, "
                  "spread_median, spread_low, spread_high, random_sd, n_layers_below_10deg",
        "table6": "model, layer, observed_min_angle_deg, reassignment_min_angle_deg",
        "table7": "model, spaces, n_pairs, mean_rho_low, mean_rho_high, n_layers, n_mean_below_all, n_mean_above_all, "
                  "spread_low, spread_high, n_spread_above_all, min_angle_deg",
        "table8": "model, spaces, n_layer_pairs, n_spread_above_all, rotation_ratio_median, n_mean_below_all, "
                  "n_mean_above_all",
        "table9": "model, writer_layer, reader_layer, spaces, max_rho, max_weighted",
    }  # fmt: skip
    assert {name: ", ".join(TABLES[name]([]).frame.columns) for name in contract} == contract


def test_titles_and_needs_are_known_for_every_table():
    assert list(report_items.TABLES) == list(TABLES)
    assert report_items.TABLES["table4"].needs == ("overlaps", "nulls")
    assert report_items.possible(report_items.TABLES, ["overlaps"])[:3] == ["table1", "table2", "table3"]
    assert "table4" not in report_items.possible(report_items.TABLES, ["overlaps"])
    assert report_items.stages_read(report_items.TABLES["table7"], ["overlaps", "nulls"]) == ["overlaps", "nulls"]
    assert report_items.stages_read(report_items.TABLES["table7"], ["overlaps"]) == ["overlaps"]


def test_report_items_need_only_the_standard_library():
    heavy = ["numpy", "pandas", "h5py", "matplotlib"]
    code = f"import sys, headspaces.study.items; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def written(table, tmp_path, name="table5"):
    paths = [tmp_path / f"x.{ending}" for ending in ("csv", "md", "tex")]
    write_table(name, table, *paths)
    return [path.read_text(encoding="utf-8") for path in paths]


def test_the_three_files_hold_the_same_numbers(tmp_path):
    frame = tidy(
        "model spaces n_pairs min_angle_deg some_rho p lambda_min_low",
        [
            {"model": "a_b&c", "spaces": "O", "n_pairs": 3, "min_angle_deg": 0.1 + 0.2, "some_rho": 1 / 3, "p": 1e-4},
            {"model": "x|y*z", "some_rho": 1e-5, "p": 1 / 31, "lambda_min_low": 1.84e-11},
        ],
    )
    text, markdown, latex = written(Table(frame, ("a note: 5 % of x_y",)), tmp_path)
    assert text.splitlines() == [
        "model,spaces,n_pairs,min_angle_deg,some_rho,p,lambda_min_low",
        "a_b&c,O,3,0.3,0.333333333333,0.0001,",
        "x|y*z,,,,1e-05,0.0322580645161,1.84e-11",
    ]
    assert "| a\\_b&c | O | 3 | 0.30 | 0.333 | 1.0e-04 | – |" in markdown
    assert "| x\\|y\\*z | – | – | – | 1.0e-05 | 0.032 | 1.8e-11 |" in markdown
    assert "| model | spaces | pairs | smallest angle (°) | some ρ | p | λ min, low |" in markdown
    assert "a\\_b\\&c & O & 3 & 0.30 & 0.333 & $1.0 \\times 10^{-4}$ & -- \\\\" in latex
    assert "x\\textbar{}y*z & -- & -- & -- & $1.0 \\times 10^{-5}$ & 0.032 & $1.8 \\times 10^{-11}$ \\\\" in latex
    assert "\\begin{tabular}{llrrrrr}" in latex
    assert latex.count("\\toprule") == latex.count("\\midrule") == latex.count("\\bottomrule") == 1
    assert "- a note: 5 % of x\\_y" in markdown
    assert "a note: 5 \\% of x\\_y" in latex
    for page in (markdown, latex):
        assert "ddof = 0" in page


def test_the_csv_is_read_back_as_it_was(model, tmp_path):
    for name in ("table1", "table4", "right_tail"):
        table = TABLES[name]([model])
        read = pd.read_csv(io.StringIO(written(table, tmp_path, name)[0]), keep_default_na=True)
        for column in table.frame:
            if column in ("model", "scope", "spaces"):
                assert list(read[column]) == list(table.frame[column])
            else:
                numbers = table.frame[column].astype("float64")
                assert list(read[column]) == pytest.approx(list(numbers), rel=1e-11, nan_ok=True)


def test_shown_rows_go_to_markdown_and_all_rows_to_the_csv(model, tmp_path):
    text, markdown, latex = written(TABLES["right_tail"]([model]), tmp_path, "right_tail")
    assert text.count("a_b & c,within,O") == 2
    assert markdown.count("| within | O |") == latex.count("within & O &") == 1
    note = "Shown: the condition of largest spread in each comparison, of 11 rows in the CSV."
    assert note in markdown
    assert note in latex


def test_long_and_wide_latex_tables_stay_on_the_page(tmp_path):
    columns = ["model", *(f"n_{place}" for place in range(TURNED))]
    many = tidy(" ".join(columns), [{"model": "m"} for _ in range(LONG + 1)])
    few = many[columns[:-1]]
    for frame, rows, environment in (
        (few, LONG, "table"), (many, LONG, "sidewaystable"), (few, LONG + 1, "longtable"),
        (many, LONG + 1, "landscape"),
    ):  # fmt: skip
        latex = written(Table(frame.head(rows)), tmp_path)[2]
        inner = "longtable" if rows > LONG else "tabular"
        begun = re.findall(r"\\begin\{(\w+)\}", latex)
        assert begun == list(dict.fromkeys([environment, inner]))
        assert sorted(re.findall(r"\\end\{(\w+)\}", latex)) == sorted(begun)
        assert latex.count("\\begingroup") == latex.count("\\endgroup") == latex.count("\\endhead") == (rows > LONG)
        assert latex.count("m & ") == rows
        package = {"sidewaystable": "rotating", "longtable": "longtable", "landscape": "pdflscape"}.get(environment)
        assert package is None or package in latex.splitlines()[0]


def test_every_row_of_a_latex_table_has_its_columns(model, tmp_path):
    for name in TABLES:
        given = model if "nulls" in report_items.TABLES[name].needs else dataclasses.replace(model, nulls=None)
        table = TABLES[name]([given])
        latex = written(table, tmp_path, name)[2]
        columns = re.search(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}", latex)[1]
        assert len(columns) == (table.frame if table.printed is None else table.printed).shape[1]
        rows = [line for line in latex.splitlines() if line.endswith(" \\\\") and not line.startswith("\\caption")]
        assert len(rows) >= 1
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns) - 1}
        # All that LaTeX takes for its own is escaped or ours, and nothing is left that its fonts do not have.
        assert latex.isascii()
        assert latex.count("{") == latex.count("}")


PAGE = """\\documentclass{article}
\\usepackage[T1]{fontenc}\\usepackage{booktabs,graphicx,longtable,pdflscape,rotating}
\\begin{document}
%s
\\end{document}
"""


def test_all_latex_tables_compile_and_stay_on_the_page(model, tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here (Debian: apt-get install texlive-latex-recommended)")
    long_name = dataclasses.replace(model, name="some-organisation_some-model-8x7b-instruct-v0.1")
    rows = {"source": "Q", "target": "K", "kl": [np.inf, 1e-7] * 30, "published": 1.0}
    pages = [written(TABLES[name]([model, long_name]), tmp_path, name)[2] for name in TABLES]
    pages.append(
        written(Table(pd.DataFrame({"model": "m_%$#&~^\\\\ρ", **rows})), tmp_path, "pk_kl")[2].replace("tab:", "b:")
    )
    (tmp_path / "all.tex").write_text(PAGE % "\\clearpage\n".join(pages))
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "undefined" not in done.stdout


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (0.0, "p", "0.000"), (1 / 31, "p", "0.032"), (1 / 10001, "p", "1.0e-04"), (0.9996, "p", "1.000"),
        (-0.0, "spread", "0.0000"), (-0.0004, "skewness", "-4.0e-04"), (0.0003, "random_sd", "0.0003"),
        (7.0, "r_median", "7.0"), (float("inf"), "r_median", "∞"), (float("nan"), "r_median", "–"),
        (46.9819, "sample_low", "46.98"), (0.05217, "sample_low", "0.0522"), (0, "sample_low", "0"),
        (123456.7, "sample_low", "123457"), ("min_angle_deg", "quantity", "smallest angle (°)"),
        (0.0, "lambda_min_low", "0"), ("", "head_class", "–"), ("simple_cs", "method", "Simple-CS"),
        (66, "n_pairs", "66"), (np.int64(3), "layer", "3"), (pd.NA, "n_pairs", "–"), (None, "model", "–"),
    ],
)  # fmt: skip
def test_no_number_but_zero_is_shown_as_zero(value, column, text):
    assert shown(value, column) == text


def test_exact_has_twelve_digits_and_no_noise():
    assert [exact(value) for value in (0.1 + 0.2, 2 / 3, 1.0, -0.0, 7, np.nan, pd.NA)] == [
        "0.3", "0.666666666667", "1", "0", "7", "", "",
    ]  # fmt: skip


def test_escapes():
    assert escape_latex("head_id a&b 5% #1 {x} ~^\\ ρ 3° <") == (
        "head\\_id a\\&b 5\\% \\#1 \\{x\\} \\textasciitilde{}\\textasciicircum{}\\textbackslash{} $\\rho$ 3$^\\circ$ "
        "\\textless{}"
    )
    assert escape_markdown("<script> a|b [x](y) `c`") == "&lt;script&gt; a\\|b \\[x\\](y) \\`c\\`"


def test_headings_name_the_unit():
    assert heading("min_angle_deg") == "smallest angle (°)"
    assert heading("anything_low_deg") == "anything, low (°)"


def test_tidy_types_and_unknown_columns():
    frame = tidy("model layer n_x y", [{"model": "a", "layer": 1.0, "n_x": None, "y": None}])
    assert [str(dtype) for dtype in frame.dtypes] == ["object", "Int64", "Int64", "float64"]
    with pytest.raises(ValueError, match=r"\['z'\]"):
        tidy("model y", [{"z": 1}])


def test_extremes_and_means_pass_over_what_is_undefined():
    assert extremes(np.array([np.nan, 3.0, 1.0, 2.0, 8.0])) == (1.0, 2.5, 8.0)
    assert np.isnan(extremes(np.array([np.nan]))).all()
    assert row_means(np.array([[1.0, np.nan, 5.0], [np.nan] * 3])) == pytest.approx([3.0, np.nan], nan_ok=True)


def test_results_are_read_from_the_files(model, tmp_path):
    write_arrays(tmp_path / "o.h5", "overlaps", overlaps(), SHAPE)
    write_arrays(tmp_path / "n.h5", "nulls", nulls(), {"seed": 1})
    read = read_results("a_b & c", {"overlaps": tmp_path / "o.h5", "nulls": tmp_path / "n.h5"})
    assert read.kinds == "OQKV"
    for name, make in TABLES.items():
        pd.testing.assert_frame_equal(make([read]).frame, make([model]).frame, obj=name)


def test_a_damaged_file_is_named(tmp_path):
    import h5py

    write_arrays(tmp_path / "o.h5", "overlaps", overlaps(), SHAPE)
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        file["within/O/rho"][0, 0, 1] = 0.5
    with pytest.raises(InputError, match=r"o\.h5: not a readable HDF5 file .cut off or changed"):
        read_results("m", {"overlaps": tmp_path / "o.h5"})


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
