"""The published numbers beside those of the real GPT-2 attention weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from support.project import ROOT

from headspaces.geometry.bases import block_bases
from headspaces.geometry.overlaps import composition_scores, observed_overlaps
from headspaces.report.results import ModelResults
from headspaces.report.scorecard import NOT_RUN, OTHER_WEIGHTS, scorecard
from headspaces.report.tables.registry import TABLES
from headspaces.study.items import TABLES as ITEMS
from headspaces.study.published import read_published
from headspaces.weights.blocks import each_layer
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

PUBLISHED = read_published(ROOT / "config" / "published.tsv")


@pytest.fixture(scope="module")
def card(gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The scorecard of a report that holds GPT-2's observed overlaps and nothing else."""
    block = tmp_path_factory.mktemp("gpt2") / "layers000-011.safetensors"
    fetch_block(read_headers(str(gpt2_folder)), range(12), block)
    overlaps = observed_overlaps([block_bases(each_layer(block), fold_norms=True)])
    overlaps |= composition_scores(lambda: each_layer(block))
    shape = {"n_layers": 12, "n_query_heads": 12, "n_kv_heads": 12, "d_model": 768, "d_head": 64}
    results = ModelResults("gpt2", {"model": "gpt2", "rank_rtol": 1e-6, **shape}, overlaps)
    tables = {name: table([results]).frame for name, table in TABLES.items() if ITEMS[name].needs == ("overlaps",)}
    return scorecard(PUBLISHED, tables)


@pytest.mark.slow
def test_gpt2_stands_beside_the_in_house_model_and_never_matches(card: pd.DataFrame) -> None:
    main = card[card["paper"] == "RW"]
    assert set(main["verdict"]) == {OTHER_WEIGHTS, NOT_RUN}
    beside = main[main["verdict"] == OTHER_WEIGHTS]
    assert len(beside) > 80
    assert set(beside["measured_model"]) == {"gpt2"}
    assert beside["measured_low"].notna().all()
    assert (main.loc[main["verdict"] == NOT_RUN, "reason"] != "").all()


@pytest.mark.slow
def test_what_the_shape_fixes_is_the_same_for_gpt2(card: pd.DataFrame) -> None:
    rows = card.set_index("id")
    for name in ("t1-124m-oq-n_pairs", "t1-124m-o-n_pairs", "t3-124m-n_write_pairs", "t2-124m-v-n_layer_pairs"):
        assert rows.loc[f"rw-{name}", "difference"] == 0
    assert abs(rows.loc["rw-t3-124m-isotropic", "difference"]) < 5e-5
    assert abs(rows.loc["rw-s5.1-124m-random_sd", "difference"]) < 5e-5


@pytest.mark.slow
def test_the_measured_value_is_that_of_the_weights(card: pd.DataFrame, gpt2_folder: Path) -> None:
    weights = load_file(gpt2_folder / "model.safetensors")
    left = np.linalg.qr(weights["h.5.attn.c_proj.weight"].reshape(12, 64, 768).swapaxes(1, 2))[0]
    maps = weights["h.6.ln_1.weight"][:, None] * weights["h.6.attn.c_attn.weight"][:, 768:1536]
    right = np.linalg.qr((maps - maps.mean(axis=0)).reshape(768, 12, 64).swapaxes(0, 1))[0]
    rho = [float(((one.T @ other) ** 2).sum()) / 64 for one in left for other in right]
    measured = card.set_index("id").loc["rw-t9-124m-5to6-k-max_rho", "measured_low"]
    assert measured == pytest.approx(max(rho), abs=1e-5)
