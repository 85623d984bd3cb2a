import numpy as np
import pytest
from support.gpt2_affinity import CLASSES, gpt2_affinity

from headspaces.affinity.classes import class_arrays, read_head_classes, stored_head_classes
from headspaces.affinity.evaluation import evaluate_heads, evaluate_pairs, head_scores, unanchored_pr_area
from headspaces.errors import InputError
from headspaces.spaces import Shape
from headspaces.store import read_arrays, write_arrays

SHAPE = Shape(n_layers=12, d_model=768, n_query_heads=12, n_kv_heads=12, d_head=64)
HEADER = "class\tlayer\thead\tevaluated\torigin\n"


class TestFiles:
    def test_the_inferred_set(self):
        classes = read_head_classes(CLASSES, SHAPE)
        assert classes.name == "gpt2-ioi"
        assert len(classes.names) == 38
        assert len(classes.evaluated) == 36
        assert {head for head, name in classes.names.items() if name == "Identity"} == {(1, 11), (4, 7)}
        assert not classes.evaluated & {(1, 11), (4, 7)}
        sizes = {name: list(classes.names.values()).count(name) for name in classes.order}
        assert sizes == {
            "Duplicate Token": 3, "Previous Token": 10, "Induction": 6, "S-Inhibition": 4, "Name Mover": 3,
            "Negative Name Mover": 2, "Backup Name Mover": 8, "Identity": 2,
        }  # fmt: skip

    def test_the_set_of_wang(self):
        inferred = read_head_classes(CLASSES, SHAPE)
        wang = read_head_classes(CLASSES.with_name("gpt2-ioi-wang.tsv"), SHAPE)
        assert len(wang.evaluated) == len(wang.names) == 26
        # Heads of both sets have one class; PK's figure 1 shows these as grey.
        assert all(inferred.names.get(head, name) == name for head, name in wang.names.items())
        assert wang.names.keys() - inferred.names.keys() == {(0, 10), (5, 8), (5, 9), (9, 0)}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("class\tlayer\n", r"columns are \['class', 'layer'\], expected"),
            (HEADER, "no head is named"),
            (HEADER + "A\t1\t2\tyes\tx\nB\t1\t2\tyes\tx\n", r"row 2: head 1\.2 has two classes, 'A' and 'B'"),
            (HEADER + "A\t12\t0\tyes\tx\n", r"12 layers of 12 heads, no head 12\.0"),
            (HEADER + "A\t1\t-1\tyes\tx\n", "row 1: head is '-1', expected a whole number"),
            (HEADER + "A\t1\t1\tmaybe\tx\n", "evaluated yes or no, found 'A', 'maybe'"),
            (HEADER + "A\t1\n", "head is '', expected a whole number"),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path, text, message):
        path = tmp_path / "classes.tsv"
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_head_classes(path, SHAPE)

    def test_a_missing_file_is_named(self, tmp_path):
        with pytest.raises(InputError, match=r"none\.tsv: cannot read"):
            read_head_classes(tmp_path / "none.tsv")

    def test_stored_in_the_affinity_file(self, tmp_path):
        classes = read_head_classes(CLASSES, SHAPE)
        write_arrays(tmp_path / "a.h5", "affinity", class_arrays(classes, SHAPE), {})
        assert stored_head_classes(read_arrays(tmp_path / "a.h5", "affinity")) == classes
        assert stored_head_classes({}) is None


class TestHeads:
    def test_a_head_has_the_largest_score_of_its_pairs(self):
        pairs = np.full((3, 3, 4, 2), np.nan)
        pairs[0, 1] = [[1, 2], [3, 0], [0, 0], [0, 0.5]]
        pairs[1, 2] = [[9, 0], [0, 4], [0, 0], [0, 0]]
        pairs[0, 2] = 0
        # Query heads 0, 1 read key-value head 0; 2, 3 read 1.
        assert head_scores(pairs, 4).tolist() == [[2, 3, 0, 0.5], [9, 4, 2, 2], [9, 9, 4, 4]]

    def test_area_without_the_anchor(self):
        # Thresholds 3, 2, 1, 0: (recall, precision) = (0, 0), (1/2, 1/2), (1/2, 1/3), (1, 1/2).
        labels, scores = np.array([False, True, False, True]), np.array([3.0, 2, 1, 0])
        assert unanchored_pr_area(labels, scores) == pytest.approx(0.5 * 0.25 + 0.5 * (1 / 3 + 1 / 2) / 2)

    def test_ties_and_perfect_scores(self):
        labels = np.array([True, False, False, False])
        assert unanchored_pr_area(labels, np.ones(4)) == 0.25
        # One positive, found first: recall is 1 at every threshold, and no area lies below.
        assert unanchored_pr_area(np.array([True, True, False]), np.array([3.0, 2, 1])) == pytest.approx(0.5)

    def test_only_scores_that_are_there(self):
        pairs = np.full((2, 2, 2, 2), np.nan)
        pairs[0, 1] = [[0.9, 0.1], [0.2, 0.3]]
        labels = np.array([[True, False], [True, False]])
        found = evaluate_heads({"pk/OQ": pairs, "pk/OK": 1 - pairs}, labels)
        assert found[["method", "spaces"]].values.tolist() == [["pk", "OQ"], ["pk", "OK"], ["pk", "mean"]]
        assert found["average_precision"][0] == 1
        assert found["pr_auc"][2] == pytest.approx((found["pr_auc"][0] + found["pr_auc"][1]) / 2)


def test_pairs_of_a_class():
    """Heads 0.0, 0.1 and 1.0 of a class: three positive pairs of six, two of them the strongest, one the weakest."""
    pairs = np.full((2, 2, 2, 2), np.nan)
    pairs[0, 0] = [[9, 5], [5, 9]]
    pairs[1, 1] = [[9, 3], [3, 9]]
    pairs[0, 1] = [[4, 1], [0, 2]]
    found = evaluate_pairs({"same_kind/pk/QQ": pairs}, np.array([[0, 0], [0, -1]]))
    assert found[["method", "spaces", "head_class"]].values.tolist() == [["pk", "QQ", 0]]
    # Of nine (positive, negative) comparisons six are won: 5 and 4 against 3, 2, 1; 0 loses all.
    assert found["roc_auc"][0] == pytest.approx(6 / 9)
    assert found["average_precision"][0] == pytest.approx((1 + 1 + 3 / 6) / 3)


class TestGPT2:
    @pytest.fixture
    def arrays(self, gpt2_folder, tmp_path_factory):
        return gpt2_affinity(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")

    @pytest.fixture
    def classes(self):
        return class_arrays(read_head_classes(CLASSES, SHAPE), SHAPE)

    def test_table_1(self, arrays, classes):
        published = {
            "pk": (0.446, 0.451, 0.289), "cs": (0.227, 0.352, 0.215), "simple_cs": (0.245, 0.359, 0.305),
            "cka": (0.337, 0.323, 0.409), "procrustes": (0.328, 0.269, 0.428),
        }  # fmt: skip
        labels = classes["head_classes/counts"].astype(bool)
        table = evaluate_heads(arrays, labels).pivot(index="method", columns="spaces", values="pr_auc")
        for method, values in published.items():
            assert table.loc[method, ["OQ", "OK", "OV"]].tolist() == pytest.approx(values, abs=0.001)
        order = {spaces: sorted(published, key=table[spaces].get) for spaces in ("OQ", "OK", "OV")}
        assert order == {
            spaces: sorted(published, key=lambda name: published[name][place])
            for place, spaces in enumerate(("OQ", "OK", "OV"))
        }
        assert table.loc["cka_invariant", ["OQ", "OK", "OV"]].tolist() == pytest.approx(
            [0.319, 0.448, 0.313], abs=0.001
        )

    def test_table_2(self, arrays, classes):
        numbers = np.where(classes["head_classes/counts"] > 0, classes["head_classes/class"], -1)
        table = evaluate_pairs(arrays, numbers)
        assert (table.groupby("method").size() == 28).all()
        means = table.groupby("method")[["pr_auc", "roc_auc"]].mean()
        assert means.loc["pk"].tolist() == pytest.approx([0.047, 0.809], abs=0.001)
        assert means.loc["procrustes"].tolist() == pytest.approx([0.038, 0.787], abs=0.001)
        assert means.loc["simple_cs"].tolist() == pytest.approx([0.0158, 0.792], abs=0.001)
        assert means.loc["cka"].tolist() == pytest.approx([0.0215, 0.715], abs=0.001)

    def test_shuffled_labels_give_chance(self, arrays, classes, rng):
        labels = classes["head_classes/counts"].astype(bool)
        numbers = np.where(labels, classes["head_classes/class"], -1)
        pk = {name: values for name, values in arrays.items() if "pk/" in name}
        shuffled = [rng.permutation(144) for _ in range(30)]
        areas = [evaluate_heads(pk, labels.ravel()[one].reshape(12, 12))["pr_auc"].iloc[-1] for one in shuffled]
        # Chance is the share of the circuit's heads.
        assert np.mean(areas) == pytest.approx(0.25, abs=0.02)
        cells = [evaluate_pairs(pk, numbers.ravel()[one].reshape(12, 12)) for one in shuffled[:10]]
        assert np.mean([cell["roc_auc"].mean() for cell in cells]) == pytest.approx(0.5, abs=0.05)
