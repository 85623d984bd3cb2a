"""Calibration of the null models: how often they find something where nothing is, and where something was planted.

100 layers of six heads (d = 6, D = 48), nine samples: by chance one layer in ten is above all of them. ``python
tests/campaigns/test_calibration.py`` prints the table of ``docs/swap.md``.
"""

import numpy as np
import pytest
from scipy import stats

from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.geometry.kernel import squared_overlaps
from headspaces.geometry.statistics import above_all, pair_statistics
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.nulls.significance import pair_scores
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.spaces import Shape

pytestmark = pytest.mark.campaign

LAYERS, HEADS, WIDTH, OWN, SAMPLES = 100, 6, 48, 6, 9
SHAPE = Shape(LAYERS, WIDTH, HEADS, HEADS, OWN)
PAIRS = np.triu_indices(HEADS, 1)
NULLS = ("rotation", "reassignment", "swap")
LEVELS = (0.05, 0.01, 0.001)


def random_heads(rng):
    return rng.standard_normal((LAYERS, HEADS, WIDTH, OWN))


def spiked(rng, weight):
    """Heads of random directions and one that all of a layer have, with a weight in the first of their columns."""
    heads = random_heads(rng)
    heads[..., 0] += weight * np.sqrt(WIDTH) * unit(rng)[:, None, :]
    return heads


def unit(rng):
    directions = rng.standard_normal((LAYERS, WIDTH))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def clusters(rng, share):
    """Three pairs of heads in each layer, of which this share of the variance is common to both."""
    common = np.repeat(rng.standard_normal((LAYERS, HEADS // 2, WIDTH, OWN)), 2, axis=1)
    return np.sqrt(share) * common + np.sqrt(1 - share) * random_heads(rng)


def quantised(heads):
    """In steps of a 15th of the range of every 32 numbers, as blocks of four bits have."""
    blocks = heads.reshape(-1, 32)
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    step = (high - low) / 15
    return (low + step * np.rint((blocks - low) / step)).reshape(heads.shape)


def runs(heads):
    layers = [LayerHeads(i, {"O": one}, Norm("none")) for i, one in enumerate(heads)]
    block = block_bases(layers, fold_norms=False)
    plain = NullRun(lambda layer, _: heads[layer], SHAPE, "O", "m", 0)
    start = burnt_in(block, 0, seed=0, model="m", burn_in=10, dtype="float64")
    swap = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], SHAPE, "O", "m", 0, burn_in=10)
    rho = np.stack([squared_overlaps(one, one)[PAIRS] / OWN for one in block["O/basis"]])
    return rho, {"rotation": plain, "reassignment": plain, "swap": swap}


def layers_above_all(heads):
    """By null model, how many of the layers spread more than all samples; and the swap null's p of all pairs."""
    rho, of_null = runs(heads)
    spread, found = pair_statistics(rho)["spread"], {}
    for null, run in of_null.items():
        samples = null_shard(run, null, range(SAMPLES))
        found[null] = int(above_all(spread, samples[f"within/O/{null}/spread"]).sum())
        if null == "swap":
            moments = (samples[f"within/O/swap/{name}"] for name in ("mean", "spread", "skewness"))
            found["p"] = pair_scores(rho, *moments)[1]
    return found


def samples_above_all(heads):
    """Whether a sample of a null model is above nine others of it, over the layers."""
    found = {}
    for null, run in runs(heads)[1].items():
        spreads = null_shard(run, null, range(SAMPLES + 1))[f"within/O/{null}/spread"]
        found[null] = int(above_all(spreads[0], spreads[1:]).sum())
    return found


def band(n, p):
    low, high = stats.binom.interval(0.998, n, p)
    return int(low), int(high)


def test_null_models_against_themselves():
    found = samples_above_all(clusters(np.random.default_rng(1), 0.5))
    low, high = band(LAYERS, 1 / (SAMPLES + 1))
    assert all(low <= found[null] <= high for null in NULLS), found


@pytest.mark.parametrize("change", [lambda heads: heads, quantised], ids=["as drawn", "four bits"])
def test_random_heads(change):
    found = layers_above_all(change(random_heads(np.random.default_rng(2))))
    low, high = band(LAYERS, 1 / (SAMPLES + 1))
    assert all(low <= found[null] <= high for null in NULLS), found
    for level in LEVELS:
        low, high = band(found["p"].size, level)
        assert low <= (found["p"] <= level).sum() <= high, level


@pytest.mark.parametrize("weight", [1, 4])
def test_a_common_direction_is_no_finding_of_the_swap_null(weight):
    found = layers_above_all(spiked(np.random.default_rng(3), weight))
    assert found["swap"] <= band(LAYERS, 1 / (SAMPLES + 1))[1]


def test_power_grows_with_what_was_planted():
    rng = np.random.default_rng(4)
    found = [layers_above_all(clusters(rng, share))["swap"] for share in (0.02, 0.3, 0.6)]
    chance = band(LAYERS, 1 / (SAMPLES + 1))[1]
    assert found[0] <= chance < found[1] < found[2]
    assert found[2] > 0.95 * LAYERS


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    print("band", band(LAYERS, 1 / (SAMPLES + 1)), [band(LAYERS * len(PAIRS[0]), level) for level in LEVELS])
    print("themselves", samples_above_all(clusters(rng, 0.5)))
    scenes = {"random": random_heads(rng), "random, four bits": quantised(random_heads(rng))}
    scenes |= {f"common direction, weight {weight}": spiked(rng, weight) for weight in (1, 4)}
    scenes |= {f"pairs, share {share}": clusters(rng, share) for share in (0.02, 0.1, 0.3, 0.6)}
    scenes["pairs, share 0.1, four bits"] = quantised(clusters(rng, 0.1))
    for name, heads in scenes.items():
        found = layers_above_all(heads)
        p = found.pop("p")
        print(name, found, [int((p <= level).sum()) for level in LEVELS], flush=True)
