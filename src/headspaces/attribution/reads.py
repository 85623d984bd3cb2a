"""Reads of one layer of a running model: its projections' modules, and gradients at what each read gives.

The layouts table says which module makes the queries, keys and values and which of its outputs are which head's. What
a module gives gets a zero added that takes gradients: so every read has its own, before positions are applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headspaces.activations.hooks import norm_name
from headspaces.geometry.heads import LayerHeads, fold
from headspaces.spaces import READS, Shape
from headspaces.weights.cutting import rows_of_heads
from headspaces.weights.layout import Layout


class LayerReads:
    """Projections of one layer.

    ``heads`` are the analysed ones, of which the norm is taken. The maps are the running model's own: a file may keep
    a head's rows in another order, which leaves its space alone and not its gradients.

    Attributes
    ----------
    modules
        By name, those that make queries, keys and values: three, or one where they are fused.
    places
        By kind, the module's name and which of its outputs are whose, [head, d_head].
    norm
        The module before them; None where there is none.
    """

    def __init__(self, model: torch.nn.Module, layout: Layout, prefix: str, heads: LayerHeads, shape: Shape) -> None:
        start = prefix + layout.layer.format(layer=heads.layer)
        self.modules: dict[str, torch.nn.Module] = {}
        self.places: dict[str, tuple[str, np.ndarray]] = {}
        self.norm = None
        if heads.read_norm.kind != "none":
            self.norm = model.get_submodule(start + norm_name(layout))
        self._heads, self._transposed = heads, layout.transposed
        self._leaves: dict[str, list[Tensor]] = {}
        for kind in READS:
            name = start + layout.tensor(kind).removesuffix(".weight")
            module = self.modules.setdefault(name, model.get_submodule(name))
            n_rows = len(self._weight(module))
            self.places[kind] = name, rows_of_heads(layout.split, shape, kind, np.arange(n_rows)[:, None])[..., 0]

    def _weight(self, module: Any) -> Float[np.ndarray, "out d_model"]:
        weight: np.ndarray = module.weight.detach().numpy()
        return weight.T if self._transposed else weight

    @cached_property
    def factors(self) -> dict[str, Float[np.ndarray, "head d_model d_head"]]:
        """The folded maps of all reads by kind, ``P_c diag(gain) W^T``, in the model's precision."""
        found = {}
        for kind, (name, rows) in self.places.items():
            weight = self._weight(self.modules[name])
            unfolded = LayerHeads(self._heads.layer, {kind: weight[rows].transpose(0, 2, 1)}, self._heads.read_norm)
            found[kind] = fold(unfolded, kind).astype(weight.dtype)
        return found

    @contextmanager
    def as_leaves(self) -> Iterator[list[Tensor]]:
        """Give every output of the modules a leaf of its own; they are in the list as the model runs."""
        leaves: list[Tensor] = []
        self._leaves = {name: [] for name in self.modules}
        with ExitStack() as hooks:
            for name, module in self.modules.items():

                def add(_module: Any, _inputs: Any, output: Tensor, name: str = name) -> Tensor:
                    leaf = torch.zeros_like(output, requires_grad=True)
                    leaves.append(leaf)
                    self._leaves[name].append(leaf)
                    return output + leaf

                hooks.callback(module.register_forward_hook(add).remove)
            yield leaves

    def gradients(self) -> dict[str, Float[np.ndarray, "token head d_head"]]:
        """Give the gradients at the leaves by kind; a module that was called twice was read twice."""
        sums = {name: torch.stack([*map(_gradient, leaves)]).sum(dim=0) for name, leaves in self._leaves.items()}
        return {kind: sums[name].numpy()[:, rows] for kind, (name, rows) in self.places.items()}


def _gradient(leaf: Tensor) -> Tensor:
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return gradient.reshape(-1, leaf.shape[-1])
