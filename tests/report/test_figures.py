"""Figures: their numbers by hand, what is drawn from the numbers, and files that repeat on any machine."""

import ast
import dataclasses
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb, to_rgba_array
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from scipy import stats
from support.project import ROOT
from support.tiny_results import PAIRS, WRITE_SPREAD, pk_model, random_model, tiny_model

import headspaces
from headspaces.report.figures import panels, schematic
from headspaces.report.figures.drawing import MAKERS, NOTHING, _legend, draw_figure, make_figure, pages_of
from headspaces.report.figures.layout import Maker
from headspaces.report.figures.marks import EDGE_POINTS
from headspaces.report.figures.numbers import survival
from headspaces.report.tables.registry import TABLES
from headspaces.report.tidy_frames import tidy
from headspaces.study import items as report_items

STYLE = ROOT / "config" / "paper.mplstyle"


@pytest.fixture
def paper():
    with style.context(STYLE, after_reset=True):
        yield


@pytest.fixture
def axes(paper):
    return Figure().add_subplot()


def picked(frame, **names):
    for column, value in names.items():
        frame = frame[frame[column] == value]
    return frame


def test_every_figure_has_numbers_panels_and_a_title():
    assert list(MAKERS) == list(report_items.FIGURES)
    assert all(isinstance(maker, Maker) for maker in MAKERS.values())


def test_figure1_is_a_projection():
    vectors = {
        row["quantity"]: row[["x", "y", "z"]].to_numpy(dtype=float) for _, row in MAKERS["figure1"]([]).iterrows()
    }
    u, p, rest = vectors["u"], vectors["p"], vectors["u - p"]
    assert p @ rest == pytest.approx(0)
    assert p + rest == pytest.approx(u)
    assert p[2] == 0
    cosine = u @ p / np.linalg.norm(u) / np.linalg.norm(p)
    lengths = dict(MAKERS["figure1"]([])[["quantity", "length"]].to_numpy())
    assert lengths["p"] == pytest.approx(lengths["u"] * cosine)


def test_survival_counts_pairs_at_or_above():
    rho = np.array([0.1, 0.4, 0.4, np.nan, 0.9])
    assert survival(rho, np.array([0.0, 0.1, 0.2, 0.4, 0.5, 0.9, 0.91])).tolist() == [1, 1, 0.75, 0.75, 0.25, 0.25, 0]


def test_figure2_numbers_are_exact_at_the_observed_pairs():
    numbers = MAKERS["figure2"]([tiny_model()])
    observed = picked(numbers, series="observed").set_index("rho")["share"]
    assert observed[[0.04, 0.2, 0.6]].tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    assert observed.iloc[-1] == 0
    assert set(numbers["layer"]) == {0}
    # Reassignment: samples 0.03 0.1 0.2 and 0.3 0.7 0.65; at 0.2 the shares are 1/3 and 1.
    at = picked(numbers, series="reassignment").set_index("rho").loc[0.2]
    assert at["share"] == pytest.approx(2 / 3)
    assert (at["share_low"], at["share_high"]) == pytest.approx((1 / 3 + 0.05 * 2 / 3, 1 - 0.05 * 2 / 3))
    assert set(numbers["series"]) == {"observed", "rotation", "reassignment"}


def test_figure3_numbers_are_the_conditions_with_an_r():
    numbers = MAKERS["figure3"]([tiny_model()])
    writes = picked(numbers, spaces="O")
    # Layer 1 has constant rho and constant samples: no r.
    assert writes["layer"].tolist() == [0]
    assert writes["r"].tolist() == pytest.approx([WRITE_SPREAD / 0.2])
    keys = picked(numbers, spaces="OK")
    assert keys[["scope", "layer", "later_layer"]].to_numpy().tolist() == [["across", 0, 1]]
    assert keys["r"].tolist() == pytest.approx([(0.08 / 3) ** 0.5 / 0.3])


def test_figure4_and_5_numbers_keep_the_pairs_together():
    model = random_model("m", n_layers=3, n_query_heads=3, n_kv_heads=2)
    numbers = MAKERS["figure4"]([model])
    assert len(numbers) == 3 * (9 + 6 + 6)
    for _, row in picked(numbers, spaces="OV").iterrows():
        place = tuple(int(row[name]) for name in ("writer_layer", "reader_layer", "writer_head", "reader_head"))
        assert row["rho"] == model.overlaps["cross/OV/rho"][place]
        assert row["energy_fraction"] == model.activations["V/energy_fraction"][place]
    numbers = MAKERS["figure5"]([model])
    for writer, reader in PAIRS:
        rho, share = (
            values[writer, reader].ravel()
            for values in (model.overlaps["cross/OQ/rho"], model.activations["Q/energy_fraction"])
        )
        row = picked(numbers, quantity="spearman", spaces="OQ", writer_layer=writer, reader_layer=reader)
        assert row["value"].tolist() == pytest.approx([stats.spearmanr(rho, share).statistic])
    linear = picked(numbers, quantity="linear")
    assert set(linear["spaces"]) == {"OV"}
    row = picked(linear, writer_layer=0, reader_layer=2, writer_head=1, reader_head=1).iloc[0]
    assert (row["rho"], row["value"]) == (
        model.overlaps["cross/OV/rho"][0, 2, 1, 1],
        model.activations["V/linear"][0, 2, 1, 1],
    )


def test_pairs_without_a_write_are_left_out():
    model = random_model("m", n_layers=3, n_query_heads=3, n_kv_heads=2)
    for name in ("energy_fraction", "linear"):
        model.activations[f"V/{name}"][0, 1, 2] = np.nan
    assert len(picked(MAKERS["figure4"]([model]), spaces="OV")) == 3 * 6 - 2
    rho, share = (
        values[0, 1, :2].ravel() for values in (model.overlaps["cross/OV/rho"], model.activations["V/energy_fraction"])
    )
    numbers = MAKERS["figure5"]([model])
    row = picked(numbers, quantity="spearman", spaces="OV", writer_layer=0, reader_layer=1)
    assert row["value"].tolist() == pytest.approx([stats.spearmanr(rho, share).statistic])
    assert picked(numbers, quantity="linear")["value"].notna().all()


def test_figure6_numbers_leave_out_layers_without_pairs():
    numbers = MAKERS["figure6"]([tiny_model()])
    assert set(numbers["spaces"]) == {"O", "Q"}
    writes = picked(numbers, spaces="O")
    assert picked(writes, quantity="mean")["value"].tolist() == pytest.approx([0.28, 0.4])
    assert picked(writes, quantity="spread")["value"].tolist() == pytest.approx([WRITE_SPREAD, 0])
    assert set(picked(writes, quantity="mean")["random"]) == {0.1}
    assert picked(writes, quantity="spread")["random"].tolist() == pytest.approx([0.015**0.5] * 2)


def test_figure7_and_8_numbers():
    numbers = MAKERS["figure7"]([tiny_model()])
    row = picked(numbers, series="rotation", quantity="p95", layer=0).iloc[0]
    assert (row["value"], row["low"], row["high"]) == pytest.approx((0.525, 0.5025, 0.5475))
    row = picked(numbers, series="observed", quantity="median", layer=1).iloc[0]
    assert (row["value"], row["low"], row["high"]) == (0.4, 0.4, 0.4)
    numbers = MAKERS["figure8"]([tiny_model()])
    assert picked(numbers, series="reassignment")["spread"].tolist() == [0.2, 0.0]
    assert picked(numbers, series="observed")["spread"].tolist() == pytest.approx([WRITE_SPREAD, 0])


def test_figure9_numbers_give_the_direction():
    numbers = MAKERS["figure9"]([tiny_model()]).set_index("spaces")
    # Means: OQ 0.122 between 0.05 and 0.2; OK 0.3 above 0.25; OV 0.04 above 0.03.
    assert numbers["direction"].to_dict() == {"OQ": "neither", "OK": "above", "OV": "above"}
    assert numbers.loc["OV", "r"] == pytest.approx((0.0038 / 3) ** 0.5 / 0.01)
    model = tiny_model()
    samples = {name: values * 10 if name.endswith("mean") else values for name, values in model.nulls.items()}
    numbers = MAKERS["figure9"]([dataclasses.replace(model, nulls=samples)]).set_index("spaces")
    assert numbers["direction"].to_dict() == {"OQ": "below", "OK": "below", "OV": "below"}


def test_figures_and_tables_agree():
    models = [random_model("a"), random_model("b", n_kv_heads=3, seed=4)]
    table = {name: TABLES[name](models).frame for name in ("table4", "table8", "right_tail", "mean_direction")}
    ratios = MAKERS["figure3"](models).groupby(["model", "spaces"])
    directions = MAKERS["figure9"](models).groupby(["model", "spaces"])["direction"]
    for _, row in table["table4"].iterrows():
        # The single pair of two key-value heads has a spread of 0, which is below all samples here.
        assert ratios["n_above_all"].sum()[row["model"], row["spaces"]] == row["n_above_all"]
        assert ratios["r"].median()[row["model"], row["spaces"]] == pytest.approx(row["r_median"])
        assert ratios["r"].count()[row["model"], row["spaces"]] == row["n_conditions"]
    by_distance = table["mean_direction"].groupby(["model", "spaces"])[["n_mean_below_all", "n_mean_above_all"]].sum()
    for _, row in table["table8"].iterrows():
        found = directions.get_group((row["model"], row["spaces"])).value_counts()
        for side in ("below", "above"):
            assert found.get(side, 0) == row[f"n_mean_{side}_all"]
            assert by_distance.loc[(row["model"], row["spaces"]), f"n_mean_{side}_all"] == row[f"n_mean_{side}_all"]
    spreads = picked(MAKERS["figure8"](models), series="observed").set_index(["model", "spaces", "layer"])["spread"]
    for _, row in picked(table["right_tail"], scope="within").iterrows():
        assert spreads[row["model"], row["spaces"], row["layer"]] == row["spread_rho"]


def test_roles_keep_their_colours(axes):
    assert panels.colour("observed") == "000000" or to_rgb(panels.colour("observed")) == (0, 0, 0)
    colours = [to_rgb(panels.colour(role)) for role in panels.ROLES]
    assert len(set(colours)) == len(panels.ROLES)


# Machado, Oliveira and Fernandes (2009): what is left of linear RGB without one kind of cone.
DEFICIENT = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour, vision):
    """CIELAB of a colour as it is seen, from sRGB by the standard's formulas."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)])
    linear = np.clip(np.array(DEFICIENT[vision]) @ linear, 0, 1) if vision else linear
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in to_xyz @ linear / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", [None, *DEFICIENT])
def test_colours_of_one_figure_differ_for_every_kind_of_vision(paper, vision):
    for roles in (panels.ROLES[:4], panels.ROLES[4:8], panels.ROLES[8:11], panels.CLASSES):
        seen = [lab(panels.colour(role), vision) for role in roles]
        for place, one in enumerate(seen):
            assert all(math.dist(one, other) > 15 for other in seen[:place]), roles


def test_figure2_draws_the_curves_of_the_numbers(axes):
    data = MAKERS["figure2"]([tiny_model()])
    panels.survival_curves(data, axes)
    lines = {line.get_label(): line for line in axes.lines}
    observed = picked(data, series="observed")
    assert lines["observed"].get_xdata().tolist() == observed["rho"].tolist()
    assert lines["observed"].get_ydata().tolist() == np.maximum(observed["share"], 1e-9).tolist()
    assert to_rgb(lines["observed"].get_color()) == (0, 0, 0)
    assert lines["isotropic d/D"].get_xdata()[0] == 0.1
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] < 1 / 3
    assert lines["rotation null"].get_color() == panels.colour("rotation")


def test_figure3_counts_and_marks(axes):
    data = tidy(
        "model scope spaces layer later_layer r n_above_all",
        [
            {"model": "m", "scope": "within", "spaces": "O", "layer": k, "r": r, "n_above_all": r > 1}
            for k, r in enumerate([0.5, 2.0, 4.0])
        ]
        + [{"model": "m", "scope": "across", "spaces": "OK", "layer": 0, "later_layer": 1, "r": 1.0, "n_above_all": 0}],
    )
    panels.ratio_columns(data, axes)
    assert [text.get_text() for text in axes.texts] == ["2/3", "0/1"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["O", "O→K"]
    drawn = np.concatenate(
        [
            points.get_offsets()[:, 1]
            for points in axes.collections
            if len(points.get_offsets()) and points.get_offsets().ndim == 2
        ]
    )
    assert {0.5, 1.0, 2.0, 4.0} <= set(drawn.tolist())
    medians = [
        bar.get_segments()[0][0][1] for bar in axes.collections if hasattr(bar, "get_segments") and bar.get_segments()
    ]
    assert medians == [2.0, 1.0]


def test_figure6_draws_a_line_per_kind(axes):
    data = MAKERS["figure6"]([tiny_model()])
    panels.lines_by_layer(picked(data, quantity="mean"), axes)
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["O (write)"].get_ydata().tolist() == pytest.approx([0.28, 0.4])
    assert lines["Q (read)"].get_ydata().tolist() == pytest.approx([0.2, 0.6])
    assert set(lines["random subspaces"].get_ydata()) == {0.1}
    assert lines["O (write)"].get_color() == panels.colour("O")


def test_figure6_of_constant_overlaps_stays_linear(axes):
    data = MAKERS["figure6"]([tiny_model()]).assign(value=0.0)
    panels.lines_by_layer(picked(data, quantity="spread"), axes)
    assert axes.get_yscale() == "linear"


def test_figure7_draws_bands_and_points(axes):
    data = MAKERS["figure7"]([tiny_model()])
    panels.bands_by_layer(data, axes)
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines["observed, median"] == [0.2, 0.4]
    assert lines["observed, p95"] == pytest.approx([0.56, 0.4])
    bars = {bar.get_label(): bar.get_segments() for bar in axes.collections}
    assert np.array(bars["rotation null, p95"][0])[:, 1].tolist() == pytest.approx([0.5025, 0.5475])


def test_figure8_draws_the_largest_samples(axes):
    panels.largest_spreads(MAKERS["figure8"]([tiny_model()]), axes)
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines["reassignment null, largest sample"] == [0.2, 0.0]
    assert lines["observed"] == pytest.approx([WRITE_SPREAD, 0])


def test_figure9_puts_writers_along_rows(axes):
    data = tidy(
        "model spaces writer_layer reader_layer r direction",
        [
            {"model": "m", "spaces": "OQ", "writer_layer": w, "reader_layer": r, "r": ratio, "direction": side}
            for (w, r), ratio, side in zip(PAIRS, (0.5, 2.0, 8.0), ("below", "neither", "above"))
        ],
    )
    panels.ratio_map(data, axes)
    square = axes.collections[0].get_array()
    assert square[0, 1] == 0.5
    assert square[0, 2] == 2.0
    assert square[1, 2] == 8.0
    assert np.ma.masked_invalid(square).mask.sum() == 6
    # Not above the largest sample: grey, outside the scale.
    assert axes.collections[0].to_rgba(0.5)[:3] == to_rgb(panels.colour("random"))
    axes.clear()
    panels.direction_map(data, axes)
    mesh = axes.collections[0]
    seen = [mesh.to_rgba(mesh.get_array()[pair])[:3] for pair in PAIRS]
    assert seen == [to_rgb(panels.colour(side)) for side in ("below", "neither", "above")]


def test_figure4_and_5_count_every_pair(axes):
    model = random_model("m")
    data = picked(MAKERS["figure4"]([model]), spaces="OQ")
    panels.energy_against_rho(data, axes)
    assert axes.collections[0].get_array().sum() == len(data) == 10 * 16
    axes.clear()
    panels.energy_over_rho(data, axes)
    assert sum(bar.get_height() for bar in axes.patches[1:]) == len(data)
    middle = np.median(data["energy_fraction"] / data["rho"])
    assert middle in [line.get_xdata()[0] for line in axes.lines]
    axes.clear()
    linear = picked(MAKERS["figure5"]([model]), quantity="linear")
    panels.linear_term_against_rho(linear, axes)
    assert axes.collections[0].get_array().sum() == len(linear)
    axes.clear()
    spearman = picked(MAKERS["figure5"]([model]), quantity="spearman")
    panels.layer_pair_correlations(spearman, axes)
    points = [points for points in axes.collections if not hasattr(points, "get_segments")]
    assert sum(len(part.get_offsets()) for part in points) == 3 * 10


def test_figure1_keeps_the_plane_s_label_inside_the_plane(paper):
    figure = make_figure("figure1", MAKERS["figure1"]([]))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    plane, *_ = axes.patches
    label = next(text for text in axes.texts if text.get_text().startswith("read space"))
    corners = label.get_window_extent().padded(4).corners()
    assert plane.get_path().transformed(plane.get_transform()).contains_points(corners).all()


def test_figure1_draws_the_right_angle(axes):
    data = MAKERS["figure1"]([])
    schematic.projection(data, axes)
    texts = " ".join(text.get_text() for text in axes.texts)
    for part in (r"$u$", r"P_R", r"\ker W_Q", r"\theta", r"\mathrm{Im}\,W_O"):
        assert part in texts


STUDIES = {
    "one": lambda: [random_model("smollm2-135m-instruct")],
    "many": lambda: [
        random_model("smollm2-135m-instruct"),
        tiny_model("a$b_c & d$"),
        random_model("qwen3-235b-a22b", n_layers=94, n_query_heads=5, kinds="O", stages=("nulls",)),
        random_model("one layer", n_layers=1),
        random_model("observed only", stages=()),
    ],
}


@pytest.fixture(scope="module", params=STUDIES)
def study(request):
    return STUDIES[request.param]()


@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_cut_and_no_titles_meet(paper, study, name):
    figure = make_figure(name, MAKERS[name](study))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    width, height = canvas.get_width_height()
    # Of an axes: title, labels, the ticks that are seen, annotations.
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    for box in boxes:
        assert box.x0 > -1
        assert box.y0 > -1
        assert box.x1 < width + 1
        assert box.y1 < height + 1
    places = [axes.title.get_window_extent(renderer) for axes in figure.axes if axes.title.get_text()]
    assert not any(one.overlaps(other) for place, one in enumerate(places) for other in places[:place])
    legend_boxes = [text.get_window_extent(renderer) for legend in figure.legends for text in legend.get_texts()]
    assert not any(one.overlaps(other) for one in places for other in legend_boxes)


@pytest.fixture(scope="module", params=[*STUDIES, "pk"])
def full_study(request):
    """Of every study, and of a model with all that PK's figures show."""
    return [pk_model()] if request.param == "pk" else STUDIES[request.param]()


@pytest.mark.parametrize("name", MAKERS)
def test_no_text_is_smaller_than_seven_points_in_print(paper, full_study, name):
    """The figures are as wide as the text of an A4 page: nothing is scaled."""
    figure = make_figure(name, MAKERS[name](full_study))
    assert figure.get_figwidth() == 7.0
    FigureCanvasAgg(figure).draw()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert texts
    assert min(text.get_fontsize() for text in texts) >= 7


def drawn_mark(handle):
    """One mark of an entry: of bars, which come together, the first."""
    return handle.patches[0] if isinstance(handle, BarContainer) else handle


def colours_of(handle):
    """Colours that a legend's entry shows, as it is drawn."""
    if isinstance(handle, Line2D):
        found = [handle.get_color() if handle.get_linestyle() != "None" else handle.get_markerfacecolor()]
    else:
        filled = to_rgba_array(handle.get_facecolor())
        found = list(filled if len(filled) else to_rgba_array(handle.get_edgecolor()))
    return [to_rgb(colour) for colour in found]


def shape_of(handle):
    """What tells an entry of the legend from others without its colour: its line, mark, width or filling."""
    if isinstance(handle, Line2D):
        marker = handle.get_marker() if handle.get_marker() != "None" else ""
        return ("line", handle.get_linestyle(), marker, handle.get_linewidth() if not marker else 0)
    return (type(handle).__name__,)


@pytest.mark.parametrize("vision", [None, *DEFICIENT])
@pytest.mark.parametrize("name", MAKERS)
def test_entries_of_a_legend_differ_for_every_kind_of_vision(paper, full_study, name, vision):
    """Entries of one shape, which colour alone tells apart, are far from each other as they are seen."""
    figure = make_figure(name, MAKERS[name](full_study))
    entries = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            entries.setdefault(label, drawn_mark(handle))
    seen = [(label, shape_of(handle), handle.get_alpha(), colours_of(handle)) for label, handle in entries.items()]
    for place, (label, shape, alpha, colours) in enumerate(seen):
        for other_label, other_shape, other_alpha, others in seen[:place]:
            if shape == other_shape and alpha == other_alpha and colours and others:
                assert math.dist(lab(colours[0], vision), lab(others[0], vision)) > 15, (label, other_label)


def test_every_role_of_a_figure_is_among_those_that_are_compared(paper, full_study):
    """A colour that stands for something is one of the style's: the scales of colour apart."""
    known = {to_rgb(panels.colour(role)) for role in panels.ROLES}
    for name in MAKERS:
        for axes in make_figure(name, MAKERS[name](full_study)).axes:
            for handle in axes.get_legend_handles_labels()[0]:
                assert set(colours_of(drawn_mark(handle))) <= known, name


def test_edges_are_told_apart_without_colour_and_by_their_weight(paper):
    data = MAKERS["pk_figure1"]([pk_model()])
    axes = make_figure("pk_figure1", data).axes[0]
    arrows = [one for one in axes.patches if isinstance(one, FancyArrowPatch)]
    lines = {to_rgb(one.get_edgecolor()): one.get_linestyle() for one in arrows}
    assert len(lines) == len(set(lines.values())) == 3
    edges = data[(data["item"] == "edge") & (data["method"] == "pk")].sort_values("rank", ascending=False)
    widths = [one.get_linewidth() for one in arrows]
    assert stats.spearmanr(widths, edges["score"]).statistic == pytest.approx(1)
    assert (min(widths), max(widths)) == pytest.approx(EDGE_POINTS)


@pytest.mark.parametrize("last", [0, 1, 2, 11, 29, 93])
def test_ticks_stand_at_layers_that_exist(axes, last):
    axes.set_xlim(-3, last + 3)
    panels.whole_ticks(axes, "x", last)
    ticks = axes.get_xticks()
    assert ticks[0] == 0
    assert ticks[-1] <= last
    assert all(tick == round(tick) for tick in ticks)


def test_layer_0_is_below_everywhere(paper):
    model = pk_model()
    for name in ("figure9", "pk_figure6", "pk_figure7"):
        for axes in make_figure(name, MAKERS[name]([model])).axes:
            if axes.get_ylabel() in ("layer", "writer's layer"):
                assert not axes.yaxis_inverted()


def test_a_diagonal_has_equal_axes(paper):
    for axes in make_figure("figure4", MAKERS["figure4"]([random_model("m")])).axes:
        if any(line.get_label() == "equal" and len(set(line.get_xdata())) == 2 for line in axes.lines):
            assert axes.get_xlim() == axes.get_ylim()
            assert axes.get_aspect() == 1


def test_three_pairs_are_shown_as_three(paper):
    model = random_model("m", n_query_heads=6, n_kv_heads=3)
    figure = make_figure("figure2", MAKERS["figure2"]([model]))
    few = [axes for axes in figure.axes if "3 pairs a layer" in axes.get_title()]
    assert {axes.get_title()[2] for axes in few} == {"K", "V"}
    for axes in few:
        (points,) = [line for line in axes.lines if line.get_label() == "one observed pair"]
        assert len(points.get_xdata()) == 3
        assert sorted(points.get_ydata()) == pytest.approx([1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("count", range(1, 12))
def test_no_name_stands_alone_in_a_row_of_the_legend(paper, count):
    figure = Figure(figsize=(7, 3))
    axes = figure.add_subplot()
    for number in range(count):
        axes.plot([], [], label=f"a name of many letters {number}")
    _legend(figure, [axes])
    (legend,) = figure.legends
    columns = legend._ncols
    rows = -(-count // columns)
    assert count == 1 or rows == 1 or count - (rows - 1) * columns > 1 or columns == 2


def test_panels_follow_the_models(paper):
    one, many = (study() for study in STUDIES.values())
    counts = {name: [len(make_figure(name, MAKERS[name](models)).axes) for models in (one, many)] for name in MAKERS}
    assert counts["figure1"] == [1, 1]
    assert counts["figure2"] == [4, 4 + 1 + 1 + 4]  # the tiny model has nulls of its writes only
    assert counts["figure3"] == [1, 4]
    assert counts["figure6"] == [2, 2 * 5]
    assert counts["figure7"] == counts["figure8"] == counts["figure2"]
    assert counts["figure9"] == [6, 6 + 6]


def test_models_of_very_different_depth_do_not_share_a_page(tmp_path):
    """Each page has its own legend; the PDF has a page for each, the PNG shows them below each other."""
    depths = {"deep": 30, "small": 2, "large": 94, "tiny": 3}
    models = [random_model(name, n_layers=depth, stages=("nulls",)) for name, depth in depths.items()]
    numbers = MAKERS["figure6"](models)
    pages = pages_of(numbers, models)
    assert [list(page["model"].unique()) for page in pages] == [["deep", "large"], ["small", "tiny"]]
    assert sum(len(page) for page in pages) == len(numbers)
    for number, shown in enumerate((models, models[:1], models[1:2])):
        draw_figure("figure6", shown, STYLE, *(tmp_path / f"{number}.{ending}" for ending in ("pdf", "png", "csv")))
    n_pages = [len(re.findall(rb"/Type /Page\b", (tmp_path / f"{n}.pdf").read_bytes())) for n in range(3)]
    assert n_pages == [2, 1, 1]
    both, deep, small = (imread(tmp_path / f"{n}.png") for n in range(3))
    assert both.shape[1] == deep.shape[1] == small.shape[1] == 1400
    assert both.shape[0] > 1.5 * deep.shape[0]


def test_a_study_without_what_a_figure_shows_says_so(paper):
    for name in ("figure2", "figure4", "figure9"):
        figure = make_figure(name, MAKERS[name]([random_model("m", stages=())]))
        assert [text.get_text() for text in figure.texts] == [NOTHING]
        assert not figure.axes


DRAW = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.tiny_results import random_model
from headspaces.report.figures.drawing import draw_figure
from headspaces.study.items import FIGURES
models = [random_model("smollm2-135m-instruct", n_layers=3)]
for name in FIGURES:
    draw_figure(name, models, {style!r}, *(Path({out!r}) / f"{{name}}.{{ending}}" for ending in ("pdf", "png", "csv")))
assert "matplotlib.pyplot" not in sys.modules and "tkinter" not in sys.modules
"""


def start_drawing(out, **environment):
    out.mkdir()
    code = DRAW.format(tests=str(ROOT / "tests"), style=str(STYLE), out=str(out))
    kept = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND", "MATPLOTLIBRC")}
    kept["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.Popen([sys.executable, "-c", code], env=kept | environment)


def test_files_repeat_byte_for_byte_whatever_the_machine_has(tmp_path):
    """No display; then a dead display, a wish for Tk, other fonts and colours, a HOME that cannot be written."""
    settings = tmp_path / "matplotlibrc"
    settings.write_text("backend: TkAgg\nfont.size: 20\nlines.linewidth: 9\naxes.facecolor: red\npdf.fonttype: 3\n")
    plainly = start_drawing(tmp_path / "plain", PYTHONHASHSEED="0")
    hostilely = start_drawing(
        tmp_path / "hostile", DISPLAY="localhost:64.0", MPLBACKEND="TkAgg", MATPLOTLIBRC=str(settings),
        HOME="/proc/nobody", XDG_CONFIG_HOME="/proc/nobody", XDG_CACHE_HOME="/proc/nobody", PYTHONHASHSEED="7",
        TZ="Asia/Tokyo",
    )  # fmt: skip
    assert [process.wait() for process in (plainly, hostilely)] == [0, 0]
    plain, hostile = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / place).iterdir())}
        for place in ("plain", "hostile")
    )
    assert len(plain) == 3 * len(MAKERS)
    for name, content in plain.items():
        assert hostile[name] == content, name
        if name.endswith(("pdf", "png")):
            assert len(content) > 1000
            assert content.startswith(b"%PDF" if name.endswith("pdf") else b"\x89PNG\r\n\x1a\n")
            assert not any(word in content for word in (b"CreationDate", b"ModDate", b"Software"))


def test_the_csv_holds_the_numbers_that_were_drawn(tmp_path):
    models = [tiny_model()]
    paths = [tmp_path / f"f.{ending}" for ending in ("pdf", "png", "csv")]
    draw_figure("figure8", models, STYLE, *paths)
    read = pd.read_csv(paths[2])
    expected = MAKERS["figure8"](models)
    assert list(read.columns) == list(expected.columns)
    assert read["spread"].tolist() == pytest.approx(expected["spread"].tolist(), rel=1e-11)
    assert read["series"].tolist() == expected["series"].tolist()


def test_drawing_leaves_the_callers_settings_alone(tmp_path):
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.prop_cycle"]
    draw_figure("figure1", [], STYLE, *(tmp_path / f"f.{ending}" for ending in ("pdf", "png", "csv")))
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.prop_cycle"]) == before


def test_only_drawing_modules_know_matplotlib_and_none_pyplot():
    source = Path(headspaces.__file__).parent
    drawing = {source / "library" / "plot.py", *(source / "report" / "figures").glob("*.py")}
    for path in source.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names += [
            f"{node.module}.{a.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names
        ]
        used = [name for name in names if name.startswith("matplotlib")]
        assert not used or path in drawing, path
        assert not any("pyplot" in name or "pylab" in name for name in used), path


def test_the_style_names_a_colour_for_each_role():
    text = STYLE.read_text(encoding="utf-8")
    with style.context(STYLE, after_reset=True):
        assert len(matplotlib.rcParams["axes.prop_cycle"]) == len(panels.ROLES)
        assert matplotlib.rcParams["font.family"] == ["DejaVu Sans"]
    assert "backend" not in textwrap.dedent(text)
