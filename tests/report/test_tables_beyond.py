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
