"""Tables beyond the papers, against numbers computed by hand."""

import dataclasses

import numpy as np
import pytest
from support.tiny_results import WRITE_SPREAD, nulls, only_row

from headspaces.report.tables.registry import TABLES


def test_swap_counts_what_is_above_all_samples_beside_what_chance_would_put_there(model):
    """Write spaces of two layers, the second without a spread; keys across one layer pair; queries undefined."""
    mean = model.within("O").mean
    arrays = nulls() | {
        "within/O/swap/spread": np.array([[0.05, 0.1], [0.08, 0.2], [0.02, 0.15]]),
        "within/O/swap/mean": mean + np.array([[0, 0], [0, 1e-9], [0, 0]]),
        "cross/OQ/swap/spread": np.full((3, 2, 2), np.nan),
        "cross/OQ/swap/mean": np.full((3, 2, 2), np.nan),
    }
    table = TABLES["swap"]([dataclasses.replace(model, nulls=arrays)])
    writes = only_row(table, spaces="O")
    assert (writes["scope"], writes["n_conditions"], writes["n_samples"]) == ("within", 2, 3)
    assert (writes["n_above_all"], writes["expected_above_all"]) == (1, pytest.approx(2 / 4))
    assert writes["largest_mean_change"] == pytest.approx(1e-9, rel=1e-3)
    spread = model.within("O").spread
    assert spread[0] == pytest.approx(WRITE_SPREAD)
    assert writes["r_median"] == pytest.approx(np.median(spread / [0.08, 0.2]))
    assert writes["ratio_median"] == pytest.approx(np.median(spread / [0.05, 0.15]))
    assert set(table.frame["spaces"]) == {"O"}
    notes = " ".join(table.notes)
    assert "a_b & c, OQ: undefined, fewer than three heads are live." in notes
    assert "a_b & c, OK: no samples of the swap null." in notes


def test_the_papers_tables_do_not_see_the_swap_null(model):
    arrays = nulls() | {"within/O/swap/spread": np.full((3, 2), 9.0), "within/O/swap/mean": np.full((3, 2), 9.0)}
    for name in ("table4", "table7", "table8", "null_counts"):
        frames = [TABLES[name]([one]).frame for one in (model, dataclasses.replace(model, nulls=arrays))]
        assert frames[0].equals(frames[1])


def test_what_is_left_of_mean_and_spread_layer_by_layer_and_as_medians(model):
    mean, spread = model.within("O").mean, model.within("O").spread
    left = np.outer([0.9, 0.5], [1, 0.8, 0.6, 0.4])
    arrays = dict(model.overlaps) | {
        "sources/O/directions_mean": left * mean[:, None],
        "sources/O/directions_spread": 0.5 * left * spread[:, None],
        "sources/O/coordinates_mean": mean[:, None] * np.ones(4),
        "sources/O/coordinates_spread": spread[:, None] * np.ones(4),
        "sources/O/participation": np.array([3.0, 5.0]),
        "sources/O/singular_values": np.array([[2.7, 1.9, 0.6, 0.5, 0.3], [3.7, 0.9, 0.6, 0.5, 0.3]]),
        "sources/gain_max": np.array([4.0, 6.0]),
        "sources/gain_median": np.array([1.0, 2.0]),
    }
    table = TABLES["spread_sources"]([dataclasses.replace(model, overlaps=arrays)])
    row = only_row(table, spaces="O", layer=0, removed="directions", n_removed=16)
    assert (row["mean_left"], row["spread_left"]) == (pytest.approx(0.54), pytest.approx(0.27))
    # The second layer's rho is constant: there is no spread of which a part could be left.
    assert np.isnan(only_row(table, spaces="O", layer=1, removed="directions", n_removed=16)["spread_left"])
    printed = only_row(dataclasses.replace(table, frame=table.printed), spaces="O", removed="directions", n_removed=4)
    assert (printed["mean_left"], printed["spread_left"]) == (pytest.approx(0.56), pytest.approx(0.36))
    assert (table.frame[table.frame["removed"] == "coordinates"]["mean_left"] == 1).all()
    spectra = TABLES["layer_spectra"]([dataclasses.replace(model, overlaps=arrays)])
    second = only_row(spectra, spaces="O", layer=1)
    assert (second["singular_first"], second["singular_second"], second["singular_median"]) == (3.7, 0.9, 0.6)
    assert second["singular_p95"] == pytest.approx(np.quantile([3.7, 0.9, 0.6, 0.5, 0.3], 0.95))
    # Writes are not folded with that norm.
    assert (second["participation"], np.isnan(second["gain_max"])) == (5, True)
    assert only_row(dataclasses.replace(spectra, frame=spectra.printed), spaces="O")["singular_first"] == 3.2


def test_what_is_left_across_layers_is_by_layer_pair(model):
    comparison = model.across("K")
    shape = model.overlaps["cross/OK/rho"].shape[:2]
    arrays = dict(model.overlaps)
    for name, value in (("mean", comparison.mean), ("spread", comparison.spread)):
        left = np.full((*shape, 4), np.nan)
        left[tuple(comparison.layers.T)] = np.outer(value, [0.9, 0.8, 0.7, 0.6])
        arrays |= {f"sources/OK/{removed}_{name}": left for removed in ("directions", "coordinates")}
    table = TABLES["spread_sources"]([dataclasses.replace(model, overlaps=arrays)])
    frame = table.frame[table.frame["spaces"] == "OK"]
    assert len(frame) == 2 * 4 * comparison.n_conditions
    assert frame[["layer", "reader_layer"]].drop_duplicates().to_numpy(int).tolist() == comparison.layers.tolist()
    first = frame[(frame["layer"] == 0) & (frame["removed"] == "coordinates")]
    assert first["mean_left"].tolist()[:4] == pytest.approx([0.9, 0.8, 0.7, 0.6])
    row = only_row(dataclasses.replace(table, frame=table.printed), spaces="OK", removed="directions", n_removed=16)
    assert row["mean_left"] == pytest.approx(0.7)


def test_the_same_spaces_beside_null_models_of_stored_and_of_orthonormal_columns(model):
    """Writes of layer 0 have mean 0.28 and spread 0.2356; the second layer's are constant at 0.4."""
    stored = nulls()
    of_bases = {
        "within/O/rotation/spread": np.array([[0.3, 0.0]]),
        "within/O/rotation/mean": np.array([[0.1, 0.5]]),
        "within/O/reassignment/spread": np.array([[0.1, 0.0]]),
        "within/O/reassignment/mean": np.array([[0.2, 0.3]]),
    }
    table = TABLES["orthonormal"]([dataclasses.replace(model, nulls=stored, orthonormal=of_bases)])
    one, other = (only_row(table, spaces="O", columns=columns) for columns in ("stored", "orthonormal"))
    # Of the stored columns the first sample alone, as many as of the others.
    assert (one["n_samples"], other["n_samples"], one["n_conditions"]) == (1, 1, 2)
    assert (one["n_spread_above_all"], other["n_spread_above_all"]) == (1, 0)
    assert (one["r_median"], other["r_median"]) == (
        pytest.approx(WRITE_SPREAD / 0.1),
        pytest.approx(WRITE_SPREAD / 0.3),
    )
    assert (one["n_mean_below_all"], one["n_mean_above_all"]) == (1, 1)
    assert (other["n_mean_below_all"], other["n_mean_above_all"]) == (0, 1)
    assert list(table.frame["spaces"]) == ["O", "O"]
    assert TABLES["orthonormal"]([model]).notes == ("a_b & c: not drawn.",)
