"""Models that are one are found: as copied bytes, as copied numbers, in part; others are not."""

import math

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.project import ROOT
from support.workflow_runs import D_HEAD, D_MODEL, N_HEADS, N_KV, N_LAYERS, save_tiny, snakemake

from headspaces.report.duplicates import Duplicate, find_duplicates, read_duplicates, write_duplicates

MATRICES = 4 * N_LAYERS


def test_what_is_written_is_read_back(tmp_path):
    found = [Duplicate("a", 'b "1",', 3, 12, 2.5e-13), Duplicate("a", "c", 1, 12, math.nan)]
    write_duplicates(found, tmp_path / "duplicates.csv")
    assert str(read_duplicates(tmp_path / "duplicates.csv")) == str(found)
    write_duplicates([], tmp_path / "none.csv")
    assert read_duplicates(tmp_path / "none.csv") == []


def test_undefined_overlaps_are_compared_by_their_places(rng):
    """A head without weights, copied in another number format, is still a copy; spaces that fill the stream are not."""
    rho = rng.uniform(0.1, 0.9, (2, 3, 3))
    rho[0, 1] = rho[0, :, 1] = np.nan
    elsewhere = rho.copy()
    elsewhere[1, 0, 1] = np.nan
    models = {
        "a": {"within/O/rho": rho, "within/K/rho": np.ones((2, 3, 3))},
        "b": {"within/O/rho": rho + 1e-8, "within/K/rho": np.ones((2, 3, 3))},
        "c": {"within/O/rho": elsewhere, "within/K/rho": np.ones((2, 3, 3))},
        "d": {"within/K/rho": np.ones((2, 3, 3))},
    }
    found = find_duplicates({name: {} for name in models}, models)
    assert [(one.model, one.other, one.is_one_model) for one in found] == [("a", "b", True)]
    assert found[0].max_rho_difference == pytest.approx(1e-8)


def test_frozen_layers_are_shared_and_not_one_model():
    """Half of the matrices: said, but no reason to stop."""
    found = find_duplicates({"a": {"q": "1", "k": "2"}, "b": {"q": "1", "k": "3"}}, {"a": {}, "b": {}})
    assert [(one.n_same_tensors, one.n_common_tensors, one.is_one_model) for one in found] == [(1, 2, False)]


def test_shapes_without_pairs_or_in_common_say_nothing():
    rho = {
        "a": {"within/O/rho": np.ones((2, 1, 1))}, "b": {"within/O/rho": np.ones((2, 1, 1))},
        "c": {"within/O/rho": np.ones((2, 3, 3))}, "d": {"within/Q/rho": np.ones((2, 3, 3))},
    }  # fmt: skip
    assert find_duplicates({name: {} for name in rho}, rho) == []


def test_the_workflow_warns_or_stops(tmp_path):
    source = save_tiny(tmp_path / "main")
    tensors = load_file(source / "model.safetensors")
    other = load_file(save_tiny(tmp_path / "other", seed=1) / "model.safetensors")
    save_tiny(tmp_path / "step1")
    # The gains of untrained norms are alike in every model.
    norms = {name: array for name, array in tensors.items() if array.ndim == 1}
    save_file(other | norms, tmp_path / "other" / "model.safetensors")
    for name, changed in {
        "double": {key: array.astype(np.float64) for key, array in tensors.items()},
        "half": {key: other[key] if "layers.2" in key else array for key, array in tensors.items()},
    }.items():
        save_tiny(tmp_path / name)
        save_file(changed, tmp_path / name / "model.safetensors")
    names = ["main", "step1", "double", "half", "other"]
    columns = ["name", "source", "kinds", "n_layers", "d_model", "n_query_heads", "n_kv_heads", "d_head"]
    rows = [[name, tmp_path / name, "OQKV", N_LAYERS, D_MODEL, N_HEADS, N_KV, D_HEAD] for name in names]
    table = tmp_path / "models.tsv"
    table.write_text("\n".join("\t".join(map(str, row)) for row in [columns, *rows]) + "\n")
    target = "results/report/x/duplicates.csv"
    command = (
        ROOT, target, "--directory", str(tmp_path), "--config", f"models_table={table}", f"models=[{','.join(names)}]",
        "study=x",
    )  # fmt: skip
    done = snakemake(*command)
    found = {(one.model, one.other): one for one in read_duplicates(tmp_path / target)}
    shared = {pair: (one.n_same_tensors, one.n_common_tensors) for pair, one in found.items()}
    assert shared == {
        ("main", "step1"): (MATRICES, MATRICES), ("main", "double"): (0, MATRICES), ("step1", "double"): (0, MATRICES),
        ("main", "half"): (MATRICES - 4, MATRICES), ("step1", "half"): (MATRICES - 4, MATRICES),
        ("half", "other"): (4, MATRICES),
    }  # fmt: skip
    assert all((one.max_rho_difference <= 1e-12) == ("half" not in pair) for pair, one in found.items())
    assert f"main and step1: {MATRICES} of {MATRICES} attention matrices are byte for byte the same" in done.stderr
    assert "main and double: all overlaps within layers agree to 0e+00" in done.stderr
    stopped = snakemake(*command, "strict=true", check=False)
    assert stopped.returncode == 1
    assert "error: config: strict is true, and main and step1: " in stopped.stderr
    assert not (tmp_path / target).exists()
