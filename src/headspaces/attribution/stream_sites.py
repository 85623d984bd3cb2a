"""The stream beside the heads while a model runs: what embedding, positions and MLPs write, and gradients at reads.

The table of the stream (:mod:`headspaces.weights.stream_layouts`) names the modules. What reads gets a copy of its own
of the residual stream, so that the copy's gradient is that of this read alone. An MLP that shares its norm with the
attention (parallel blocks), or has none, gets a copy of what stands before its matrices, and the gradient goes back
through the norm's own module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headspaces.weights.layout import Layout
from headspaces.weights.stream_row import StreamRow


class Site(NamedTuple):
    """A writer or reader beside the heads: embedding (E), positions (X), an MLP (M), unembedding (U)."""

    letter: str
    layer: int | None = None


class StreamSites:
    """Hooks on one model's parts of the stream beside its heads, and what they have seen of one sequence.

    ``row`` is the architecture's, None where the table has none: then there are no sites. ``scale`` is what the model
    multiplies its sublayers' writes by.

    Attributes
    ----------
    writers, readers
        The sites that write, and those that read.
    """

    def __init__(
        self, model: nn.Module, row: StreamRow | None, layout: Layout, prefix: str, n_layers: int, scale: float
    ) -> None:
        self.writers: list[Site] = []
        self.readers: list[Site] = []
        self._scale = scale
        self._written: dict[Site, Tensor] = {}
        self._copies: dict[Site, list[Tensor]] = {}
        self._norms: dict[Site, nn.Module] = {}
        self._normed: dict[Site, Tensor] = {}
        self._registered: list[Callable[[], Any]] = []
        if row is None:
            return

        def find(name: str) -> nn.Module:
            return model.get_submodule(name.removesuffix(".weight").removesuffix("."))

        starts = [prefix + layout.layer.format(layer=layer) for layer in range(n_layers)]
        self._add_writer(Site("E"), find(starts[0]), before=True)
        if row.positions:
            self._add_writer(Site("X"), find(prefix + row.positions))
        for layer, start in enumerate(starts if row.down else []):
            site = Site("M", layer)
            self._add_writer(site, find(start + (row.mlp_write_norm or row.down)))
            inputs = [find(start + name) for name in (row.gate, row.up, row.gate_up) if name]
            # A norm without parameters has no tensor that names it; it stands where the others of its family do.
            norm = row.mlp_norm or ("post_attention_layernorm" if layout.norm != "none" else "")
            if norm and norm != layout.read_norm:
                inputs = [find(start + norm)]
            elif norm:
                self._norms[site] = find(start + norm)
            self._add_reader(site, inputs)
        self._add_reader(Site("U"), [find(prefix + (row.final_norm or "norm"))])

    def _add_writer(self, site: Site, module: nn.Module, *, before: bool = False) -> None:
        """Keep what a module gives, or what it is given."""
        self.writers.append(site)

        def keep(_module: Any, args: tuple[Any, ...], named: dict[str, Any], output: Any = None) -> None:
            given = args[0] if args else named["hidden_states"]
            self._written[site] = (given if before else output).detach()

        register: Any = module.register_forward_pre_hook if before else module.register_forward_hook
        self._registered.append(partial(register, keep, with_kwargs=True))

    def _add_reader(self, site: Site, modules: list[nn.Module]) -> None:
        """Give each module a copy of what it reads, and keep what the norm before them reads if others read it too."""
        self.readers.append(site)

        def copy(_module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            own = args[0].clone()
            if own.requires_grad:
                own.retain_grad()
            else:
                own.requires_grad_()
            self._copies.setdefault(site, []).append(own)
            return (own, *args[1:])

        def keep(_module: Any, args: tuple[Any, ...]) -> None:
            self._normed[site] = args[0].detach()

        self._registered += [partial(module.register_forward_pre_hook, copy) for module in modules]
        if site in self._norms:
            self._registered.append(partial(self._norms[site].register_forward_pre_hook, keep))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let the hooks listen; what they saw before is forgotten."""
        for seen in (self._written, self._copies, self._normed):
            seen.clear()
        with ExitStack() as hooks:
            for register in self._registered:
                hooks.callback(register().remove)
            yield

    def writes(self) -> Float[np.ndarray, "writer token d_model"] | None:
        """Give what each writer has added to the stream; None where there is none."""
        written = {site: _rows(self._written[site]) for site in self.writers}
        for site in written:
            if site.letter == "M":
                written[site] = written[site] * self._scale
        if (positions := written.get(Site("X"))) is not None:
            written[Site("E")] = written[Site("E")] - positions
        return torch.stack(list(written.values())).numpy() if written else None

    def gradients(self) -> Float[np.ndarray, "reader token d_model"] | None:
        """Give the gradients with respect to the stream as each reader reads it, after the backward pass."""
        found = [self._gradient(site) for site in self.readers]
        return torch.stack(found).numpy() if found else None

    def _gradient(self, site: Site) -> Tensor:
        copies = self._copies[site]
        gradient = sum((own.grad for own in copies if own.grad is not None), start=torch.zeros_like(copies[0]))
        if site in self._norms:
            with torch.enable_grad():
                x = self._normed[site].requires_grad_()
                (gradient,) = torch.autograd.grad(self._norms[site](x), x, gradient)
        return _rows(gradient.detach())


def _rows(values: Tensor) -> Float[Tensor, "token d_model"]:
    return values.reshape(-1, values.shape[-1])
