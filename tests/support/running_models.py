"""Tiny models of the architectures, ready for attribution, and cases to run them on."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from headspaces.attribution.cases import Case
from headspaces.attribution.running import RunningModel, running
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers
from support.tiny_models import N_LAYERS, TINY, build

CASES = [Case(tokens) for tokens in np.random.default_rng(3).integers(3, 40, size=(3, 12))]
SERVED = sorted(set(TINY) - {"opt-post-norm"})


@lru_cache
def running_tiny(name: str) -> RunningModel:
    """One tiny model in float64 with the heads as the pipeline reads them."""
    model = build(name)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        block = Path(folder) / "block.safetensors"
        fetch_block(read_headers(folder), range(N_LAYERS), block)
        heads = read_block(block)
    return running(model, None, heads, name)


def layer_of(model: RunningModel, name: str, layer: int):
    """Module of one layer."""
    return model.module.get_submodule(f"{TINY[name].layers}.{layer}")
