"""Precision-recall evaluation of scores against known head classes (PK tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from headspaces.geometry.heads import kv_heads_of
from headspaces.spaces import ACROSS

HEAD_METHODS = ("pk", "cs", "simple_cs", "cka", "procrustes", "cka_invariant", "procrustes_invariant")
"""Scores whose heads are evaluated (PK table 1), and the invariant forms of two of them."""

PAIR_METHODS = ("pk", "simple_cs", "cka", "procrustes", "cka_invariant", "procrustes_invariant")
"""Scores whose pairs are evaluated (PK table 2); CS has none between maps of one kind."""


def head_scores(
    pairs: Float[np.ndarray, "source_layer target_layer source_head target_head"], n_query_heads: int
) -> Float[np.ndarray, "layer head"]:
    """Largest score of each head's pairs, as source or as target.

    A head's threshold of joining the graph of the strongest pairs. A key-value head's pairs count for each of its query
    heads; a head without any has -1, below all scores.
    """
    scores = np.where(np.isnan(pairs), -1.0, pairs)
    as_target = scores.max(axis=(0, 2))
    kv_heads = kv_heads_of(n_query_heads, as_target.shape[1])
    largest: np.ndarray = np.maximum(scores.max(axis=(1, 3)), as_target[:, kv_heads])
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
    """Evaluate how well the largest score of a head tells the circuit's heads from the others (PK table 1).

    ``arrays`` are those of :func:`headspaces.affinity.run.affinity`. The frame's columns are ``method``, ``spaces``
    (OQ, OK, OV, ``mean``), ``pr_auc`` (unanchored) and ``average_precision``; chance is the fraction of the circuit's
    heads among all.
    """
    from sklearn.metrics import average_precision_score

    rows = []
    for method in HEAD_METHODS:
        measured = []
        for spaces in ACROSS:
            if f"{method}/{spaces}" not in arrays:
                continue
            scores = head_scores(arrays[f"{method}/{spaces}"], labels.shape[1]).ravel()
            areas = unanchored_pr_area(labels.ravel(), scores), average_precision_score(labels.ravel(), scores)
            measured.append((method, spaces, *areas))
        if measured:
            rows += [*measured, (method, "mean", *np.mean([row[2:] for row in measured], axis=0))]
    return pd.DataFrame(rows, columns=["method", "spaces", "pr_auc", "average_precision"])


def evaluate_pairs(arrays: Mapping[str, np.ndarray], classes: Shaped[np.ndarray, "layer head"]) -> pd.DataFrame:
    """Evaluate how well a score tells the pairs inside one class from all others (PK table 2).

    For each kind Q, K, V, O and each class: all unordered pairs of heads, positive where both are of the class.
    ``arrays`` are those of :func:`headspaces.affinity.run.affinity` with ``same_kind``; ``classes`` the number of each
    head's class, -1 for none. Classes with one head have no pair and are left out. The frame's columns are ``method``,
    ``spaces`` (QQ, KK, VV, OO), ``head_class`` (its number), ``pr_auc`` (anchored, as scikit-learn's curve is),
    ``roc_auc`` and ``average_precision``. PK reports means over all rows of a method.
    """
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score

    rows = []
    for method in PAIR_METHODS:
        for kind in "QKVO":
            if f"same_kind/{method}/{kind}{kind}" not in arrays:
                continue
            scores, left, right = _unordered_pairs(arrays[f"same_kind/{method}/{kind}{kind}"], classes)
            for number in np.unique(classes[classes >= 0]):
                labels = (left == number) & (right == number)
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
    of_head = np.where((grouped == grouped[:, :, :1]).all(axis=2), grouped[:, :, 0], -1).ravel()
    left, right = np.triu_indices(n_layers * n_heads, k=1)
    table = np.where(np.isnan(pairs), -1.0, pairs).transpose(0, 2, 1, 3).reshape(n_layers * n_heads, -1)
    return table[left, right], of_head[left], of_head[right]
