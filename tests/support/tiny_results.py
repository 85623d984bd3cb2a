"""Results of two small models: one whose every number can be checked by hand, one drawn at random in any shape."""

from dataclasses import asdict

import numpy as np

from headspaces.affinity.classes import HeadClasses, class_arrays
from headspaces.affinity.run import affinity
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.report.results import ModelResults
from headspaces.spaces import Shape

SHAPE = {"d_model": 10, "d_head": 1, "n_layers": 2, "n_query_heads": 3, "n_kv_heads": 1}
ISOTROPIC = 0.1
RANDOM_SD = 0.015**0.5  # sqrt(2 * 9^2 / (10^2 * 9 * 12))
PAIRS = [(0, 1), (0, 2), (1, 2)]
# Layer 0: mean 0.28, deviations -0.24 -0.08 0.32, their squares' mean 0.1664 / 3; layer 1: constant.
WRITES = [[0.04, 0.2, 0.6], [0.4, 0.4, 0.4]]
WRITE_ANGLES = [[50.0, 40.0, 5.0], [30.0, 20.0, 10.0]]
WRITE_SPREAD = (0.1664 / 3) ** 0.5


def square(by_layer):
    """Fill symmetric (layer, head, head) arrays from the values of the pairs 01, 02, 12."""
    out = np.ones((len(by_layer), 3, 3))
    for layer, values in enumerate(by_layer):
        for (one, other), value in zip(PAIRS, values, strict=True):
            out[layer, one, other] = out[layer, other, one] = value
    return out


def later(values):
    """Put the values of layer pair 0 -> 1 into a (2, 2, writer, reader) array, NaN elsewhere."""
    out = np.full((2, 2, *np.shape(values)), np.nan)
    out[0, 1] = values
    return out


def overlaps():
    across = {
        "OQ": ([[0.1, 0.05, 0.3], [0.2, 0.02, 0.1], [0.15, 0.08, 0.1]], 9.5),
        "OK": ([[0.5], [0.1], [0.3]], 4.0),
        "OV": ([[0.01], [0.02], [0.09]], 70.25),
    }
    arrays = {
        "within/O/rho": square(WRITES),
        "within/O/angle": square(WRITE_ANGLES),
        "within/Q/rho": square([[0.1, 0.2, 0.3], [0.5, 0.5, 0.8]]),
        "within/Q/angle": square([[9, 8, 7], [6.5, 60, 80]]),
        "direct_sum/O/lambda_min": np.array([2e-7, 1e-11]),
    }
    for kind in "KV":
        arrays |= {f"within/{kind}/rho": np.ones((2, 1, 1)), f"within/{kind}/angle": np.zeros((2, 1, 1))}
    for spaces, (rho, largest) in across.items():
        weighted = np.ones(np.shape(rho))
        weighted[1, 0] = largest
        arrays |= {f"cross/{spaces}/rho": later(rho), f"cross/{spaces}/angle": later(90 - 100 * np.array(rho))}
        arrays[f"cross/{spaces}/weighted"] = later(weighted)
    return arrays


def nulls():
    """Two samples of each null model."""
    arrays = {
        "within/O/rotation/spread": [[0.05, 0.0], [0.15, 0.0]],
        "within/O/reassignment/spread": [[0.1, 0.0], [0.2, 0.0]],
        "within/O/rotation/mean": [[0.3, 0.39], [0.35, 0.38]],
        "within/O/reassignment/mean": [[0.29, 0.35], [0.4, 0.3]],
        "within/O/rotation/median": [[0.3, 0.3], [0.25, 0.5]],
        "within/O/reassignment/median": [[0.21, 0.5], [0.3, 0.6]],
        "within/O/rotation/p95": [[0.5, 0.3], [0.55, 0.39]],
        "within/O/reassignment/p95": [[0.4, 0.3], [0.3, 0.35]],
        "within/O/rotation/min_angle": [[6.0, 9.0], [7.0, 20.0]],
        "within/O/reassignment/min_angle": [[4.5, 11.0], [8.0, 12.0]],
        "pairs/O/layer": 0,
        "pairs/O/rotation/rho": [[0.05, 0.3, 0.5], [0.1, 0.2, 0.3]],
        "pairs/O/reassignment/rho": [[0.03, 0.1, 0.2], [0.3, 0.7, 0.65]],
    }
    across = {"OQ": (0.02, 0.2), "OK": (0.3, 0.25), "OV": (0.01, 0.03)}
    for spaces, (spread, mean) in across.items():
        for null, factor in (("rotation", 0.5), ("reassignment", 1.0)):
            for statistic, value in (("spread", spread), ("mean", mean)):
                samples = np.full((2, 2, 2), np.nan)
                samples[:, 0, 1] = [value * factor, value * factor / 2]
                arrays[f"cross/{spaces}/{null}/{statistic}"] = samples
    return {name: np.asarray(values) for name, values in arrays.items()}


def only_row(table, **names):
    """Return the one row of a table that has these names."""
    frame = table.frame
    for column, value in names.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0].to_dict()


def tiny_model(name="a_b & c"):
    return ModelResults(name, SHAPE, overlaps(), nulls())


def random_model(
    name, n_layers=5, n_query_heads=4, n_kv_heads=2, kinds="OQKV", stages=("nulls", "activations"), seed=0
):
    """Draw plausible overlaps: means above the isotropic value, nulls narrower than what is observed."""
    rng = np.random.default_rng(seed)
    n_heads = {"O": n_query_heads, "Q": n_query_heads, "K": n_kv_heads, "V": n_kv_heads}
    observed, null, active = {}, {}, {}
    writer, reader = np.triu_indices(n_layers, k=1)
    for kind in kinds:
        rho = rng.uniform(0.05, 0.5, (n_layers, n_heads[kind], n_heads[kind]))
        rho = (rho + rho.transpose(0, 2, 1)) / 2
        observed |= {f"within/{kind}/rho": rho, f"within/{kind}/angle": 90 * (1 - rho)}
        for model in ("rotation", "reassignment"):
            place = f"within/{kind}/{model}"
            null |= {f"{place}/{name}": rng.uniform(0.15, 0.35, (6, n_layers)) for name in ("mean", "median", "p95")}
            null[f"{place}/spread"] = rng.uniform(0.02, 0.09, (6, n_layers))
            null[f"{place}/min_angle"] = rng.uniform(40, 60, (6, n_layers))
            null[f"pairs/{kind}/{model}/rho"] = rng.uniform(0.2, 0.4, (6, n_heads[kind] * (n_heads[kind] - 1) // 2))
        null[f"pairs/{kind}/layer"] = np.array(n_layers // 2)
        null[f"pairs/{kind}/random/rho"] = rng.normal(0.25, 0.01, null[f"pairs/{kind}/rotation/rho"].shape)
    for kind in kinds[1:] if kinds.startswith("O") else "":
        shape = (n_layers, n_layers, n_query_heads, n_heads[kind])
        rho = np.full(shape, np.nan)
        rho[writer, reader] = rng.uniform(0.05, 0.5, (len(writer), *shape[2:]))
        observed |= {
            f"cross/O{kind}/rho": rho,
            f"cross/O{kind}/angle": 90 * (1 - rho),
            f"cross/O{kind}/weighted": 3 * rho,
        }
        active |= {
            f"{kind}/energy_fraction": rho * rng.lognormal(0, 0.2, shape),
            f"{kind}/linear": rho * rng.lognormal(0, 1, shape),
        }
        for model in ("rotation", "reassignment"):
            for statistic, low, high in (("spread", 0.02, 0.14), ("mean", 0.2, 0.3)):
                samples = np.full((6, n_layers, n_layers), np.nan)
                samples[:, writer, reader] = rng.uniform(low, high, (6, len(writer)))
                null[f"cross/O{kind}/{model}/{statistic}"] = samples
    shape = {"d_model": 16, "d_head": 4, "n_layers": n_layers, "n_query_heads": n_query_heads, "n_kv_heads": n_kv_heads}
    given = {"nulls": null, "activations": active or None}
    return ModelResults(name, shape, observed, **{stage: given[stage] for stage in stages})


PK_SHAPE = Shape(n_layers=2, d_model=16, n_query_heads=4, n_kv_heads=2, d_head=2)
PK_NAMES = {(0, 1): "Previous Token", (1, 0): "Induction", (1, 3): "Induction", (0, 0): "My own", (0, 2): "Identity"}
PK_CLASSES = HeadClasses("test", PK_NAMES, frozenset(PK_NAMES) - {(0, 2)})


def pk_model():
    """Two layers with everything that PK's tables and figures show."""
    rng = np.random.default_rng(4)
    sizes = {"O": 4, "Q": 4, "K": 2, "V": 2}
    layers = [
        LayerHeads(layer, {kind: rng.standard_normal((n, 16, 2)) for kind, n in sizes.items()}, Norm("rmsnorm"))
        for layer in range(2)
    ]
    arrays = affinity([lambda: layers], same_kind=True) | class_arrays(PK_CLASSES, PK_SHAPE)
    attention = {
        "identity": np.array([[0.1, 0.2, 0.9, 0.0], [0.3, 0.2, 0.1, 0.0]]),
        "previous_token": np.array([[0.4, 0.8, 0.0, 0.0], [0.0, 0.0, 0.39, 0.0]]),
        "induction": np.array([[0.0, 0.0, 0.0, 0.0], [0.7, 0.0, 0.0, 0.6]]),
        "top_token_texts": np.array([[[b" one", b"$x$", b"\n", b"\xe2\x86\x92"]] * 4] * 2, dtype="S48"),
    }
    return ModelResults("t_$1$", asdict(PK_SHAPE), {}, affinity=arrays, attention=attention)
