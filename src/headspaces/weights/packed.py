"""Packed and scaled weights: decided by the attention's own tensors, whatever the configuration calls the method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.formats.dtypes import SCALED, check_supported, scale_block, scale_name
from headspaces.weights.headers import TensorHeader
from headspaces.weights.layout import Layout
from headspaces.weights.layouts import n_layers_present
from headspaces.weights.refused import MADE_WHEN_USED, quantisation_method

_MARKS = {
    "qweight": "GPTQ or AWQ", "qzeros": "GPTQ or AWQ", "SCB": "bitsandbytes, 8 bits",
    "weight.absmax": "bitsandbytes, 4 bits", "weight.quant_map": "bitsandbytes, 4 bits",
    "weight_packed": "compressed-tensors", "W_q": "HQQ", "q_weight": "EXL2", "trellis": "EXL3", "codebooks": "AQLM",
    "weight._data": "Quanto",
}  # fmt: skip
"""Ends of names that only packed weights have, by the name of the module."""


def check_packed(
    layout: Layout, prefix: str, tensors: Mapping[str, TensorHeader], quantisation: Mapping[str, Any], where: str
) -> str:
    """Refuse packed weights of the decoder's attention.

    Parameters
    ----------
    layout, prefix, tensors
        The layout, what stands before its names, and all tensors of the checkpoint.
    quantisation
        The configuration's ``quantization_config``, empty where there is none.
    where
        The checkpoint, for messages.

    Returns
    -------
    A note where the configuration speaks of quantised weights and the attention's are plain; else empty.

    Raises
    ------
    InputError
        Naming the scheme and the tensor that shows it.
    """
    method = quantisation_method(quantisation)
    refusal = "the file holds codes, not the weights; use the original checkpoint or a GGUF file"
    if str(quantisation.get("quant_method", "")).lower() == MADE_WHEN_USED:
        raise InputError(f"{where}: the weights are quantised ({method}): they are made ternary when they are used")
    scaled = False
    for layer in range(max(1, n_layers_present(layout, prefix, tensors))):
        start = prefix + layout.layer.format(layer=layer)
        for tensor in dict.fromkeys(layout.tensor(kind) for kind in KINDS):
            name = start + tensor
            module = name.removesuffix("weight")
            if mark := next((mark for mark in _MARKS if module + mark in tensors), None):
                raise InputError(
                    f"{where}: tensor {module + mark!r} says that the attention's weights are quantised "
                    f"({method or _MARKS[mark]}): {refusal}"
                )
            if name not in tensors:
                continue
            scale = scale_name(name, tensors)
            check_supported(tensors[name].dtype, f"{where}: tensor {name!r}", scaled=scale is not None)
            scaled |= scale is not None
        if method and any(start + layout.tensor(kind) not in tensors for kind in KINDS):
            raise InputError(f"{where}: the attention's weights are quantised ({method}): {refusal}")
    if not method or scaled or method == "MXFP4":
        return ""
    return f"the configuration speaks of quantised weights ({method}); the attention's are stored as they are"


def configured_block(quantisation: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns that share one scale where the configuration says so, else None."""
    groups = quantisation.get("config_groups")
    weights = (
        [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        if isinstance(groups, Mapping)
        else []
    )
    told = [quantisation.get("weight_block_size")]
    told += [one.get("block_structure") for one in weights if isinstance(one, Mapping)]
    for block in told:
        if isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block):
            return block[0], block[1]
    return None


def with_scales(
    name: str, tensors: Mapping[str, TensorHeader], block: tuple[int, int] | None, where: str
) -> dict[str, TensorHeader]:
    """Return one weight with the tensor of its scales, if it has one, which must fit it.

    Raises
    ------
    InputError
        If the scales are neither one for the whole, one a row, nor one a configured block.
    """
    tensor, scale = tensors[name], scale_name(name, tensors)
    if scale is None or tensor.dtype != SCALED:
        return {name: tensor}
    check_supported(tensors[scale].dtype, f"{where}: tensor {scale!r}")
    rows, columns = tensor.shape
    if scale_block((rows, columns), tensors[scale].shape, block) is None:
        blocks = [-(-rows // block[0]), -(-columns // block[1])] if block else "of no configured size"
        raise InputError(
            f"{where}: tensor {scale!r} has the shape {list(tensors[scale].shape)}; expected one scale, one for each "
            f"of {rows} rows, or one a block ({blocks})"
        )
    return {name: tensor, scale: tensors[scale]}
