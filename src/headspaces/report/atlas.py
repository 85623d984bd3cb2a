"""The atlas: one self-contained interactive page for a model, with every overlap that its overlaps file holds.

The page needs no server and no network: styles, script and numbers are inside. Numbers are rounded to what the page
shows (:func:`pack`); the overlaps file has every digit. Of a comparison with too many pairs the page holds the
layer pairs with the largest overlaps, and the principal angles of the strongest pairs only; it says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from markupsafe import Markup

from headspaces.affinity.classes import PATTERNS
from headspaces.report.atlas_packing import Packed, as_base64, pack
from headspaces.report.atlas_stream import strongest_lists, strongest_paths
from headspaces.report.html import render_page, script_json
from headspaces.report.pair_tests import pair_tests
from headspaces.report.pk_results import classes_of
from headspaces.report.results import Comparison, ModelResults, first_measure
from headspaces.spaces import NULLS
from headspaces.store import dataset_names, read_arrays, read_attributes
from headspaces.text_tables import write_text

STRONGEST = 500
"""Pairs of a comparison whose principal angles the page holds."""
ALL_UP_TO = 2000
"""A comparison with no more pairs has the principal angles of all of them."""
PAIR_BUDGET = 450_000
"""Pairs of all comparisons together whose values the page holds: about 7 MB."""
QUANTILES = 1001
"""Quantiles that stand for the null samples' pairs."""

FACTS = {
    "source": "source", "revision": "revision", "n_layers": "layers", "n_query_heads": "query heads",
    "n_kv_heads": "key-value heads", "d_model": "d_model", "d_head": "d_head", "norm": "norm",
    "fold": "norm folded into reads", "rank_rtol": "relative tolerance of ranks",
    "leave_out_rounding": "directions within the storage's rounding left out", "package_version": "headspaces",
}  # fmt: skip
"""Attributes that the page shows, and what it calls them."""

ReadBasis = Callable[[str, int], Float[np.ndarray, "head d_model d_head"]]


def pairs_with_curves(comparison: Comparison) -> Int[np.ndarray, " pair"]:
    """Return flat indices (condition, pair) of the pairs with the largest rho, descending; all where they are few."""
    rho = comparison.rho.ravel()
    defined = np.flatnonzero(np.isfinite(rho))
    order = defined[np.argsort(-rho[defined], kind="stable")]
    return order if comparison.rho.size <= ALL_UP_TO else order[:STRONGEST]


def principal_cosines(
    overlaps: Mapping[str, np.ndarray], attributes: Mapping[str, Any], read_basis: ReadBasis
) -> dict[str, Float[np.ndarray, "pair angle"]]:
    """Cosines of all principal angles of the strongest pairs of every comparison.

    ``read_basis`` gives the orthonormal bases of one kind and layer (:func:`stored_bases`); columns beyond a rank are
    zero. They are, by comparison (``O`` … ``OV``) and in the order of :func:`pairs_with_curves`, cosines in descending
    order, NaN beyond the smaller of the two ranks.
    """
    read = lru_cache(maxsize=8)(read_basis)
    results = ModelResults(str(attributes["model"]), attributes, overlaps)
    return {comparison.spaces: _cosines(comparison, overlaps, read) for comparison in results.compare_all()}


def stored_bases(paths: Sequence[str | Path]) -> ReadBasis:
    """Read bases from a model's files, in the order of its layers; three kinds of a file are held at a time."""
    places: list[tuple[str | Path, int]] = []
    for path in paths:
        rank = next(name for name in dataset_names(path, "bases") if name.startswith("rank/"))
        places += [(path, index) for index in range(len(read_arrays(path, "bases", [rank])[rank]))]

    @lru_cache(maxsize=3)
    def read(path: str | Path, kind: str) -> np.ndarray:
        return read_arrays(path, "bases", [f"{kind}/basis"])[f"{kind}/basis"]

    def basis(kind: str, layer: int) -> np.ndarray:
        path, index = places[layer]
        return np.asarray(read(path, kind)[index])

    return basis


def _cosines(comparison: Comparison, overlaps: Mapping[str, np.ndarray], read: ReadBasis) -> np.ndarray:
    left, right = comparison.spaces[0], comparison.spaces[-1]
    chosen = pairs_with_curves(comparison)
    if not len(chosen):
        return np.empty((0, 0))
    conditions, pairs = np.divmod(chosen, comparison.n_pairs)
    one, other = _heads(comparison, pairs)
    values: list[np.ndarray] = [np.empty(0)] * len(chosen)
    for condition in np.unique(conditions):
        layer, later = (int(number) for number in comparison.layers[condition])
        at = np.flatnonzero(conditions == condition)
        products = read(left, layer)[one[at]].swapaxes(1, 2) @ read(right, later)[other[at]]
        ranks = np.minimum(overlaps[f"rank/{left}"][layer, one[at]], overlaps[f"rank/{right}"][later, other[at]])
        singular = np.linalg.svd(products.astype(np.float64), compute_uv=False)
        for place, cosines, rank in zip(at, np.minimum(singular, 1.0), ranks):
            values[place] = np.where(np.arange(len(cosines)) < rank, cosines, np.nan)
    return np.stack(values)


def _heads(comparison: Comparison, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two heads of pairs of one condition."""
    rows, columns = _grid(comparison)
    if comparison.scope == "across":
        return np.divmod(pairs, columns)
    one, other = np.triu_indices(rows, k=1)
    return one[pairs], other[pairs]


def _grid(comparison: Comparison) -> tuple[int, int]:
    """Return the numbers of heads on both sides of a comparison."""
    overlaps, spaces = comparison.model.overlaps, comparison.spaces
    place = f"within/{spaces}/rho" if comparison.scope == "within" else f"cross/{spaces}/rho"
    rows, columns = overlaps[place].shape[-2:]
    return int(rows), int(columns)


def atlas_page(
    overlaps: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    *,
    nulls: Mapping[str, np.ndarray] | None = None,
    attention: Mapping[str, np.ndarray] | None = None,
    affinity: Mapping[str, np.ndarray] | None = None,
    attribution: Mapping[str, np.ndarray] | None = None,
    stream: Mapping[str, np.ndarray] | None = None,
    cosines: Mapping[str, Float[np.ndarray, "pair angle"]] | None = None,
    report: str = "",
) -> str:
    """Return a model's page, from the arrays and root attributes of its overlaps file.

    With the arrays of its nulls file each layer's and layer pair's null samples are shown beside the observed value,
    with those of the attention and affinity files what heads are known or measured to do, with those of the attribution
    file every edge's effect on the loss, with those of the stream file the neurons and tokens of the chosen heads, and
    with :func:`principal_cosines` the strongest pairs' angles. ``report`` is the address of the study's report.
    """
    name = str(attributes["model"])
    results = ModelResults(
        name,
        attributes,
        overlaps,
        nulls,
        affinity=affinity,
        attention=attention,
        attribution=attribution,
        stream=stream,
    )
    lists = strongest_lists(stream or {})
    return render_page(
        "atlas",
        name=results.name,
        report=report,
        facts=[(label, str(attributes[name])) for name, label in FACTS.items() if name in attributes],
        streamed=bool(lists),
        data=Markup(  # noqa: S704 (escaped by script_json)
            script_json(_data(results, cosines or {}) | {"stream": lists | {"paths": strongest_paths(results)}})
        ),
    )


def write_atlas(files: Mapping[str, str], bases: Sequence[str], path: str, report: str = "") -> None:
    """Write a model's page from its files by stage, the overlaps and what :func:`atlas_page` takes, and its bases."""
    overlaps, attributes = read_arrays(files["overlaps"], "overlaps"), read_attributes(files["overlaps"], "overlaps")
    cosines = principal_cosines(overlaps, attributes, stored_bases(bases))
    stages = {stage: read_arrays(file, stage) for stage, file in files.items() if stage != "overlaps"}
    write_text(atlas_page(overlaps, attributes, **stages, cosines=cosines, report=report), path)


def _data(results: ModelResults, cosines: Mapping[str, np.ndarray]) -> Packed:
    comparisons = [comparison for comparison in results.compare_all() if comparison.rho.size]
    share = PAIR_BUDGET / max(1, sum(comparison.rho.size for comparison in comparisons))
    return {
        "model": results.name,
        "layers": int(results.attributes["n_layers"]),
        "fold": bool(results.attributes.get("fold", False)),
        "isotropic": results.isotropic,
        "random_sd": results.random_sd,
        "marks": _marks(results),
        "ranks": {kind: results.overlaps[f"rank/{kind}"].tolist() for kind in results.kinds},
        "comparisons": {
            comparison.spaces: _comparison(comparison, share, cosines.get(comparison.spaces))
            for comparison in comparisons
        },
    }


def _marks(results: ModelResults) -> Packed:
    """Classes of query heads by ``layer.head``, whose classes they are, and measured attention patterns."""
    classes = classes_of(results)
    names = classes.names if classes else {}
    return {
        "source": classes.name if classes else "",
        "classes": {f"{layer}.{head}": name for (layer, head), name in names.items()},
        "patterns": {name: np.round(results.attention[name], 3).tolist() for name in PATTERNS}
        if results.attention
        else {},
    }


def _comparison(comparison: Comparison, share: float, cosines: np.ndarray | None) -> Packed:
    rows, columns = _grid(comparison)
    quantities = {"rho": comparison.rho, "angle": comparison.angles}
    for name in ("simple_composition", "weighted"):
        if f"cross/{comparison.spaces}/{name}" in comparison.model.overlaps:
            quantities[name] = comparison.model.across_values(comparison.spaces, name)
    if (effects := _effects(comparison)) is not None:
        quantities["effect"] = effects
    if (tests := pair_tests(comparison)) is not None:
        quantities |= {"swap_z": tests.z, "swap_p": tests.p}
    kept = _kept(comparison, share)
    strongest = pairs_with_curves(comparison)
    packed: Packed = {
        "scope": comparison.scope,
        "rows": rows,
        "columns": columns,
        "conditions": comparison.layers.tolist(),
        "kept": None if len(kept) == comparison.n_conditions else kept.tolist(),
        "values": {name: pack(values[kept], name) for name, values in quantities.items()},
        "summary": {name: _summary(values, name) for name, values in quantities.items()},
        "strongest": {
            "index": as_base64(strongest.astype("<u4")),
            "values": {name: pack(values.ravel()[strongest], name) for name, values in quantities.items()},
        },
        "cosines": None,
        "nulls": _nulls(comparison),
    }
    if cosines is not None and len(cosines) == len(strongest):
        packed["cosines"] = {"count": cosines.shape[1], **pack(cosines, "cosine")}
    return packed


def _effects(comparison: Comparison) -> Float[np.ndarray, "condition pair"] | None:
    """First-order effects of the edges on the first loss in thousandths of a nat, where the model was run."""
    attribution = comparison.model.attribution
    if attribution is None or comparison.scope == "within":
        return None
    of_edges = attribution[f"{first_measure(attribution)}{comparison.spaces[1]}/effect"]
    writer, reader = comparison.layers.T
    values: np.ndarray = 1e3 * of_edges[writer, reader].reshape(comparison.rho.shape)
    return values


def _kept(comparison: Comparison, share: float) -> Int[np.ndarray, " condition"]:
    """Choose the conditions whose pairs go on the page: all, or those with the largest overlaps."""
    n = comparison.n_conditions if share >= 1 else int(share * comparison.n_conditions)
    largest = np.fmax.reduce(comparison.rho, axis=1)
    return np.sort(np.argsort(-np.nan_to_num(largest, nan=-1.0), kind="stable")[:n])


def _summary(values: np.ndarray, name: str) -> Packed:
    """Mean, spread and strongest value of conditions: smallest angle or p, effect of largest size, else the largest."""
    defined = [row[np.isfinite(row)] for row in values]
    choices: dict[str, Callable[[np.ndarray], Any]] = {"angle": np.min, "swap_p": np.min, "effect": _of_largest_size}
    strongest = choices.get(name, np.max)
    statistics: dict[str, Callable[[np.ndarray], Any]] = {"mean": np.mean, "spread": np.std, "strongest": strongest}
    return {
        key: pack(np.array([statistic(row) if row.size else np.nan for row in defined]), "")
        for key, statistic in statistics.items()
    }


def _of_largest_size(values: np.ndarray) -> Any:
    return values[abs(values).argmax()]


def _nulls(comparison: Comparison) -> Packed | None:
    """Summarise the null samples of each condition, and the pairs of the samples of one layer by their quantiles."""
    if not comparison.has_nulls("spread") or not comparison.has_nulls("mean"):
        return None
    packed: Packed = {"samples": min(len(samples) for samples in comparison.samples("spread"))}
    for null in NULLS:
        spread, mean = comparison.nulls[null]["spread"], comparison.nulls[null]["mean"]
        statistics = {
            "spread_mean": spread.mean(axis=0), "spread_largest": spread.max(axis=0), "mean_mean": mean.mean(axis=0),
            "mean_smallest": mean.min(axis=0), "mean_largest": mean.max(axis=0),
        }  # fmt: skip
        packed[null] = {name: pack(values, "") for name, values in statistics.items()}
    pairs = comparison.null_pairs()
    if pairs is not None and all(np.isfinite(pairs.rho[null]).any() for null in NULLS):
        grid = np.linspace(0, 1, QUANTILES)
        quantiles = {null: pack(np.nanquantile(pairs.rho[null], grid), "rho") for null in NULLS}
        packed["pairs"] = {"layer": pairs.layer, **quantiles}
    return packed
