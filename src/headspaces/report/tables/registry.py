"""The report's tables: one function each, from the models' results to rows.

``TABLES[name](models)`` makes the rows, :func:`write_table` the three files. Which stages' files a table reads is
written in :data:`headspaces.study.items.TABLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headspaces.report.results import ModelResults
from headspaces.report.tables.against_nulls import (
    mean_direction,
    null_counts,
    null_ranges,
    pair_counts,
    random_baseline,
    table4,
    table6,
    table7,
    table8,
)
from headspaces.report.tables.conditions import conditions, right_tail
from headspaces.report.tables.disjoint import direct_sum, small_angles
from headspaces.report.tables.observed import baseline_ratios, table1, table2, table3, table5, table9, weighted_means
from headspaces.report.tables.on_text import activations
from headspaces.report.tables.own_spaces import model_pairs, self_head, tuning, v_spaces
from headspaces.report.tables.pk import (
    cs_edges,
    head_classes,
    identity,
    pk_cutoffs,
    pk_degrees,
    pk_edges,
    pk_kl,
    pk_means,
    pk_nodes,
    pk_table1,
    pk_table2,
)
from headspaces.report.tables.writing import Table, write_table

__all__ = ["TABLES", "Table", "write_table"]

TABLES: Mapping[str, Callable[[Sequence[ModelResults]], Table]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "table7": table7,
    "table8": table8,
    "table9": table9,
    "small_angles": small_angles,
    "direct_sum": direct_sum,
    "right_tail": right_tail,
    "conditions": conditions,
    "baseline_ratios": baseline_ratios,
    "weighted_means": weighted_means,
    "pair_counts": pair_counts,
    "null_counts": null_counts,
    "null_ranges": null_ranges,
    "random_baseline": random_baseline,
    "mean_direction": mean_direction,
    "activations": activations,
    "self_head": self_head,
    "v_spaces": v_spaces,
    "model_pairs": model_pairs,
    "tuning": tuning,
    "pk_table1": pk_table1,
    "pk_table2": pk_table2,
    "pk_kl": pk_kl,
    "pk_means": pk_means,
    "pk_edges": pk_edges,
    "cs_edges": cs_edges,
    "pk_degrees": pk_degrees,
    "pk_nodes": pk_nodes,
    "pk_cutoffs": pk_cutoffs,
    "head_classes": head_classes,
    "identity": identity,
}
