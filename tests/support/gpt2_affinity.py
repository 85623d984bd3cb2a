"""The affinities of the real GPT-2 small, computed once for all tests of a process."""

from functools import cache
from pathlib import Path

import numpy as np

from headspaces.affinity.run import affinity
from headspaces.geometry.heads import LayerHeads
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers
from support.project import ROOT

SCORES = ("simple_cs", "cs", "cka", "procrustes", "cka_invariant")
CLASSES = ROOT / "config" / "head_classes" / "gpt2-ioi.tsv"


@cache
def gpt2_layers(folder: Path, scratch: Path) -> list[LayerHeads]:
    headers = read_headers(str(folder))
    fetch_block(headers, range(headers.shape.n_layers), scratch)
    return read_block(scratch)


@cache
def gpt2_affinity(folder: Path, scratch: Path) -> dict[str, np.ndarray]:
    return affinity([lambda: gpt2_layers(folder, scratch)], scores=SCORES, same_kind=True)
