"""Tables of the effects of edges on the loss: which score predicts them, and what exact ablation says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headspaces.report.effect_results import effects, precision_of_strongest, rank_correlation
from headspaces.report.results import ModelResults
from headspaces.report.tables.writing import Table
from headspaces.report.tidy_frames import tidy


def predictors(models: Sequence[ModelResults]) -> Table:
    """Rank correlations of every score with the first-order effects of all edges, over all and within layer pairs."""
    columns = """model loss spaces predictor n_pairs spearman_effect spearman_effect_low spearman_effect_high
                 spearman_absolute spearman_absolute_low spearman_absolute_high precision_top1pct
                 within_layer_pairs_effect within_layer_pairs_effect_low within_layer_pairs_effect_high"""
    rows = []
    for found in effects(models):
        shape = found.model.shape
        n_heads = shape.n_query_heads, shape.n_heads(found.spaces[1])
        for name, score in found.scores.items():
            row: dict[str, Any] = {**found.names, "predictor": name}
            row["n_pairs"] = int(np.sum(np.isfinite(score) & np.isfinite(found.effect)))
            for column, values, heads in (
                ("spearman_effect", found.effect, None),
                ("spearman_absolute", found.absolute, None),
                ("within_layer_pairs_effect", found.effect, n_heads),
            ):
                ends = (column, f"{column}_low", f"{column}_high")
                row |= dict(zip(ends, rank_correlation(score, values, heads), strict=True))
            row["precision_top1pct"] = precision_of_strongest(score, found.effect)
            rows.append(row)
    return Table(tidy(columns, rows))


def attribution_ablation(models: Sequence[ModelResults]) -> Table:
    """Exact effects of the strongest edges by each score beside the first order, and of matched random edges."""
    columns = """model spaces writer_layer writer_head reader_layer reader_head chosen_by first_order second_order
                 ablated ablated_mean random_reference"""
    rows: list[dict[str, Any]] = []
    notes = []
    for model in (model for model in models if model.ablation is not None):
        arrays = dict(model.ablation or {})
        ablated, mean, reference = (arrays[name].mean(axis=1) for name in ("zero", "mean", "random_zero"))
        for at, kind in enumerate(arrays["kind"]):
            names = ("writer_layer", "writer_head", "reader_layer", "reader_head")
            row = {"model": model.name, "spaces": f"O{kind.decode()}", "chosen_by": arrays["chosen_by"][at].decode()}
            row |= {name: arrays[name][at].item() for name in names}
            row |= {name: arrays[name][at] for name in ("first_order", "second_order")}
            rows.append(row | {"ablated": ablated[at], "ablated_mean": mean[at], "random_reference": reference[at]})
    frame = tidy(columns, rows)
    for (name, spaces), part in frame.groupby(["model", "spaces"], sort=False):
        notes.append(f"{name}, {spaces}: {_agreement(part)}")
    return Table(frame, tuple(notes))


def _agreement(part: pd.DataFrame) -> str:
    """Say how both estimates of different edges agree with the exact change."""
    once = part.drop_duplicates(["writer_layer", "writer_head", "reader_layer", "reader_head"])
    said = []
    for column, name in (("first_order", "first order"), ("second_order", "second order")):
        signs = int(np.sum(once[column].to_numpy() * once["ablated"].to_numpy() < 0))
        sizes = once[column].abs().corr(once["ablated"].abs(), method="spearman") if len(once) > 2 else np.nan
        spearman = f", Spearman of the sizes {sizes:.2f}" if np.isfinite(sizes) else ""
        said.append(f"signs of the {name} agree for {signs} of {len(once)} edges{spearman}")
    return f"{'; '.join(said)}."
