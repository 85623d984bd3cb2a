"""The data dictionary against what the stages really give, and against the page."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import xarray as xr
from support.project import ROOT

from headspaces import fields
from headspaces.activations.response import energy_fractions
from headspaces.affinity.classes import HeadClasses, class_arrays
from headspaces.affinity.run import affinity
from headspaces.fields import FIELDS, HEADS, LABELS, find_field
from headspaces.geometry.bases import block_bases
from headspaces.geometry.heads import LayerHeads, Norm
from headspaces.geometry.overlaps import composition_scores, observed_overlaps
from headspaces.geometry.spread_sources import REMOVED, spread_sources
from headspaces.nulls.samples import NullRun, null_shard, random_reference
from headspaces.nulls.self_heads import self_heads
from headspaces.nulls.swap_run import SwapRun, burnt_in
from headspaces.report.series import StepFiles, collect_series
from headspaces.spaces import Shape
from headspaces.store import dataset_names, read_arrays, write_arrays
from headspaces.stream.operators import gram, row_operators, unit_trace
from headspaces.stream.scores import Dense, stream_scores
from headspaces.stream.strongest import StrongestNeurons, strongest_tokens

# No two lengths are the same, so that no axis can be taken for another.
SHAPE = Shape(n_layers=5, d_model=24, n_query_heads=4, n_kv_heads=2, d_head=3)
N_SAMPLES = 7
SIZES = {
    "layer": 5, "head": 4, "kv_head": 2, "d_model": 24, "direction": 3, "sample": N_SAMPLES, "head_pair": 6,
    "kv_head_pair": 1, "random_pair": 100, "source_kind": 4, "target_kind": 4, "head_class": 1,
    "edge": 8, "window": 9, "step": 13, "removed": 4, "head_singular": 12, "kv_head_singular": 6,
    "end": 1, "one": 1, "note": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def layers() -> list[LayerHeads]:
    rng = np.random.default_rng(1)
    return [
        LayerHeads(
            layer,
            {kind: rng.standard_normal((SHAPE.n_heads(kind), SHAPE.d_model, SHAPE.d_head)) for kind in "OQKV"},
            Norm("rmsnorm", rng.uniform(0.5, 2, SHAPE.d_model)),
            dtypes=dict.fromkeys("OQKV", "F64"),
        )
        for layer in range(SHAPE.n_layers)
    ]


def bases(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    return block_bases(layers, fold_norms=True)


def overlaps(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    sources = spread_sources([(bases(layers), layers)], fold_norms=True)
    return observed_overlaps([bases(layers)]) | composition_scores(lambda: layers) | sources


def shard(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    figure = dict.fromkeys("OQKV", 2)
    run = NullRun(lambda layer, kind: layers[layer].factors[kind], SHAPE, "OQKV", "m", 0, figure_layers=figure)
    return null_shard(run, "rotation", range(N_SAMPLES))


def shard_without_pairs(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    run = NullRun(lambda layer, kind: layers[layer].factors[kind], SHAPE, "OQKV", "m", 0)
    return null_shard(run, "rotation", range(N_SAMPLES))


def swap_start(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    return burnt_in(bases(layers), 0, seed=0, model="m", burn_in=1, dtype="float64")


def swap_shard(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    start = swap_start(layers)
    run = SwapRun(lambda layer, kind: start[f"{layer}/{kind}"], SHAPE, "OQKV", "m", 0, burn_in=1)
    return null_shard(run, "swap", range(N_SAMPLES))


def scores(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    classes = HeadClasses("c", {(0, 1): "Identity"}, frozenset())
    return affinity([lambda: layers], same_kind=True) | class_arrays(classes, SHAPE)


def activations(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    outputs = np.random.default_rng(2).standard_normal((SHAPE.n_layers, 4, 11, 3))
    moments = np.einsum("lhta,lhtb->lhab", outputs, outputs) / 11
    writes = np.stack([layer.factors["O"] for layer in layers])
    reads = {kind: bases(layers)[f"{kind}/basis"] for kind in "QKV"}
    return energy_fractions(writes, moments, reads) | {"O/second_moment": moments, "run/n_tokens": np.array(11)}


def series(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    with TemporaryDirectory() as folder:
        made = {kind: MADE[kind](layers) for kind in ("overlaps", "nulls", "bases", "attribution")}
        paths = {kind: f"{folder}/{kind}.h5" for kind in made}
        for kind, arrays in made.items():
            write_arrays(paths[kind], kind, arrays, {"model": "m", "weights_sha256": "", **asdict(SHAPE)})
        run = Path(folder) / "run.json"
        run.write_text(json.dumps({"loss": 1.0, "induction": np.zeros((5, 4)).tolist()}))
        files = {stage: paths[stage] for stage in ("overlaps", "nulls", "attribution")}
        return collect_series([StepFiles(step, "m", files, [paths["bases"]], str(run)) for step in range(13)])


def streamed(layers: list[LayerHeads]) -> dict[str, np.ndarray]:
    """What the stage gives, and what its script adds: scores between heads, texts, what is left out."""
    rng, own = np.random.default_rng(2), bases(layers)
    bases_of = {kind: own[f"{kind}/basis"] for kind in "OQKV"}
    rows = {letter: rng.standard_normal((30, SHAPE.d_model)) for letter in "EXUGIM"}
    ends = {letter: row_operators([rows[letter]])[:2] for letter in "EXU"}
    mlps = {letter: [unit_trace(gram(rows[letter]))] * SHAPE.n_layers for letter in "GIM"}
    writers, readers = (Dense.of(ends, mlps, letters, "float64") for letters in ("EXM", "GIU"))
    neurons = StrongestNeurons(bases_of, parallel=False)
    for layer in range(SHAPE.n_layers):
        neurons.add_layer(layer, {letter: rows[letter] for letter in "GIM"})
    arrays = stream_scores(SHAPE, layers, bases_of, writers, readers, parallel=False) | neurons.arrays()
    arrays |= strongest_tokens([rows["E"]], rows["E"].mean(0), bases_of)
    weighted = composition_scores(lambda: layers)
    arrays |= {f"score/O{kind}": weighted[f"cross/O{kind}/weighted"] for kind in "QKV"}
    texts = {f"tokens/{kind}/text": arrays[f"tokens/{kind}/token"].astype("S2") for kind in "OQKV"}
    return arrays | texts | {"left_out": np.array([b"a note", b"another"])}


MADE: dict[str, Callable[[list[LayerHeads]], dict[str, np.ndarray]]] = {
    "bases": bases,
    "overlaps": overlaps,
    "swap-start": swap_start,
    "null-shard": lambda layers: shard(layers) | swap_shard(layers),
    "nulls": lambda layers: shard(layers) | swap_shard(layers) | random_reference(SHAPE, "OQKV", "m", 0, N_SAMPLES),
    "orthonormal": shard_without_pairs,
    "series": series,
    "self_heads": lambda layers: self_heads([bases(layers)], seed=0, model="m"),
    "affinity": scores,
    "activations": activations,
    "attribution": lambda _: {
        start + name: values
        for start in ("", "repeats/", "prompts/")
        for name, values in {
            **{
                f"{kind}/{name}": np.zeros((5, 5, 4, SHAPE.n_heads(kind)))
                for kind in "QKV"
                for name in ("effect", "effect_second_order", "absolute", "window_effect_sd")
            },
            **{
                f"stream/{writer}{reader}/{name}": np.zeros((n_layers, own_layers, n_heads, own_heads))
                for writer, (n_layers, n_heads) in {"E": (1, 1), "X": (1, 1), "O": (5, 4), "M": (5, 1)}.items()
                for reader, (own_layers, own_heads) in {
                    **{kind: (5, SHAPE.n_heads(kind)) for kind in "QKV"},
                    "M": (5, 1),
                    "U": (1, 1),
                }.items()
                if writer != "O" or reader not in "QKV"
                for name in ("effect", "absolute", "window_effect_sd")
            },
            **{f"{kind}/gradient_norm": np.zeros((5, SHAPE.n_heads(kind))) for kind in "QKV"},
            "O/write_norm": np.zeros((5, 4)),
        }.items()
    },
    "ablation": lambda _: {
        **{name: np.full(8, b"Q") for name in ("kind", "chosen_by")},
        **{f"{role}_{of}": np.zeros(8, int) for role in ("writer", "reader") for of in ("layer", "head")},
        **{f"random_{role}_head": np.zeros(8, int) for role in ("writer", "reader")},
        **{name: np.zeros((8, 9)) for name in ("zero", "mean", "random_zero")},
        **{name: np.zeros(8) for name in ("first_order", "second_order")},
    },
    "stream": lambda layers: streamed(layers),
    "attention": lambda _: {
        "identity": np.zeros((5, 4)),
        "top_tokens": np.zeros((5, 4, 10), int),
        "top_token_texts": np.full((5, 4, 10), b"a"),
    },
}


@pytest.fixture(scope="module")
def made(layers: list[LayerHeads]) -> dict[str, dict[str, np.ndarray]]:
    return {kind: make(layers) for kind, make in MADE.items()}


def test_the_labels_of_what_is_removed_are_its_numbers() -> None:
    assert LABELS["removed"] == tuple(map(str, REMOVED))


@pytest.mark.parametrize("kind", sorted(MADE))
def test_every_dataset_of_a_stage_is_labelled(
    kind: str, made: dict[str, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    arrays, path = made[kind], tmp_path / "a.h5"
    write_arrays(path, kind, arrays, {"model": "m"})
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        for name, array in arrays.items():
            found = tree[name]
            np.testing.assert_array_equal(found.values, array)
            assert found.attrs["long_name"]
            for dimension, size in zip(found.dims, array.shape, strict=True):
                plain = dimension.removeprefix("other_")
                role = plain.split("_")[0]
                plain = plain.removeprefix(f"{role}_") if role in ("writer", "reader", "source", "target") else plain
                plain = f"source_{plain}" if plain == "kind" else plain
                assert size == (10 if plain == "top" else SIZES[plain]), (name, dimension)
                assert len(found.coords[dimension]) == size
    # Who reads with h5py, or through the store, meets no scale among the results.
    assert dataset_names(path, kind) == sorted(arrays)
    for name, array in read_arrays(path, kind).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_every_field_is_of_some_stage(made: dict[str, dict[str, np.ndarray]]) -> None:
    """The dictionary promises nothing that no stage writes (runs of whole models are tried elsewhere)."""
    of_runs = {"linear", "normalisation", "total", "energy", "run", "previous_token", "induction"}
    for kind, described in FIELDS.items():
        if kind == "attention":
            continue
        found = {field.name for name in made[kind] if (field := (find_field(kind, name) or [None])[0])}
        missing = {field.name for field in described} - found
        assert all(set(name.replace("{Y}/", "").split("/")) & of_runs for name in missing), missing


def test_dimensions_say_whose_heads_they_count() -> None:
    def dimensions(kind: str, name: str) -> tuple[str, ...]:
        found = find_field(kind, name)
        assert found is not None
        return found[1]

    assert dimensions("overlaps", "within/K/rho") == ("layer", "kv_head", "other_kv_head")
    assert dimensions("overlaps", "cross/OV/angle") == (
        "writer_layer", "reader_layer", "writer_head", "reader_kv_head",
    )  # fmt: skip
    assert dimensions("affinity", "pk/KQ")[2:] == ("source_kv_head", "target_head")
    assert dimensions("affinity", "cs/OV")[2:] == ("source_head", "target_head")
    assert dimensions("self_heads", "VO/rho") == ("layer", "kv_head", "head")
    assert dimensions("nulls", "within/V/swap/p95") == ("sample", "layer")
    assert dimensions("nulls", "pairs/V/random/rho") == ("sample", "kv_head_pair")
    assert find_field("affinity", "same_kind/pk/QK") is None
    assert HEADS == {"O": "head", "Q": "head", "K": "kv_head", "V": "kv_head"}


def test_bytes_repeat_whatever_memory_held_before(made: dict[str, dict[str, np.ndarray]], tmp_path: Path) -> None:
    arrays, contents = made["overlaps"], set()
    for number in range(4):
        rubbish = [np.full(size, number, dtype=np.uint8) for size in range(1, 4000, 7)]
        write_arrays(tmp_path / f"{number}.h5", "overlaps", arrays, {"model": "m"})
        contents.add((tmp_path / f"{number}.h5").read_bytes())
        del rubbish
    assert len(contents) == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"within/O/rho": np.zeros((2, 3))}, r"within/O/rho has the shape \(2, 3\), its dimensions are"),
        ({"rank/O": np.zeros((2, 3)), "rank/Q": np.zeros((2, 4))}, "the dimension head has several lengths"),
    ],
)
def test_arrays_that_do_not_fit_their_dimensions_are_a_fault(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write_arrays(tmp_path / "a.h5", "overlaps", arrays, {})
    assert not (tmp_path / "a.h5").exists()


def test_the_page_holds_the_dictionary() -> None:
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert fields.BEGIN + fields.dictionary_page() + fields.END in page


def test_the_page_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n{fields.BEGIN}old\n{fields.END}\nafter\n", encoding="utf-8")
    fields.write_page(path)
    assert path.read_text() == f"before\n{fields.BEGIN}{fields.dictionary_page()}{fields.END}\nafter\n"
