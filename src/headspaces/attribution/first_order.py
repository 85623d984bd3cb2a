"""First-order effects of all edges: what the measure would lose, by its gradient, without one write at one read.

An edge runs from a writer head to a read (a head's query, key or value) of a later layer. With the write ``u`` and the
gradient ``g`` of the measure with respect to the residual stream *as read by that map alone*,

    A = sum over tokens of <u(t), g(t)>,        g = J^T (P_c diag(gain) W^T delta),
    J^T p = (p - xhat <xhat, p> / D) / sigma,   xhat = P_c x / sigma,

where ``delta`` is the gradient at what the map gives, before positions are applied, and the rest takes it back through
the map's rows of this head, the norm's gain and the norm's Jacobian. The measure changes by about ``-A`` when the write
is removed from that read only (edge attribution). All edges of a model cost one forward and one backward pass, and one
product of writes and gradients over tokens and coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from tqdm import tqdm

from headspaces.activations.hooks import WatchedLayer
from headspaces.activations.response import LayerActivations, normalise
from headspaces.attribution.cases import Case
from headspaces.attribution.reads import LayerReads
from headspaces.attribution.running import RunningModel
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.spaces import READS, Shape

CHUNK_BYTES = 2**26
"""Writes and gradients of so many bytes at a time."""

READER_LAYERS = 5
"""Layers whose reads are multiplied at once with all earlier writes: fewer make small products, more idle ones."""


@dataclass(frozen=True)
class Reads:
    """What one layer reads on the tokens of a case.

    ``delta`` are the gradients at what the maps give, queries, keys and values side by side; ``factors`` the folded
    maps in the same order; ``xhat`` and ``sigma`` are the norm's.
    """

    delta: Float[np.ndarray, "read token d_head"]
    factors: Float[np.ndarray, "read d_model d_head"]
    xhat: Float[np.ndarray, "token d_model"]
    sigma: Float[np.ndarray, " token"]

    def gradients(self, tokens: slice) -> Float[np.ndarray, "read token d_model"]:
        """Give the gradients with respect to the residual stream."""
        p = self.delta[:, tokens] @ self.factors.transpose(0, 2, 1)
        xhat = self.xhat[tokens]
        along = np.einsum("rtd,td->rt", p, xhat) / xhat.shape[1]
        p -= along[..., None] * xhat
        return np.asarray(p / self.sigma[tokens, None])


def first_order(model: RunningModel, cases: Sequence[Case]) -> tuple[dict[str, np.ndarray], float]:
    """Effects of all edges on the mean measure of the cases, and that mean.

    Returns
    -------
    dict
        =====================  ============================================== ==========================================
        name (float64)         dimensions                                     meaning, in units of the measure
        =====================  ============================================== ==========================================
        {X}/effect             writer_ and reader_layer, writer_, reader_head A
        {X}/absolute           the same                                       sum over tokens of absolute values
        {X}/window_effect_sd   the same                                       standard deviation of A over the cases
        {X}/gradient_norm      layer, reader_head                             root mean square norm of g
        O/write_norm           layer, head                                    root mean square norm of u, no unit
        =====================  ============================================== ==========================================

        X is Q, K or V. NaN unless the reader is later; the deviation also with a single case. Sums are in float64.

    Raises
    ------
    InputError
        If a sequence is too long, an activation is not finite, or what runs is not what the given weights say.
    """
    writes = [fold(layer, "O").transpose(0, 2, 1) for layer in model.heads]
    totals, values = _Totals(model.shape), []

    def of_case(
        prepared: tuple[RunningModel, list[WatchedLayer], list[LayerReads]], case: Case
    ) -> tuple[_Totals, float]:
        own, watched, reads = prepared
        with ExitStack() as hooks:
            hooks.enter_context(own.watching(watched))
            leaves = [hooks.enter_context(layer.as_leaves()) for layer in reads]
            measured = case.measure(own.run(case.tokens))
        if not torch.isfinite(measured):
            raise InputError(f"{own.where}: the measure is not finite; the checkpoint is broken, fetch another")
        if any(leaves):
            measured.backward()  # type: ignore[no-untyped-call]
        activations = own.taken(watched)
        read = [_reads(*layer) for layer in zip(reads, own.heads[1:], activations[1:], strict=True)]
        of_one = _Totals(own.shape)
        of_one.add_case(writes, [layer.head_outputs for layer in activations], read)
        return of_one, measured.item()

    found = model.on_each(_prepared, of_case, cases)
    for of_one, value in tqdm(found, total=len(cases), desc="windows", unit="window", mininterval=5):
        totals.add(of_one)
        values.append(value)
    return totals.arrays(), float(np.mean(values))


def _prepared(model: RunningModel) -> tuple[RunningModel, list[WatchedLayer], list[LayerReads]]:
    return model, model.watched(), [model.reads(layer) for layer in range(1, len(model.heads))]


class _Totals:
    """Sums over cases, of all writers with all reads: the reads of a layer are its queries, keys, values."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.n_cases, self.n_tokens = shape, 0, 0
        self.n_heads = [shape.n_heads(kind) for kind in READS]
        n_reads = sum(self.n_heads)
        pairs = (shape.n_layers * shape.n_query_heads, shape.n_layers * n_reads)
        self.effect, self.squares, self.absolute = (np.zeros(pairs) for _ in range(3))
        self.gradient = np.zeros((shape.n_layers, n_reads))
        self.write = np.zeros(pairs[0])

    def add_case(
        self,
        writes: Sequence[Float[np.ndarray, "head d_head d_model"]],
        outputs: Sequence[Float[np.ndarray, "token head d_head"]],
        reads: Sequence[Reads],
    ) -> None:
        """Add a case; ``reads`` are those of all layers but 0."""
        effect = np.zeros_like(self.effect)
        case = range(len(outputs[0]))
        for tokens in _chunks(case, self.effect.shape, outputs[0].dtype.itemsize * self.shape.d_model):
            u = _side_by_side([z[tokens].transpose(1, 0, 2) @ w.astype(z.dtype) for z, w in zip(outputs, writes)])
            self.write += np.einsum("twd,twd->w", u, u, dtype=np.float64)
            for first in range(0, len(reads), READER_LAYERS):
                block = reads[first : first + READER_LAYERS]
                gradients = [layer.gradients(tokens) for layer in block]
                for layer, g in enumerate(gradients, first + 1):
                    self.gradient[layer] += np.einsum("rtd,rtd->r", g, g, dtype=np.float64)
                # The block's last layer is read by no writer of its own.
                n_writers = (first + len(block)) * self.shape.n_query_heads
                products = u[:, :n_writers] @ _side_by_side(gradients).transpose(0, 2, 1)
                n_reads = sum(self.n_heads)
                at = slice((first + 1) * n_reads, (first + 1 + len(block)) * n_reads)
                effect[:n_writers, at] += products.sum(axis=0, dtype=np.float64)
                self.absolute[:n_writers, at] += np.abs(products, out=products).sum(axis=0, dtype=np.float64)
        self.effect += effect
        self.squares += effect * effect
        self.n_cases += 1
        self.n_tokens += len(case)

    def add(self, other: _Totals) -> None:
        """Add other cases' sums."""
        for name in ("effect", "squares", "absolute", "gradient", "write"):
            getattr(self, name)[...] += getattr(other, name)
        self.n_cases += other.n_cases
        self.n_tokens += other.n_tokens

    def arrays(self) -> dict[str, np.ndarray]:
        """Give the means over cases, by kind."""
        n, shape = self.n_cases, self.shape
        mean = self.effect / n
        variance = np.clip(self.squares - n * mean * mean, 0.0, None) / (n - 1) if n > 1 else np.full_like(mean, np.nan)
        by_pair = {"effect": mean, "absolute": self.absolute / n, "window_effect_sd": np.sqrt(variance)}
        gradient_norm = np.sqrt(self.gradient / self.n_tokens)
        norms = np.sqrt(self.write / self.n_tokens)
        arrays = {"O/write_norm": norms.reshape(shape.n_layers, shape.n_query_heads)}
        later = np.triu(np.ones((shape.n_layers, shape.n_layers), dtype=bool), k=1)[:, :, None, None]
        ends = np.cumsum([0, *self.n_heads])
        for kind, start, stop in zip(READS, ends, ends[1:], strict=False):
            for name, values in by_pair.items():
                whole = values.reshape(shape.n_layers, shape.n_query_heads, shape.n_layers, -1).transpose(0, 2, 1, 3)
                arrays[f"{kind}/{name}"] = np.where(later, whole[..., start:stop], np.nan)
            arrays[f"{kind}/gradient_norm"] = gradient_norm[:, start:stop]
        return arrays


def _reads(layer: LayerReads, heads: LayerHeads, activations: LayerActivations) -> Reads:
    xhat, sigma = normalise(activations.residual, heads.read_norm, activations.epsilon)
    kind = activations.residual.dtype
    gradients = layer.gradients()
    delta = np.concatenate([gradients[kind].transpose(1, 0, 2) for kind in READS])
    factors = np.concatenate([layer.factors[kind] for kind in READS])
    return Reads(delta, factors, xhat.astype(kind), sigma.astype(kind))


def _side_by_side(parts: Sequence[Float[np.ndarray, "_ token d_model"]]) -> Float[np.ndarray, "token _ d_model"]:
    """Put heads together token by token, so that a token's products are one matrix product."""
    heads, tokens, width = sum(map(len, parts)), parts[0].shape[1], parts[0].shape[2]
    whole = np.empty((tokens, heads, width), dtype=parts[0].dtype)
    start = 0
    for part in parts:
        whole[:, start : start + len(part)] = part.transpose(1, 0, 2)
        start += len(part)
    return whole


def _chunks(case: range, pairs: tuple[int, int], vector_bytes: int) -> Iterator[slice]:
    """Cut the tokens of a case so that writes, a block's gradients and their products stay small."""
    step = max(1, CHUNK_BYTES // (vector_bytes * pairs[0]))
    return (slice(start, min(start + step, case.stop)) for start in case[::step])
