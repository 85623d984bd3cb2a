"""The tables of RW 5.4, 5.5 and appendix H against numbers by hand and scipy."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headspaces.geometry.statistics import isotropic_sd
from headspaces.report.results import ModelResults
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table

SHAPE = {"n_layers": 3, "d_model": 12, "d_head": 2, "n_query_heads": 4, "n_kv_heads": 2}
PAIRS = [(0, 1), (0, 2), (1, 2)]
READERS = {"Q": 4, "K": 2, "V": 2}
RUN = {"n_tokens": 512, "n_windows": 4, "window_tokens": 128, "loss_nats_per_token": 3.25}


def later(rng, readers, low=0.05, high=1.0):
    """Random values [writer_layer, reader_layer, writer_head, reader_head], NaN unless the reader is later."""
    values = np.full((3, 3, 4, readers), np.nan)
    for writer, reader in PAIRS:
        values[writer, reader] = rng.uniform(low, high, size=(4, readers))
    return values


def make_model(rng, name="m"):
    overlaps, activations, affinity = {}, {f"run/{key}": np.array(value) for key, value in RUN.items()}, {}
    for kind, readers in READERS.items():
        overlaps[f"cross/O{kind}/rho"] = later(rng, readers)
        overlaps[f"cross/O{kind}/angle"] = later(rng, readers, 0, 90)
        for term in ("linear", "normalisation", "total", "energy_fraction"):
            activations[f"{kind}/{term}"] = later(rng, readers)
        affinity[f"cs/O{kind}"] = later(rng, 4)
    for kind, heads in {"O": 4, **READERS}.items():
        rho = rng.uniform(size=(3, heads, heads))
        overlaps[f"within/{kind}/rho"] = rho + rho.swapaxes(1, 2)
        overlaps[f"within/{kind}/angle"] = 90 * rng.uniform(size=(3, heads, heads))
    return ModelResults(name, SHAPE, overlaps, activations=activations, affinity=affinity)


@pytest.fixture
def model(rng):
    return make_model(rng)


def in_pairs(array):
    return np.concatenate([array[pair].ravel() for pair in PAIRS])


def row(frame, **names):
    for column, value in names.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


@pytest.mark.parametrize("kind", READERS)
def test_activations_by_scipy_and_by_hand(model, kind):
    found = row(TABLES["activations"]([model]).frame, spaces=f"O{kind}")
    rho = in_pairs(model.overlaps[f"cross/O{kind}/rho"])
    linear, normalisation, total, energy = (
        in_pairs(model.activations[f"{kind}/{term}"])
        for term in ("linear", "normalisation", "total", "energy_fraction")
    )
    by_pair = [
        stats.spearmanr(
            model.overlaps[f"cross/O{kind}/rho"][pair].ravel(),
            model.activations[f"{kind}/energy_fraction"][pair].ravel(),
        )[0]
        for pair in PAIRS
    ]
    expected = {
        **RUN,
        "n_pairs": 12 * READERS[kind],
        "n_layer_pairs": 3,
        "linear_over_total_p5": np.quantile(linear / total, 0.05),
        "linear_over_total_median": np.median(linear / total),
        "linear_over_total_p95": np.quantile(linear / total, 0.95),
        "relative_rms_median": np.median(np.sqrt(normalisation / total)),
        "normalisation_over_linear_sum": normalisation.sum() / linear.sum(),
        "normalisation_over_linear_median": np.median(normalisation / linear),
        "total_over_linear_sum": total.sum() / linear.sum(),
        "n_cross_term_positive": np.sum(total > linear + normalisation),
        "energy_over_rho_p5": np.quantile(energy / rho, 0.05),
        "energy_over_rho_median": np.median(energy / rho),
        "energy_over_rho_p95": np.quantile(energy / rho, 0.95),
        "energy_spearman": stats.spearmanr(rho, energy)[0],
        "energy_pearson": np.corrcoef(rho, energy)[0, 1],
        "linear_spearman": stats.spearmanr(rho, linear)[0],
        "linear_pearson": np.corrcoef(rho, linear)[0, 1],
        "layer_pair_spearman_low": min(by_pair),
        "layer_pair_spearman_median": np.median(by_pair),
        "layer_pair_spearman_high": max(by_pair),
        "n_layer_pairs_negative": np.sum(np.array(by_pair) < 0),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name


def test_composition_scores_belong_to_query_heads(model):
    found = row(TABLES["activations"]([model]).frame, spaces="OK")
    rho, score = [], []
    for pair in PAIRS:
        for writer in range(4):
            for reader in range(4):
                rho.append(model.overlaps["cross/OK/rho"][pair][writer, reader // 2])
                score.append(model.affinity["cs/OK"][pair][writer, reader])
    assert found["composition_spearman"] == pytest.approx(stats.spearmanr(rho, score)[0], rel=1e-12)
    assert found["composition_pearson"] == pytest.approx(np.corrcoef(rho, score)[0, 1], rel=1e-12)


def test_what_is_missing_is_said_and_left_out(model):
    without = dataclasses.replace(model, affinity=None)
    table = TABLES["activations"]([without, dataclasses.replace(model, name="other", activations=None)])
    assert len(table.frame) == 3
    assert table.frame["composition_spearman"].isna().all()
    assert "m: no composition scores (stage affinity)." in table.notes
    assert "other: not run on a text." in table.notes


def test_pairs_that_are_undefined_are_left_out_and_counted(model):
    model.activations["V/energy_fraction"][0, 1, 2] = np.nan
    table = TABLES["activations"]([model])
    found = row(table.frame, spaces="OV")
    rho, energy = (
        in_pairs(array) for array in (model.overlaps["cross/OV/rho"], model.activations["V/energy_fraction"])
    )
    defined = np.isfinite(energy)
    assert found["n_pairs"] == 22
    assert found["energy_spearman"] == pytest.approx(stats.spearmanr(rho[defined], energy[defined])[0])
    assert any("OV: 2 pairs left out" in note for note in table.notes)


def test_constants_have_no_correlation(model):
    model.activations["Q/energy_fraction"][...] = np.where(
        np.isnan(model.activations["Q/energy_fraction"]), np.nan, 0.5
    )
    found = row(TABLES["activations"]([model]).frame, spaces="OQ")
    assert np.isnan(found["energy_spearman"])
    assert np.isnan(found["layer_pair_spearman_median"])
    assert found["n_layer_pairs_negative"] == 0


def test_the_page_shows_one_quantity_a_row(model, tmp_path):
    write_table(
        "activations", TABLES["activations"]([model]), *(tmp_path / f"a.{end}" for end in ("csv", "md", "tex", "json"))
    )
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert "| model | quantity | OQ | OK | OV |" in lines
    assert "| m | loss (nats per token) | 3.250 | 3.250 | 3.250 |" in lines
    assert "| :-- | :-- | --: | --: | --: |" in lines
    assert not any("Shown" in line for line in lines)
    assert len(pd.read_csv(tmp_path / "a.csv")) == 3


def test_self_head_rows(model):
    arrays = {
        "VO/rho": np.zeros((2, 2, 4)), "VO/own": np.array([0.3, 0.2]), "VO/others": np.array([0.1, 0.15]),
        "VO/p": np.array([0.5, 1.0]), "VO/n_permutations": np.array([2, 2]), "VO/exhaustive": np.array([1, 1]),
        "QO/rho": np.zeros((2, 9, 9)), "QO/own": np.array([0.3, 0.2]), "QO/others": np.array([0.1, 0.15]),
        "QO/p": np.array([1 / 10_001, 0.5]), "QO/n_permutations": np.array([10_000] * 2),
        "QO/exhaustive": np.array([0, 0]),
    }  # fmt: skip
    table = TABLES["self_head"]([dataclasses.replace(model, self_heads=arrays)])
    frame = table.frame
    assert frame["spaces"].tolist() == ["VO", "VO", "QO", "QO"]
    assert frame["layer"].tolist() == [0, 1, 0, 1]
    assert frame["p_is_smallest"].tolist() == [1, 0, 1, 0]
    assert frame["n_labels"].tolist() == [2, 2, 9, 9]
    assert frame["own_mean"].tolist() == [0.3, 0.2, 0.3, 0.2]
    assert TABLES["self_head"]([model]).notes == ("m: not measured.",)
    shown = row(table.printed, spaces="VO")
    assert (shown["n_layers"], shown["own_mean_low"], shown["own_mean_high"], shown["others_mean_high"]) == (
        2, 0.2, 0.3, 0.15,
    )  # fmt: skip
    assert (shown["p_high"], shown["n_smallest_p"], shown["n_permutations"]) == (1, 1, 2)
    assert table.all_notes == ("Shown: ranges over the layers, of 4 rows in the CSV.",)


def test_value_spaces_in_standard_deviations_of_random_ones(model):
    frame = TABLES["v_spaces"]([model]).frame
    means = model.overlaps["within/V/rho"][:, 0, 1]
    sd = isotropic_sd(12, 2)
    np.testing.assert_allclose(frame["random_sds"], (means - 2 / 12) / sd)
    np.testing.assert_allclose(frame["isotropic_ratio"], means * 6)
    np.testing.assert_allclose(frame["isotropic_difference"], means - 2 / 12)
    assert frame["n_pairs"].tolist() == [1, 1, 1]
    single = {name: array[:, :1, :1] for name, array in model.overlaps.items() if name.startswith("within/V")}
    table = TABLES["v_spaces"]([ModelResults("one", SHAPE, single)])
    assert table.frame["mean_rho"].isna().all()
    assert table.notes == ("one: one value read space in a layer, no pairs.",)


def test_two_models_pair_by_pair(rng):
    one = make_model(rng, "base")
    shifted = {name: array + 0.01 * ("rho" in name) for name, array in one.overlaps.items()}
    shifted["within/O/rho"] = one.overlaps["within/O/rho"].copy()
    shifted["within/O/rho"][1, 0, 3] += 0.5
    other = ModelResults("tuned", SHAPE, {name: array for name, array in shifted.items() if "/K/" not in name})
    unlike = ModelResults("unlike", {**SHAPE, "d_model": 13}, one.overlaps)
    frame = TABLES["model_pairs"]([one, other, unlike]).frame
    assert set(zip(frame["model"], frame["other"], strict=True)) == {("base", "tuned")}
    assert frame["spaces"].tolist() == ["O", "Q", "V", "OQ", "OK", "OV"]
    writes = row(frame, spaces="O")
    assert (writes["n_pairs"], writes["median_abs_difference"]) == (18, 0)
    assert writes["max_abs_difference"] == pytest.approx(0.5)
    assert writes["max_relative_difference"] == pytest.approx(0.5 / one.overlaps["within/O/rho"][1, 0, 3])
    assert row(frame, spaces="OQ")["max_abs_difference"] == pytest.approx(0.01)
    by_layer = TABLES["tuning"]([one, other, unlike]).frame
    layer = row(by_layer, spaces="O", layer=1)
    upper = np.triu_indices(4, k=1)
    assert layer["mean_rho_other"] == pytest.approx(shifted["within/O/rho"][1][upper].mean())
    assert layer["spread"] == pytest.approx(one.overlaps["within/O/rho"][1][upper].std())
    assert layer["max_abs_difference"] == pytest.approx(0.5)
    assert layer["mean_rho_difference"] == pytest.approx(0.5 / 6)
    theirs = shifted["within/O/rho"][1][upper].std()
    assert layer["spread_difference"] == pytest.approx(abs(layer["spread"] - theirs))
    assert row(by_layer, spaces="O", layer=0)["max_abs_difference"] == 0
    assert len(by_layer) == 9
    printed = TABLES["tuning"]([one, other, unlike]).printed
    assert printed["spaces"].tolist() == ["O", "Q", "V"]
    assert printed["layer"].iloc[0] == 1


def test_a_checkpoint_compared_with_itself_is_noticed(rng):
    one = make_model(rng, "base")
    table = TABLES["model_pairs"]([one, dataclasses.replace(one, name="copy")])
    assert table.notes == (
        "base and copy: all overlaps are equal to rounding; the two checkpoints may hold the same weights.",
    )


@pytest.mark.parametrize("name", ["activations", "self_head", "v_spaces", "model_pairs", "tuning"])
def test_a_study_without_such_results_makes_an_empty_table(name, tmp_path):
    only_writes = ModelResults("w", SHAPE, {"within/O/rho": np.ones((3, 4, 4)), "within/O/angle": np.zeros((3, 4, 4))})
    table = TABLES[name]([only_writes])
    write_table(name, table, *(tmp_path / f"a.{end}" for end in ("csv", "md", "tex", "json")))
    assert len(pd.read_csv(tmp_path / "a.csv")) == 0
    assert name == "v_spaces" or table.notes[0].removeprefix("w: ") in {
        "not run on a text.", "not measured.", "No two models of this study have one shape.",
    }  # fmt: skip
