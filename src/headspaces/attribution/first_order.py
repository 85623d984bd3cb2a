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

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from tqdm import tqdm

from headspaces.activations.hooks import WatchedLayer
from headspaces.activations.response import LayerActivations, normalise
from headspaces.attribution.cases import Case
from headspaces.attribution.reads import LayerReads
from headspaces.attribution.running import RunningModel
from headspaces.attribution.stream_sites import StreamSites
from headspaces.attribution.totals import Reads, Totals
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.spaces import READS

Factors = Float[np.ndarray, "read d_model d_head"]


class Prepared(NamedTuple):
    """What a thread runs cases with: its replica of the model, and hooks on it."""

    model: RunningModel
    watched: list[WatchedLayer]
    reads: list[LayerReads]
    sites: StreamSites


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
        stream/{W}{R}/…        the same, of length 1 where there is one       the same three, beside the heads
        {X}/gradient_norm      layer, reader_head                             root mean square norm of g
        O/write_norm           layer, head                                    root mean square norm of u, no unit
        =====================  ============================================== ==========================================

        X is Q, K or V. W writes: embedding (E), positions (X), a head (O), an MLP (M); R reads: Q, K, V, an MLP (M),
        the unembedding (U); all that the model has, where the table of the stream serves it. NaN unless the reader is
        later; the deviation also with a single case. Sums are in float64.

    Raises
    ------
    InputError
        If a sequence is too long, an activation is not finite, or what runs is not what the given weights say.
    """
    writes = [fold(layer, "O").transpose(0, 2, 1) for layer in model.heads]
    # Made once for all threads.
    factors = [_side_by_side(model.reads(layer).factors) for layer in range(len(model.heads))]
    sites = model.sites()
    totals, values = Totals(model.shape, sites), []

    def of_case(own: Prepared, case: Case) -> tuple[Totals, float]:
        with ExitStack() as hooks:
            hooks.enter_context(own.model.watching(own.watched))
            hooks.enter_context(own.sites.listening())
            for layer in own.reads:
                hooks.enter_context(layer.as_leaves())
            measured = case.measure(own.model.run(case.tokens))
        if not torch.isfinite(measured):
            raise InputError(f"{model.where}: the measure is not finite; the checkpoint is broken, fetch another")
        measured.backward()  # type: ignore[no-untyped-call]
        activations = own.model.taken(own.watched)
        read = [_reads(*layer) for layer in zip(own.reads, factors, model.heads, activations, strict=True)]
        of_one = Totals(model.shape, sites)
        outputs = [layer.head_outputs for layer in activations]
        of_one.add_case(writes, outputs, read, own.sites.writes(), own.sites.gradients())
        return of_one, measured.item()

    found = model.on_each(_prepared, of_case, cases)
    for of_one, value in tqdm(found, total=len(cases), desc="windows", unit="window", mininterval=5):
        totals.add(of_one)
        values.append(value)
    return totals.arrays(model.parallel), float(np.mean(values))


def _prepared(model: RunningModel) -> Prepared:
    return Prepared(model, model.watched(), [model.reads(layer) for layer in range(len(model.heads))], model.sites())


def _side_by_side(
    factors: Mapping[str, Float[np.ndarray, "_ d_model d_head"]],
) -> Float[np.ndarray, "_ d_model d_head"]:
    return np.concatenate([factors[kind] for kind in READS])


def _reads(layer: LayerReads, factors: Factors, heads: LayerHeads, activations: LayerActivations) -> Reads:
    xhat, sigma = normalise(activations.residual, heads.read_norm, activations.epsilon)
    kind = activations.residual.dtype
    gradients = layer.gradients()
    delta = np.concatenate([gradients[kind].transpose(1, 0, 2) for kind in READS])
    return Reads(delta, factors, xhat.astype(kind), sigma.astype(kind))
