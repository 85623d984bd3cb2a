"""The strongest connections, against numbers computed by hand and against every pair of a random model."""

import dataclasses

import numpy as np
import pytest
from support.tiny_results import random_model

from headspaces.nulls.significance import pair_scores
from headspaces.report.tables.registry import TABLES


def test_the_strongest_come_first_from_all_three_comparisons(model):
    frame = TABLES["strongest_pairs"]([model]).frame
    columns = ["spaces", "writer_layer", "writer_head", "reader_layer", "reader_head", "rho"]
    # 3 x 3 + 3 + 3 pairs of layers 0 and 1; equal ones in the order of the comparisons.
    assert len(frame) == 15
    assert frame["rank"].tolist() == list(range(1, 16))
    expected = [
        ["OK", 0, 0, 1, 0, 0.5], ["OQ", 0, 0, 1, 2, 0.3], ["OK", 0, 2, 1, 0, 0.3], ["OQ", 0, 1, 1, 0, 0.2],
    ]  # fmt: skip
    assert frame[columns].to_numpy().tolist()[:4] == expected
    assert frame["isotropic_ratio"].tolist()[:2] == [pytest.approx(5), pytest.approx(3)]
    assert frame["min_angle_deg"].tolist()[:2] == [pytest.approx(40), pytest.approx(60)]
    assert frame["swap_z"].isna().all()
    assert set(frame["writer_class"]) == {""}


def test_connections_have_their_effect_where_it_was_measured(model):
    without = TABLES["strongest_pairs"]([model]).frame
    assert without["effect"].isna().all()
    effects = {
        f"{kind}/effect": np.random.default_rng(0).random(model.overlaps[f"cross/O{kind}/rho"].shape) for kind in "QKV"
    }
    for start in ("", "repeats/"):  # a model without a text has the second alone
        stored = {start + name: values for name, values in effects.items()}
        frame = TABLES["strongest_pairs"]([dataclasses.replace(model, attribution=stored)]).frame
        for row in frame.to_dict("records"):
            place = tuple(row[name] for name in ("writer_layer", "reader_layer", "writer_head", "reader_head"))
            assert row["effect"] == effects[f"{row['spaces'][1]}/effect"][place]


def test_all_pairs_of_a_random_model_are_looked_at():
    model = random_model("m", n_layers=4, n_query_heads=4, n_kv_heads=2)
    every = np.concatenate([model.overlaps[f"cross/O{kind}/rho"].ravel() for kind in "QKV"])
    frame = TABLES["strongest_pairs"]([model]).frame
    expected = np.sort(every[np.isfinite(every)])[::-1][:100]
    np.testing.assert_array_equal(frame["rho"], expected)
    for row in frame.to_dict("records"):
        at = tuple(row[name] for name in ("writer_layer", "reader_layer", "writer_head", "reader_head"))
        assert model.overlaps[f"cross/{row['spaces']}/rho"][at] == row["rho"]


def test_z_and_p_are_those_of_the_swap_nulls_pairs():
    model = random_model("m", n_layers=3, n_query_heads=3, n_kv_heads=3, kinds="OK")
    rng = np.random.default_rng(1)
    samples = {"mean": rng.uniform(0.2, 0.3, (5, 3, 3)), "spread": rng.uniform(0.05, 0.1, (5, 3, 3)),
               "skewness": rng.uniform(-0.1, 0.5, (5, 3, 3))}  # fmt: skip
    nulls = {**model.nulls, **{f"cross/OK/swap/{name}": values for name, values in samples.items()}}
    nulls["cross/OK/swap/max"] = rng.uniform(0.4, 0.6, (5, 3, 3))
    overlaps = {**model.overlaps, **{f"rank/{kind}": np.full((3, 3), 4) for kind in "OK"}}
    frame = TABLES["strongest_pairs"]([dataclasses.replace(model, nulls=nulls, overlaps=overlaps)]).frame
    assert len(frame) == 27
    for row in frame.to_dict("records"):
        at = row["writer_layer"], row["reader_layer"]
        here = [values[:, at[0], at[1]][:, None] for values in samples.values()]
        z, p = pair_scores(np.array([[row["rho"]]]), *here)
        assert (row["swap_z"], row["swap_p"]) == (pytest.approx(z.item()), pytest.approx(p.item()))


def test_heads_are_classed_by_what_they_attend_to():
    model = random_model("m", n_layers=3, n_query_heads=4, n_kv_heads=2)
    scores = {name: np.zeros((3, 4)) for name in ("previous_token", "induction", "identity")}
    scores["previous_token"][0, 1] = 0.9
    scores["induction"][1, 3] = 0.8
    frame = TABLES["strongest_pairs"]([dataclasses.replace(model, attention=scores)]).frame
    for row in frame.to_dict("records"):
        classes = {(0, 1): "Previous Token", (1, 3): "Induction"}
        assert row["writer_class"] == classes.get((row["writer_layer"], row["writer_head"]), "")
        # Query head 3 reads keys and values through key-value head 1.
        induction = 3 if row["spaces"] == "OQ" else 1
        assert row["reader_class"] == (
            "Induction" if (row["reader_layer"], row["reader_head"]) == (1, induction) else ""
        )
    assert set(frame["writer_class"]) == {"", "Previous Token", "Induction"}
    assert set(frame["reader_class"]) == {"", "Induction"}
