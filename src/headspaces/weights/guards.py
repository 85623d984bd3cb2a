"""Guards: what a checkpoint's names say of weights that are not simply those of the model.

Whatever a user may mean by a file, only what the layout names is read. Anything beside it that would make other weights
of it (an adapter, a scale, a gate) is refused by name. Names alone decide, so that every format is guarded alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headspaces.errors import InputError
from headspaces.spaces import KINDS
from headspaces.weights.headers import TensorHeader
from headspaces.weights.layer_stack import layer_number, unwrapped
from headspaces.weights.layout import Layout, layer_tensors

ADAPTERS: dict[str, tuple[str, ...]] = {
    "DoRA": ("lora_magnitude_vector",),
    "AdaLoRA": ("lora_E", "ranknum"),
    "VB-LoRA": ("vblora_",),
    "RandLoRA": ("randlora_",),
    "Poly": ("poly_lora_", "poly_router"),
    "GraLoRA": ("gralora_",),
    "DeLoRA": ("delora_",),
    "X-LoRA": ("internal_xlora_",),
    "LoRA": ("lora_",),
    "IA3": ("ia3_",),
    "LoHa": ("hada_",),
    "LoKr": ("lokr_",),
    "OFT": ("oft_",),
    "BOFT": ("boft_",),
    "PSOFT": ("psoft_",),
    "OSF": ("osf_",),
    "VeRA": ("vera_", "pvera_"),
    "FourierFT": ("fourierft_",),
    "WaveFT": ("waveft_",),
    "HRA": ("hra_",),
    "Bone or MiSS": ("bone_", "miss_block"),
    "C3A": ("c3a_",),
    "SHiRA": ("shira_",),
    "RoAd": ("road_theta", "road_alpha"),
    "layer norm tuning": ("ln_tuning_layers",),
    "trainable tokens": ("trainable_tokens_", "token_adapter"),
    "prompt or prefix tuning": ("prompt_embeddings", "prompt_encoder", "adaption_prompt", "adaption_gate"),
    "bottleneck": ("adapters", "adapter_down", "adapter_up"),
    "PEFT": ("base_layer", "modules_to_save", "original_module"),
}
"""By family of adapters, what parts of its tensors' names begin with; the first family that fits names it."""

_STARTS = tuple(start for starts in ADAPTERS.values() for start in starts)
_PEFT_PREFIX = "base_model.model."

_HARMLESS = re.compile(
    r".*[._]bias"  # shifts, and the causal masks that GPT-2, GPT-Neo and GPT-NeoX store under this name
    r"|.*\.masked_bias"
    r"|.*[._](?:q|k|query|key)_?(?:layer_?norm|norm|ln)(?:\.norms\.\d+)?\.weight"  # inside a head
    r"|.*rotary\w*\..*|.*rot_embd\..*|.*inv_freq|.*embed_positions"
    r"|.*\.sinks|attn_sinks\.weight"  # logits without a token
    r"|.*\.(?:input|output|act|activation|q|k|v|kv|kv_cache|prob)_(?:global_)?scale(?:_ub)?"  # activations and caches
    r"|.*\.norm_factor|.*\.scale_attn"
    r"|post_attention_layernorm\.weight|attn_norm_2\.weight"  # before the MLP, where no row names it
    r"|self_attn_layer_norm\.weight"  # of the residual stream itself, where OPT's row does not name it
)
"""Tensors of an attention module that change no head's space, by their names inside the layer."""

_SCALES = re.compile(r".*[._](?:scales?|weight_scale\w*|weight_global_scale|scale_inv|scale_weight|\w*zero_?points?)")


def check_adapters(names: Iterable[str], where: str) -> None:
    """Refuse adapters that are not merged, of any family: the weights beside them are those of the base model.

    Raises
    ------
    InputError
        Naming the family, a tensor and the way out.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        for part in name.split("."):
            if part.startswith(_STARTS):
                found.setdefault(next(one for one, starts in ADAPTERS.items() if part.startswith(starts)), name)
        if name.startswith(_PEFT_PREFIX):
            found.setdefault("PEFT", name)
    if family := next((family for family in ADAPTERS if family in found), None):
        raise InputError(
            f"{where}: tensor {found[family]!r} belongs to an adapter ({family}) that is not merged: the weights "
            "beside it are the base model's; run model.merge_and_unload().save_pretrained(folder) and name that folder"
        )


def check_pruned(config: Mapping[str, Any], where: str) -> None:
    """Refuse a model with pruned heads: each of its layers has a number of heads of its own.

    Raises
    ------
    InputError
        Naming the layers.
    """
    pruned = config.get("pruned_heads")
    layers = [str(layer) for layer, heads in pruned.items() if heads] if isinstance(pruned, Mapping) else []
    if layers:
        raise InputError(
            f"{where}: the configuration's pruned_heads names heads of the layers {', '.join(layers)}: pruned layers "
            "have fewer heads than the configuration says and are not served; use the checkpoint before pruning"
        )


def check_unused(
    layout: Layout, prefix: str, n_layers: int, tensors: Mapping[str, TensorHeader], used: Collection[str], where: str
) -> None:
    """Account for every tensor of the attention that is not used: known and harmless, or the run stops.

    Parameters
    ----------
    layout, prefix, n_layers
        How the checkpoint is laid out.
    tensors
        All of the checkpoint.
    used
        Names of those that are read.
    where
        The checkpoint, for messages.

    Raises
    ------
    InputError
        Naming the tensor.
    """
    for name in sorted(tensors):
        layer, inside = layer_number(layout, prefix, name)
        plain = unwrapped(inside)
        if layer is None or layer >= n_layers or name in used or not re.search("attn|attention", plain.lower()):
            continue
        if name in layer_tensors(layout, prefix, layer, KINDS) or _HARMLESS.fullmatch(plain):
            continue
        if _SCALES.fullmatch(plain):
            beside = next((one for one in sorted(used) if one.removesuffix(".weight") + "." in name + "."), "a weight")
            dtype = f" ({tensors[beside].dtype})" if beside in tensors else ""
            raise InputError(
                f"{where}: tensor {name!r} scales {beside!r}{dtype}, and whether it is applied already cannot be told "
                "from the file; use a checkpoint whose scales are merged, or remove them where they are"
            )
        raise InputError(
            f"{where}: tensor {name!r} belongs to the attention, and the layout {layout.name} does not use it: the "
            "model computes something else than its layout says; see docs/architectures.md to add what it does"
        )
