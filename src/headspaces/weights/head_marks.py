"""Marks of a head's width: tensors beside the projections whose sizes say how wide a head is.

A norm on the queries or keys of each head, a rotary embedding's frequencies, an attention sink: none of them is used,
but each is as long as a head is wide or as many as there are heads, and so contradicts a wrong configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headspaces.errors import InputError
from headspaces.weights.layout import Layout

_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_layernorm", "key_layernorm")
_ROTARY_PART = ("partial_rotary_factor", "rotary_pct")
_ROTATED_WHOLE = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "falcon")
"""Model types whose rotary embedding turns whole heads where the configuration names no part."""

FIXED_WIDTH = (
    "gpt2", "nanogpt", "gpt_bigcode-multiquery", "gpt_bigcode-heads", "gpt_neox", "persimmon", "bloom", "falcon-groups",
    "falcon-groups-one-norm", "falcon-multiquery", "falcon-heads", "mpt", "gptj", "gpt_neo", "opt", "opt-post-norm",
    "phi", "gguf-gpt2",
)  # fmt: skip
"""Layouts whose heads always are as wide as the residual stream divided by their number."""


@dataclass(frozen=True)
class Mark:
    """A tensor that tells the width of a head.

    Attributes
    ----------
    tensor
        Its name.
    says
        What it says, for messages.
    d_head
        The width.
    """

    tensor: str
    says: str
    d_head: int


def head_marks(
    layout: Layout, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], prefix: str, n_layers: int,
    widths: Mapping[str, int],
) -> Iterator[Mark]:  # fmt: skip
    """Yield the marks of all layers.

    Parameters
    ----------
    layout, prefix, n_layers
        How the checkpoint is laid out.
    config, shapes
        Its configuration, and the shapes of all its tensors.
    widths
        All heads of a kind together, by kind: columns of O, rows of the others.
    """
    module = layout.o.removesuffix(".weight")
    module = module[: module.rfind(".") + 1] or "attn_"
    parts = [config[key] for key in _ROTARY_PART if isinstance(config.get(key), int | float)]
    part = next((part for part in parts if 0 < part <= 1), None)
    if not parts and config.get("model_type") in _ROTATED_WHOLE and "rope_parameters" not in config:
        part = 1.0
    for layer in range(n_layers):
        start = prefix + layout.layer.format(layer=layer) + module
        for norm in _NORMS:
            name = f"{start}{norm}.weight"
            shape = shapes.get(name) or shapes.get(f"{start}{norm}.norms.0.weight") or (0,)
            # A norm over all heads is as long as they are together.
            together = {widths.get("Q"), widths.get("O")} if norm.startswith("q") else {widths.get("K")}
            if shape[-1] and (len(shape) == 2 or shape[0] not in together):
                yield Mark(name, f"has {shape[-1]} entries, one for every dimension of a head", shape[-1])
        turned = 2 * (shapes.get(f"{start}rotary_emb.inv_freq") or (0,))[0]
        if turned and part:
            width = round(turned / part)
            yield Mark(f"{start}rotary_emb.inv_freq", f"turns {turned} dimensions, heads of {width}", width)
        for name in (f"{start}sinks", f"{start}sinks.weight"):
            heads = (shapes.get(name) or (0,))[0]
            if heads and "O" in widths and widths["O"] % heads == 0:
                yield Mark(name, f"has {heads} entries, one for every head", widths["O"] // heads)


def agreed(marks: list[Mark], d_head: int, n_heads: int, width: int, where: str) -> None:
    """Check that every mark says what the heads are.

    Raises
    ------
    InputError
        Naming the tensor that contradicts, and the number of heads that it says.
    """
    for mark in marks:
        if mark.d_head != d_head:
            raise InputError(
                f"{where}: {n_heads} heads of width {d_head} by the configuration, but tensor {mark.tensor!r} "
                f"{mark.says}: {width // mark.d_head} heads of width {mark.d_head}; correct num_attention_heads"
            )
