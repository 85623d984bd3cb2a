"""A model's spaces: every comparison against scipy, loading from wherever weights are, and what is refused."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.linalg import subspace_angles
from support.tiny_models import build

import headspaces as hs
from headspaces.geometry.heads import LayerHeads, Norm, fold
from headspaces.library.comparisons import PAIRS_OF_KINDS
from headspaces.library.overlaps_of import ComputedGeometry
from headspaces.nulls.samples import NullRun, null_shard
from headspaces.nulls.swap_run import SwapRun, burnt_in

LAYERS, WIDTH, OWN = 3, 20, 3
HEADS = {"O": 4, "Q": 4, "K": 2, "V": 2}


@pytest.fixture
def stacks(rng: np.random.Generator) -> dict[str, np.ndarray]:
    found = {kind: rng.normal(size=(LAYERS, n, WIDTH, OWN)) for kind, n in HEADS.items()}
    found["K"][1, 0, :, 2] = found["K"][1, 0, :, 1]  # rank 2
    found["O"][2, 3] = 0
    return found | {"norm": rng.uniform(0.5, 2, (LAYERS, WIDTH))}


@pytest.fixture
def model(stacks: dict[str, np.ndarray]) -> hs.ModelSpaces:
    return hs.load(stacks, norm="layernorm", name="m")


def folded(stacks: dict[str, np.ndarray], kind: str, layer: int, head: int) -> np.ndarray:
    """Fold a LayerNorm, written down once more."""
    factors = stacks[kind][layer, head]
    if kind != "O":
        factors = np.diag(stacks["norm"][layer]) @ factors
        factors = factors - factors.mean(axis=0)
    return factors


def angles_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Principal angles in degrees, ascending, by scipy; none where a space is empty."""
    kept = [np.linalg.svd(factors)[0][:, : np.linalg.matrix_rank(factors, 1e-6)] for factors in (one, other)]
    return np.degrees(subspace_angles(*kept))[::-1] if all(basis.shape[1] for basis in kept) else np.empty(0)


@pytest.mark.parametrize("spaces", PAIRS_OF_KINDS)
def test_every_ordered_pair_of_kinds_across_layers(
    spaces: str, model: hs.ModelSpaces, stacks: dict[str, np.ndarray]
) -> None:
    rho, pk, angle = model.overlaps(spaces), model.projection_kernel(spaces), model.angles(spaces)
    shape = (LAYERS, LAYERS, HEADS[spaces[0]], HEADS[spaces[1]])
    for found in (rho, pk, angle):
        assert found.dims == ("writer_layer", "reader_layer", "writer_head", "reader_head")
        assert found.shape == shape
    for writer, reader, i, j in np.ndindex(shape):
        at = {"writer_layer": writer, "reader_layer": reader, "writer_head": i, "reader_head": j}
        values = [float(found.sel(at)) for found in (rho, pk, angle)]
        if reader <= writer:
            assert np.isnan(values).all()
            continue
        expected = angles_of(folded(stacks, spaces[0], writer, i), folded(stacks, spaces[1], reader, j))
        if not expected.size:
            np.testing.assert_array_equal(values, [np.nan, 0, np.nan])
            continue
        cosines = np.cos(np.radians(expected)) ** 2
        np.testing.assert_allclose(values, [cosines.mean(), cosines.sum(), expected.min()], atol=1e-8)


@pytest.mark.parametrize("kind", "OQKV")
def test_pairs_within_a_layer(kind: str, model: hs.ModelSpaces, stacks: dict[str, np.ndarray]) -> None:
    rho, angle = model.overlaps(kind, fold=False), model.angles(kind, fold=False)
    assert rho.dims == ("layer", "head", "other_head")
    for layer, i, j in np.ndindex(rho.shape):
        expected = angles_of(stacks[kind][layer, i], stacks[kind][layer, j])
        at = {"layer": layer, "head": i, "other_head": j}
        if expected.size:
            assert float(rho.sel(at)) == pytest.approx(np.mean(np.cos(np.radians(expected)) ** 2))
            assert float(angle.sel(at)) == pytest.approx(expected.min(), abs=1e-6)
        else:
            assert np.isnan(float(rho.sel(at)))


def test_leading_directions_are_the_most_weighted(model: hs.ModelSpaces, stacks: dict[str, np.ndarray]) -> None:
    found = model.projection_kernel("OV", leading=1, fold=False)
    u = [np.linalg.svd(stacks[kind][layer, 1])[0][:, 0] for kind, layer in (("O", 0), ("V", 2))]
    at = {"writer_layer": 0, "reader_layer": 2, "writer_head": 1, "reader_head": 1}
    assert float(found.sel(at)) == pytest.approx((u[0] @ u[1]) ** 2)
    assert found.attrs["leading"] == 1
    np.testing.assert_allclose(model.overlaps("OV", leading=3), model.overlaps("OV"), atol=1e-12)


def test_the_tolerance_of_ranks_reaches_the_numbers(stacks: dict[str, np.ndarray]) -> None:
    stacks["O"][0, 0] = np.linalg.qr(stacks["O"][0, 0])[0] @ np.diag([1, 1, 1e-4])
    model = hs.load(stacks)
    assert int(model.spaces("O")["rank"].sel(layer=0, head=0)) == 3
    assert int(model.spaces("O", rank_rtol=1e-3)["rank"].sel(layer=0, head=0)) == 2
    assert int(hs.load(stacks, rank_rtol=1e-3).spaces("O")["rank"].sel(layer=0, head=0)) == 2


@pytest.mark.parametrize("by", ["rho", "pk", "angle_deg"])
@pytest.mark.parametrize("spaces", ["OK", "VV", "O"])
def test_top_pairs_are_those_of_the_arrays(spaces: str, by: str, model: hs.ModelSpaces) -> None:
    frame = model.top_pairs(spaces, None, by=by)
    quantities = {
        "rho": model.overlaps(spaces),
        "pk": model.projection_kernel(spaces),
        "angle_deg": model.angles(spaces),
    }
    one, other = frame.columns[:2]
    assert (one, other) == (("head", "other_head") if spaces == "O" else ("writer", "reader"))
    for row in frame.to_dict("records"):
        (layer, head), (later, late_head) = (map(int, row[end].split(".")) for end in (one, other))
        at = (layer, head, late_head) if spaces == "O" else (layer, later, head, late_head)
        for name, array in quantities.items():
            assert row[name] == pytest.approx(float(array.values[at]), abs=1e-6)
    values = frame[by] if by != "angle_deg" else -frame[by]
    assert (values.diff().dropna() <= 1e-12).all()
    # Every pair once, without those of the head that writes nothing.
    counts = {"OK": 3 * 4 * 2, "VV": 3 * 2 * 2, "O": 3 * 6 - 3}
    assert len(frame) == counts[spaces]
    pd.testing.assert_frame_equal(model.top_pairs(spaces, 2, by=by), frame.head(2))


def test_spectra_have_closed_forms(rng: np.random.Generator) -> None:
    basis = np.linalg.qr(rng.normal(size=(WIDTH, OWN)))[0]
    inside = np.linalg.qr(rng.normal(size=(OWN, OWN)))[0]
    frame = hs.load({"O": (basis @ np.diag([4.0, 2.0, 2.0]) @ inside)[None, None] * [[[[1]]], [[[0]]]]}).spectra()
    assert frame["head"].tolist() == ["0.0", "1.0"]
    first, zero = frame.to_dict("records")
    # Shares 1/2, 1/4, 1/4: an entropy of 3/2 bits.
    assert first == {
        "kind": "O", "head": "0.0", "rank": 3, "stable_rank": pytest.approx(24 / 16),
        "entropy_rank": pytest.approx(2**1.5),
    }  # fmt: skip
    assert zero["rank"] == 0
    assert np.isnan([zero["stable_rank"], zero["entropy_rank"]]).all()


def test_bases_that_are_too_many_are_streamed(
    model: hs.ModelSpaces, stacks: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {name: model.overlaps(name) for name in ("O", "OK")}
    monkeypatch.setattr("headspaces.library.overlaps_of.KEPT_BYTES", 0)
    other = hs.load(stacks, norm="layernorm", name="m")
    for name, values in expected.items():
        np.testing.assert_array_equal(other.overlaps(name), values)
    assert other.top_pairs("O", 3).equals(model.top_pairs("O", 3))
    geometry = other.answers.computed(None, None)
    assert isinstance(geometry, ComputedGeometry)
    assert geometry.all_layers("O")["O"].basis.shape == (LAYERS, 4, WIDTH, OWN)
    assert not geometry._kept


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "falcon-groups", "gemma2", "qwen3", "phi3", "olmo2"])
def test_a_model_in_memory_and_its_saved_folder_are_one(name: str, tmp_path: Path) -> None:
    built = build(name)
    built.save_pretrained(tmp_path / "saved")
    live, saved = hs.load(built), hs.load(tmp_path / "saved")
    assert (live.shape, live.kinds, live.notes) == (saved.shape, saved.kinds, saved.notes)
    assert (live.heads.layout, live.heads.norm, live.heads.dtypes) == (saved.heads.layout, saved.heads.norm, ("F64",))
    for kind in live.kinds:
        for folded in (True, False):
            one, other = (model.spaces(kind, fold=folded)["basis"].values for model in (live, saved))
            # Compare projections: a basis is free to turn inside its space.
            np.testing.assert_allclose(one @ one.swapaxes(-1, -2), other @ other.swapaxes(-1, -2), atol=1e-12)
    by_name = hs.load(built.state_dict(), config=built.config.to_dict())
    np.testing.assert_allclose(by_name.overlaps("OK"), saved.overlaps("OK"), atol=1e-12)


class Lens:
    """What a HookedTransformer shows of a model: stacks by kind, key-value heads repeated, and its blocks' norms."""

    def __init__(self, stacks: dict[str, np.ndarray], norm: str, gain: np.ndarray | None, repeat: bool) -> None:
        self.cfg = SimpleNamespace(
            n_layers=LAYERS, d_model=WIDTH, n_heads=4, n_key_value_heads=2, d_head=OWN, normalization_type=norm,
            model_name="lens",
        )  # fmt: skip
        self.blocks = [
            SimpleNamespace(ln1=SimpleNamespace() if gain is None else SimpleNamespace(w=torch.asarray(gain[layer])))
            for layer in range(LAYERS)
        ]
        for kind, stack in stacks.items():
            heads = np.repeat(stack, 2, axis=1) if repeat and kind in "KV" else stack
            setattr(self, f"W_{kind}", torch.asarray(heads.swapaxes(2, 3) if kind == "O" else heads))


@pytest.mark.parametrize("repeat", [True, False])
def test_a_transformer_lens_model_gives_the_same_spaces(
    repeat: bool, model: hs.ModelSpaces, stacks: dict[str, np.ndarray]
) -> None:
    gain = stacks.pop("norm")
    found = hs.load(Lens(stacks, "LN", gain, repeat))
    assert found.shape == model.shape
    assert found.notes == ("weights as they are stored: nothing is folded or centred",)
    for spaces in ("OK", "V", "QO"):
        np.testing.assert_allclose(found.overlaps(spaces), model.overlaps(spaces), atol=1e-12)


def test_what_transformer_lens_did_to_the_weights_is_said(model: hs.ModelSpaces, stacks: dict[str, np.ndarray]) -> None:
    gain = stacks.pop("norm")
    # fold_ln: gains go into the reads, which are centred; center_writing_weights: writes lose their mean.
    processed = {kind: stack * gain[:, None, :, None] for kind, stack in stacks.items() if kind != "O"}
    processed = {kind: stack - stack.mean(axis=2, keepdims=True) for kind, stack in processed.items()}
    processed["O"] = stacks["O"] - stacks["O"].mean(axis=2, keepdims=True)
    found = hs.load(Lens(processed, "LNPre", None, True))
    assert [note.split(" (")[1].split(")")[0] for note in found.notes] == ["fold_ln", "center_writing_weights"]
    assert "note: writes are centred" in repr(found)
    assert hs.load(Lens(processed, "LN", np.ones_like(gain), False)).notes == found.notes
    for kind in "QKV":
        np.testing.assert_allclose(found.overlaps(kind), model.overlaps(kind), atol=1e-12)


def test_repeated_heads_that_differ_are_refused(stacks: dict[str, np.ndarray]) -> None:
    lens = Lens(stacks, "LN", stacks.pop("norm"), True)
    lens.W_K[0, 1, 0, 0] += 1
    with pytest.raises(hs.InputError, match="W_K has 4 different heads, expected 2 repeated"):
        hs.load(lens).overlaps("K")


def test_matrices_need_a_shape(stacks: dict[str, np.ndarray], model: hs.ModelSpaces) -> None:
    matrices = {
        f"W_{kind}": np.concatenate([stack[:, head] for head in range(HEADS[kind])], axis=2).swapaxes(1, 2)
        for kind, stack in stacks.items()
        if kind != "norm"
    }
    matrices["W_O"] = matrices["W_O"].swapaxes(1, 2)
    with pytest.raises(hs.InputError, match="for matrices .layer, out, in. give shape="):
        hs.load(matrices)
    found = hs.load({**matrices, "norm": stacks["norm"]}, shape=model.shape, norm="layernorm")
    np.testing.assert_allclose(found.overlaps("OK"), model.overlaps("OK"), atol=1e-12)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (3, {}, "cannot load a int: expected a path or hub:owner/name, a model of transformers"),
        ({"X": np.zeros((1, 1, 2, 1))}, {}, "unknown array 'X'; expected O, Q, K, V"),
        (
            {"O": np.ones((1, 1, 2, 1)), "K": np.zeros((1, 0, 2, 1))},
            {},
            "K has the shape .*; expected no length of 0",
        ),
        ({"O": np.zeros((1, 1, 2, 1))}, {"norm": "batch"}, "norm is 'batch', expected layernorm, rmsnorm or none"),
        (
            {"O": np.zeros((2, 1, 4, 1)), "K": np.zeros((1, 1, 4, 1))},
            {},
            r"K has the shape .*, expected \(2, 1, 4, 1\)",
        ),
        ({"O": np.zeros((1, 1, 2, 1)), "norm": np.zeros(2)}, {}, r"norm has the shape \(2,\), expected \(1, 2\)"),
        ("no/such/place", {}, "model 'no/such/place': neither a folder or file, hub:owner/name"),
        ("x" * 5000, {}, "neither a folder or file"),
    ],
)
def test_what_cannot_be_loaded_is_refused(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hs.InputError, match=message):
        hs.load(source, **options)


def test_questions_that_make_no_sense_are_refused(model: hs.ModelSpaces, stacks: dict[str, np.ndarray]) -> None:
    writes = hs.load({"O": stacks["O"]})
    for ask, message in (
        (lambda: model.overlaps("OX"), "spaces 'OX' are not one of O, Q, K, V .within a layer. or two"),
        (lambda: model.overlaps(""), "spaces '' are not"),
        (lambda: writes.overlaps("OK"), "holds no heads of kind K; it has O"),
        (lambda: model.spaces("OK"), "expected one kind"),
        (lambda: model.top_pairs("OK", 0), "k is 0, expected a positive whole number, or None"),
        (lambda: model.top_pairs("OK", by="size"), "by is 'size', expected one of rho, pk, angle_deg"),
        (lambda: model.overlaps("OK", leading=0), "leading is 0, expected a positive"),
        (lambda: model.overlaps("OK", rank_rtol=1.5), "rank_rtol is 1.5, expected a number from 0 to below 1"),
        (lambda: hs.null_test(model, "QK"), "null models compare O, Q, K, V, OQ, OK, OV, not QK"),
        (lambda: hs.null_test(model, "O", "shuffle"), "unknown null model 'shuffle'"),
        (lambda: hs.null_test(model, "O", samples=0), "0 samples of 2 null models"),
    ):
        with pytest.raises(hs.InputError, match=message):
            ask()


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        built = build("gpt2")
    model = hs.load(built)
    with pytest.raises(hs.InputError, match="is on the device meta: it has no numbers"):
        model.overlaps("O")


@pytest.mark.parametrize(("spaces", "place"), [("O", "within/O"), ("OK", "cross/OK")])
def test_null_samples_are_those_of_the_pipeline(
    spaces: str, place: str, model: hs.ModelSpaces, stacks: dict[str, np.ndarray]
) -> None:
    layers = [
        LayerHeads(i, {kind: stacks[kind][i] for kind in "OQKV"}, Norm("layernorm", stacks["norm"][i]))
        for i in range(LAYERS)
    ]
    run = NullRun(lambda layer, kind: fold(layers[layer], kind), model.shape, "OQKV", "m", 7)
    drawn = {null: null_shard(run, null, range(5))[f"{place}/{null}/spread"] for null in ("rotation", "reassignment")}
    found = hs.null_test(model, spaces, samples=5, seed=7)
    for null, samples in drawn.items():
        np.testing.assert_allclose(found["null_spread"].sel(null=null), samples, rtol=1e-9)
    rho = model.overlaps(spaces).values
    for at in np.ndindex(found["spread"].shape):
        if spaces == "OK" and at[1] <= at[0]:
            assert np.isnan([float(found[name].values[at]) for name in ("spread", "r")]).all()
            continue
        pairs = rho[at][np.triu_indices(4, 1)] if spaces == "O" else rho[at].ravel()
        spread = pairs[np.isfinite(pairs)].std()
        samples = np.concatenate(list(drawn.values()))[(slice(None), *at)]
        assert float(found["spread"].values[at]) == pytest.approx(spread)
        assert float(found["r"].values[at]) == pytest.approx(spread / samples.max())
        for null, own in drawn.items():
            count = np.sum(own[(slice(None), *at)] >= spread * (1 - 1e-9))
            assert float(found["p"].sel(null=null).values[at]) == pytest.approx((count + 1) / 6)


def test_the_swap_null_draws_what_the_pipeline_draws(stacks: dict[str, np.ndarray]) -> None:
    live = hs.load({"O": stacks["O"][:2], "K": stacks["K"][:2]}, name="m")
    block = {}
    for kind in "OK":
        found = live.spaces(kind)
        block |= {f"{kind}/basis": found["basis"].values, f"rank/{kind}": found["rank"].values}
    start = burnt_in(block, 0, seed=3, model="m", burn_in=10, dtype="float64")
    run = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], live.shape, "OK", "m", 3, burn_in=10)
    expected = null_shard(run, "swap", range(4))
    for spaces, place in (("O", "within/O"), ("OK", "cross/OK")):
        samples = hs.null_test(live, spaces, "swap", samples=4, seed=3)["null_spread"].sel(null="swap")
        np.testing.assert_allclose(samples, expected[f"{place}/swap/spread"], rtol=1e-9)


@pytest.mark.parametrize("spaces", ["O", "OK"])
def test_single_pairs_are_scored_against_the_swap_null(spaces: str) -> None:
    """By all pairs of all samples; a layer with heads of two ranks is not tested."""
    rng = np.random.default_rng(4)
    shapes = {"O": (3, 4, 20, 3), "K": (3, 3, 20, 3)}
    stacks = {kind: rng.normal(size=shape) + rng.normal(size=(20, 1)) for kind, shape in shapes.items()}
    stacks["O"][1, 2, :, 2] = 0
    model = hs.load(stacks, name="m")
    found = hs.null_test(model, spaces, ["rotation", "swap"], samples=6, seed=3)
    rho = model.overlaps(spaces).values
    assert found["z"].dims == found["pair_p"].dims == model.overlaps(spaces).dims
    block = {}
    for kind in "OK":
        own = model.spaces(kind)
        block |= {f"{kind}/basis": own["basis"].values, f"rank/{kind}": own["rank"].values}
    start = burnt_in(block, 0, seed=3, model="m", burn_in=10, dtype="float64")
    run = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], model.shape, "OK", "m", 3, burn_in=10)
    drawn = [[run.draw("swap", layer, kind, sample)[0] for layer in range(3) for kind in "OK"] for sample in range(6)]
    for at in [(0,), (2,)] if spaces == "O" else [(0, 1), (0, 2)]:
        pooled = []
        for bases in drawn:
            left, right = bases[2 * at[0]], bases[2 * at[-1] + (spaces != "O")]
            pk = np.sum(np.einsum("idk,jdl->ijkl", left, right) ** 2, axis=(2, 3)) / 3
            pooled.append(pk[np.triu_indices(4, 1)] if spaces == "O" else pk.ravel())
        values = np.concatenate(pooled)
        z = (rho[at] - values.mean()) / values.std()
        p = stats.pearson3.sf(z, stats.skew(values))
        defined = ~np.eye(4, dtype=bool) if spaces == "O" else np.ones((4, 3), bool)
        np.testing.assert_allclose(found["z"].values[at][defined], z[defined], rtol=1e-7)
        np.testing.assert_allclose(found["pair_p"].values[at][defined], p[defined], rtol=1e-5, atol=1e-12)
    other_ranks = (1,) if spaces == "O" else (1, 2)
    assert np.isnan(found["z"].values[other_ranks]).all()
    if spaces == "O":
        assert np.isnan(np.diagonal(found["z"].values, axis1=1, axis2=2)).all()
    assert "z" not in hs.null_test(model, spaces, samples=2)


def test_two_shapes_are_refused_before_weights_are_read(stacks: dict[str, np.ndarray]) -> None:
    broken = np.full((2, 4, WIDTH, OWN), np.nan)
    with pytest.raises(hs.InputError, match="m and n: n_layers is 3 and 2; only models of one shape"):
        hs.compare(hs.load({"O": stacks["O"]}, name="m"), hs.load({"O": broken}, name="n"))


def run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return done.stdout


def test_importing_costs_less_than_numpy_and_brings_nothing_heavy() -> None:
    heavy = "[name for name in ('torch', 'numpy', 'scipy', 'pandas', 'xarray', 'h5py') if name in sys.modules]"
    assert run(f"import sys, headspaces; dir(headspaces); print({heavy})") == "[]\n"

    def seconds(module: str) -> float:
        durations = []
        for _ in range(3):
            start = time.perf_counter()
            run(f"import {module}")
            durations.append(time.perf_counter() - start)
        return min(durations)

    # numpy itself takes 0.1 to 0.2 s.
    assert seconds("headspaces") < seconds("numpy")


def test_published_pairs_of_gpt2_in_seconds_without_torch(gpt2_folder: Path) -> None:
    script = f"""
import sys, time
import headspaces as hs
frame = hs.load({str(gpt2_folder)!r}, fold=False).top_pairs("OK", k=3)
print([(row.writer, row.reader, round(row.pk, 1)) for row in frame.itertuples()])
print(any(name in sys.modules for name in ("torch", "transformers", "matplotlib", "snakemake")), time.process_time())
"""
    pairs, rest = run(script, OMP_NUM_THREADS="1").splitlines()
    assert pairs == "[('4.11', '5.1', 39.3), ('4.7', '5.1', 38.4), ('4.11', '6.9', 38.4)]"
    imported, seconds = rest.split()
    assert imported == "False"
    # Of the processor: what a machine that has nothing else to do needs.
    assert float(seconds) < 5
