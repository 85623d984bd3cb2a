"""Tables that set the observed overlaps beside the null models, against numbers computed by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from support.tiny_results import ISOTROPIC, RANDOM_SD, WRITE_SPREAD, nulls, only_row, random_model

from headspaces.report.tables.registry import TABLES


def test_random_baseline_is_of_the_sampled_pairs(model):
    arrays = {**nulls(), "random/rho": np.array([0.09, 0.1, 0.14])}
    values = only_row(TABLES["random_baseline"]([dataclasses.replace(model, nulls=arrays), model]))
    assert (values["n_pairs"], values["isotropic"]) == (3, ISOTROPIC)
    assert values["sampled_mean"] == pytest.approx(0.11)
    assert values["sampled_sd"] == pytest.approx((0.0014 / 3) ** 0.5)
    assert values["random_sd"] == pytest.approx(RANDOM_SD)


def test_table4_compares_with_the_largest_sample_of_both_nulls(model):
    table = TABLES["table4"]([model])
    writes = only_row(table, spaces="O")
    assert (writes["n_conditions"], writes["n_samples"], writes["n_above_all"]) == (2, 2, 1)
    assert writes["r_median"] == pytest.approx(WRITE_SPREAD / 0.2)
    assert writes["rotation_ratio_median"] == pytest.approx(WRITE_SPREAD / 0.1)
    assert writes["reassignment_ratio_median"] == pytest.approx(WRITE_SPREAD / 0.15)
    assert "a_b & c, O: no r in 1 of 2 conditions" in table.notes[0]
    # OK: rho 0.5 0.1 0.3, spread sqrt(0.08 / 3), largest sample 0.3.
    keys = only_row(table, spaces="OK")
    assert (keys["scope"], keys["n_conditions"], keys["n_above_all"]) == ("across", 1, 0)
    assert keys["r_median"] == pytest.approx((0.08 / 3) ** 0.5 / 0.3)
    assert set(table.frame["spaces"]) == {"O", "OQ", "OK", "OV"}


def test_table4_counts_conditions_that_both_nulls_have(model):
    arrays = nulls()
    arrays["within/O/rotation/spread"][:, 0] = np.nan
    values = only_row(TABLES["table4"]([dataclasses.replace(model, nulls=arrays)]), spaces="O")
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
    queries = only_row(table, spaces="Q")
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
    values = only_row(TABLES["table7"]([dataclasses.replace(model, nulls=arrays)]), spaces="Q")
    assert (values["n_mean_below_all"], values["n_mean_above_all"], values["n_spread_above_all"]) == (1, 1, 2)


def test_table8_counts_layer_pairs_and_takes_the_ratio_to_rotation(model):
    table = TABLES["table8"]([model])
    # OV: rho 0.01 0.02 0.09, mean 0.04 above 0.03, spread sqrt(0.0038 / 3) above 0.01.
    values = only_row(table, spaces="OV")
    assert (values["n_layer_pairs"], values["n_spread_above_all"]) == (1, 1)
    assert (values["n_mean_below_all"], values["n_mean_above_all"]) == (0, 1)
    assert values["rotation_ratio_median"] == pytest.approx((0.0038 / 3) ** 0.5 / 0.00375)
    # OQ: mean 1.1 / 9 between the samples 0.05 and 0.2.
    values = only_row(table, spaces="OQ")
    assert (values["n_mean_below_all"], values["n_mean_above_all"]) == (0, 0)


def test_pair_counts_compare_with_every_pair_of_every_sample(model):
    values = only_row(TABLES["pair_counts"]([model]))
    assert (values["spaces"], values["layer"], values["n_pairs"], values["n_samples"]) == ("O", 0, 3, 2)
    # rho 0.04 0.2 0.6 against rotation 0.05-0.5, reassignment 0.03-0.7.
    assert (values["n_below_rotation"], values["n_above_rotation"]) == (1, 1)
    assert (values["n_below_reassignment"], values["n_above_reassignment"]) == (0, 0)
    assert (values["n_below_both"], values["n_above_both"]) == (0, 0)


def test_null_counts_of_spreads_and_means(model):
    table = TABLES["null_counts"]([model])
    writes = only_row(table, spaces="O")
    assert writes["n_conditions"] == 2
    # Spreads 0.2355 and 0 against samples up to 0.15, 0.2 and 0; means 0.28 below 0.29, 0.4 above 0.39.
    assert (writes["n_spread_above_rotation"], writes["n_spread_above_reassignment"]) == (1, 1)
    assert (writes["n_mean_below_all"], writes["n_mean_above_all"]) == (1, 1)
    # OK: spread 0.163 between the samples 0.15 and 0.3; quantiles have no samples across layers.
    keys = only_row(table, spaces="OK")
    assert (keys["n_spread_above_rotation"], keys["n_spread_above_reassignment"]) == (1, 0)
    assert (keys["n_mean_below_all"], keys["n_mean_above_all"]) == (0, 1)
    assert pd.isna(keys["n_median_below_all"])


def test_null_counts_of_quantiles_and_angles(model):
    values = only_row(TABLES["null_counts"]([model]), spaces="O")
    # Medians 0.2 < 0.21 and 0.4 > 0.3; p95 0.56 > 0.55 and 0.4 > 0.39.
    assert (values["n_median_below_all"], values["n_p95_above_all"]) == (1, 2)
    # Angles 5 and 10 against rotation 6 7 and 9 20, reassignment 4.5 8 and 11 12.
    assert (values["n_min_angle_below_rotation"], values["n_min_angle_above_rotation"]) == (1, 0)
    assert (values["n_min_angle_below_reassignment"], values["n_min_angle_above_reassignment"]) == (1, 0)


def test_null_ranges_are_over_conditions_and_samples(model):
    values = only_row(TABLES["null_ranges"]([model]), spaces="O", null="reassignment", quantity="mean")
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


def test_three_samples_are_the_first_three():
    model = random_model("m", n_layers=4)
    frame = TABLES["first_samples"]([model]).frame
    assert len(frame) == 4 * 4
    row = only_row(TABLES["first_samples"]([model]), spaces="Q", layer=2)
    rotation, reassignment = (model.nulls[f"within/Q/{null}/spread"][:3, 2] for null in ("rotation", "reassignment"))
    one, other = np.triu_indices(4, 1)
    spread = model.overlaps["within/Q/rho"][2, one, other].std()
    largest = max(rotation.max(), reassignment.max())
    assert row["n_samples"] == 3
    assert row["r"] == pytest.approx(spread / largest)
    assert row["n_above_all"] == int(spread > largest)
    assert row["rotation_spread_mean"] == pytest.approx(rotation.mean())
    assert row["reassignment_ratio"] == pytest.approx(spread / reassignment.mean())
    # Later samples change nothing.
    more = {name: values[:3] if values.ndim > 1 else values for name, values in model.nulls.items()}
    again = TABLES["first_samples"]([dataclasses.replace(model, nulls=more)]).frame
    pd.testing.assert_frame_equal(frame, again)


def test_the_decay_distance_is_the_first_that_is_not_above_the_isotropic_value(model):
    # One layer pair; the isotropic value is 0.1, the means of queries, keys and values 0.1222, 0.3, 0.04.
    frame = TABLES["mean_direction"]([model]).frame.set_index("spaces")
    assert frame["decay_distance"].fillna(-1).to_dict() == {"OQ": -1, "OK": -1, "OV": 1}
