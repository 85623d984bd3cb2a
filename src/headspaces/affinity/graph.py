"""Graph of a model's heads: the strongest pairs of each comparison are edges to later heads (PK, figures 1 and 6).

Nodes are query heads, named ``layer.head``. Where key-value heads are shared (GQA) they are nodes of their own, named
``layer.kv.head``: an OK or OV edge ends at the head that reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float

from headspaces.affinity.classes import HeadClasses
from headspaces.files import whole_file
from headspaces.spaces import ACROSS, Shape

if TYPE_CHECKING:
    import networkx as nx

    HeadGraph: TypeAlias = nx.MultiDiGraph[str]
else:
    # networkx takes a while to import: only the jobs that make a graph wait for it, in the functions below.
    HeadGraph = Any

STRONGEST = 20
"""Edges of each type in PK's graphs."""

EDGE_ENDS = ("type", "source_layer", "source_head", "target_layer", "target_head")
"""Columns that name an edge."""

EDGE_TESTS = ("rho", "z", "p", "q", "p_condition")
"""Columns of an edge's test against the swap null, where it was tested."""

Positions: TypeAlias = dict[str, tuple[float, float]]
"""By node, x and y."""


def strongest_edges(arrays: Mapping[str, np.ndarray], score: str = "pk", k: int = STRONGEST) -> pd.DataFrame:
    """List the k strongest pairs of each type, the strongest first.

    ``arrays`` are those of :func:`headspaces.affinity.run.affinity`; there are fewer edges where there are fewer pairs.
    The frame's columns are ``type``, ``source_layer``, ``source_head``, ``target_layer``, ``target_head``, the score
    under its own name, and ``rank`` within the type from 1. Ties go to the earlier layers and heads.
    """
    frames = [_strongest(arrays[f"{score}/{kind}"], k).assign(type=kind) for kind in ACROSS]
    return pd.concat(frames, ignore_index=True)[[*EDGE_ENDS, "score", "rank"]].rename(columns={"score": score})


def _strongest(pairs: Float[np.ndarray, "source_layer target_layer source_head target_head"], k: int) -> pd.DataFrame:
    indices = np.argwhere(np.isfinite(pairs))
    scores = pairs[tuple(indices.T)]
    # The last key is the first to sort by; ties keep the order of layers and heads.
    chosen = np.lexsort((*indices.T[::-1], -scores))[:k]
    names = ("source_layer", "target_layer", "source_head", "target_head")
    columns = dict(zip(names, indices[chosen].T, strict=True))
    return pd.DataFrame({**columns, "score": scores[chosen], "rank": np.arange(1, len(chosen) + 1)})


def edges_with_tests(arrays: Mapping[str, np.ndarray], tests: pd.DataFrame, k: int = STRONGEST) -> pd.DataFrame:
    """List PK's k strongest pairs of each type and all pairs that stand against the swap null.

    ``tests`` has for tested pairs, named by :data:`EDGE_ENDS`, the columns of :data:`EDGE_TESTS` and ``standing``. To
    the columns of :func:`strongest_edges` come those of the tests, NaN for pairs that were not tested; ``rank`` is NaN
    for pairs that are not among the k strongest.
    """
    chosen = tests[tests["standing"].astype(bool)]
    strongest = strongest_edges(arrays, k=k)
    names = pd.concat([strongest, chosen])[list(EDGE_ENDS)].drop_duplicates(ignore_index=True)
    edges = names.merge(strongest[[*EDGE_ENDS, "rank"]], how="left", on=list(EDGE_ENDS))
    edges = edges.merge(tests[[*EDGE_ENDS, *EDGE_TESTS]], how="left", on=list(EDGE_ENDS))
    places = edges[["source_layer", "target_layer", "source_head", "target_head"]].to_numpy(int).tolist()
    return edges.assign(pk=[arrays[f"pk/{kind}"][tuple(place)] for kind, place in zip(edges["type"], places)])


def build_graph(edges: pd.DataFrame, score: str, shape: Shape, classes: HeadClasses | None = None) -> HeadGraph:
    """Make the directed graph of the edges.

    ``edges`` are those of :func:`strongest_edges`, weighted by the score; the shape tells whether key-value heads are
    shared. Nodes have ``layer``, ``head``, ``kind`` (``query`` or ``key-value``) and ``head_class`` (empty for none);
    edges ``type``, ``weight`` and, where they have them, ``rank``, the columns of :data:`EDGE_TESTS` and ``effect``,
    and their type as key.
    """
    import networkx as nx

    # Composition scores are by query head on both sides.
    shared = shape.n_kv_heads < shape.n_query_heads and score != "cs"
    known = classes.names if classes else {}
    graph: HeadGraph = nx.MultiDiGraph(score=score)
    for edge in edges.to_dict("records"):
        nodes = []
        for layer, head, kind in (
            (edge["source_layer"], edge["source_head"], "query"),
            (edge["target_layer"], edge["target_head"], "key-value" if shared and edge["type"] != "OQ" else "query"),
        ):
            name = f"{layer}.{head}" if kind == "query" else f"{layer}.kv.{head}"
            head_class = known.get((layer, head), "") if kind == "query" else ""
            graph.add_node(name, layer=int(layer), head=int(head), kind=kind, head_class=head_class)
            nodes.append(name)
        source, target = nodes
        known_of_edge = {name: edge[name] for name in ("rank", *EDGE_TESTS, "effect") if pd.notna(edge.get(name))}
        more = {name: int(value) if name == "rank" else float(value) for name, value in known_of_edge.items()}
        graph.add_edge(source, target, edge["type"], type=edge["type"], weight=edge[score], **more)
    return graph


def rank_hubs(graph: HeadGraph) -> pd.DataFrame:
    """List every node's degrees, the hubs first.

    The frame's columns are ``layer``, ``head``, ``kind``, ``head_class``; ``n_edges``, ``n_in``, ``n_out``; ``weight``,
    ``weight_in``, ``weight_out`` (sums of the score); ``pagerank`` (weighted, along the edges, damping 0.85); ``in_oq``
    to ``out_ov`` (edges by type); ``rank`` by number of edges, then by weight.
    """
    import networkx as nx

    pagerank = nx.pagerank(graph, weight="weight", tol=1e-12, max_iter=1000) if len(graph) else {}
    rows = []
    for node, data in graph.nodes(data=True):
        into = [edge for *_, edge in graph.in_edges(node, data=True)]
        out = [edge for *_, edge in graph.out_edges(node, data=True)]
        row: dict[str, Any] = {name: data[name] for name in ("layer", "head", "kind", "head_class")}
        row |= {"n_edges": len(into) + len(out), "n_in": len(into), "n_out": len(out)}
        row |= {"weight": _weight(into) + _weight(out), "weight_in": _weight(into), "weight_out": _weight(out)}
        row["pagerank"] = pagerank[node]
        for side, edges in (("in", into), ("out", out)):
            row |= {f"{side}_{kind.lower()}": sum(edge["type"] == kind for edge in edges) for kind in ACROSS}
        rows.append(row)
    hubs = pd.DataFrame(rows).sort_values(
        ["n_edges", "weight", "layer", "head"], ascending=[False, False, True, True], ignore_index=True
    )
    return hubs.assign(rank=np.arange(1, len(hubs) + 1))


def _weight(edges: Iterable[Mapping[str, Any]]) -> float:
    return math.fsum(edge["weight"] for edge in edges)


def class_counts(graph: HeadGraph) -> tuple[int, int]:
    """Count the nodes in a class and in none, as in the titles of PK's figure 1."""
    inside = sum(bool(data["head_class"]) for _, data in graph.nodes(data=True))
    return inside, len(graph) - inside


def write_graph(graph: HeadGraph, graphml_path: str | Path, json_path: str | Path) -> None:
    """Write a graph as GraphML and as JSON (node-link form), each file whole or not at all."""
    import networkx as nx

    with whole_file(graphml_path) as path:
        nx.write_graphml(graph, path, named_key_ids=True)
    with whole_file(json_path) as path:
        text = json.dumps(nx.node_link_data(graph, edges="edges"), indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")


def ring_positions(graph: HeadGraph, class_order: Iterable[str] = ()) -> Positions:
    """Heads without a class on the unit circle by layer, clockwise from the top; heads of a class on a circle inside.

    The classes follow each other in ``class_order`` with a gap between them.
    """
    data = {node: graph.nodes[node] for node in graph}
    order = list(class_order) + sorted({one["head_class"] for one in data.values()} - set(class_order))
    inside = sorted(
        (node for node in data if data[node]["head_class"]),
        key=lambda node: (order.index(data[node]["head_class"]), data[node]["layer"], data[node]["head"]),
    )
    outside = sorted((node for node in data if not data[node]["head_class"]), key=lambda node: _order(data[node]))
    positions = dict(zip(outside, _on_circle(1.0, np.arange(len(outside)), len(outside)), strict=True))
    slots: list[int] = []
    last = ""
    for node in inside:
        # A new class leaves one slot free.
        slots.append(slots[-1] + 1 + (data[node]["head_class"] != last) if slots else 0)
        last = data[node]["head_class"]
    positions |= dict(zip(inside, _on_circle(0.62, np.array(slots), slots[-1] + 2 if slots else 1), strict=True))
    return positions


def _on_circle(radius: float, slots: np.ndarray, n_slots: int) -> list[tuple[float, float]]:
    angles = np.pi / 2 - 2 * np.pi * slots / max(1, n_slots)
    return [(float(radius * np.cos(angle)), float(radius * np.sin(angle))) for angle in angles]


def layered_positions(graph: HeadGraph) -> Positions:
    """Heads in rows, one row a layer with edges, upwards; in a row each head near the heads below that write to it.

    x runs from 0 to 1; y is the layer.
    """
    data = {node: graph.nodes[node] for node in graph}
    positions: Positions = {}
    for layer in sorted({one["layer"] for one in data.values()}):
        row = sorted((node for node in data if data[node]["layer"] == layer), key=lambda node: _order(data[node]))
        sources = {node: [positions[other][0] for other in graph.predecessors(node)] for node in row}
        middle = {node: float(np.mean(sources[node])) if sources[node] else 0.5 for node in row}
        row.sort(key=lambda node: middle[node])
        positions |= {node: ((slot + 0.5) / len(row), float(layer)) for slot, node in enumerate(row)}
    return positions


def _order(data: Mapping[str, Any]) -> tuple[int, str, int]:
    return data["layer"], data["kind"], data["head"]
