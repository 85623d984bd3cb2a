"""All tables of the report: each is made, has the columns of the contract, and is that of the files."""

import csv
import dataclasses

import numpy as np
import pandas as pd
import pytest
from support.project import ROOT
from support.tiny_results import SHAPE, nulls, overlaps

from headspaces.errors import InputError
from headspaces.report.results import ModelResults, read_results
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.store import write_arrays
from headspaces.study.items import TABLES as ITEMS
from headspaces.study.published import read_published


def test_every_published_number_of_rw_is_in_a_table():
    path = ROOT / "config" / "published.tsv"
    rows = [row for row in read_published(path) if row.paper == "RW"]
    unknown = {row.address.table for row in rows if row.address} - set(TABLES)
    assert not unknown
    never = {
        "rw-s5.1-124m-steps", "rw-s5.1-124m-epochs", "rw-s5.3-124m-sv_first", "rw-s5.3-124m-sv_second",
        "rw-s5.3-124m-sv_bulk",
    }  # fmt: skip
    assert {row.id for row in rows if row.address is None} == never


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_from_the_stages_it_needs(name, model, writes_only, tmp_path):
    item = ITEMS[name]
    given = model if "nulls" in item.needs else dataclasses.replace(model, nulls=None)
    one_layer = {f"within/O/{quantity}": np.ones((1, 3, 3)) for quantity in ("rho", "angle")}
    for quantity in ("rho", "angle", "weighted"):
        one_layer[f"cross/OQ/{quantity}"] = np.full((1, 1, 3, 3), np.nan)
    for models in ([given], [writes_only], [given, writes_only], [ModelResults("one", SHAPE, one_layer)], []):
        table = TABLES[name](models)
        paths = [tmp_path / f"{name}.{ending}" for ending in ("csv", "md", "tex", "json")]
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
        "table2": "model, lambda_min_low, lambda_min_high, bound_high, n_layer_pairs, spaces, min_max_rho, "
        "n_below_isotropic",
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
