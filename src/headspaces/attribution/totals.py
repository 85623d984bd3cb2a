"""Sums of the products of writes and gradients over tokens and cases, for all writers with all reads at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from headspaces.attribution.stream_sites import Site, StreamSites
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


class Totals:
    """Sums over cases, of all writers with all reads: heads layer by layer, then the sites beside them.

    The reads of a layer are its heads' queries, keys, values.
    """

    def __init__(self, shape: Shape, sites: StreamSites) -> None:
        self.shape, self.sites, self.n_cases, self.n_tokens = shape, sites, 0, 0
        self.n_heads = [shape.n_heads(kind) for kind in READS]
        self.n_writers, self.n_reads = shape.n_layers * shape.n_query_heads, shape.n_layers * sum(self.n_heads)
        pairs = (self.n_writers + len(sites.writers), self.n_reads + len(sites.readers))
        self.effect, self.squares, self.absolute = (np.zeros(pairs) for _ in range(3))
        self.gradient = np.zeros((shape.n_layers, sum(self.n_heads)))
        self.write = np.zeros(self.n_writers)

    def add_case(
        self,
        writes: Sequence[Float[np.ndarray, "head d_head d_model"]],
        outputs: Sequence[Float[np.ndarray, "token head d_head"]],
        reads: Sequence[Reads],
        other_writes: Float[np.ndarray, "writer token d_model"] | None,
        other_gradients: Float[np.ndarray, "reader token d_model"] | None,
    ) -> None:
        """Add a case; what sites write and their gradients are None where there are no sites."""
        effect, n_tokens = np.zeros_like(self.effect), len(outputs[0])

        def add(products: Float[np.ndarray, "token writer reader"], writers: slice, readers: slice) -> None:
            effect[writers, readers] += products.sum(axis=0, dtype=np.float64)
            self.absolute[writers, readers] += np.abs(products, out=products).sum(axis=0, dtype=np.float64)

        heads, others = slice(self.n_writers), slice(self.n_writers, None)
        other_reads = slice(self.n_reads, None)
        for tokens in _chunks(range(n_tokens), self.effect.shape, outputs[0].dtype.itemsize * self.shape.d_model):
            u = _side_by_side([z[tokens].transpose(1, 0, 2) @ w.astype(z.dtype) for z, w in zip(outputs, writes)])
            self.write += np.einsum("twd,twd->w", u, u, dtype=np.float64)
            written = None if other_writes is None else _side_by_side([other_writes[:, tokens]])
            for first in range(0, len(reads), READER_LAYERS):
                block = reads[first : first + READER_LAYERS]
                gradients = [layer.gradients(tokens) for layer in block]
                for layer, g in enumerate(gradients, first):
                    self.gradient[layer] += np.einsum("rtd,rtd->r", g, g, dtype=np.float64)
                readers = slice(first * sum(self.n_heads), (first + len(block)) * sum(self.n_heads))
                side_by_side = _side_by_side(gradients).transpose(0, 2, 1)
                # The block's last layer is read by no writer of its own.
                earlier = slice((first + len(block) - 1) * self.shape.n_query_heads)
                add(u[:, earlier] @ side_by_side, earlier, readers)
                if written is not None:
                    add(written @ side_by_side, others, readers)
            if written is not None and other_gradients is not None:
                side_by_side = _side_by_side([other_gradients[:, tokens]]).transpose(0, 2, 1)
                add(u @ side_by_side, heads, other_reads)
                add(written @ side_by_side, others, other_reads)
        self.effect += effect
        self.squares += effect * effect
        self.n_cases += 1
        self.n_tokens += n_tokens

    def add(self, other: Totals) -> None:
        """Add other cases' sums."""
        for name in ("effect", "squares", "absolute", "gradient", "write"):
            getattr(self, name)[...] += getattr(other, name)
        self.n_cases += other.n_cases
        self.n_tokens += other.n_tokens

    def arrays(self, parallel: bool) -> dict[str, np.ndarray]:
        """Give the means over cases, by what writes and what reads; of parallel blocks the MLP reads with the heads."""
        n, shape = self.n_cases, self.shape
        mean = self.effect / n
        variance = np.clip(self.squares - n * mean * mean, 0.0, None) / (n - 1) if n > 1 else np.full_like(mean, np.nan)
        by_pair = {"effect": mean, "absolute": self.absolute / n, "window_effect_sd": np.sqrt(variance)}
        arrays = {"O/write_norm": np.sqrt(self.write / self.n_tokens).reshape(shape.n_layers, shape.n_query_heads)}
        layers, ends = np.arange(shape.n_layers), np.cumsum([0, *self.n_heads])
        # Where in a layer something writes or reads: heads, then the MLP.
        writers = {"O": _Places(2 * layers, np.arange(self.n_writers).reshape(shape.n_layers, -1))}
        writers |= _places(self.sites.writers, self.n_writers, 1, 0)
        of_layers = np.arange(self.n_reads).reshape(shape.n_layers, -1)
        readers = {
            kind: _Places(2 * layers, of_layers[:, start:stop])
            for kind, start, stop in zip(READS, ends, ends[1:], strict=False)
        }
        readers |= _places(self.sites.readers, self.n_reads, 0 if parallel else 1, 2 * shape.n_layers)
        for letter, writer in writers.items():
            for other, reader in readers.items():
                start = other if letter == "O" and other in READS else f"stream/{letter}{other}"
                later = (writer.when[:, None] < reader.when)[..., None, None]
                at = writer.where[:, None, :, None], reader.where[None, :, None, :]
                arrays |= {f"{start}/{name}": np.where(later, values[at], np.nan) for name, values in by_pair.items()}
        gradient_norm = np.sqrt(self.gradient / self.n_tokens)
        for kind, start, stop in zip(READS, ends, ends[1:], strict=False):
            arrays[f"{kind}/gradient_norm"] = gradient_norm[:, start:stop]
        return arrays


class _Places(NamedTuple):
    """When writers or reads of one kind have their turn, and where they stand in the sums."""

    when: Int[np.ndarray, " layer"]
    where: Int[np.ndarray, "layer head"]


def _places(sites: Sequence[Site], start: int, of_mlp: int, last: int) -> dict[str, _Places]:
    """Places of sites by letter: embedding and positions are before all, the unembedding at last.

    ``of_mlp`` is the turn of the MLP in its layer.
    """
    outside = {"E": -1, "X": -1, "U": last}
    found: dict[str, list[tuple[int, int]]] = {}
    for at, (letter, layer) in enumerate(sites, start):
        when = outside[letter] if layer is None else 2 * layer + of_mlp
        found.setdefault(letter, []).append((when, at))
    both = {letter: np.array(own).T for letter, own in found.items()}
    return {letter: _Places(when, where[:, None]) for letter, (when, where) in both.items()}


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
