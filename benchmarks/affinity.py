"""Time and values of all of PK's affinities of a model, beside TransformerLens where it is installed.

``python benchmarks/affinity.py FOLDER`` reads a local checkpoint of GPT-2's size, computes the projection kernel of all
16 ordered kind pairs from the weights on (bases included) and Elhage's composition scores, and where
``transformer-lens==4.3.*`` can be imported, its ``attention_head_subspace_affinity`` (OQ, OK, OV) and
``composition_scores`` on the same weights; values must agree to 1e-5.
"""

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from headspaces.affinity import affinity
from headspaces.jobs import worker_count
from headspaces.weights import fetch_block, read_block, read_headers

TOLERANCE = 1e-5


def timed(call, repeats=3):
    """Run a call a few times; return its result and the shortest time in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def lens_model(layers):
    """Make what TransformerLens reads of a model: blocks with per-head weights, here in float64."""
    import torch

    def tensor(layer, kind):
        return torch.from_numpy(np.ascontiguousarray(layer.factors[kind]))

    blocks = []
    for layer in layers:
        weights = {f"W_{kind}": tensor(layer, kind) for kind in "QKV"}
        attention = SimpleNamespace(**weights, W_O=tensor(layer, "O").mT.contiguous())
        blocks.append((layer.layer, SimpleNamespace(attn=attention)))
    return SimpleNamespace(blocks_with=lambda _: blocks)


def lens_composition(model):
    """Compute TransformerLens' composition scores of all heads, by the space that is read."""
    import torch
    from transformer_lens import FactoredMatrix
    from transformer_lens.utilities.matrix import composition_scores

    stacked = {
        name: torch.stack([getattr(block.attn, name) for _, block in model.blocks_with("attn")])
        for name in ("W_Q", "W_K", "W_V", "W_O")
    }
    moved = FactoredMatrix(stacked["W_V"], stacked["W_O"])
    matched = FactoredMatrix(stacked["W_Q"], stacked["W_K"].mT)
    return {
        kind: composition_scores(moved, right).permute(0, 2, 1, 3).numpy()
        for kind, right in {"OQ": matched, "OK": matched.T, "OV": moved}.items()
    }


def compare(name, ours, theirs):
    """Print the largest difference over the pairs of a later layer; stop where it is too large."""
    difference = max(np.nanmax(np.abs(ours[kind] - theirs[kind])) for kind in theirs)
    print(f"{name}: largest difference {difference:.2g}")
    if not difference < TOLERANCE:
        raise SystemExit(f"{name}: values differ by {difference:.2g}, expected at most {TOLERANCE}")


def main():
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    parser.add_argument("folder", help="local checkpoint")
    folder = parser.parse_args().folder
    headers = read_headers(folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "layers.safetensors"
        fetch_block(headers, range(headers.shape.n_layers), path)
        layers = read_block(path)
    arrays, seconds = timed(lambda: affinity([lambda: layers], scores=[]))
    n_pairs = int(np.isfinite(arrays["pk/OQ"]).sum())
    print(f"projection kernel, {n_pairs} x 16 pairs with bases, {worker_count()} threads: {seconds:.2f} s")
    scores, with_scores = timed(lambda: affinity([lambda: layers], scores=["cs"]))
    print(f"composition scores, {n_pairs} x 3 pairs: {with_scores - seconds:.2f} s more")
    try:
        from transformer_lens.tools.analysis.projection_kernel import attention_head_subspace_affinity
    except ImportError as error:
        print(f"TransformerLens is not here ({error}): nothing to compare with")
        return
    model = lens_model(layers)
    theirs, seconds = timed(
        lambda: {
            f"O{kind}": attention_head_subspace_affinity(model, target_role=kind).scores.permute(0, 2, 1, 3).numpy()
            for kind in "QKV"
        },
        repeats=1,
    )
    print(f"TransformerLens, projection kernel, 3 of 16 kind pairs: {seconds:.2f} s")
    compare("projection kernel", {kind: arrays[f"pk/{kind}"] for kind in theirs}, theirs)
    theirs, seconds = timed(lambda: lens_composition(model), repeats=1)
    print(f"TransformerLens, composition scores: {seconds:.2f} s")
    compare("composition score", {kind: scores[f"cs/{kind}"] for kind in theirs}, theirs)


if __name__ == "__main__":
    main()
