"""Tables of the overlaps themselves, against numbers computed by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from support.tiny_results import ISOTROPIC, RANDOM_SD, SHAPE, WRITE_SPREAD, only_row, overlaps

from headspaces.report.tables.headings import shown
from headspaces.report.tables.registry import TABLES


def test_table1_takes_the_smallest_angle_over_all_layers(model):
    table = TABLES["table1"]([model])
    writes = only_row(table, spaces="O")
    assert (writes["scope"], writes["n_pairs"]) == ("within", 6)
    assert (writes["min_angle_deg"], writes["median_min_angle_deg"]) == (5.0, 25.0)
    across = only_row(table, spaces="OQ")
    assert (across["scope"], across["n_pairs"]) == ("across", 9)
    assert across["min_angle_deg"] == pytest.approx(60.0)
    assert across["median_min_angle_deg"] == pytest.approx(80.0)
    assert only_row(table, spaces="OK")["n_pairs"] == 3
    empty = only_row(table, spaces="K")
    assert empty["n_pairs"] == 0
    assert pd.isna(empty["min_angle_deg"])
    assert "a_b & c, K: no pair to compare" in " ".join(table.notes)


def test_table2_is_the_worst_reader_of_the_best_writer(model, writes_only):
    table = TABLES["table2"]([model, writes_only])
    queries = only_row(table, spaces="OQ")
    assert queries["min_max_rho"] == 0.08
    assert (queries["n_layer_pairs"], queries["n_below_isotropic"]) == (1, 1)
    assert (queries["lambda_min_low"], queries["lambda_min_high"]) == (1e-11, 2e-7)
    assert queries["bound_high"] == pytest.approx(2e-7 / model.attributes["n_query_heads"])
    assert (only_row(table, spaces="OK")["min_max_rho"], only_row(table, spaces="OK")["n_below_isotropic"]) == (0.5, 0)
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
    values = only_row(TABLES["table3"]([dataclasses.replace(model, attributes=shape)]))
    assert (values["n_write_pairs"], shown(values["isotropic"], "isotropic")) == (pairs, isotropic)
    assert [values[name] for name in shape] == list(shape.values())


@pytest.mark.parametrize(
    ("d_model", "d_head", "sd"), [(768, 64, 0.0017), (3584, 128, 0.0004), (4096, 128, 0.0003), (512, 64, 0.0024)]
)
def test_table5_gives_the_papers_random_sd(model, d_model, d_head, sd):
    shape = {**SHAPE, "d_model": d_model, "d_head": d_head}
    assert round(only_row(TABLES["table5"]([dataclasses.replace(model, attributes=shape)]))["random_sd"], 4) == sd


def test_table5_takes_medians_and_ranges_over_layers(model):
    values = only_row(TABLES["table5"]([model]))
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
    assert only_row(table, spaces="OK")["mean_weighted_median"] == pytest.approx((1 + 4 + 1) / 3)
    together = only_row(table, spaces="OX")
    assert together["n_layer_pairs"] == 3
    ends = [together[f"mean_weighted_{end}"] for end in ("low", "median", "high")]
    assert ends == pytest.approx([17.5 / 9, 2.0, 72.25 / 3])


def test_baseline_ratios_range_over_layers(model):
    values = only_row(TABLES["baseline_ratios"]([model]), spaces="O")
    assert (values["mean_isotropic_ratio_low"], values["mean_isotropic_ratio_high"]) == pytest.approx((2.8, 4.0))
    spread = values["spread_random_sd_ratio_low"], values["spread_random_sd_ratio_high"]
    assert spread == pytest.approx((0, WRITE_SPREAD / RANDOM_SD))
    assert (values["median_rho_low"], values["median_rho_high"]) == (0.2, 0.4)
    assert (values["median_min_angle_low_deg"], values["median_min_angle_high_deg"]) == (20.0, 40.0)


def test_pairs_with_an_empty_space_are_left_out_and_said(observed):
    arrays = overlaps()
    for quantity in ("rho", "angle"):
        arrays[f"within/O/{quantity}"][0, [0, 1], [1, 0]] = np.nan
    table = TABLES["table1"]([dataclasses.replace(observed, overlaps=arrays)])
    assert only_row(table, spaces="O")["median_min_angle_deg"] == 20.0
    assert "a_b & c, O: 1 pairs with a space of dimension zero have no ρ and are left out." in table.notes
    tail = only_row(TABLES["right_tail"]([dataclasses.replace(observed, overlaps=arrays)]), spaces="O", layer=0)
    assert tail["mean_rho"] == pytest.approx(0.4)
    assert tail["share_above_twice_isotropic"] == pytest.approx(0.5)
