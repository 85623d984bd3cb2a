"""Neurons and tokens whose vector lies most in a head's space: the share of its squared norm there, against d / D.

Shares are computed in float32: they are for lists of the strongest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from headspaces.spaces import READS
from headspaces.stream.parts import Rows
from headspaces.threads import map_in_order

N_STRONGEST = 10
"""Neurons and tokens that are kept of a head's space."""

PRODUCT_BYTES = 2**25
"""Bytes of the products of rows with all bases that one thread holds."""

Bases = Float[np.ndarray, "layer head d_model d_head"]


class Strongest:
    """The rows with the largest shares in each head's space, of all that are shown one after the other.

    ``bases`` are orthonormal, of all layers; columns beyond a rank are zero. Ties keep the row that was shown first.
    """

    def __init__(self, bases: Bases, n_strongest: int = N_STRONGEST) -> None:
        self._bases = bases.astype(np.float32)
        shape = (*bases.shape[:2], n_strongest)
        self._share = np.full(shape, -1, np.float32)
        self._labels: list[np.ndarray] = []

    def show(self, rows: Rows, labels: Sequence[Int[np.ndarray, " row"]], layers: slice = slice(None)) -> None:
        """Show rows to the heads of some layers; ``labels`` say what a row is, by several numbers."""
        share = self._share[layers]
        if not share.size or not len(rows):
            return
        new = np.moveaxis(shares(rows, self._bases[layers]), 0, -1)
        n = share.shape[-1]
        # The best of the new ones, in the order in which they were shown, so that ties repeat.
        best = np.sort(np.argpartition(-new, n, axis=-1)[..., :n] if new.shape[-1] > n else np.indices(new.shape)[-1])
        both = np.concatenate([share, np.take_along_axis(new, best, axis=-1)], axis=-1)
        order = np.argsort(-both, axis=-1, kind="stable")[..., :n]
        share[...] = np.take_along_axis(both, order, axis=-1)
        found = [label[best] for label in labels]
        if not self._labels:
            self._labels = [np.full(self._share.shape, -1) for _ in found]
        for kept, label in zip(self._labels, found, strict=True):
            kept[layers] = np.take_along_axis(np.concatenate([kept[layers], label], axis=-1), order, axis=-1)

    def arrays(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Give ``share``, NaN where fewer rows were shown, and the labels by name, -1 there."""
        share = np.where(self._share < 0, np.nan, self._share).astype(np.float64)
        return {"share": share} | dict(zip(names, self._labels, strict=False))


def shares(rows: Rows, bases: Bases) -> Float[np.ndarray, "row layer head"]:
    """Share of each row's squared norm inside each space; -1 for a row of zeros."""
    n_layers, n_heads, d_model, d_head = bases.shape
    columns = bases.transpose(2, 0, 1, 3).reshape(d_model, -1)
    vectors = rows.astype(np.float32)
    norms = np.einsum("ij,ij->i", vectors, vectors)
    step = max(1, PRODUCT_BYTES // (4 * columns.shape[1]))

    def part(start: int) -> Float[np.ndarray, "row layer head"]:
        products = (vectors[start : start + step] @ columns).reshape(-1, n_layers, n_heads, d_head)
        inside: np.ndarray = np.einsum("rlhd,rlhd->rlh", products, products)
        return inside

    inside = np.concatenate(list(map_in_order(part, range(0, len(vectors), step))))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norms[:, None, None] > 0, inside / norms[:, None, None], np.float32(-1))


class StrongestNeurons:
    """Neurons of later MLPs that read most of a head's write space, and of earlier ones that write into its reads."""

    def __init__(self, bases: Mapping[str, Bases], *, parallel: bool) -> None:
        self._lists = {kind: Strongest(stack) for kind, stack in bases.items()}
        self._parallel = parallel

    def add_layer(self, layer: int, mlp: Mapping[str, Rows]) -> None:
        """Show a layer's neurons: those that read to the writes before them, those that write to later reads."""
        for at, (letter, rows) in enumerate(mlp.items()):
            numbers = np.arange(len(rows))
            labels = [np.full(len(rows), layer), numbers, np.full(len(rows), at)]
            if letter != "M" and "O" in self._lists:
                self._lists["O"].show(rows, labels, slice(layer + (not self._parallel)))
            for kind in READS if letter == "M" else "":
                if kind in self._lists:
                    self._lists[kind].show(rows, labels[:2], slice(layer + 1, None))

    def arrays(self) -> dict[str, np.ndarray]:
        """Give by kind the neurons' ``layer``, ``neuron``, ``share``, and of O the ``matrix`` that reads: G 0, I 1."""
        names = ("layer", "neuron", "matrix")
        return {
            f"neurons/{kind}/{name}": values
            for kind, found in self._lists.items()
            for name, values in found.arrays(names).items()
        }


def strongest_tokens(
    blocks: Iterable[Rows], mean: Float[np.ndarray, " d_model"], bases: Mapping[str, Bases]
) -> dict[str, np.ndarray]:
    """Tokens whose vectors, less the mean of all, lie most in the spaces of some kinds: ``token`` and ``share``."""
    lists = {kind: Strongest(stack) for kind, stack in bases.items()}
    first = 0
    for rows in blocks:
        for found in lists.values():
            found.show(rows - mean, [np.arange(first, first + len(rows))])
        first += len(rows)
    return {
        f"tokens/{kind}/{name}": values
        for kind, found in lists.items()
        for name, values in found.arrays(("token",)).items()
    }
