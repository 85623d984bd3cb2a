"""Figures of the effects of edges on the loss: their numbers and panels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from headspaces.report.effect_results import PREDICTORS, effects, rank_correlation
from headspaces.report.figures import layout, panels
from headspaces.report.figures.panels import colour
from headspaces.report.results import ModelResults
from headspaces.report.tidy_frames import tidy

MARKS = {"text": ("o", 0.15), "repeats": ("^", -0.15), "prompts": ("s", 0.0)}
"""By what is measured, the mark and how far it is moved off its row."""


def correlations(data: pd.DataFrame, axes: Axes) -> None:
    """Rank correlation of every score with the effects, with its interval: a row a score, a mark a loss."""
    names = [name for name in PREDICTORS if name in set(data["predictor"])]
    for loss, rows in data.groupby("loss", sort=False):
        values = rows.set_index("predictor")
        mark, shift = MARKS[str(loss)]
        y = np.array([len(names) - 1 - names.index(name) + shift for name in values.index])
        tint = colour("observed" if loss == "repeats" else str(rows["spaces"].iloc[0])[-1])
        axes.hlines(y, values["spearman_effect_low"], values["spearman_effect_high"], color=tint, lw=0.8)
        label = f"{'logits of' if loss == 'prompts' else 'loss on'} {loss}"
        axes.plot(values["spearman_effect"], y, mark, color=tint, ms=3, label=label)
    axes.axvline(0, color=colour("observed"), lw=0.7, ls="--")
    axes.set_yticks(range(len(names)), [PREDICTORS[name] for name in reversed(names)])
    axes.set(xlabel="Spearman with |A|")


@layout.drawn(layout.rows_below({correlations: ""}), height=1.2)
def effect_predictors(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Spearman of every score with the sizes of the effects, and its interval."""
    rows = [
        (*found.names.values(), name, *rank_correlation(score, found.effect))
        for found in effects(models)
        for name, score in found.scores.items()
    ]
    return tidy("model loss spaces predictor spearman_effect spearman_effect_low spearman_effect_high", rows)


@layout.drawn(layout.rows_below({panels.effect_hexagons: "pairs"}))
def effect_against_rho(models: Sequence[ModelResults]) -> pd.DataFrame:
    """Overlap and size of the effect of every edge, on the first loss that a model has."""
    columns, rows = "model loss spaces rho effect", []
    seen: dict[tuple[str, str], str] = {}
    for found in effects(models):
        if seen.setdefault((found.model.name, found.spaces), found.loss) == found.loss:
            defined = np.isfinite(found.effect) & np.isfinite(found.scores["rho"])
            pairs = zip(found.scores["rho"][defined], found.effect[defined])
            rows += [(*found.names.values(), *pair) for pair in pairs]
    return tidy(columns, rows)
