"""The scores of TransformerLens 4.3 on heads that are cut already; importing this needs ``transformer-lens==4.3.*``."""

from types import SimpleNamespace

import numpy as np
import torch
from transformer_lens import FactoredMatrix
from transformer_lens.tools.analysis.projection_kernel import attention_head_subspace_affinity
from transformer_lens.utilities.matrix import composition_scores


def kernel_of(layers):
    """Projection kernel of writers with later readers, by the spaces: [layer, later layer, head, head]."""
    blocks = [(layer.layer, SimpleNamespace(attn=SimpleNamespace(**_weights(layer)))) for layer in layers]
    model = SimpleNamespace(blocks_with=lambda _: blocks)
    return {
        f"O{kind}": attention_head_subspace_affinity(model, target_role=kind).scores.permute(0, 2, 1, 3).numpy()
        for kind in "QKV"
    }


def composition_of(layers):
    """Elhage's composition scores, in the same shape."""
    weights = [_weights(layer) for layer in layers]
    stacked = {name: torch.stack([one[name] for one in weights]) for name in ("W_Q", "W_K", "W_V", "W_O")}
    moved = FactoredMatrix(stacked["W_V"], stacked["W_O"])
    matched = FactoredMatrix(stacked["W_Q"], stacked["W_K"].mT)
    return {
        kind: composition_scores(moved, right).permute(0, 2, 1, 3).numpy()
        for kind, right in {"OQ": matched, "OK": matched.T, "OV": moved}.items()
    }


def _weights(layer):
    """Weights of a layer's heads as TransformerLens holds them, in float64."""
    tensors = {f"W_{kind}": torch.from_numpy(np.ascontiguousarray(layer.factors[kind])) for kind in "QKVO"}
    return tensors | {"W_O": tensors["W_O"].mT.contiguous()}
