import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.gpt2_affinity import CLASSES, gpt2_affinity

from headspaces.affinity.classes import HeadClasses, read_head_classes
from headspaces.affinity.graph import (
    build_graph,
    class_counts,
    layered_positions,
    rank_hubs,
    ring_positions,
    strongest_edges,
    write_graph,
)
from headspaces.spaces import Shape

SHAPE = Shape(n_layers=3, d_model=8, n_query_heads=2, n_kv_heads=1, d_head=2)
GPT2_SHAPE = Shape(n_layers=12, d_model=768, n_query_heads=12, n_kv_heads=12, d_head=64)
CLASS = HeadClasses("test", {(1, 0): "Induction", (0, 1): "Previous Token", (2, 1): "Induction"}, frozenset())


def pairs(n_target, values):
    out = np.full((3, 3, 2, n_target), np.nan)
    for (source, target), scores in values.items():
        out[source, target] = scores
    return out


@pytest.fixture
def arrays():
    """Five edges matter: 0.1 -> 1 and 2 by OQ, OK, and 1.0 -> 2."""
    return {
        "pk/OQ": pairs(2, {(0, 1): [[1, 1], [7, 1]], (0, 2): [[1, 1], [1, 6]], (1, 2): [[1, 6], [1, 1]]}),
        "pk/OK": pairs(1, {(0, 1): [[2], [9]], (0, 2): [[0], [8]], (1, 2): [[0], [0]]}),
        "pk/OV": pairs(1, {(0, 1): [[3], [1]], (0, 2): [[1], [1]], (1, 2): [[5], [1]]}),
    }


@pytest.fixture
def graph(arrays):
    return build_graph(strongest_edges(arrays, k=2), "pk", SHAPE, CLASS)


def test_strongest_edges_by_type(arrays):
    edges = strongest_edges(arrays, k=3)
    assert list(edges.columns) == ["type", "source_layer", "source_head", "target_layer", "target_head", "pk", "rank"]
    assert edges[edges["type"] == "OQ"].drop(columns="type").values.tolist() == [
        [0, 1, 1, 0, 7, 1],
        [0, 1, 2, 1, 6, 2],  # a tie: the earlier source comes first
        [1, 0, 2, 1, 6, 3],
    ]
    assert edges[edges["type"] == "OV"]["pk"].tolist() == [5, 3, 1]
    # No more than there are pairs: 3 layer pairs of 2 x 1 heads.
    assert (strongest_edges(arrays, k=99)["type"] == "OK").sum() == 6


def test_graph_keeps_key_value_heads_apart(graph):
    assert set(graph) == {"0.0", "0.1", "1.0", "2.1", "1.kv.0", "2.kv.0"}
    assert graph.nodes["2.kv.0"] == {"layer": 2, "head": 0, "kind": "key-value", "head_class": ""}
    assert graph.nodes["1.0"]["head_class"] == "Induction"
    assert graph["0.1"]["1.kv.0"] == {"OK": {"type": "OK", "weight": 9.0, "rank": 1}}
    assert class_counts(graph) == (3, 3)


def test_composition_scores_belong_to_query_heads(arrays):
    scores = {f"cs/{kind}": pairs(2, {(0, 1): [[1, 2], [3, 4]]}) for kind in ("OQ", "OK", "OV")}
    graph = build_graph(strongest_edges(scores, "cs", k=1), "cs", SHAPE)
    assert {name: data["kind"] for name, data in graph.nodes(data=True)} == {"0.1": "query", "1.1": "query"}
    assert sorted(graph["0.1"]["1.1"]) == ["OK", "OQ", "OV"]


def test_hubs(graph):
    hubs = rank_hubs(graph).set_index(["kind", "layer", "head"])
    hub = hubs.loc[("query", 0, 1)]
    assert hub[["n_edges", "n_in", "n_out", "weight", "weight_in", "weight_out"]].tolist() == [4, 0, 4, 30, 0, 30]
    assert hub[["out_oq", "out_ok", "out_ov", "in_ov", "rank"]].tolist() == [2, 2, 0, 0, 1]
    # 2.kv.0 has edges 8 (OK) and 5 (OV), 1.kv.0 has 9 and 3.
    assert hubs.loc[("key-value", 2, 0), "weight_in"] == 13
    assert hubs["pagerank"].sum() == pytest.approx(1)


def test_pagerank_solves_its_equation(graph):
    nodes = sorted(graph)
    weights = np.array(
        [[sum(e["weight"] for e in (graph.get_edge_data(a, b) or {}).values()) for b in nodes] for a in nodes]
    )
    out = weights.sum(axis=1, keepdims=True)
    step = np.where(out > 0, weights / np.where(out > 0, out, 1), 1 / len(nodes))
    expected = np.linalg.solve(np.eye(len(nodes)) - 0.85 * step.T, np.full(len(nodes), 0.15 / len(nodes)))
    found = {
        f"{row.layer}.{'kv.' if row.kind == 'key-value' else ''}{row.head}": row.pagerank
        for row in rank_hubs(graph).itertuples()
    }
    assert [found[node] for node in nodes] == pytest.approx(expected.tolist(), abs=1e-9)


def test_files_round_trip_and_repeat(graph, tmp_path):
    for name in ("one", "two"):
        write_graph(graph, tmp_path / f"{name}.graphml", tmp_path / f"{name}.json")
    for suffix in ("graphml", "json"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    from_json = nx.node_link_graph(json.loads((tmp_path / "one.json").read_text(encoding="utf-8")), edges="edges")
    for found in (from_json, nx.read_graphml(tmp_path / "one.graphml", force_multigraph=True)):
        assert dict(found.nodes(data=True)) == dict(graph.nodes(data=True))
        assert sorted((a, b, data["type"], data["weight"]) for a, b, data in found.edges(data=True)) == sorted(
            (a, b, data["type"], data["weight"]) for a, b, data in graph.edges(data=True)
        )


def test_ring_puts_classes_inside(graph):
    positions = ring_positions(graph, CLASS.order)
    radius = {node: np.hypot(*place) for node, place in positions.items()}
    assert all((radius[node] < 0.9) == bool(data["head_class"]) for node, data in graph.nodes(data=True))
    assert len({(round(x, 6), round(y, 6)) for x, y in positions.values()}) == len(graph)
    # Heads of one class are neighbours, another class is farther away.
    same = np.subtract(positions["1.0"], positions["2.1"])
    assert np.hypot(*same) < np.hypot(*np.subtract(positions["2.1"], positions["0.1"]))
    assert ring_positions(graph, CLASS.order) == positions


def test_layers_go_up_and_targets_stand_above_their_sources():
    edges = pd.DataFrame(
        [("OQ", 0, 0, 1, 0, 5.0, 1), ("OQ", 0, 1, 1, 1, 4.0, 2), ("OK", 0, 1, 1, 0, 1.0, 1)],
        columns=["type", "source_layer", "source_head", "target_layer", "target_head", "pk", "rank"],
    )
    positions = layered_positions(build_graph(edges, "pk", GPT2_SHAPE))
    assert {node: y for node, (_, y) in positions.items()} == {"0.0": 0, "0.1": 0, "1.0": 1, "1.1": 1}
    assert positions["0.0"][0] < positions["0.1"][0]
    assert positions["1.0"][0] < positions["1.1"][0]


def published_edges():
    """PK figure 1, the edges that can be read off it."""
    outs = {
        "OQ": """4.7->5.6 4.11->5.6 4.7->5.1 4.7->6.8 4.11->6.8 10.0->11.2 1.7->2.1 10.7->11.10 8.7->10.11 8.10->9.4
                 7.6->8.10 7.3->8.3 6.6->7.1 8.10->9.6 4.7->7.2 8.10->10.1 5.3->6.10 5.5->7.1 8.10->10.6 4.11->5.1""",
        "OV": """3.10->4.7 4.7->5.2 8.10->9.3 10.0->11.3 3.7->4.7 1.0->4.7 7.1->9.3 5.11->7.1 9.0->11.3 9.2->11.3
                 9.11->11.8 1.11->4.7 5.10->7.1 2.2->4.7 3.0->4.3 5.11->6.4 7.7->8.7 4.7->8.3 5.5->6.6 7.7->8.5""",
    }
    both = ["5.0", "5.1", "5.5", "5.8", "6.9", "7.2", "7.10", "8.1"]
    keys = [f"{source}->{target}" for source in ("4.7", "4.11") for target in both]
    outs["OK"] = " ".join([*keys, "4.11->7.11", "5.6->6.9", "5.6->7.2", "5.6->7.10"])
    return {(kind, edge) for kind, text in outs.items() for edge in text.split()}


class TestGPT2:
    @pytest.fixture
    def arrays(self, gpt2_folder, tmp_path_factory):
        return gpt2_affinity(gpt2_folder, tmp_path_factory.getbasetemp() / "layers.safetensors")

    def test_published_edges(self, arrays):
        found = {
            (row.type, f"{row.source_layer}.{row.source_head}->{row.target_layer}.{row.target_head}"): row.pk
            for row in strongest_edges(arrays).itertuples()
        }
        assert len(found) == len(published_edges()) == 60
        assert len(found.keys() & published_edges()) >= 58
        for edge, strength in {
            ("OQ", "4.7->5.6"): 26.4, ("OK", "4.11->5.1"): 39.3, ("OK", "4.7->5.1"): 38.4, ("OK", "4.7->7.2"): 32.7,
            ("OV", "3.10->4.7"): 22.3, ("OV", "4.7->5.2"): 21.6,
        }.items():  # fmt: skip
            assert found[edge] == pytest.approx(strength, abs=0.2)

    def test_layer_4_head_7_is_the_hub(self, arrays):
        hubs = rank_hubs(build_graph(strongest_edges(arrays), "pk", GPT2_SHAPE))
        hub = hubs.iloc[0]
        assert (hub["layer"], hub["head"], hub["n_edges"]) == (4, 7, 19)
        assert hub[["in_oq", "in_ok", "in_ov", "out_oq", "out_ok", "out_ov"]].tolist() == [0, 0, 5, 4, 8, 2]
        assert hubs.sort_values("weight")["head"].iloc[-1] == 7

    @pytest.mark.parametrize(("score", "inside", "outside"), [("pk", 24, 28), ("cs", 16, 30)])
    def test_nodes_in_the_titles_of_figure_1(self, arrays, score, inside, outside):
        classes = read_head_classes(CLASSES, GPT2_SHAPE)
        graph = build_graph(strongest_edges(arrays, score), score, GPT2_SHAPE, classes)
        assert class_counts(graph) == (inside, outside)
