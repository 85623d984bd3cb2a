"""Tables of RW section 5.5 and appendix H: a head's own spaces, value read spaces, and two models of one shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from headspaces.geometry.statistics import rho_differences
from headspaces.report.results import Comparison, ModelResults
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import ends, tidy

SAME = 1e-12
"""Overlaps that differ less are equal: their own error is 1e-14."""

NO_TWO = "No two models of this study have one shape."


def self_head(models: Sequence[ModelResults]) -> Table:
    """Own spaces of a head against those of different heads, by layer, with permuted labels (RW appendix H)."""
    rows = []
    for model in models:
        arrays = model.self_heads or {}
        for spaces in (spaces for spaces in ("VO", "QK", "QO") if f"{spaces}/p" in arrays):
            labels = min(arrays[f"{spaces}/rho"].shape[1:])
            found = [arrays[f"{spaces}/{name}"] for name in ("own", "others", "p", "n_permutations", "exhaustive")]
            for layer, (own, others, p, count, exhaustive) in enumerate(zip(*found)):
                smallest = 1 / count if exhaustive else 1 / (count + 1)
                rows.append((model.name, layer, spaces, labels, own, others, p, np.isclose(p, smallest), count))
    columns = "model layer spaces n_labels own_mean others_mean p p_is_smallest n_permutations"
    frame = tidy(columns, rows)
    notes = tuple(f"{model.name}: not measured." for model in models if model.self_heads is None)
    return Table(frame, notes, _over_layers(frame), "ranges over the layers")


def _over_layers(frame: pd.DataFrame) -> pd.DataFrame:
    """Ranges over the layers of each model and spaces, as RW gives them."""
    rows = []
    for (model, spaces), part in frame.groupby(["model", "spaces"], sort=False):
        own, others = (ends("{}", part[name].to_numpy()).values() for name in ("own_mean", "others_mean"))
        n_labels, n_permutations = part["n_labels"].iloc[0], part["n_permutations"].iloc[0]
        smallest = part["p_is_smallest"].sum()
        rows.append((model, spaces, n_labels, len(part), *own, *others, part["p"].max(), smallest, n_permutations))
    columns = """model spaces n_labels n_layers own_mean_low own_mean_high others_mean_low others_mean_high p_high
                 n_smallest_p n_permutations"""
    return tidy(columns, rows)


def v_spaces(models: Sequence[ModelResults]) -> Table:
    """Value read spaces of one layer against two random subspaces (RW section 5.5)."""
    rows = []
    for comparison in (model.within("V") for model in models if "V" in model.kinds):
        model = comparison.model
        isotropic, sd = model.isotropic, model.random_sd
        for layer, (mean, angle) in enumerate(zip(comparison.mean, comparison.statistics["min_angle"])):
            sds = (mean - isotropic) / sd if sd else np.nan
            beside = mean - isotropic, mean / isotropic
            rows.append((model.name, layer, comparison.n_pairs, mean, isotropic, *beside, sd, sds, angle))
    columns = """model layer n_pairs mean_rho isotropic isotropic_difference isotropic_ratio random_sd random_sds
                 min_angle_deg"""
    notes = tuple(
        f"{model.name}: one value read space in a layer, no pairs."
        for model in models
        if "V" in model.kinds and not model.within("V").n_pairs
    )
    return Table(tidy(columns, rows), notes)


def model_pairs(models: Sequence[ModelResults]) -> Table:
    """Overlaps of two models of one shape, pair by pair (RW section 5.5)."""
    rows = [
        {**one.names, "other": other.model.name, **rho_differences(one.rho, other.rho)}
        for one, other in _shared(models)
    ]
    columns = "model other scope spaces n_pairs max_abs_difference median_abs_difference max_relative_difference"
    frame = tidy(columns, rows)
    equal = frame.groupby(["model", "other"], sort=False)["max_abs_difference"].max() < SAME
    notes = [
        f"{one} and {other}: all overlaps are equal to rounding; the two checkpoints may hold the same weights."
        for one, other in equal[equal].index
    ]
    return Table(frame, tuple(notes) if rows else (NO_TWO,))


def tuning(models: Sequence[ModelResults]) -> Table:
    """Statistics of two models of one shape side by side, layer by layer (RW section 5.5, appendix E)."""
    statistics = (("mean_rho{}", "mean"), ("spread{}", "spread"), ("min_angle{}_deg", "min_angle"))
    rows = [
        {
            **one.names, "other": other.model.name, "layer": layer,
            **{
                name.format(end): comparison.statistics[statistic][layer]
                for end, comparison in (("", one), ("_other", other))
                for name, statistic in statistics
            },
            **{
                f"{name.format('')}_difference": abs(one.statistics[of][layer] - other.statistics[of][layer])
                for name, of in statistics[:2]
            },
            **rho_differences(one.rho[layer], other.rho[layer]),
        }
        for one, other in _shared(models)
        if one.scope == "within"
        for layer in range(one.n_conditions)
    ]  # fmt: skip
    columns = """model other spaces layer n_pairs mean_rho mean_rho_other spread spread_other
                 min_angle_deg min_angle_other_deg mean_rho_difference spread_difference max_abs_difference
                 median_abs_difference max_relative_difference"""
    frame = tidy(columns, rows)
    furthest = frame.sort_values("max_abs_difference", ascending=False, kind="stable")
    printed = furthest.drop_duplicates(["model", "other", "spaces"]).sort_index()
    choice = "the layer of largest difference of each pair of models and spaces"
    return Table(frame, () if rows else (NO_TWO,), printed, choice)


def _shared(models: Sequence[ModelResults]) -> Iterator[tuple[Comparison, Comparison]]:
    """Comparisons that two models of one shape both have."""
    for one, other in combinations(models, 2):
        if one.shape == other.shape:
            theirs = {comparison.spaces: comparison for comparison in other.compare_all()}
            yield from ((found, theirs[found.spaces]) for found in one.compare_all() if found.spaces in theirs)
