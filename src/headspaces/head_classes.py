"""Known classes of heads, and how well a score finds them (PK, tables 1 and 2)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from headspaces.errors import InputError
from headspaces.heads import kv_heads_of
from headspaces.models import Shape

COLUMNS = ("class", "layer", "head", "evaluated", "origin")
SPACES = ("OQ", "OK", "OV")
HEAD_METHODS = ("pk", "cs", "simple_cs", "cka", "procrustes", "cka_invariant", "procrustes_invariant")
"""Scores whose heads are evaluated (PK table 1), and the invariant forms of two of them."""

PATTERNS = {"previous_token": "Previous Token", "induction": "Induction", "identity": "Identity"}
"""Attention patterns and the class of a head that has one."""

PATTERN_SCORE = 0.4
"""Mean attention from which a head belongs to a pattern's class."""

PAIR_METHODS = ("pk", "simple_cs", "cka", "procrustes", "cka_invariant", "procrustes_invariant")
"""Scores whose pairs are evaluated (PK table 2); CS has none between maps of one kind."""


@dataclass(frozen=True)
class HeadClasses:
    """A set of head classes.

    Attributes
    ----------
    name
        Of the set: its file's name.
    names
        Class of each head in one, by (layer, query head), in the file's order.
    evaluated
        The heads that count as the circuit's in PK's tables.
    """

    name: str
    names: Mapping[tuple[int, int], str]
    evaluated: frozenset[tuple[int, int]]

    @property
    def order(self) -> list[str]:
        """The classes in the file's order."""
        return list(dict.fromkeys(self.names.values()))


def read_head_classes(path: str | Path, shape: Shape | None = None) -> HeadClasses:
    """Read a set of head classes: a table with tabs, one head a row, lines with ``#`` are comments.

    Parameters
    ----------
    path
        File with the columns ``class``, ``layer``, ``head``, ``evaluated`` (yes or no), ``origin`` (where the label is
        from).
    shape
        Of the model, against which layers and heads are checked.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing or unknown, a value is wrong, or a head occurs twice.
    """
    path = Path(path)
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the head classes ({error})") from error
    reader = csv.DictReader(lines, delimiter="\t", restval="")
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise InputError(f"{path}: the columns are {list(reader.fieldnames or ())}, expected {list(COLUMNS)}")
    names: dict[tuple[int, int], str] = {}
    evaluated = set()
    for number, row in enumerate(reader, start=1):
        where = f"{path}, row {number}"
        head = _number(row["layer"], "layer", where), _number(row["head"], "head", where)
        if shape and (head[0] >= shape.n_layers or head[1] >= shape.n_query_heads):
            raise InputError(
                f"{where}: the model has {shape.n_layers} layers of {shape.n_query_heads} heads, no head "
                f"{head[0]}.{head[1]}; are these another model's classes?"
            )
        if head in names:
            raise InputError(f"{where}: head {head[0]}.{head[1]} has two classes, {names[head]!r} and {row['class']!r}")
        if not row["class"] or row["evaluated"] not in ("yes", "no"):
            raise InputError(
                f"{where}: expected a class and evaluated yes or no, found {row['class']!r}, {row['evaluated']!r}"
            )
        names[head] = row["class"]
        if row["evaluated"] == "yes":
            evaluated.add(head)
    if not names:
        raise InputError(f"{path}: no head is named")
    return HeadClasses(path.stem, names, frozenset(evaluated))


def _number(text: str, what: str, where: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{where}: {what} is {text!r}, expected a whole number from 0")
    return int(text)


def class_arrays(classes: HeadClasses, shape: Shape) -> dict[str, np.ndarray]:
    """Arrays of a set of classes for the affinity file.

    Returns
    -------
    dict
        ====================  ===========  =================================================
        name                  dimensions   meaning
        ====================  ===========  =================================================
        head_classes/set                   the set's name, UTF-8
        head_classes/order    class        the classes in their order, UTF-8
        head_classes/class    layer head   index into the order; -1 for a head of no class
        head_classes/counts   layer head   whether PK's tables count the head as the circuit's
        ====================  ===========  =================================================
    """
    index = np.full((shape.n_layers, shape.n_query_heads), -1)
    counts = np.zeros(index.shape, dtype=np.int64)
    for head, name in classes.names.items():
        index[head] = classes.order.index(name)
        counts[head] = head in classes.evaluated
    return {
        "head_classes/set": np.array(classes.name.encode()),
        "head_classes/order": np.array([name.encode() for name in classes.order]),
        "head_classes/class": index,
        "head_classes/counts": counts,
    }


def stored_head_classes(arrays: Mapping[str, np.ndarray]) -> HeadClasses | None:
    """Classes of :func:`class_arrays` from an affinity file; None where the model has none."""
    if "head_classes/set" not in arrays:
        return None
    order = [name.decode() for name in arrays["head_classes/order"].tolist()]
    index, counts = arrays["head_classes/class"], arrays["head_classes/counts"]
    places = [(int(layer), int(head)) for layer, head in np.argwhere(index >= 0)]
    heads = sorted(places, key=lambda head: (index[head], head))
    names = {head: order[index[head]] for head in heads}
    return HeadClasses(
        arrays["head_classes/set"].item().decode(), names, frozenset(head for head in heads if counts[head])
    )


def classes_by_pattern(scores: Mapping[str, Float[np.ndarray, "_layer _head"]]) -> HeadClasses:
    """Class heads by what they attend to: the pattern with the largest score of at least :data:`PATTERN_SCORE`.

    Parameters
    ----------
    scores
        Arrays of :func:`headspaces.attention_patterns.attention_patterns`.
    """
    stacked = np.stack([scores[name] for name in PATTERNS])
    largest = stacked.argmax(axis=0)
    places = [(int(layer), int(head)) for layer, head in np.argwhere(stacked.max(axis=0) >= PATTERN_SCORE)]
    titles = list(PATTERNS.values())
    names = {head: titles[largest[head]] for head in sorted(places, key=lambda head: (largest[head], head))}
    return HeadClasses("attention patterns", names, frozenset())


def head_scores(
    pairs: Float[np.ndarray, "source_layer target_layer source_head target_head"], n_query_heads: int
) -> Float[np.ndarray, "layer head"]:
    """Largest score of each head's pairs, as source or as target.

    A head's threshold of joining the graph of the strongest pairs. A key-value head's pairs count for each of its query
    heads; a head without any has -1, below all scores.
    """
    scores = np.where(np.isnan(pairs), -1.0, pairs)
    as_target = scores.max(axis=(0, 2))
    own = kv_heads_of(n_query_heads, as_target.shape[1])
    largest: np.ndarray = np.maximum(scores.max(axis=(1, 3)), as_target[:, own])
    return largest


def unanchored_pr_area(labels: Bool[np.ndarray, " item"], scores: Float[np.ndarray, " item"]) -> float:
    """Area under the (recall, precision) points of every distinct threshold, by trapezoids (PK table 1).

    Without the point (0, 1) that scikit-learn adds to the curve.
    """
    # A second to import: only the jobs that evaluate wait for it, here and below.
    from sklearn.metrics import auc, precision_recall_curve

    precision, recall, _ = precision_recall_curve(labels, scores)
    return float(auc(recall[:-1], precision[:-1])) if len(recall) > 2 else float(precision[0] * recall[0])


def evaluate_heads(arrays: Mapping[str, np.ndarray], labels: Bool[np.ndarray, "layer head"]) -> pd.DataFrame:
    """How well the largest score of a head tells the circuit's heads from the others (PK table 1).

    Parameters
    ----------
    arrays
        What :func:`headspaces.affinity.affinity` returned.
    labels
        Whether each head is one of the circuit's.

    Returns
    -------
    data frame
        ``method``, ``spaces`` (OQ, OK, OV, ``mean``), ``pr_auc`` (unanchored), ``average_precision``. Chance is the
        share of the circuit's heads among all.
    """
    from sklearn.metrics import average_precision_score

    rows = []
    for method in HEAD_METHODS:
        own = []
        for spaces in SPACES:
            if f"{method}/{spaces}" not in arrays:
                continue
            scores = head_scores(arrays[f"{method}/{spaces}"], labels.shape[1]).ravel()
            areas = unanchored_pr_area(labels.ravel(), scores), average_precision_score(labels.ravel(), scores)
            own.append((method, spaces, *areas))
        if own:
            rows += [*own, (method, "mean", *np.mean([row[2:] for row in own], axis=0))]
    return pd.DataFrame(rows, columns=["method", "spaces", "pr_auc", "average_precision"])


def evaluate_pairs(arrays: Mapping[str, np.ndarray], classes: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """How well a score tells the pairs inside one class from all others (PK table 2).

    For each kind Q, K, V, O and each class: all unordered pairs of heads, positive where both are of the class.

    Parameters
    ----------
    arrays
        What :func:`headspaces.affinity.affinity` returned, with ``same_kind``.
    classes
        Number of each head's class; -1 for none. Classes with one head have no pair and are left out.

    Returns
    -------
    data frame
        ``method``, ``spaces`` (QQ, KK, VV, OO), ``head_class`` (its number), ``pr_auc`` (anchored, as scikit-learn's
        curve is), ``roc_auc``, ``average_precision``. PK reports means over all rows of a method.
    """
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score

    rows = []
    for method in PAIR_METHODS:
        for kind in "QKVO":
            if f"same_kind/{method}/{kind}{kind}" not in arrays:
                continue
            scores, one, other = _unordered_pairs(arrays[f"same_kind/{method}/{kind}{kind}"], classes)
            for number in np.unique(classes[classes >= 0]):
                labels = (one == number) & (other == number)
                if not labels.any():
                    continue
                precision, recall, _ = precision_recall_curve(labels, scores)
                areas = auc(recall, precision), roc_auc_score(labels, scores), average_precision_score(labels, scores)
                rows.append((method, 2 * kind, int(number), *areas))
    columns = ["method", "spaces", "head_class", "pr_auc", "roc_auc", "average_precision"]
    return pd.DataFrame(rows, columns=columns)


def _unordered_pairs(
    pairs: Float[np.ndarray, "layer layer head head"], classes: Shaped[np.ndarray, "layer _query_head"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of all unordered pairs of heads, and the classes of both.

    A key-value head has a class where all its query heads share it.
    """
    n_layers, n_heads = pairs.shape[1:3]
    grouped = classes.reshape(n_layers, n_heads, -1)
    own = np.where((grouped == grouped[:, :, :1]).all(axis=2), grouped[:, :, 0], -1).ravel()
    one, other = np.triu_indices(n_layers * n_heads, k=1)
    table = np.where(np.isnan(pairs), -1.0, pairs).transpose(0, 2, 1, 3).reshape(n_layers * n_heads, -1)
    return table[one, other], own[one], own[other]
