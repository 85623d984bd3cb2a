"""Effects of edges beside the scores that may predict them, as the tables and figures of the stage attribution need it.

Squares here are [writer, reader]: all heads of all layers on both sides, NaN where no edge is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from headspaces.report.results import MEASURES, Arrays, ModelResults, first_measure
from headspaces.spaces import READS, SWAP

PREDICTORS = {
    "rho": "ρ", "pk": "PK, unfolded", "weighted": "weighted score", "simple_cs": "Simple-CS", "cs": "CS",
    "cka_invariant": "CKA", "procrustes_invariant": "Procrustes",
    "energy_fraction": "energy fraction", "swap_z": "z, swap null", "norms": "norms",
}  # fmt: skip
"""Scores that may predict an edge's effect, and their names; the last knows activations and gradients."""

RESAMPLES = 200
"""Bootstrap samples of the heads."""

Square = Float[np.ndarray, "writer reader"]


@dataclass(frozen=True)
class Effects:
    """Sizes of all edges' effects through one kind of read on one loss, and the scores of the same edges."""

    model: ModelResults
    loss: str
    spaces: str
    effect: Square
    absolute: Square
    scores: dict[str, Square]

    @property
    def names(self) -> dict[str, str]:
        """Model, loss and spaces: what names a row of a table."""
        return {"model": self.model.name, "loss": self.loss, "spaces": self.spaces}


def effects(models: Sequence[ModelResults]) -> Iterator[Effects]:
    """Go through models, losses and kinds of reads."""
    for model in models:
        arrays = model.attribution or {}
        for loss, start in MEASURES.items():
            for kind in (kind for kind in READS if f"{start}{kind}/effect" in arrays):
                size, absolute = (square(arrays[f"{start}{kind}/{name}"]) for name in ("effect", "absolute"))
                scores = {name: square(values) for name, values in _scores(model, kind, start)}
                yield Effects(model, loss, f"O{kind}", np.abs(size), absolute, scores)


def edge_effects(model: ModelResults, edges: pd.DataFrame) -> list[float]:
    """Give the effects A of edges on the model's first loss, by their type and ends; NaN where it was not run.

    ``edges`` have the columns :data:`headspaces.affinity.graph.EDGE_ENDS`.
    """
    if model.attribution is None:
        return [np.nan] * len(edges)
    arrays, start = model.attribution, first_measure(model.attribution)
    ends = edges[["source_layer", "target_layer", "source_head", "target_head"]].to_numpy(int).tolist()
    return [float(arrays[f"{start}{kind[1]}/effect"][tuple(end)]) for kind, end in zip(edges["type"], ends)]


def square(pairs: Float[np.ndarray, "writer_layer reader_layer writer_head reader_head"]) -> Square:
    """Put all heads of all layers side by side."""
    writers, readers = pairs.shape[0] * pairs.shape[2], pairs.shape[1] * pairs.shape[3]
    return pairs.transpose(0, 2, 1, 3).reshape(writers, readers)


def _scores(model: ModelResults, kind: str, start: str) -> Iterator[tuple[str, np.ndarray]]:
    rho, attribution = model.overlaps[f"cross/O{kind}/rho"], model.attribution or {}
    yield "rho", rho
    of_stage: tuple[tuple[str, Arrays | None, str], ...] = (
        ("pk", model.affinity, f"pk/O{kind}"),
        ("weighted", model.overlaps, f"cross/O{kind}/weighted"),
        ("simple_cs", model.overlaps, f"cross/O{kind}/simple_composition"),
        ("cs", model.affinity, f"cs/O{kind}"),
        ("cka_invariant", model.affinity, f"cka_invariant/O{kind}"),
        ("procrustes_invariant", model.affinity, f"procrustes_invariant/O{kind}"),
        ("energy_fraction", model.activations, f"{kind}/energy_fraction"),
    )
    for name, arrays, dataset in of_stage:
        if arrays is not None and dataset in arrays:
            values = arrays[dataset]
            # Composition scores are by query head: of a group the largest counts.
            yield name, values.reshape(*rho.shape, -1).max(axis=-1)
    if model.nulls is not None and f"cross/O{kind}/{SWAP}/spread" in model.nulls:
        mean, spread = (np.mean(model.nulls[f"cross/O{kind}/{SWAP}/{name}"], axis=0) for name in ("mean", "spread"))
        with np.errstate(divide="ignore", invalid="ignore"):
            yield "swap_z", (rho - mean[..., None, None]) / spread[..., None, None]
    write, gradient = attribution[f"{start}O/write_norm"], attribution[f"{start}{kind}/gradient_norm"]
    yield "norms", np.where(np.isfinite(rho), write[:, None, :, None] * gradient[None, :, None, :], np.nan)


def rank_correlation(one: Square, other: Square, n_heads: tuple[int, int] | None = None) -> tuple[float, float, float]:
    """Spearman correlation over the pairs that both have, and the 2.5 and 97.5 % points of its bootstrap over heads.

    Writers and readers are drawn anew, each with replacement; ranks are those of all pairs. With ``n_heads`` of a layer
    on both sides ranks are taken, and their mean removed, within each pair of layers.
    """
    defined = np.isfinite(one) & np.isfinite(other)
    x, y = (_ranks(np.where(defined, values, np.nan), n_heads) for values in (one, other))
    parts = np.stack([defined.astype(float), x, y, x * x, y * y, x * y])
    whole = _correlation(parts.sum(axis=(1, 2))[:, None])[0]
    rng = np.random.default_rng(0)
    writers, readers = (_drawn(rng, size) for size in one.shape)
    sums = np.stack([np.sum((writers @ part) * readers, axis=1) for part in parts])
    drawn = _correlation(sums)
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist() if drawn.size else (np.nan, np.nan)
    return float(whole), low, high


def _drawn(rng: np.random.Generator, n: int) -> Float[np.ndarray, "resample head"]:
    """How often each head is drawn."""
    return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


def _ranks(values: Square, n_heads: tuple[int, int] | None) -> Square:
    """Ranks, their mean removed, 0 where there is none; of all pairs, or of each pair of layers by itself."""
    # Half a second to import: only the jobs that compare effects wait for it.
    from scipy.stats import rankdata

    if n_heads is None:
        ranks = rankdata(values, nan_policy="omit").reshape(values.shape)
        mean = ranks[np.isfinite(ranks)].sum() / max(1, np.isfinite(ranks).sum())
        return np.asarray(np.nan_to_num(ranks - mean))
    heads_w, heads_r = n_heads
    tiles = values.reshape(len(values) // heads_w, heads_w, -1, heads_r).transpose(0, 2, 1, 3)
    flat = tiles.reshape(*tiles.shape[:2], heads_w * heads_r)
    ranks = rankdata(flat, axis=2, nan_policy="omit")
    counts = np.maximum(np.isfinite(ranks).sum(axis=2, keepdims=True), 1)
    ranks = np.nan_to_num(ranks - np.nansum(ranks, axis=2, keepdims=True) / counts)
    return np.asarray(ranks.reshape(tiles.shape).transpose(0, 2, 1, 3).reshape(values.shape))


def _correlation(sums: Float[np.ndarray, "six resample"]) -> Float[np.ndarray, " resample"]:
    n, x, y, xx, yy, xy = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = xy / n - x / n * (y / n)
        found: np.ndarray = covariance / np.sqrt((xx / n - (x / n) ** 2) * (yy / n - (y / n) ** 2))
    return found


def precision_of_strongest(score: Square, effect: Square, share: float = 0.01) -> float:
    """Share of the strongest pairs by a score that are among as many of the largest effects; NaN without pairs."""
    defined = np.isfinite(score) & np.isfinite(effect)
    n_strongest = int(share * defined.sum())
    if n_strongest == 0:
        return np.nan
    by_score, by_effect = (np.argsort(-values[defined], kind="stable")[:n_strongest] for values in (score, effect))
    return float(np.isin(by_score, by_effect).mean())
