"""Hooks that keep what a layer's heads put out and what its norms read, and check both against the analysed weights.

Two modules of every layer are listened to, found by the layouts table: the output projection, whose input is the head
outputs, and the norm before the attention, whose input is the residual stream. On every token the heads' writes must
add up to the projection's output, and the norm must do what the folded one says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float

from headspaces.activations.response import LayerActivations, normalise
from headspaces.errors import InputError
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.weights.layout import Layout

TOLERANCE = 1e-3
"""Relative deviation of a layer's recombined writes, or of its norm, that float32 cannot explain."""


def norm_name(layout: Layout) -> str:
    """Name of the norm before the attention, inside a layer."""
    # A norm without parameters has no tensor that names it; it stands where the others of its family do.
    return layout.read_norm.removesuffix(".weight") or "input_layernorm"


class WatchedLayer:
    """Hooks on one layer, and what they have seen.

    ``layout`` and ``prefix`` say where the model keeps its modules; ``skipped`` tokens at the start of every window are
    not kept.
    """

    def __init__(
        self, model: torch.nn.Module, layout: Layout, prefix: str, heads: LayerHeads, skipped: int, where: str
    ) -> None:
        start = prefix + layout.layer.format(layer=heads.layer)
        self.where = f"{where}: layer {heads.layer}"
        self.heads, self.skipped = heads, skipped
        self.d_model = heads.factors["O"].shape[1]
        self.projection = model.get_submodule(start + layout.o.removesuffix(".weight"))
        self.read_norm: WatchedNorm | None = None
        self.write_norm: WatchedNorm | None = None
        if heads.read_norm.kind != "none":
            self.read_norm = WatchedNorm(model.get_submodule(start + norm_name(layout)), heads.read_norm, self.where)
        if heads.write_norm is not None:
            module = model.get_submodule(start + layout.write_norm.removesuffix(".weight"))
            self.write_norm = WatchedNorm(module, heads.write_norm, self.where, keep_inputs=False)
        self.outputs: list[np.ndarray] = []
        self.deviation = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what passes through the layer's modules."""
        hooks = [self.projection.register_forward_hook(self._keep_heads)]
        hooks += [norm.module.register_forward_hook(norm.keep) for norm in (self.read_norm, self.write_norm) if norm]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _keep_heads(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        writes = self.heads.factors["O"]
        flat = inputs[0].detach().reshape(-1, len(writes) * writes.shape[2])
        z = flat.reshape(-1, len(writes), writes.shape[2]).numpy()
        _check_finite(z, f"{self.where}: the outputs of head {{}}")
        bias = getattr(module, "bias", None)
        written = output.detach().reshape(-1, self.d_model) - (0.0 if bias is None else bias.detach())
        # Made anew each time: every thread would hold all layers' maps. torch multiplies: a second library's threads
        # would only wait for each other.
        side_by_side = torch.from_numpy(writes.transpose(0, 2, 1).reshape(-1, self.d_model)).to(flat.dtype)
        deviation = _relative((flat @ side_by_side).numpy(), written.numpy())
        if not deviation < TOLERANCE:
            raise InputError(
                f"{self.where}: the heads' writes differ from the model's by {deviation:.2g} (relative); the weights "
                "were fetched from another checkpoint than the one that runs"
            )
        self.deviation = max(self.deviation, deviation)
        self.outputs.append(z[self.skipped :].copy())

    def take(self, scale: float) -> LayerActivations:
        """Give what was kept since the last time, and drop it; ``scale`` is what the model multiplies writes by."""
        if not self.outputs:
            raise InputError(
                f"{self.where}: its output projection was never called as a module; it cannot be listened to"
            )
        z = np.concatenate(self.outputs) * self.outputs[0].dtype.type(scale)
        n_tokens = len(z)
        self.outputs = []
        if self.write_norm is not None:
            # The norm divides the sum of all heads by one sigma, so each head's share is divided by it too.
            z = z / self._counted(self.write_norm.take(), n_tokens)[:, None, None].astype(z.dtype)
        if self.read_norm is None:
            return LayerActivations(z, np.zeros((n_tokens, self.d_model), z.dtype), 0.0)
        return LayerActivations(z, self._counted(self.read_norm.take(), n_tokens), self.read_norm.epsilon)

    def _counted(self, seen: list[np.ndarray], n_tokens: int) -> np.ndarray:
        kept = np.concatenate([window[self.skipped :] for window in seen] or [np.empty(0)])
        if len(kept) != n_tokens:
            raise InputError(f"{self.where}: its norm saw {len(kept)} tokens, its heads {n_tokens}; expected the same")
        return kept


class WatchedNorm:
    """What one norm module read, or what it divided by, checked against the norm that is folded."""

    def __init__(self, module: torch.nn.Module, norm: Norm, where: str, *, keep_inputs: bool = True) -> None:
        self.module, self.norm, self.where, self.keep_inputs = module, norm, where, keep_inputs
        # torch's own default where the module names none.
        names = ("eps", "variance_epsilon", "epsilon")
        self.epsilon = float(next((getattr(module, name) for name in names if hasattr(module, name)), 1e-5))
        self.kept: list[np.ndarray] = []

    def keep(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Forward hook."""
        x = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).numpy()
        _check_finite(x[:, None], f"{self.where}: the numbers of the residual stream")
        xhat, sigma = normalise(x, self.norm, self.epsilon)
        expected = xhat if self.norm.gain is None else xhat * self.norm.gain
        seen = output.detach().reshape(x.shape).numpy()
        if (bias := getattr(module, "bias", None)) is not None:
            seen = seen - bias.detach().numpy()
        if not (deviation := _relative(expected, seen)) < TOLERANCE:
            raise InputError(
                f"{self.where}: its norm differs from the folded one by {deviation:.2g} (relative); the weights were "
                "fetched from another checkpoint, or this architecture's norm is not the one of its layout"
            )
        if self.keep_inputs:
            self.kept.append(x.copy())
        else:
            self.kept.append(sigma)

    def take(self) -> list[np.ndarray]:
        """Give what was kept since the last time, and drop it."""
        kept, self.kept = self.kept, []
        return kept


def _relative(expected: Float[np.ndarray, "token d_model"], found: Float[np.ndarray, "token d_model"]) -> float:
    size = float(np.linalg.norm(found))
    difference = float(np.linalg.norm(expected - found))
    return difference / size if size else difference


def _check_finite(values: Float[np.ndarray, "token head _"], what: str) -> None:
    """Refuse values that are not finite; ``what`` may have braces for the head's number."""
    if np.isfinite(values).all():
        return
    token, head = (int(indices[0]) for indices in np.nonzero(~np.isfinite(values).all(axis=2)))
    raise InputError(
        f"{what.format(head)} are not finite (token {token} of a window); the checkpoint is broken, or its numbers are "
        "too large for float32"
    )
