"""Degenerate heads through the whole chain: spaces, overlaps, null samples, tables.

Everything undefined is an empty cell with its reason, never the text ``nan``; the numbers that are defined are right.
"""

import os
import re
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.linalg import orth, subspace_angles
from support.project import TESTS
from support.workflow_runs import save_tiny

from headspaces.errors import InputError
from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.geometry.overlaps import composition_scores, observed_overlaps
from headspaces.jobs.code import SOURCE
from headspaces.nulls.samples import NullRun, figure_layers, null_shard, random_reference
from headspaces.nulls.shards import Shard, merge_shards, shard_attributes
from headspaces.report.results import ModelResults
from headspaces.report.tables.registry import TABLES
from headspaces.report.tables.writing import write_table
from headspaces.spaces import Shape
from headspaces.study.items import TABLES as ITEMS
from headspaces.weights.blocks import read_block
from headspaces.weights.fetch import fetch_block
from headspaces.weights.source import read_headers

D, WIDTH, N_LAYERS, SAMPLES = 24, 4, 3, 3
HEADS = {"O": 4, "Q": 4, "K": 2, "V": 2}
READY = sorted(name for name, item in ITEMS.items() if set(item.needs) <= {"overlaps", "nulls"})


def random_factors(rng, n_layers=N_LAYERS, d_model=D, d_head=WIDTH, heads=HEADS):
    """By kind, the factors ``(layer, head, d_model, d_head)``."""
    return {kind: rng.standard_normal((n_layers, n, d_model, d_head)) for kind, n in heads.items()}


def chain(factors, size=SAMPLES):
    """Spaces, observed overlaps and null samples, as the workflow's jobs compute them; shards of ``size`` samples."""
    n_layers, n_heads, d_model, d_head = factors["O"].shape
    shape = Shape(n_layers, d_model, n_heads, factors["K"].shape[1], d_head)
    layers = [
        LayerHeads(layer, {kind: stack[layer] for kind, stack in factors.items()}, Norm("none"))
        for layer in range(n_layers)
    ]
    bases = block_bases(layers, fold_norms=True)
    overlaps = observed_overlaps([bases]) | composition_scores(lambda: layers)
    run = NullRun(
        factors=lambda layer, kind: factors[kind][layer], shape=shape, kinds="OQKV", model="m", seed=3,
        figure_layers=figure_layers(overlaps),
    )  # fmt: skip
    shards = []
    for null in ("rotation", "reassignment"):
        for first in range(0, SAMPLES, size):
            samples = range(first, first + size)
            shards.append(Shard(f"{null}{first}", shard_attributes(run, null, samples), null_shard(run, null, samples)))
    nulls = merge_shards(shards, SAMPLES) | random_reference(shape, "OQKV", "m", 3, SAMPLES)
    attributes = {
        "d_model": d_model, "d_head": d_head, "n_layers": n_layers, "n_query_heads": n_heads,
        "n_kv_heads": shape.n_kv_heads, "source": "folder", "revision": "sha256:0", "norm": "none", "kinds": "OQKV",
        "rank_rtol": 1e-6,
    }  # fmt: skip
    return bases, ModelResults("m", attributes, overlaps, nulls)


def written_tables(model, folder):
    """Text of all tables that overlaps and null samples fill: by name and end."""
    texts = {}
    for name in READY:
        paths = [folder / f"{name}.{end}" for end in ("csv", "md", "tex", "json")]
        write_table(name, TABLES[name]([model]), *paths)
        texts |= {path.name: path.read_text() for path in paths}
    return texts


def assert_no_nan(texts):
    for name, text in texts.items():
        found = re.search(r"(?i)(?<![a-z])(nan|inf|infinity|<na>|none)(?![a-z])", text)
        assert not found, f"{name}: {text}"


def rank_deficient(factors):
    factors["O"][1, 2, :, 1:] = factors["O"][1, 2, :, :1]
    factors["Q"][0, 1, :, 3] = 0


def duplicated(factors):
    factors["O"][1, 2] = factors["O"][1, 0]
    factors["K"][2, 1] = factors["K"][2, 0] @ np.diag([1, 2, 3, 4])


def zero(factors):
    factors["O"][1, 2] = 0
    factors["V"][0, 1] = 0


def zero_layer(factors):
    for kind in HEADS:
        factors[kind][1] = 0


def all_zero(factors):
    for stack in factors.values():
        stack[:] = 0


def tiny(factors):
    factors["O"][1, 2] *= 1e-30
    factors["Q"][0] *= 1e-30


def huge(factors):
    factors["O"][1, 2] *= 1e30
    factors["Q"][0] *= 1e30


def constant(factors):
    """Every pair of one layer and kind is orthogonal: rho is 0, its spread 0."""
    for kind, stack in factors.items():
        for layer, head in np.ndindex(*stack.shape[:2]):
            stack[layer, head] = np.eye(D)[:, head * WIDTH : (head + 1) * WIDTH] * (2 + "OQKV".index(kind))


def identical(factors):
    """All spaces are one: rho is 1 everywhere, in the null models, too."""
    for stack in factors.values():
        stack[:] = factors["O"][0, 0]


CASES = [rank_deficient, duplicated, zero, zero_layer, all_zero, tiny, huge, constant, identical]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("change", CASES)
def test_degenerate_heads_end_in_whole_tables(change, rng, tmp_path):
    factors = random_factors(rng)
    change(factors)
    bases, model = chain(factors)
    for kind, stack in factors.items():
        for layer in range(N_LAYERS):
            scaled = [head / max(np.abs(head).max(), 1e-300) for head in stack[layer]]
            ranks = [np.linalg.matrix_rank(head, rtol=1e-6) for head in scaled]
            assert bases[f"rank/{kind}"][layer].tolist() == ranks
            for one, other in combinations(range(HEADS[kind]), 2):
                rho = model.overlaps[f"within/{kind}/rho"][layer, one, other]
                if not min(ranks[one], ranks[other]):
                    assert np.isnan(rho)
                    continue
                angles = subspace_angles(orth(scaled[one], rcond=1e-6), orth(scaled[other], rcond=1e-6))
                assert rho == pytest.approx(np.mean(np.cos(angles) ** 2), abs=1e-9)
    assert_no_nan(written_tables(model, tmp_path))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("n_layers", "d_model", "d_head", "heads"),
    [
        (3, 6, 8, HEADS), (3, 24, 4, {"O": 1, "Q": 1, "K": 1, "V": 1}), (1, 24, 4, HEADS),
        (3, 24, 4, {"O": 4, "Q": 4, "K": 1, "V": 1}), (1, 24, 4, {"O": 1, "Q": 1, "K": 1, "V": 1}),
        (2, 24, 4, {"O": 2, "Q": 2, "K": 2, "V": 2}), (1, 1, 1, {"O": 2, "Q": 2, "K": 1, "V": 1}),
    ],
    ids=["wide_heads", "one_head", "one_layer", "one_key_space", "one_of_all", "one_pair", "one_dimension"],
)  # fmt: skip
def test_small_and_odd_shapes_end_in_whole_tables(n_layers, d_model, d_head, heads, rng, tmp_path):
    bases, model = chain(random_factors(rng, n_layers, d_model, d_head, heads))
    full = min(d_model, d_head)
    assert all((bases[f"rank/{kind}"] == full).all() for kind in "OQKV")
    if full == d_model:
        off = ~np.isnan(model.overlaps["within/O/rho"])
        np.testing.assert_allclose(model.overlaps["within/O/rho"][off], 1, rtol=1e-12)
    assert_no_nan(written_tables(model, tmp_path))


def test_a_single_key_space_is_explained(rng, tmp_path):
    """No pair: the row is empty or absent, and a note or an empty cell stands for it, in CSV and Markdown."""
    _, model = chain(random_factors(rng, heads={"O": 4, "Q": 4, "K": 1, "V": 1}))
    texts = written_tables(model, tmp_path)
    for kind in "KV":
        (row,) = [line for line in texts["table1.csv"].splitlines() if line.startswith(f"m,within,{kind},")]
        assert row == f"m,within,{kind},0,,"
    shown = texts["table7.md"] + texts["table4.md"]
    assert "single" in shown or "one space" in shown or "no pair" in shown.lower()


def test_constant_overlaps_have_no_ratio_and_say_so(rng, tmp_path):
    """One pair a layer has the spread 0 in every sample: r is undefined, an empty cell and a dash for the reader."""
    _, model = chain(random_factors(rng, heads={"O": 2, "Q": 2, "K": 2, "V": 2}))
    assert (model.within("O").spread == 0).all()
    for null in ("rotation", "reassignment"):
        np.testing.assert_array_equal(model.nulls[f"within/O/{null}/spread"], 0)
    frame = TABLES["table4"]([model]).frame.query("scope == 'within'")
    ratios = [
        column for column in frame if column.startswith(("r_", "ratio", "median_r", "min_r", "max_r")) or column == "r"
    ]
    assert ratios, list(frame)
    assert frame[ratios].isna().to_numpy().all()
    texts = written_tables(model, tmp_path)
    assert "–" in texts["table4.md"]
    assert_no_nan(texts)


def test_one_nan_is_refused_before_any_number(tmp_path):
    """In one head of four: the tensor and the head are named, nothing is computed."""
    folder = save_tiny(tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.k_proj.weight"][7, 3] = np.nan
    save_file(tensors, folder / "model.safetensors")
    fetch_block(read_headers(str(folder)), range(3), tmp_path / "block.safetensors")
    with pytest.raises(InputError, match=r"layers\.1\.self_attn\.k_proj\.weight' holds 1 NaN .* in K head 1"):
        read_block(tmp_path / "block.safetensors")


SCRIPT = """
import hashlib, sys
import numpy as np
from test_degenerate_heads import chain, random_factors
factors = random_factors(np.random.default_rng(5), 3, 96, 16)
bases, model = chain(factors, int(sys.argv[1]))
for part in (bases, model.overlaps, model.nulls):
    digest = hashlib.sha256()
    for name in sorted(part):
        digest.update(name.encode() + np.ascontiguousarray(part[name]).tobytes())
    print(digest.hexdigest())
"""


def test_threads_and_shards_change_no_bit():
    """Bases, overlaps and null samples with 1 and 2 threads, and in shards of 1 and of 3 samples."""
    printed = {}
    path = os.pathsep.join(map(str, (SOURCE, TESTS, TESTS / "campaigns")))
    for threads, size in (("1", 3), ("2", 3), ("2", 1)):
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", SCRIPT, str(size)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        printed[threads, size] = done.stdout.split()
    assert len(set(printed["1", 3])) == 3
    assert printed["1", 3] == printed["2", 3] == printed["2", 1]


def test_another_seed_gives_other_samples(rng):
    factors = random_factors(rng, 2)
    runs = [
        null_shard(
            NullRun(lambda layer, kind: factors[kind][layer], Shape(2, D, 4, 2, WIDTH), "OQKV", "m", seed),
            "rotation", range(1),
        )
        for seed in (0, 1, 0)
    ]  # fmt: skip
    name = "within/O/rotation/spread"
    np.testing.assert_array_equal(runs[0][name], runs[2][name])
    assert (runs[0][name] != runs[1][name]).all()
