"""Responses of later reads to real activations, on the direct path from a head's write (RW sections 4.2 and 5.4).

A writer head with output ``z`` writes ``u = W_O z``. A later reader with the folded map ``A = W_X diag(gain) P_c``
sees, to first order in ``u``,

    A J(x) u  =  A u / sigma(x)  -  (xhat^T u) / (D sigma(x)) A xhat,        xhat = P_c x / sigma(x),

a *linear* and a *normalisation* term, where ``x`` is the residual that enters the reader's norm and sigma includes the
norm's epsilon. Both are averaged over tokens as squared norms, without ever forming a response: with

    M = E[z z^T / sigma^2],      s = xhat^T u / (D sigma),      N = E[(s / sigma) z xhat^T],

the linear term is ``tr(A W_O M (A W_O)^T)``, the cross term ``-<A W_O, A N^T>`` and the normalisation term
``E[s^2 ||A xhat||^2]``; the full response is their sum with the cross term twice. M and N are formed once per writer
head and reader layer, so the cost hardly depends on the number of readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from headspaces.devices import GRAM_BYTES
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.geometry.kernel import gram_matrices
from headspaces.geometry.pairs import layer_overlaps
from headspaces.spaces import KINDS, READS
from headspaces.threads import map_in_order

TERMS = ("linear", "normalisation", "total")
READ_BASES = tuple(f"{kind}/basis" for kind in READS)
"""Arrays of the bases file that the measurement needs."""


Normalised: TypeAlias = tuple[Float[np.ndarray, "token d_model"], Float[np.ndarray, " token"]]
"""Normalised residuals and sigma of one layer, by token."""


@dataclass(frozen=True)
class LayerActivations:
    """What one layer's attention did on every token of the text.

    ``head_outputs`` are ``z`` of every head, such that ``W_O z`` (with the write norm's linear part, where there is
    one) is what the head adds to the residual stream, biases aside; ``residual`` is ``x``, which enters the norm before
    the attention; ``epsilon`` is what that norm adds to the variance (or mean square) under its root.
    """

    head_outputs: Float[np.ndarray, "token head d_head"]
    residual: Float[np.ndarray, "token d_model"]
    epsilon: float


def joined(parts: Sequence[LayerActivations]) -> LayerActivations:
    """Put a layer's activations on several windows one after the other."""
    z, x = (np.concatenate([getattr(part, name) for part in parts]) for name in ("head_outputs", "residual"))
    return LayerActivations(z, x, parts[0].epsilon)


def normalise(residual: Float[np.ndarray, "token d_model"], norm: Norm, epsilon: float) -> Normalised:
    """Normalised residuals ``xhat = P_c x / sigma`` without gain and bias, and ``sigma``, in float64 (RW section 4.2).

    Without a norm the response is ``A u``: sigma is 1, and xhat 0 leaves no normalisation term.
    """
    x = residual.astype(np.float64)
    if norm.kind == "none":
        return np.zeros_like(x), np.ones(len(x))
    if norm.centred:
        x -= x.mean(axis=1, keepdims=True)
    sigma = np.sqrt(np.mean(x * x, axis=1) + epsilon)
    return x / sigma[:, None], sigma


def responses(layers: Sequence[LayerHeads], activations: Sequence[LayerActivations]) -> dict[str, np.ndarray]:
    """Mean squared norms of the linear term, the normalisation term and the full response, for all pairs of heads.

    They are ``{X}/linear``, ``{X}/normalisation`` and ``{X}/total`` for X in Q, K, V: [writer_layer, reader_layer,
    writer_head, reader_head], NaN unless the reader is later.
    """
    n_layers = len(layers)
    normalised = [normalise(run.residual, layer.read_norm, run.epsilon) for layer, run in zip(layers, activations)]
    along = _along_residual(layers, activations, normalised)
    heads = {kind: len(layers[0].factors[kind]) for kind in KINDS}
    names = [f"{kind}/{term}" for kind in READS for term in TERMS]
    arrays = {name: np.full((n_layers, n_layers, heads["O"], heads[name[0]]), np.nan) for name in names}
    columns = np.cumsum([0, *(heads[kind] for kind in READS)])

    def of_reader_layer(reader: int) -> dict[str, np.ndarray]:
        return _reader_layer(layers, activations, normalised[reader], [s[reader] for s in along[:reader]])

    # The last layers have most writers: they come first, so that no thread is left with one at the end.
    readers = range(n_layers - 1, 0, -1)
    for reader, terms in zip(readers, map_in_order(of_reader_layer, readers), strict=True):
        for kind, start, stop in zip(READS, columns, columns[1:], strict=False):
            for term, values in terms.items():
                arrays[f"{kind}/{term}"][:reader, reader] = values[:, :, start:stop]
    return arrays


def _along_residual(
    layers: Sequence[LayerHeads], activations: Sequence[LayerActivations], normalised: Sequence[Normalised]
) -> list[Float[np.ndarray, "reader_layer token head"]]:
    """``s = xhat^T u / (D sigma)`` of every writer layer for all reader layers; only those of later ones are filled."""

    def of_writer_layer(writer: int) -> np.ndarray:
        z = activations[writer].head_outputs
        s = np.zeros((len(layers), *z.shape[:2]))
        # One head after the other: all writes of a layer together would be many times larger than anything else.
        for head, factor in enumerate(fold(layers[writer], "O")):
            u = z[:, head] @ factor.T
            for reader in range(writer + 1, len(layers)):
                xhat, sigma = normalised[reader]
                s[reader, :, head] = np.einsum("td,td->t", xhat, u) / (xhat.shape[1] * sigma)
        return s

    return list(map_in_order(of_writer_layer, range(len(layers) - 1)))


def _reader_layer(
    layers: Sequence[LayerHeads],
    activations: Sequence[LayerActivations],
    normalised: Normalised,
    along: Sequence[Float[np.ndarray, "token head"]],
) -> dict[str, Float[np.ndarray, "writer_layer writer_head reader_head"]]:
    """Terms of all readers of the layer that follows the writer layers of ``along``."""
    xhat, sigma = normalised
    n_tokens, d_model = xhat.shape
    reads = np.concatenate([fold(layers[len(along)], kind) for kind in READS])
    squares = np.stack([np.sum((xhat @ factor) ** 2, axis=1) for factor in reads])
    n_heads, d_head = activations[0].head_outputs.shape[1:]
    terms = {term: np.empty((len(along), n_heads, len(reads))) for term in TERMS}
    for writer, s in enumerate(along):
        z = activations[writer].head_outputs / sigma[:, None, None]
        by_head = np.ascontiguousarray(z.transpose(1, 0, 2))
        M = np.swapaxes(by_head, 1, 2) @ by_head / n_tokens
        N = ((z * s[:, :, None]).reshape(n_tokens, -1).T @ xhat / n_tokens).reshape(n_heads, d_head, d_model)
        linear, cross = _quadratic_terms(reads, fold(layers[writer], "O"), M, N)
        terms["linear"][writer] = linear
        terms["normalisation"][writer] = (s * s).T @ squares.T / n_tokens
        terms["total"][writer] = linear + 2 * cross + terms["normalisation"][writer]
    return terms


def _quadratic_terms(
    reads: Float[np.ndarray, "reader d_model d_read"],
    writes: Float[np.ndarray, "writer d_model d_head"],
    M: Float[np.ndarray, "writer d_head d_head"],
    N: Float[np.ndarray, "writer d_head d_model"],
) -> tuple[Float[np.ndarray, "writer reader"], Float[np.ndarray, "writer reader"]]:
    """Linear term ``tr(A W M (A W)^T)`` and cross term ``-<A W, A N^T>`` of all pairs."""
    linear, cross = (np.empty((len(writes), len(reads))) for _ in range(2))
    step = max(1, GRAM_BYTES // (8 * reads.shape[0] * reads.shape[2] * writes.shape[2]))
    for start in range(0, len(writes), step):
        part = slice(start, start + step)
        A_W = gram_matrices(reads, writes[part])
        linear[part] = np.einsum("rwij,rwij->wr", A_W @ M[part], A_W)
        cross[part] = -np.einsum("rwij,rwij->wr", A_W, gram_matrices(reads, np.swapaxes(N[part], 1, 2)))
    return linear, cross


def second_moments(
    activations: Sequence[LayerActivations],
) -> Float[np.ndarray, "layer head d_head d_head"]:
    """Second moments ``E[z z^T]`` of the head outputs, not centred; a write's is ``C = W_O E[z z^T] W_O^T``."""
    moments = []
    for layer in activations:
        z = layer.head_outputs.astype(np.float64).transpose(1, 0, 2)
        moments.append(np.swapaxes(z, 1, 2) @ z / z.shape[1])
    return np.stack(moments)


def energy_fractions(
    writes: Float[np.ndarray, "layer head d_model d_head"],
    moments: Float[np.ndarray, "layer head d_head d_head"],
    bases: Mapping[str, Float[np.ndarray, "layer _ d_model d_head"]],
) -> dict[str, np.ndarray]:
    """Fraction of every write's energy that lies in every later read space, ``tr(P_V C) / tr C`` (RW section 5.4).

    ``writes`` are the factors ``W_O``, ``moments`` those of :func:`second_moments`, ``bases`` the orthonormal ones of
    the read spaces by kind. ``{X}/energy_fraction`` are like the terms of :func:`responses`, NaN also where a head
    writes nothing; ``O/energy`` [layer, head] is ``tr C``, the mean squared norm of what a head writes.
    """
    factors = writes @ _roots(moments)
    energy = np.sum(factors * factors, axis=(2, 3))
    arrays = {"O/energy": energy}
    per_energy = np.divide(1.0, energy, out=np.full(energy.shape, np.nan), where=energy > 0)[:, None, :, None]
    for spaces, squared in layer_overlaps({"O": factors, **bases}, within="").across.items():
        arrays[f"{spaces[1]}/energy_fraction"] = squared * per_energy
    return arrays


def _roots(moments: Float[np.ndarray, "*head d d"]) -> Float[np.ndarray, "*head d d"]:
    """Factors F of positive semi-definite matrices, ``F F^T``."""
    values, vectors = np.linalg.eigh(moments)
    return np.asarray(vectors * np.sqrt(np.clip(values, 0.0, None))[..., None, :])


def measure(
    layers: Sequence[LayerHeads],
    activations: Sequence[LayerActivations],
    blocks: Iterable[Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """All arrays of the activations file, but those of :func:`headspaces.activations.forward_pass.run_numbers`.

    Layers are in order and have all four kinds; ``blocks`` have the arrays :data:`READ_BASES` of the bases file.

    Returns
    -------
    dict
        =========================== ============================================== ====================================
        field (float64)             dimensions                                     meaning
        =========================== ============================================== ====================================
        ``{X}/linear``              writer_ and reader_layer, writer_, reader_head mean squared norm of the linear term
        ``{X}/normalisation``       the same                                       of the normalisation term
        ``{X}/total``               the same                                       of the full first-order response
        ``{X}/energy_fraction``     the same                                       tr(P_V C) / tr C
        ``O/energy``                layer, head                                    tr C
        ``O/second_moment``         layer, head, d_head, d_head                    E[z z^T] of the head outputs
        =========================== ============================================== ====================================

        X is Q, K or V. NaN unless the reader is later; the energy fraction also where a head writes nothing.
    """
    parts = list(blocks)
    bases = {kind: np.concatenate([part[f"{kind}/basis"] for part in parts]) for kind in READS}
    moments = second_moments(activations)
    writes = np.stack([fold(layer, "O") for layer in layers])
    arrays = responses(layers, activations)
    arrays |= energy_fractions(writes, moments, bases)
    return arrays | {"O/second_moment": moments}
