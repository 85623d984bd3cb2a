import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from scipy.linalg import subspace_angles
from scipy.stats import spearmanr
from support.project import ROOT
from support.tiny_results import random_model

from headspaces.errors import DamagedFileError
from headspaces.report.figures import series as figures
from headspaces.report.figures.drawing import make_figure
from headspaces.report.results import read_results
from headspaces.report.series import StepFiles, collect_series, series_attributes
from headspaces.report.series_findings import leaving_steps, series_findings
from headspaces.report.tables.series import series, series_heads
from headspaces.store import read_arrays, write_arrays

NUMBERS = [0, 10, 20, 40]
COUNTS = {"O": 4, "Q": 4, "K": 2, "V": 2}


@pytest.fixture
def steps(tmp_path, rng):
    """Four steps of a made-up training; the third repeats the second, of all but the last the effects are known."""
    made = []
    for place, number in enumerate(NUMBERS):
        name = f"run-step{number}"
        drawn = random_model(name, n_layers=3, seed=min(place, 1) if place < 3 else place)
        shape = dict(drawn.attributes)
        facts = {"model": name, "weights_sha256": "b" if place == 2 else "abcd"[place], "kinds": "OQKV", "norm": "none"}
        write_arrays(
            tmp_path / f"{name}.o.h5", "overlaps", drawn.overlaps, facts | shape | {"fold": True, "rank_rtol": 1e-6}
        )
        write_arrays(tmp_path / f"{name}.n.h5", "nulls", nulls(drawn), facts | shape | {"seed": 0, "samples": 6})
        bases, blocks = {}, []
        for first, size in ((0, 2), (2, 1)):
            for kind, n in COUNTS.items():
                bases[f"{kind}/basis"] = np.linalg.qr(rng.normal(size=(size, n, 16, 4)))[0]
                bases[f"rank/{kind}"] = np.full((size, n), 4)
            blocks.append(str(tmp_path / f"{name}.b{first}.h5"))
            write_arrays(blocks[-1], "bases", bases, facts | {"first_layer": first, "block_layers": size})
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"loss": 4.0 - place, "induction": [[0.1, 0.2 * place, 0, 0]] * 3})
        )
        files = {"overlaps": str(tmp_path / f"{name}.o.h5"), "nulls": str(tmp_path / f"{name}.n.h5")}
        if place < 3:
            files["attribution"] = str(tmp_path / f"{name}.a.h5")
            later = np.triu(np.ones((3, 3), dtype=bool), k=1)[:, :, None, None]
            effects = {
                f"repeats/{kind}/effect": np.where(later, rng.normal(size=(3, 3, 4, COUNTS[kind])), np.nan)
                for kind in "QKV"
            }
            write_arrays(files["attribution"], "attribution", effects, facts | shape)
        made.append(StepFiles(number, name, files, blocks, str(tmp_path / f"{name}.json")))
    return made


def nulls(drawn):
    """The samples, and for the swap null half of the reassignment's."""
    swap = {k.replace("reassignment", "swap"): v / 2 for k, v in drawn.nulls.items() if "reassignment/spread" in k}
    swap |= {k.replace("reassignment", "swap"): v for k, v in drawn.nulls.items() if "reassignment/mean" in k}
    return {**drawn.nulls, **swap}


@pytest.fixture
def run(steps, tmp_path):
    path = tmp_path / "run.h5"
    write_arrays(path, "series", collect_series(steps), series_attributes(steps) | {"model": "run"})
    return read_results("run", {"series": path})


def test_every_row_from_the_steps_own_files(run, steps):
    frame = series([run]).frame
    assert len(frame) == len(NUMBERS) * 7
    for step in steps:
        model = read_results(step.model, step.files)
        for comparison in model.compare_all():
            row = frame[(frame["step"] == step.step) & (frame["spaces"] == comparison.spaces)].iloc[0]
            rho = np.array([pairs[np.isfinite(pairs)] for pairs in comparison.rho])
            spread = rho.std(axis=1)
            place = ("within/" if comparison.scope == "within" else "cross/") + comparison.spaces
            kept = ... if comparison.scope == "within" else (slice(None), *np.triu_indices(3, 1))
            samples = {
                null: model.nulls[f"{place}/{null}/spread"][kept] for null in ("rotation", "reassignment", "swap")
            }
            largest = np.maximum(samples["rotation"].max(axis=0), samples["reassignment"].max(axis=0))
            assert row["r_rw"] == pytest.approx(np.median(spread / largest), nan_ok=True)
            assert row["n_above_all_rw"] == sum(spread > largest)
            assert row["r_swap"] == pytest.approx(np.median(spread / samples["swap"].max(axis=0)), nan_ok=True)
            assert row["mean_rho"] == pytest.approx(rho.mean())
            assert row["spread_median"] == pytest.approx(np.median(spread))
            assert row["smallest_angle_deg"] == pytest.approx(comparison.angles.min())


def test_a_repeated_step_is_flagged(run):
    table = series([run])
    flagged = table.frame.dropna(subset="duplicate_of")
    assert set(flagged["step"]) == {20}
    assert set(flagged["duplicate_of"]) == {10}
    assert "run: step 20 holds the weights of step 10." in table.notes


def test_loss_and_induction_of_the_run(run):
    frame = series([run]).frame.drop_duplicates("step")
    np.testing.assert_allclose(frame["loss"], [4, 3, 2, 1])
    np.testing.assert_allclose(frame["induction"], [0.1, 0.2, 0.4, 0.6])


def test_effects_of_the_steps_that_have_them(run, steps):
    """Against plain sums and scipy's ranks."""
    frame = series([run]).frame
    assert frame[frame["scope"] == "within"][["effect_sum", "spearman_effect"]].isna().all(axis=None)
    assert frame[frame["step"] == 40][["effect_sum", "spearman_effect"]].isna().all(axis=None)
    for step in steps[:3]:
        effects = read_arrays(step.files["attribution"], "attribution")
        for kind in "QKV":
            rho = read_arrays(step.files["overlaps"], "overlaps")[f"cross/O{kind}/rho"]
            pairs = [
                (abs(effects[f"repeats/{kind}/effect"][at]), rho[at]) for at in np.ndindex(rho.shape) if at[0] < at[1]
            ]
            row = frame[(frame["step"] == step.step) & (frame["spaces"] == f"O{kind}")].iloc[0]
            assert row["effect_sum"] == pytest.approx(sum(size for size, _ in pairs))
            assert row["spearman_effect"] == pytest.approx(spearmanr(pairs).statistic)


def test_a_step_may_lack_what_others_have_run(steps, tmp_path):
    """As where the tokenizer was saved with some checkpoints alone; first or last, it makes no difference."""
    for place in (0, 3):
        some = [
            StepFiles(s.step, s.model, s.files, s.bases, "" if at == place else s.run) for at, s in enumerate(steps)
        ]
        write_arrays(tmp_path / "s.h5", "series", collect_series(some), series_attributes(some) | {"model": "run"})
        loss = series([read_results("run", {"series": tmp_path / "s.h5"})]).frame.drop_duplicates("step")["loss"]
        np.testing.assert_array_equal(loss, [np.nan if at == place else 4.0 - at for at in range(4)])


def test_steps_that_were_not_run_have_no_loss(steps, tmp_path):
    known = [{stage: path for stage, path in step.files.items() if stage != "attribution"} for step in steps]
    steps = [StepFiles(step.step, step.model, files, step.bases) for step, files in zip(steps, known, strict=True)]
    write_arrays(tmp_path / "r.h5", "series", collect_series(steps), series_attributes(steps) | {"model": "run"})
    table = series([read_results("run", {"series": tmp_path / "r.h5"})])
    assert table.frame[["loss", "induction", "effect_sum"]].isna().all(axis=None)
    drawn = figures.series([read_results("run", {"series": tmp_path / "r.h5"})])
    assert set(drawn["quantity"]) == {"r_rw", "r_swap"}
    assert "run: its model was not run." in table.notes


def test_a_damaged_run_is_named(steps):
    Path(steps[1].run).write_text('{"loss": 1}')
    with pytest.raises(DamagedFileError, match="step10.json: does not say what the model does"):
        collect_series(steps)


def test_the_way_of_heads_against_scipy(run, steps):
    frame = series_heads([run]).frame
    assert len(frame) == len(NUMBERS) * 3 * 12
    bases = [
        np.concatenate([read_arrays(path, "bases", ["K/basis"])["K/basis"] for path in step.bases]) for step in steps
    ]

    def angle(one, other):
        return np.degrees(np.sqrt(np.mean(subspace_angles(one, other) ** 2)))

    for layer, head in np.ndindex(3, 2):
        rows = frame[(frame["spaces"] == "K") & (frame["layer"] == layer) & (frame["head"] == head)]
        own = [basis[layer, head] for basis in bases]
        np.testing.assert_allclose(rows["angle_last_deg"], [angle(one, own[-1]) for one in own], atol=1e-6)
        way = np.cumsum([0, *(angle(*pair) for pair in pairwise(own))])
        np.testing.assert_allclose(rows["travelled_deg"], way, atol=1e-6)
        overlaps = [np.sum((one.T @ own[-1]) ** 2) / 4 for one in own]
        np.testing.assert_allclose(rows["rho_last"], overlaps)


def test_a_reader_is_shown_some_steps_of_many(run):
    assert len(series([run]).printed) == len(NUMBERS) * 7
    assert set(series_heads([run]).printed["step"]) == {40}
    assert len(series_heads([run]).printed) == 4


def test_figures_hold_what_the_tables_hold(run):
    drawn = figures.series([run])
    frame = series([run]).frame
    for quantity in ("r_rw", "r_swap", "effect_sum"):
        expected = frame[np.isfinite(frame[quantity])]
        rows = drawn[drawn["quantity"] == quantity]
        np.testing.assert_array_equal(rows["value"], expected[quantity])
        np.testing.assert_array_equal(rows["step"], expected["step"])
        np.testing.assert_array_equal(rows["loss_nats"], expected["loss"])
    heads = figures.series_heads([run])
    np.testing.assert_array_equal(heads["rho_last"], series_heads([run]).frame["rho_last"])


def test_figures_are_drawn(run):
    with style.context(str(ROOT / "config" / "paper.mplstyle"), after_reset=True):
        drawn = {name: make_figure(name, getattr(figures, name)([run])) for name in ("series", "series_heads")}
    titles = {name: [axes.get_title() for axes in figure.axes if axes.get_title()] for name, figure in drawn.items()}
    assert titles == {"series": ["run"] * 3, "series_heads": [f"run\n{kind}" for kind in "OQKV"]}
    # With each panel of ratios the loss, on an axis of its own.
    losses = [axes.lines[0].get_ydata() for axes in drawn["series"].axes if "loss" in axes.get_ylabel()]
    assert losses
    np.testing.assert_allclose(losses[0], [4, 3, 2, 1])
    assert [len(axes.lines) for axes in drawn["series_heads"].axes] == [3 * n + 1 for n in COUNTS.values()]


def course(**by_spaces):
    """A table of steps 0, 1, 2, … with these ratios to RW's nulls; those to the swap null are half as large."""
    rows = [
        {"series": "run", "step": step, "spaces": spaces, "r_rw": r, "r_swap": r / 2}
        for spaces, ratios in by_spaces.items()
        for step, r in enumerate(ratios)
    ]
    frame = pd.DataFrame(rows).sort_values("step", kind="stable", ignore_index=True)
    return frame.assign(duplicate_of=np.nan, loss=5.0 - frame["step"], induction=np.nan, effect_sum=np.nan)


def test_a_comparison_leaves_the_nulls_where_it_stays_above_all_of_them():
    frame = course(OK=[1, 3, 3, 4], OQ=[3, 1, 3, 4], O=[1, 1.9, 1.9, 1.9], V=[3, 3, 3, 3], K=[3, 3, 3, 1])
    assert leaving_steps(frame) == {"V": 0, "OK": 1, "OQ": 2}
    (found,) = series_findings({"series": frame})
    assert found.model == "run, by step"
    first, start, order = found.sentences
    assert first == "4 steps, 0 to 3; the loss goes from 5.000 to 2.000 nats per token."
    assert start == (
        "At step 0, 2 of 5 comparisons lie inside the null models: their median spread is not beyond the widest sample."
    )
    assert order == (
        "They leave all null models in this order, for good: V within layers from step 0; O→K from step 1; "
        "O→Q from step 2; not O within layers and K within layers."
    )


def test_where_none_leaves_the_nearest_is_named():
    (found,) = series_findings({"series": course(OK=[1, 1], V=[1, 1.5])})
    assert (
        found.sentences[-1]
        == "At the last step none has left them; the nearest is V within layers, 0.75 of that width."
    )


def test_findings_are_the_numbers_of_the_table(run):
    frame = series([run]).frame
    (found,) = series_findings({"series": frame})
    assert found.sentences[0] == (
        "4 steps, 0 to 40; the loss goes from 4.000 to 1.000 nats per token; "
        "the best induction score from 0.100 to 0.600; the weights of an earlier one are those of 20."
    )
    most = frame.loc[frame["effect_sum"].idxmax()]
    assert f"Edges matter most at step {most['step']}: " in found.sentences[-1]
    assert f"add up to {most['effect_sum']:.3f} nats" in found.sentences[-1]
    assert series_findings({}) == []
