"""Null models: what the overlaps would be if directions were given to heads at random (RW sections 5.1 to 5.3).

A *sample* of a null model draws every layer and kind of a model anew and takes the statistics of all comparisons. Its
numbers depend on the seed, the model and the sample's number alone, so samples can be computed anywhere, in shards of
any size, and a larger number of samples keeps the smaller one's. A *shard* is some consecutive samples of one null
model: the work of one job.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array
from jaxtyping import Float, Int
from tqdm import tqdm

from headspaces.devices import Array, ToDevice, identity
from headspaces.geometry.bases import RANK_RTOL
from headspaces.geometry.closest_pair import pairs_within
from headspaces.geometry.pairs import layer_overlaps, normalised, smaller_ranks
from headspaces.geometry.statistics import isotropic_mean, isotropic_sd, pair_statistics, upper_median_layer
from headspaces.nulls.draws import among_zero_heads, generator, orthonormalised, random_subspaces, reassigned, rotated
from headspaces.spaces import Shape
from headspaces.threads import map_in_order

NULL_MODELS: Mapping[str, Callable[[Array, np.random.Generator], Array]] = {
    "rotation": rotated,
    "reassignment": reassigned,
}
"""By name, how RW's null models redraw the matrix that stacks a layer's spaces of one kind."""

RANDOM_PAIRS = 100
"""Pairs of random subspaces that are drawn beside the analytic mean and deviation, as many as RW has."""


@dataclass(frozen=True)
class NullRun:
    """What all shards of a model have in common.

    Attributes
    ----------
    factors
        Gives the folded factors of a layer and kind, ``(head, d_model, d_head)``, as
        :func:`headspaces.geometry.heads.fold` makes them. Called once per sample, layer and kind, from several threads,
        layers in order: nothing that it gives is kept.
    shape
        Shape of the model.
    kinds
        Kinds of spaces that the model has.
    model, seed
        Name of the model and seed of the study: with a sample's number they determine its draws.
    dtype
        Arithmetic of the samples, ``float64`` or ``float32``.
    figure_layers
        By kind, the layer whose pairs are all kept (RW figure 2); a kind that is missing keeps none.
    rtol
        Singular values above this part of a head's largest one count towards its rank.
    to_device
        Moves an array to the device that computes: by default it stays, on a GPU it is a torch tensor.
    """

    factors: Callable[[int, str], Float[np.ndarray, "head d_model d_head"]]
    shape: Shape
    kinds: str
    model: str
    seed: int
    dtype: str = "float64"
    figure_layers: Mapping[str, int | None] = field(default_factory=dict)
    rtol: float = RANK_RTOL
    to_device: ToDevice = identity

    fewest_heads: ClassVar[int] = 2
    """Live heads of a kind that the statistics within a layer need."""

    def draw(
        self, null: str, layer: int, kind: str, sample: int
    ) -> tuple[Float[Array, "head d_model d_head"], Int[np.ndarray, " head"]]:
        """Draw a layer's spaces of one kind, only of what live heads have: bases where the work is done, and ranks."""
        every = self.factors(layer, kind)
        live = np.flatnonzero(every.any(axis=(1, 2)))
        factors = every[live] if 0 < len(live) < len(every) else every
        n_heads, d_model, d_head = factors.shape
        # A common power of two changes no space and no digit; it keeps squares inside the range of float32.
        _, exponent = np.frexp(np.abs(factors).max(initial=0.0))
        scaled = np.ldexp(factors, 1 - exponent).astype(self.dtype)
        columns = self.to_device(scaled.transpose(0, 2, 1).reshape(-1, d_model))
        columns = NULL_MODELS[null](columns.T, generator(self.seed, self.model, layer, kind, null, sample)).T
        basis, rank = orthonormalised(columns.reshape(n_heads, d_head, d_model).swapaxes(1, 2), self.rtol)
        return (basis, rank) if n_heads == len(every) else among_zero_heads(basis, rank, live, len(every))

    def statistics(self, rho: Float[np.ndarray, "condition pair"]) -> dict[str, Float[np.ndarray, " condition"]]:
        """Summarise a sample's pairs by condition."""
        return pair_statistics(rho)

    @property
    def settings(self) -> dict[str, int]:
        """Settings of the null model itself, which all its shards share."""
        return {}

    @property
    def readers(self) -> str:
        """Kinds of reads that are compared with earlier layers' writes."""
        return "".join(kind for kind in self.kinds if kind != "O") if "O" in self.kinds else ""


def figure_layers(overlaps: Mapping[str, np.ndarray]) -> dict[str, int | None]:
    """Layer of RW figure 2 by kind: the upper median of the layers' spreads; None where no layer has a pair."""
    layers = {}
    for kind in (kind for kind in "OQKV" if f"within/{kind}/rho" in overlaps):
        rho = overlaps[f"within/{kind}/rho"]
        one, other = np.triu_indices(rho.shape[1], k=1)
        layers[kind] = upper_median_layer(pair_statistics(rho[:, one, other])["spread"])
    return layers


def null_shard(run: NullRun, null: str, samples: range) -> dict[str, np.ndarray]:
    """Compute some samples of one null model.

    Parameters
    ----------
    run
        The model and how it is sampled.
    null
        Its name: ``rotation`` or ``reassignment``, or ``swap`` for a :class:`headspaces.nulls.swap_run.SwapRun`.
    samples
        Numbers of the samples.

    Returns
    -------
    dict of arrays
        ======================================= ================================= ====== ===========================
        field                                   dimensions                        unit   meaning
        ======================================= ================================= ====== ===========================
        ``within/{X}/{null}/spread``            sample, layer                     1      deviation of rho, ddof = 0
        ``within/{X}/{null}/mean``              the same                          1      mean of rho
        ``within/{X}/{null}/median``, ``/p95``  the same                          1      quantiles of rho, linear
        ``within/{X}/{null}/min_angle``         the same                          degree smallest principal angle of
                                                                                         all pairs
        ``cross/O{Y}/{null}/spread``            sample, writer_ and reader_layer  1      deviation of rho, ddof = 0
        ``cross/O{Y}/{null}/mean``              the same                          1      mean of rho
        ``…/swap/max``, ``…/swap/skewness``     as the spread, within and across  1      largest rho; third central
                                                                                         moment over spread cubed
        ``pairs/{X}/{null}/rho``                sample, pair                      1      rho of all pairs i < j of one
                                                                                         layer, by i, then j
        ``pairs/{X}/layer``                     none                              1      that layer
        ======================================= ================================= ====== ===========================

        All float64 but the layer. NaN where nothing is defined: within a layer that has one space of the kind (for the
        swap null, fewer than three that are not of dimension zero), where the reader is not later than the writer, for
        pairs with a space of dimension zero.
    """
    parts: list[dict[str, np.ndarray]] = []
    steps = run.shape.n_layers * (len(run.kinds) + len(run.readers))
    with tqdm(total=len(samples) * steps, desc=null, unit="step", file=sys.stderr, mininterval=5) as progress:
        parts.extend(sample_statistics(run, null, sample, progress.update) for sample in samples)
    arrays = {name: np.stack([part[name] for part in parts]) for name in (parts[0] if parts else {})}
    layers = {f"pairs/{kind}/layer": np.array(layer) for kind, layer in run.figure_layers.items() if layer is not None}
    return arrays | {name: layer for name, layer in layers.items() if name.split("/")[1] in run.kinds}


def sample_statistics(
    run: NullRun, null: str, sample: int, on_steps: Callable[[int], object] = lambda _: None
) -> dict[str, np.ndarray]:
    """Statistics of one sample of a null model: the fields of :func:`null_shard` without the sample's dimension."""
    bases = _SampleBases(run)
    arrays: dict[str, np.ndarray] = {}
    rho: dict[str, list[np.ndarray]] = {kind: [] for kind in run.kinds}
    angles: dict[str, list[float]] = {kind: [] for kind in run.kinds}
    draws = [(layer, kind) for layer in range(run.shape.n_layers) for kind in run.kinds]
    draw = partial(_drawn_layer, run, null, sample, bases)
    on_cpu = is_numpy_array(run.to_device(np.zeros(1)))
    for (_, kind), (pairs, angle) in zip(draws, map_in_order(draw, draws, parallel=on_cpu), strict=True):
        rho[kind].append(pairs)
        angles[kind].append(angle)
        on_steps(1)
    for kind in run.kinds:
        for name, values in run.statistics(np.stack(rho[kind])).items():
            arrays[f"within/{kind}/{null}/{name}"] = values
        arrays[f"within/{kind}/{null}/min_angle"] = np.array(angles[kind])
        if (layer := run.figure_layers.get(kind)) is not None:
            arrays[f"pairs/{kind}/{null}/rho"] = rho[kind][layer]
    arrays |= _across_statistics(run, null, bases)
    on_steps(run.shape.n_layers * len(run.readers))
    return arrays


class _SampleBases:
    """Bases and ranks of one sample: writers of all layers in one array, readers of all kinds in another."""

    def __init__(self, run: NullRun) -> None:
        shape = run.shape
        columns = min(shape.d_head, shape.d_model)
        self.readers = run.readers
        self.ranks = {kind: np.zeros((shape.n_layers, shape.n_heads(kind)), int) for kind in run.kinds}
        self._starts, n_readers = {"O": 0}, 0
        for kind in self.readers:
            self._starts[kind] = n_readers
            n_readers += shape.n_heads(kind)
        self._stacks = {}
        if self.readers:
            example = run.to_device(np.zeros(1, run.dtype))
            xp = array_namespace(example)
            for name, n_heads in (("O", shape.n_heads("O")), ("R", n_readers)):
                size = (shape.n_layers, n_heads, columns, shape.d_model)
                self._stacks[name] = xp.empty(size, dtype=example.dtype, device=device(example))

    def keep(self, layer: int, kind: str, basis: Array, rank: Int[np.ndarray, " head"]) -> None:
        self.ranks[kind][layer] = rank
        if self._stacks:
            self._stacks["O" if kind == "O" else "R"][layer, self.heads(kind), :, :] = basis.swapaxes(1, 2)

    def heads(self, kind: str) -> slice:
        """Where a kind's heads are among the writers, or among the readers."""
        return slice(self._starts[kind], self._starts[kind] + self.ranks[kind].shape[1])

    def across(self) -> Float[np.ndarray, "layer layer writer reader"]:
        """PK of every writer with all readers of later layers."""
        stacks = {name: stack.swapaxes(2, 3) for name, stack in self._stacks.items()}
        return layer_overlaps(stacks, within="", sources="O", targets="R").across["OR"]


def _drawn_layer(
    run: NullRun, null: str, sample: int, bases: _SampleBases, which: tuple[int, str]
) -> tuple[Float[np.ndarray, " pair"], float]:
    """Draw a layer's spaces of one kind; rho of its pairs and their smallest angle."""
    layer, kind = which
    basis, rank = run.draw(null, layer, kind, sample)
    bases.keep(layer, kind, basis, rank)
    if np.count_nonzero(rank) < run.fewest_heads:
        return np.full(math.comb(len(rank), 2), np.nan), np.nan
    squared, angle = pairs_within(basis, rank)
    return normalised(squared, smaller_ranks(rank, rank)[np.triu_indices(len(rank), 1)]), angle


def _across_statistics(run: NullRun, null: str, bases: _SampleBases) -> dict[str, np.ndarray]:
    if not bases.readers:
        return {}
    squared = bases.across()
    n_layers = len(squared)
    writer, reader = np.triu_indices(n_layers, 1)
    arrays = {}
    for kind in bases.readers:
        smaller = np.minimum(bases.ranks["O"][writer][:, :, None], bases.ranks[kind][reader][:, None, :])
        rho = normalised(squared[writer, reader][:, :, bases.heads(kind)], smaller)
        for name, values in run.statistics(rho.reshape(len(rho), math.prod(rho.shape[1:]))).items():
            if name not in ("median", "p95"):
                full = np.full((n_layers, n_layers), np.nan)
                full[writer, reader] = values
                arrays[f"cross/O{kind}/{null}/{name}"] = full
    return arrays


def random_reference(
    shape: Shape, kinds: str, model: str, seed: int, n_samples: int, dtype: str = "float64"
) -> dict[str, np.ndarray]:
    """Overlaps of uniformly random subspaces of a model's dimensions (RW 5.1 and figure 2).

    Returns
    -------
    dict of arrays
        =========================== ============ ==== =========================================================
        field                       dimensions   unit meaning
        =========================== ============ ==== =========================================================
        ``random/mean``             none         1    expected rho of two independent subspaces
        ``random/sd``               none         1    its standard deviation, in closed form
        ``random/rho``              pair         1    rho of :data:`RANDOM_PAIRS` independent pairs
        ``pairs/{X}/random/rho``    sample, pair 1    rho of all pairs among as many subspaces as a layer has,
                                                      by i, then j; a kind with one space has none
        =========================== ============ ==== =========================================================
    """
    d_model, d_head = shape.d_model, min(shape.d_head, shape.d_model)

    def rho(drawn: tuple[int, str, int]) -> Float[np.ndarray, " pair"]:
        n, name, sample = drawn
        bases = random_subspaces(n, d_model, d_head, generator(seed, model, n, "", name, sample)).astype(dtype)
        return pairs_within(bases, np.full(n, d_head))[0] / d_head

    arrays = {
        "random/mean": np.array(isotropic_mean(d_model, d_head)),
        "random/sd": np.array(isotropic_sd(d_model, d_head)),
        "random/rho": np.concatenate(list(map_in_order(rho, ((2, "pair", pair) for pair in range(RANDOM_PAIRS))))),
    }
    counts = sorted({shape.n_heads(kind) for kind in kinds} - {1}) if n_samples else []
    draws = [(n, "random", sample) for n in counts for sample in range(n_samples)]
    with tqdm(total=len(draws), desc="random", unit="sample", file=sys.stderr, mininterval=5) as progress:
        found: dict[int, list[np.ndarray]] = {n: [] for n in counts}
        for (n, _, _), values in zip(draws, map_in_order(rho, draws), strict=True):
            found[n].append(values)
            progress.update()
    by_count = {n: np.stack(values) for n, values in found.items()}
    return arrays | {
        f"pairs/{kind}/random/rho": by_count[shape.n_heads(kind)] for kind in kinds if shape.n_heads(kind) in by_count
    }
