"""PK's tables and figures: rows by hand, what is drawn from the numbers, and PK's numbers on the real GPT-2."""

import csv
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from support.gpt2_affinity import CLASSES, SCORES, gpt2_affinity, gpt2_layers
from support.project import ROOT
from support.tiny_results import PK_NAMES, PK_SHAPE, pk_model

from headspaces.affinity.classes import class_arrays, classes_by_pattern, read_head_classes
from headspaces.affinity.run import affinity
from headspaces.report.figures import layered, pk_panels
from headspaces.report.figures.drawing import MAKERS, NOTHING, draw_figure, make_figure
from headspaces.report.figures.panels import colour
from headspaces.report.figures.pk_panels import SCATTER_BINS
from headspaces.report.pk_results import classes_of, is_gpt2, pk_and_cs
from headspaces.report.results import ModelResults
from headspaces.report.scorecard import scorecard
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.spaces import Shape
from headspaces.study import items as report_items
from headspaces.study.published import compared_as, read_published

ENDS = ("csv", "md", "tex", "json")
STYLE = ROOT / "config" / "paper.mplstyle"
GPT2 = Shape(n_layers=12, d_model=768, n_query_heads=12, n_kv_heads=12, d_head=64)
PUBLISHED = read_published(ROOT / "config" / "published.tsv")
PK_FIGURES = [name for name in report_items.FIGURES if name.startswith("pk_")]
PK = [name for name in report_items.TABLES if name.startswith(("pk_", "cs_")) or name in ("head_classes", "identity")]


@pytest.fixture(scope="module")
def tiny():
    return pk_model()


@pytest.fixture
def bare():
    """A model of which nothing of PK's was computed."""
    return ModelResults("bare", asdict(PK_SHAPE), {})


@pytest.fixture(scope="module")
def gpt2(gpt2_folder, tmp_path_factory):
    arrays = gpt2_affinity(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")
    classes = class_arrays(read_head_classes(CLASSES, GPT2), GPT2)
    return ModelResults("gpt2", asdict(GPT2), {}, affinity=arrays | classes)


def rows(name, *models, **names):
    frame = TABLES[name](models, *[PUBLISHED] * report_items.TABLES[name].published).frame
    for column, value in names.items():
        frame = frame[frame[column] == value]
    return frame


class TestTables:
    def test_columns_of_the_contract(self, tiny):
        columns = {name: list(rows(name, tiny).columns) for name in PK}
        assert columns["pk_table1"][:5] == ["model", "method", "spaces", "pr_auc", "published"]
        assert columns["pk_table2"][:4] == ["model", "method", "pr_auc", "roc_auc"]
        assert columns["pk_kl"] == ["model", "source", "target", "kl", "published"]

    def test_nothing_measured_is_said(self, bare):
        for name in PK:
            table = TABLES[name]([bare])
            assert table.frame.empty, name
            assert any("bare" in note for note in table.notes), name

    def test_written(self, tiny, bare, tmp_path):
        for name in PK:
            write_table(name, TABLES[name]([tiny, bare]), *(tmp_path / f"{name}.{end}" for end in ENDS))
            with (tmp_path / f"{name}.csv").open() as file:
                assert len(list(csv.DictReader(file))) == len(rows(name, tiny, bare))
            assert "t\\_\\$1\\$" in (tmp_path / f"{name}.tex").read_text()

    def test_heads_of_a_circuit(self, tiny):
        found = rows("pk_table1", tiny)
        assert set(found["method"]) == {"pk", "cs", "simple_cs", "cka", "procrustes"}
        assert set(found["spaces"]) == {"OQ", "OK", "OV", "mean"}
        # Another model's published numbers are not its own.
        assert found["published"].isna().all()
        # PK does not depend on the bases inside heads: its invariant form is itself.
        pk = found[found["method"] == "pk"]
        assert pk["pr_auc"].tolist() == pk["pr_auc_invariant"].tolist()
        cka = found[found["method"] == "cka"]
        assert cka["average_precision"].tolist() != cka["average_precision_invariant"].tolist()
        assert "4 of 8 heads are the circuit's (test); chance: 0.500" in TABLES["pk_table1"]([tiny]).notes[0]

    def test_an_invariant_form_that_was_not_computed_is_missing(self, tiny):
        arrays = {name: values for name, values in tiny.affinity.items() if "procrustes_invariant" not in name}
        model = ModelResults("part", asdict(PK_SHAPE), {}, affinity=arrays)
        for name in ("pk_table1", "pk_table2"):
            assert rows(name, model, method="procrustes")["pr_auc_invariant"].isna().all()
            assert rows(name, model, method="procrustes")["pr_auc"].notna().all()

    def test_means(self, tiny):
        (found,) = rows("pk_means", tiny, source="O", target="K").to_dict("records")
        values = tiny.affinity["pk/OK"][0, 1]
        assert found["n_pairs"] == 8
        assert found["mean"] == pytest.approx(values.mean())
        assert found["sd"] == pytest.approx(values.std())
        assert found["reference_mean"] == pytest.approx(2 * 2 / 16)
        assert found["reference_sd"] == pytest.approx((2 * 2**2 * 14**2 / (16**2 * 15 * 18)) ** 0.5)

    def test_cutoffs_compare_the_same_pairs(self, tiny):
        (found,) = rows("pk_cutoffs", tiny, spaces="OV").to_dict("records")
        pk = np.repeat(tiny.affinity["pk/OV"][0, 1], 2, axis=1).ravel()
        cs = tiny.affinity["cs/OV"][0, 1].ravel()
        assert found["n_pairs"] == 16
        assert [found["pk_cutoff"], found["pk_limit"]] == pytest.approx(np.percentile(pk, [97, 99.99]).tolist())
        assert [found["cs_cutoff"], found["cs_limit"]] == pytest.approx(np.percentile(cs, [97, 99.99]).tolist())
        above = np.sum((pk > found["pk_cutoff"]) & (cs > found["cs_cutoff"]))
        assert found["n_above_both"] == above
        assert [values.tolist() for values in pk_and_cs(tiny.affinity, "OV")] == [pk.tolist(), cs.tolist()]

    def test_edges_and_degrees(self, tiny):
        edges = rows("pk_edges", tiny, type="OK")
        assert edges["pk"].tolist() == sorted(tiny.affinity["pk/OK"][0, 1].ravel(), reverse=True)
        degrees = rows("pk_degrees", tiny)
        assert degrees["n_edges"].sum() == 2 * len(rows("pk_edges", tiny)) == 2 * (16 + 8 + 8)
        assert degrees["n_edges"].tolist() == sorted(degrees["n_edges"], reverse=True)
        assert rows("pk_nodes", tiny, method="cs")[["n_in_class", "n_out_of_class"]].values.tolist() == [[5, 3]]

    def test_attention(self, tiny):
        found = rows("identity", tiny)
        assert found[["layer", "head"]].values.tolist()[:2] == [[0, 2], [1, 0]]
        assert found["rank"].tolist() == list(range(1, 9))
        first = found.iloc[0]
        assert first[["identity_score", "previous_token_score", "induction_score"]].tolist() == [0.9, 0, 0]

    def test_classes_by_pattern_where_none_are_named(self, tiny):
        unnamed = ModelResults("u", asdict(PK_SHAPE), {}, affinity={}, attention=tiny.attention)
        assert classes_of(unnamed).names == {
            (0, 0): "Previous Token", (0, 1): "Previous Token", (1, 0): "Induction", (1, 3): "Induction",
            (0, 2): "Identity",
        }  # fmt: skip
        assert classes_of(tiny).names == PK_NAMES
        assert classes_by_pattern(tiny.attention).name == "attention patterns"


class TestFigures:
    @pytest.fixture(autouse=True)
    def paper(self):
        with style.context(STYLE, after_reset=True):
            yield

    @pytest.fixture
    def axes(self):
        return Figure().add_subplot()

    def test_graph_is_drawn_whole(self, tiny, axes):
        data = MAKERS["pk_figure1"]([tiny])
        pk = data[data["method"] == "pk"]
        pk_panels.ring_graph(pk, axes)
        assert sum(isinstance(one, FancyArrowPatch) for one in axes.patches) == (pk["item"] == "edge").sum() == 32
        labels = {text.get_text(): text.xy for text in axes.texts}
        assert len(labels) == (pk["item"] == "node").sum() == 10
        assert {"0.1", "1k0"} <= labels.keys()
        discs = {
            (float(line.get_xdata()[0]), float(line.get_ydata()[0])): line.get_markerfacecolor()
            for line in axes.lines
            if len(line.get_xdata())
        }
        assert to_rgb(discs[labels["0.1"]]) == to_rgb(colour("Previous Token"))
        assert to_rgb(discs[labels["1k0"]]) == to_rgb(colour("neither"))
        # A class without a colour of its own takes a free one.
        assert discs[labels["0.0"]] not in {discs[labels[name]] for name in ("0.1", "1.0", "0.2", "0.3")}
        legend = {line.get_label() for line in axes.lines if not line.get_label().startswith("_")}
        assert legend == {
            "O→Q",
            "O→K",
            "O→V",
            "the wider, the stronger",
            "Previous Token",
            "Induction",
            "Identity",
            "My own",
        }

    def test_two_layers(self, tiny, axes):
        data = MAKERS["pk_figure4"]([tiny])
        assert len(data) == 16 + 8 + 8
        keys = data[data["spaces"] == "OK"]
        pk_panels.two_layers(keys, axes)
        widths = [line.get_linewidth() for line in axes.lines[: len(keys)]]
        assert np.argmax(widths) == keys["pk"].to_numpy().argmax()
        assert axes.lines[int(np.argmax(widths))].get_xdata()[0] == keys.loc[keys["pk"].idxmax(), "source_head"]
        assert data["isotropic"].iloc[0] == pytest.approx(0.25)
        deep = ModelResults("deep", asdict(PK_SHAPE) | {"n_layers": 3}, {}, affinity=tiny.affinity)
        assert MAKERS["pk_figure4"]([deep]).empty

    def test_scatter_counts_every_pair_within_the_limits(self, tiny, axes):
        data = MAKERS["pk_figure5"]([tiny])
        queries = data[data["spaces"] == "OQ"]
        pk, cs = pk_and_cs(tiny.affinity, "OQ")
        first = queries.iloc[0]
        inside = (pk <= first["pk_limit"]) & (cs <= first["cs_limit"])
        assert queries["n_pairs_in_bin"].sum() == inside.sum()
        pk_panels.pk_against_cs(queries, axes)
        # So few pairs are drawn in wider cells.
        cells = SCATTER_BINS // pk_panels.COARSER
        drawn = np.nan_to_num(np.ma.filled(axes.collections[0].get_array().reshape(cells, cells), np.nan))
        assert drawn.sum() == inside.sum()
        at = np.argwhere(drawn > 0)
        width = np.array([first["pk_limit"], first["cs_limit"]]) / cells
        pairs = np.stack([pk, cs], axis=1)[inside]
        for low in at * width:
            assert np.any((pairs >= low - 1e-9) & (pairs <= low + width + 1e-9), axis=0).all()
        assert axes.get_xlim() == (0, first["cs_limit"])

    @pytest.mark.parametrize("cutoff", [0.2, 0.5, 0.97])
    def test_cutoffs_of_the_scatter_do_not_meet(self, tiny, cutoff):
        numbers = MAKERS["pk_figure5"]([tiny])
        for score in ("pk", "cs"):
            numbers[f"{score}_cutoff"] = cutoff * numbers[f"{score}_limit"]
        figure = make_figure("pk_figure5", numbers)
        figure.draw_without_rendering()
        drawn = [axes for axes in figure.axes if axes.texts]
        assert len(drawn) == 3
        for axes in drawn:
            one, other = (text.get_window_extent() for text in axes.texts)
            assert not one.overlaps(other)
            for box in (one, other):
                assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1
                assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1

    @pytest.mark.parametrize("name", PK_FIGURES)
    def test_nothing_is_cut(self, name, tiny):
        figure = make_figure(name, MAKERS[name]([tiny]))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = canvas.get_width_height()
        boxes = [axes.get_tightbbox(canvas.get_renderer()) for axes in figure.axes]
        boxes += [legend.get_window_extent() for legend in figure.legends]
        assert min(min(box.x0, box.y0) for box in boxes) > -1
        assert max(box.x1 for box in boxes) < width + 1
        assert max(box.y1 for box in boxes) < height + 1

    def test_layers_go_up_with_tokens_as_they_are(self, tiny, axes, monkeypatch):
        arrows = []
        monkeypatch.setattr(
            layered, "draw_edge", lambda _, points, kind, __: arrows.append((points[0], points[-1], kind))
        )
        data = MAKERS["pk_figure6"]([tiny])
        layered.layered_graph(data, axes)
        texts = [text.get_text() for text in axes.texts]
        assert texts.count("one $x$ _ ·") == 8
        boxes = [one for one in axes.patches if isinstance(one, Rectangle)]
        assert len(boxes) == 10
        tops = {(one.get_x() + one.get_width() / 2, one.get_y() + one.get_height()) for one in boxes}
        assert len(arrows) == 32
        for start, stop, kind in arrows:
            assert any(start == pytest.approx(top) for top in tops)
            assert start[1] < stop[1]
            # The port stands left, in the middle or right of a box at whose lower edge the arrow ends.
            box = min(
                boxes, key=lambda one: abs(one.get_x() + one.get_width() / 2 - stop[0]) + abs(one.get_y() - stop[1])
            )
            side = np.sign(round(stop[0] - box.get_x() - box.get_width() / 2, 9))
            assert side == {"OQ": -1, "OK": 0, "OV": 1}[kind]

    def test_ports_are_those_that_a_head_has(self, tiny, axes):
        data = MAKERS["pk_figure6"]([tiny])
        layered.layered_graph(data, axes)
        boxes = [one for one in axes.patches if isinstance(one, Rectangle)]
        letters = [text for text in axes.texts if text.get_text() in list("OQKV")]
        ports = [
            {
                text.get_text()
                for text in letters
                if box.get_x() < text.xy[0] < box.get_x() + box.get_width()
                and abs(text.xy[1] - box.get_y() - box.get_height() / 2) < 0.5
            }
            for box in boxes
        ]
        shared = (data["kind"] == "key-value").sum()
        assert ports.count({"K", "V"}) == shared > 0
        assert ports.count({"Q", "O"}) == len(boxes) - shared

    def test_edges_go_around_the_boxes_between(self, axes):
        places = [(0.5, 0.0), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (0.5, 2.0)]
        streets = layered.Streets.between(places, width=0.1, height=0.4)
        start, stop = (0.5, 0.2), (0.5, 1.8)
        routes = [streets.route(start, stop) for _ in range(3)]
        for points in routes:
            layered.draw_edge(axes, points, "OQ")
        for points, patch in zip(routes, axes.patches, strict=True):
            assert (points[0], points[-1]) == (start, stop)
            (curve,) = patch._path_original.to_polygons(closed_only=False)
            assert np.all(np.diff(curve[:, 1]) >= 0)
            beside = curve[abs(curve[:, 1] - 1) <= 0.2]
            assert len(beside)
            assert np.abs(beside[:, 0] - 0.5).min() > 0.05
        # They keep apart.
        assert len({points[1] for points in routes}) == 3

    def test_a_free_way_is_straight(self):
        streets = layered.Streets.between([(0.1, 0.0), (0.1, 1.0), (0.9, 2.0)], width=0.1, height=0.4)
        for x, y in streets.route((0.1, 0.2), (0.9, 1.8))[1:-1]:
            assert x == pytest.approx(0.1 + 0.8 * (y - 0.2) / 1.6)

    def test_attention_maps(self, tiny, axes):
        data = MAKERS["pk_figure7"]([tiny])
        pk_panels.attention_map(data[data["quantity"] == "induction"], axes)
        np.testing.assert_array_equal(axes.collections[0].get_array().reshape(2, 4), tiny.attention["induction"])

    def test_divergences(self, axes):
        values = np.arange(16.0).reshape(4, 4)
        values[1, 2], values[3, 3] = np.inf, np.nan
        source, target = np.indices((4, 4))
        kinds = np.array(list("QKVO"))
        columns = {"source": kinds[source.ravel()], "target": kinds[target.ravel()], "value": values.ravel()}
        data = pd.DataFrame(columns)
        pk_panels.divergence_map(data.sample(frac=1, random_state=0), axes)
        texts = {text.xy: text.get_text() for text in axes.texts}
        assert texts[1, 0] == "1.000"  # source Q, target K
        assert texts[2, 1] == "∞"
        assert texts[3, 3] == ""
        assert axes.images[0].get_array().mask.sum() == 2  # an infinite number has no colour
        assert [line.get_label() for line in axes.lines] == ["no pair in a bin where random subspaces have ten or more"]

    def test_histograms_are_shares(self, tiny, axes):
        data = MAKERS["pk_figure8"]([tiny])
        for (source, target), part in data[data["item"] == "histogram"].groupby(["source", "target"]):
            assert part["value"].sum() == pytest.approx(1)
            # The normal approximation reaches below 0 for spaces of dimension 2.
            assert part["random"].sum() == pytest.approx(1, abs=0.1)
            inside = (tiny.affinity[f"pk/{source}{target}"][0, 1] < part["low"].iloc[0]).sum()
            assert inside == 0
        assert (data["item"] == "kl").sum() == 16
        pk_panels.pk_histogram(part, axes)
        assert len(axes.patches) == 2 * len(part)

    @pytest.mark.parametrize("name", PK_FIGURES)
    def test_files_repeat(self, name, tiny, tmp_path):
        for run in "ab":
            draw_figure(name, [tiny], STYLE, *(tmp_path / f"{run}.{end}" for end in ("pdf", "png", "csv")))
        for end in ("pdf", "png", "csv"):
            assert (tmp_path / f"a.{end}").read_bytes() == (tmp_path / f"b.{end}").read_bytes()
        assert (tmp_path / "a.png").stat().st_size > 1000

    @pytest.mark.parametrize("name", PK_FIGURES)
    def test_nothing_to_show(self, name, bare):
        text = make_figure(name, MAKERS[name]([bare])).texts[0].get_text()
        assert text == NOTHING + (": two layers" if name == "pk_figure4" else "")


class TestGPT2:
    def test_titles_of_figure_1(self, gpt2):
        numbers = MAKERS["pk_figure1"]([gpt2]).drop_duplicates("method").set_index("method")
        assert numbers.loc["pk", ["n_in_class", "n_out_of_class"]].tolist() == [24, 28]
        assert numbers.loc["cs", ["n_in_class", "n_out_of_class"]].tolist() == [16, 30]

    def test_published_numbers_stand_beside(self, gpt2):
        table = rows("pk_table1", gpt2)
        assert (table["pr_auc"] - table["published"]).abs().max() < 0.001
        assert len(table) == 20
        kl = rows("pk_kl", gpt2)
        assert (kl["kl"] - kl["published"]).abs().max() < 0.002
        pairs = rows("pk_table2", gpt2).set_index("method")
        assert (pairs["pr_auc"] - pairs["published_pr_auc"]).abs().max() < 0.001
        assert (pairs["roc_auc"] - pairs["published_roc_auc"]).abs().max() < 0.001
        assert pairs["published_pr_auc"].notna().sum() == 2

    def test_published_numbers_are_those_of_the_list(self, gpt2):
        """The columns of the tables hold what the list of published numbers says, and follow it."""
        with (ROOT / "config" / "published.tsv").open(encoding="utf-8") as file:
            known = {row["quantity"]: float(row["low"]) for row in csv.DictReader(file, delimiter="\t") if row["low"]}
        for row in rows("pk_table1", gpt2).to_dict("records"):
            address = f"pk_table1:pr_auc?model=gpt2&method={row['method']}&spaces={row['spaces']}"
            assert known[address] == row["published"]
        for row in rows("pk_kl", gpt2).to_dict("records"):
            assert known[f"pk_kl:kl?model=gpt2&source={row['source']}&target={row['target']}"] == row["published"]
        for row in rows("pk_table2", gpt2).to_dict("records"):
            for area in ("pr_auc", "roc_auc"):
                listed = known.get(f"pk_table2:{area}?model=gpt2&method={row['method']}", np.nan)
                assert row[f"published_{area}"] == pytest.approx(listed, nan_ok=True)
        changed = [replace(row, low="0.5") for row in PUBLISHED]
        assert set(TABLES["pk_kl"]([gpt2], changed).frame["published"]) == {0.5}
        assert TABLES["pk_kl"]([gpt2]).frame["published"].isna().all()

    def test_under_another_name_every_published_number_matches(self, gpt2):
        own = replace(gpt2, name="own")
        tables = {name: TABLES[name]([own]).frame for name in PK}
        published = [row for row in PUBLISHED if row.paper == "PK"]
        assert set(scorecard(published, tables)["verdict"]) == {"not run"}
        card = scorecard(compared_as(published, {"own": "gpt2"}), tables)
        assert card["verdict"].value_counts().to_dict() == {"matches": 194, "not run": 19}
        # What is left is what the heads attend to, which these weights alone do not say.
        assert card.loc[card["verdict"] == "not run", "id"].str.startswith("pk-f7-").all()

    def test_every_row_that_these_weights_answer_can_fail(self, gpt2, gpt2_folder, tmp_path_factory):
        """Weights in noise of ten times their size fail each number of them; its shape and classes fail the others."""
        rng = np.random.default_rng(0)
        layers = [
            replace(
                layer, factors={kind: w + 10 * w.std() * rng.normal(size=w.shape) for kind, w in layer.factors.items()}
            )
            for layer in gpt2_layers(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")
        ]
        noisy = affinity([lambda: layers], scores=SCORES, same_kind=True)
        own = {name: gpt2.affinity[name] for name in gpt2.affinity if name.startswith("head_classes")}
        # An edge may be among the 20 strongest by accident, but not once more after the heads have other numbers.
        renumbered = {name: np.roll(array, 1, axis=-1) if array.ndim > 2 else array for name, array in noisy.items()}
        found = [self.verdicts(replace(gpt2, affinity=arrays | own)) for arrays in (noisy, renumbered)]
        kept = [name for name in found[0] if all(verdicts[name] == "matches" for verdicts in found)]
        of_shape = ["pk-n_pairs", "pk-reference-mean", "pk-reference-sd", "pk-t8-n_heads"]
        assert sorted(kept) == of_shape
        wider, fewer = gpt2.attributes | {"d_model": 800}, dict(gpt2.affinity)
        fewer["head_classes/counts"] = fewer["head_classes/counts"] * (np.arange(12)[:, None] < 9)
        fewer["pk/OQ"] = np.where(np.arange(12)[:, None, None] < 11, fewer["pk/OQ"], np.nan)
        verdicts = self.verdicts(replace(gpt2, attributes=wider, affinity=fewer))
        assert {verdicts[name] for name in of_shape} == {"differs"}

    @staticmethod
    def verdicts(model):
        tables = {name: TABLES[name]([model]).frame for name in PK}
        card = scorecard([row for row in PUBLISHED if row.paper == "PK"], tables)
        return dict(zip(card["id"], card["verdict"]))

    def test_published_numbers_stand_beside_gpt2_alone(self, gpt2):
        """Another model of its shape is not GPT-2 small."""
        other = replace(gpt2, affinity={**gpt2.affinity, "pk/QQ": gpt2.affinity["pk/QQ"] * 0.7})
        assert is_gpt2(gpt2)
        assert not is_gpt2(other)
        assert TABLES["pk_kl"]([other], PUBLISHED).frame["published"].isna().all()

    def test_hub(self, gpt2):
        hub = rows("pk_degrees", gpt2).iloc[0]
        assert hub[["layer", "head", "head_class", "n_edges", "rank"]].tolist() == [4, 7, "Identity", 19, 1]
        assert rows("head_classes", gpt2)[["set", "n_heads", "n_labelled"]].values.tolist() == [["gpt2-ioi", 36, 38]]
