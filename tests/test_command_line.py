"""The command line: what it prints, where the numbers come from, and what it says to mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from support.checkpoints import LLAMA, llama_tensors, safetensors, write_folder
from support.hub_double import Content, serving

import headspaces
from headspaces.command_line import main
from headspaces.errors import InputError
from headspaces.library.checkpoints import find_model
from headspaces.store import read_arrays, read_attributes, write_arrays
from headspaces.weights.content import content_sum, with_content
from headspaces.weights.headers import Headers
from headspaces.weights.headers_file import write_headers
from headspaces.weights.source import read_headers

LAYERS, HEADS, GROUPS, WIDTH, OWN = 3, 4, 2, 24, 8


@pytest.fixture
def tensors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return llama_tensors(rng)


@pytest.fixture
def model(tensors: dict[str, np.ndarray], tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny", LLAMA, {"model.safetensors": safetensors(tensors)})


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command on the results of this test; return what it printed, from JSON."""

    def call(*arguments: object) -> dict[str, Any]:
        status = main([*map(str, arguments), "--json", "--results", str(tmp_path / "results")])
        output = capsys.readouterr()
        assert status == 0, output.err
        result: dict[str, Any] = json.loads(output.out)
        return result

    return call


def factors(tensors: dict[str, np.ndarray], kind: str, layer: int, *, fold: bool = True) -> np.ndarray:
    """(head, d_model, d_head), written down once more."""
    weight = tensors[f"model.layers.{layer}.self_attn.{kind.lower()}_proj.weight"].astype(float)
    if kind == "O":
        return np.stack(np.split(weight, HEADS, axis=1))
    gain = tensors[f"model.layers.{layer}.input_layernorm.weight"].astype(float) if fold else np.ones(WIDTH)
    return np.stack([gain[:, None] * rows.T for rows in np.split(weight, HEADS if kind == "Q" else GROUPS)])


def all_pairs(tensors: dict[str, np.ndarray], spaces: str, *, fold: bool = True) -> dict[tuple[int, ...], np.ndarray]:
    """Principal angles of every pair: (layer, head, later layer, head)."""
    heads = {kind: [factors(tensors, kind, layer, fold=fold) for layer in range(LAYERS)] for kind in spaces}
    found = {}
    for first in range(LAYERS):
        for second in range(first + 1, LAYERS) if len(spaces) == 2 else [first]:
            for i, one in enumerate(heads[spaces[0]][first]):
                for j, other in enumerate(heads[spaces[-1]][second]):
                    if len(spaces) == 2 or i < j:
                        found[first, i, second, j] = subspace_angles(one, other)
    return found


def place(pair: dict[str, Any]) -> tuple[int, ...]:
    return tuple(pair[end][key] for end in ("source", "target") for key in ("layer", "head"))


@pytest.mark.parametrize(("asked", "spaces"), [("OK", "OK"), ("oq", "OQ"), ("QQ", "QQ"), ("kO", "KO"), ("o", "O")])
@pytest.mark.parametrize("fold", [True, False])
def test_pairs_are_the_strongest_of_all(
    asked: str, spaces: str, fold: bool, run: Any, model: Path, tensors: dict[str, np.ndarray]
) -> None:
    result = run("pairs", model, "--spaces", asked, "--top", 10, *([] if fold else ["--unfolded"]))
    expected = all_pairs(tensors, spaces, fold=fold)
    order = sorted(expected, key=lambda pair: -np.sum(np.cos(expected[pair]) ** 2))
    assert [place(pair) for pair in result["pairs"]] == order[:10]
    for pair in result["pairs"]:
        angles = expected[place(pair)]
        assert pair["pk"] == pytest.approx(np.sum(np.cos(angles) ** 2))
        assert pair["rho"] == pytest.approx(np.mean(np.cos(angles) ** 2))
        assert pair["angle_deg"] == pytest.approx(np.degrees(angles.min()), abs=1e-6)
    assert result["spaces"] == spaces
    assert result["isotropic"] == pytest.approx(OWN / WIDTH)
    assert result["from"] == "computed from the checkpoint"


def test_no_more_pairs_than_there_are(run: Any, model: Path) -> None:
    assert len(run("pairs", model, "--spaces", "V", "--top", 1000)["pairs"]) == LAYERS * GROUPS * (GROUPS - 1) // 2


def headers_of(results: Path, model: Path) -> Headers:
    """Headers as the workflow keeps them: of this content."""
    memory = results / "weights" / model.name / "content.json"
    return with_content(read_headers(str(model)), content_sum(str(model), memory))


def store(folder: Path, model: Path, **changes: object) -> Path:
    """Results of the workflow whose numbers cannot be mistaken for computed ones."""
    rho = np.full((LAYERS, LAYERS, HEADS, GROUPS), np.nan)
    rho[np.triu_indices(LAYERS, 1)] = np.arange(3 * HEADS * GROUPS).reshape(3, HEADS, GROUPS) / 100
    arrays = {"cross/OK/rho": rho, "cross/OK/angle": 90 - 100 * rho}
    arrays |= {"rank/O": np.full((LAYERS, HEADS), OWN), "rank/K": np.full((LAYERS, GROUPS), OWN - 1)}
    facts = {
        "model": model.name, "source": str(model), "revision": headers_of(folder, model).revision, "fold": True,
        "n_layers": LAYERS, "d_model": WIDTH, "n_query_heads": HEADS, "n_kv_heads": GROUPS, "d_head": OWN,
        "rank_rtol": 1e-6, "leave_out_rounding": False,
    }  # fmt: skip
    path = folder / "overlaps" / f"{model.name}.h5"
    write_arrays(path, "overlaps", arrays, facts | changes)
    return path


@pytest.mark.parametrize("by_name", [True, False])
def test_pairs_come_from_the_results_where_these_are_of_the_same_weights(
    by_name: bool, run: Any, model: Path, tmp_path: Path
) -> None:
    path = store(tmp_path / "results", model)
    result = run("pairs", model.name if by_name else model, "--top", 2)
    # The last layer pair, 1 -> 2, its last heads; PK is divided by the smaller rank, a key's 7.
    assert [place(pair) for pair in result["pairs"]] == [(1, 3, 2, 1), (1, 3, 2, 0)]
    assert [pair["rho"] for pair in result["pairs"]] == [0.23, 0.22]
    assert result["pairs"][0]["pk"] == pytest.approx(0.23 * 7)
    assert result["pairs"][0]["angle_deg"] == pytest.approx(67)
    assert result["from"] == str(path)


def test_pairs_have_their_effect_where_the_results_hold_it(
    run: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlaps = store(tmp_path / "results", model)
    assert "effect" not in run("pairs", str(model), "--top", "3")["pairs"][0]
    facts = {"model": model.name, "source": str(model), "revision": headers_of(tmp_path / "results", model).revision}
    effect = np.random.default_rng(0).random((LAYERS, LAYERS, HEADS, GROUPS))
    arrays = {f"repeats/{kind}/effect": effect for kind in "QK"}
    path = overlaps.parents[1] / "attribution" / overlaps.name
    write_arrays(path, "attribution", arrays, facts)
    for pair in run("pairs", str(model), "--top", "3")["pairs"]:
        writer, reader = pair["source"], pair["target"]
        assert pair["effect"] == effect[writer["layer"], reader["layer"], writer["head"], reader["head"]]
    assert main(["pairs", str(model), "--results", str(tmp_path / "results"), "--top", "1"]) == 0
    assert f"{1e3 * effect[1, 2, HEADS - 1, GROUPS - 1]:.3f}" in capsys.readouterr().out.splitlines()[-1]
    path.unlink()
    write_arrays(path, "attribution", arrays, facts | {"revision": "another"})
    assert "effect" not in run("pairs", str(model), "--top", "3")["pairs"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": "sha256:other"},
        {"source": "elsewhere"},
        {"fold": False},
        {"rank_rtol": 1e-3},
        {"leave_out_rounding": True},
    ],
    ids=lambda c: next(iter(c)),
)
def test_results_of_other_weights_are_not_believed(
    changes: dict[str, object], run: Any, model: Path, tmp_path: Path
) -> None:
    store(tmp_path / "results", model, **changes)
    result = run("pairs", model, "--top", 1)
    assert result["from"] == "computed from the checkpoint"
    assert result["pairs"][0]["rho"] > 0.24  # every stored one is smaller


def test_a_file_replaced_in_place_with_an_older_date_is_computed_anew(run: Any, model: Path, tmp_path: Path) -> None:
    store(tmp_path / "results", model)
    weights = model / "model.safetensors"
    state, data = weights.stat(), bytearray(weights.read_bytes())
    data[-4] ^= 1
    weights.write_bytes(data)
    os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns - 10**9))
    assert run("pairs", model, "--top", 1)["from"] == "computed from the checkpoint"


def test_results_outlive_the_checkpoint(run: Any, model: Path, tmp_path: Path) -> None:
    store(tmp_path / "results", model)
    headers = headers_of(tmp_path / "results", model)
    write_headers(headers, tmp_path / "results" / "weights" / "tiny" / "headers.json")
    (model / "model.safetensors").unlink()
    (model / "config.json").unlink()
    model.rmdir()
    assert run("pairs", "tiny", "--top", 1)["pairs"][0]["rho"] == 0.23
    assert run("inspect", "tiny")["shape"]["n_layers"] == LAYERS


def test_inspect_says_what_the_tensors_allow(run: Any, model: Path) -> None:
    found = run("inspect", model)
    assert found["shape"] == {
        "n_layers": LAYERS, "d_model": WIDTH, "n_query_heads": HEADS, "n_kv_heads": GROUPS, "d_head": OWN,
    }  # fmt: skip
    assert (found["model"], found["architecture"], found["norm"]) == ("tiny", "llama", "rmsnorm")
    assert found["source"] == str(model)
    assert found["revision"] == read_headers(str(model)).revision
    assert found["isotropic"] == pytest.approx(1 / 3)
    # Four write spaces of width 8 in 24 dimensions: 8 too many.
    assert found["spaces"]["O"] == {"what": "writes", "heads": 4, "width": 32, "forced_deficiency": 8}
    assert found["spaces"]["K"] == {"what": "keys read", "heads": 2, "width": 16, "forced_deficiency": 0}
    # By layer q, k, v, o and the norm, four bytes a number.
    assert found["n_tensors"] == 5 * LAYERS
    assert found["bytes"] == 4 * LAYERS * (2 * 32 * 24 + 2 * 16 * 24 + 24)
    assert found["bytes_to_fetch"] == 0
    assert found["stages"]["overlaps"] is None
    assert "tokenizer" in found["stages"]["activations"]


def test_a_folded_layernorm_takes_a_dimension(run: Any, gpt2_folder: Path) -> None:
    spaces = run("inspect", gpt2_folder)["spaces"]
    assert {kind: space["forced_deficiency"] for kind, space in spaces.items()} == {"O": 0, "Q": 1, "K": 1, "V": 1}


def test_published_pairs_of_gpt2(run: Any, gpt2_folder: Path) -> None:
    pairs = run("pairs", gpt2_folder, "--spaces", "OK", "--top", 3, "--unfolded")["pairs"]
    assert [(*place(pair), round(pair["pk"], 1)) for pair in pairs] == [
        (4, 11, 5, 1, 39.3), (4, 7, 5, 1, 38.4), (4, 11, 6, 9, 38.4),
    ]  # fmt: skip


def test_of_a_repository_only_the_kinds_in_question_are_fetched(
    tensors: dict[str, np.ndarray], model: Path, run: Any, tmp_path: Path
) -> None:
    with serving() as double:
        files = {
            "config.json": Content.of(json.dumps(LLAMA).encode(), large=False),
            "model.safetensors": Content.of(safetensors(tensors), large=True),
        }
        commit = double.repository("someone/tiny").commit(files)
        client = {"HF_ENDPOINT": double.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hub")}

        def look(*arguments: str) -> dict[str, Any]:
            done = command_line(*arguments, "--json", "--results", str(tmp_path / "results"), **client)
            assert done.returncode == 0, done.stderr
            result: dict[str, Any] = json.loads(done.stdout)
            return result

        found = look("inspect", "hub:someone/tiny")
        assert found["revision"] == commit
        assert found["bytes_to_fetch"] >= found["bytes"] == run("inspect", model)["bytes"]
        before = double.bodies
        result = look("pairs", "hub:someone/tiny", "--spaces", "O")
        # The output projections, 24 x 32 float32 a layer, the headers, and no whole checkpoint.
        assert 4 * LAYERS * 24 * 32 < double.bodies - before < 1.5 * 4 * LAYERS * 24 * 32
    assert result["pairs"] == run("pairs", model, "--spaces", "O")["pairs"]


def test_two_models_side_by_side(run: Any, model: Path, tensors: dict[str, np.ndarray], tmp_path: Path) -> None:
    changed = dict(tensors)
    name = "model.layers.1.self_attn.o_proj.weight"
    changed[name] = changed[name] + np.float32(0.3) * np.eye(24, 32, dtype=np.float32)
    other = write_folder(tmp_path / "other", LLAMA, {"model.safetensors": safetensors(changed)})
    result = run("compare", model, other, "--spaces", "O,OV")
    rho = {
        spaces: [
            {pair: np.mean(np.cos(angles) ** 2) for pair, angles in all_pairs(weights, spaces).items()}
            for weights in (tensors, changed)
        ]
        for spaces in ("O", "OV")
    }
    assert [row["spaces"] for row in result["comparisons"]] == ["O", "OV"]
    for row in result["comparisons"]:
        one, two = (np.array(list(values.values())) for values in rho[row["spaces"]])
        assert row["n_pairs"] == len(one)
        assert row["mean_rho"] == pytest.approx([one.mean(), two.mean()])
        assert row["spread"] == pytest.approx([one.std(), two.std()])
        assert row["max_abs_difference"] == pytest.approx(np.abs(one - two).max())
        assert row["max_relative_difference"] == pytest.approx((np.abs(one - two) / one).max())
    assert [(row["spaces"], row["layer"]) for row in result["layers"]] == [("O", layer) for layer in range(LAYERS)]
    differences = [row["max_abs_difference"] for row in result["layers"]]
    assert differences[0] == pytest.approx(0, abs=1e-12)
    assert differences[1] > 0.01
    assert {row["spaces"] for row in run("compare", model, other)["comparisons"]} == {*"OQKV", "OQ", "OK", "OV"}


def test_the_tolerance_of_ranks_reaches_pairs_and_compare(
    run: Any, tensors: dict[str, np.ndarray], tmp_path: Path
) -> None:
    name = "model.layers.0.self_attn.o_proj.weight"
    weak = dict(tensors)
    first, *others = np.split(weak[name].astype(float), HEADS, axis=1)
    first = np.linalg.qr(first)[0] @ np.diag([1.0] * (OWN - 1) + [1e-4])
    weak[name] = np.concatenate([first, *others], axis=1).astype(np.float32)
    model = write_folder(tmp_path / "weak", LLAMA, {"model.safetensors": safetensors(weak)})

    def ratio(*options: object) -> float:
        pairs = run("pairs", model, "--all", *options)["pairs"]
        (pair,) = [pair for pair in pairs if place(pair) == (0, 0, 1, 0)]
        return float(pair["pk"] / pair["rho"])

    # PK is divided by the smaller rank.
    assert ratio() == pytest.approx(OWN)
    assert ratio("--rank-rtol", "1e-3") == pytest.approx(OWN - 1)
    means = [run("compare", model, model, "--spaces", "OK", *options)["comparisons"][0]["mean_rho"][0]
             for options in ([], ["--rank-rtol", "1e-3"])]  # fmt: skip
    assert means[0] != pytest.approx(means[1], rel=1e-6)


def test_all_pairs_and_csv(run: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = run("pairs", model, "--spaces", "OQ", "--all")["pairs"]
    assert len(pairs) == 3 * HEADS * HEADS
    assert main(["pairs", str(model), "--spaces", "OQ", "--all", "--csv", "--results", str(tmp_path / "none")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "writer,reader,pk,rho,angle_deg"
    assert len(lines) == 1 + len(pairs)
    for line, pair in zip(lines[1:], pairs, strict=True):
        writer, reader, pk, rho, angle = line.split(",")
        first, second = (f"{pair[end]['layer']}.{pair[end]['head']}" for end in ("source", "target"))
        assert (writer, reader) == (first, second)
        assert [float(pk), float(rho), float(angle)] == pytest.approx([pair["pk"], pair["rho"], pair["angle_deg"]])
    assert main(["compare", str(model), str(model), "--spaces", "O", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("spaces,layer,n_pairs,mean_rho_one,mean_rho_other,spread_one,spread_other,max_abs")
    assert [line.split(",")[:3] for line in lines[1:]] == [["O", "", "18"], *(["O", str(i), "6"] for i in range(3))]


def test_an_export_is_read_back(run: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out" / "tiny.h5"
    assert main(["export", str(model), str(target), "--unfolded", "--spaces", "O,OK"]) == 0
    assert capsys.readouterr().out == f"{target}: O, OK of tiny\n"
    opened = headspaces.load(model, fold=False)
    with headspaces.read(target) as tree:
        assert tree.attrs["model"] == "tiny"
        np.testing.assert_array_equal(tree["cross/OK/rho"].values, opened.overlaps("OK").values)
        np.testing.assert_array_equal(tree["within/O/angle"].values, opened.angles("O").values)
        assert tree["cross/OK/rho"].dims == ("writer_layer", "reader_layer", "writer_head", "reader_kv_head")


def small(tensors: dict[str, np.ndarray], folder: Path, layers: int, heads: int) -> Path:
    """A model of the first layers and query heads; one key-value head where there is one head."""
    groups = max(1, heads * GROUPS // HEADS)
    kept = {}
    for name, array in tensors.items():
        layer = int(name.split(".layers.")[1].split(".")[0]) if ".layers." in name else 0
        if layer >= layers:
            continue
        rows = {"q_proj": heads, "k_proj": groups, "v_proj": groups}.get(name.split(".")[-2])
        array = array[: rows * OWN] if rows else array
        kept[name] = np.ascontiguousarray(array[:, : heads * OWN] if "o_proj" in name else array)
    config = LLAMA | {"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups}
    return write_folder(folder, config, {"model.safetensors": safetensors(kept)})


def test_models_of_one_layer_or_one_head_have_fewer_pairs(
    tensors: dict[str, np.ndarray], tmp_path: Path, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    one_layer = small(tensors, tmp_path / "layer", 1, HEADS)
    found = run("compare", one_layer, one_layer)["comparisons"]
    counts = {row["spaces"]: row["n_pairs"] for row in found}
    assert counts == {"O": 6, "Q": 6, "K": 1, "V": 1, "OQ": 0, "OK": 0, "OV": 0}
    assert [row["mean_rho"] for row in found if not row["n_pairs"]] == [[None, None]] * 3
    assert main(["compare", str(one_layer), str(one_layer)]) == 0
    text = capsys.readouterr().out
    assert "nan" not in text
    assert "OK: no pairs, there is no later layer" in text
    assert main(["pairs", str(one_layer)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no pairs: there is no later layer"
    one_head = small(tensors, tmp_path / "head", 2, 1)
    counts = {row["spaces"]: row["n_pairs"] for row in run("compare", one_head, one_head)["comparisons"]}
    assert counts == {"O": 0, "Q": 0, "K": 0, "V": 0, "OQ": 1, "OK": 1, "OV": 1}
    assert main(["compare", str(one_head), str(one_head)]) == 0
    text = capsys.readouterr().out
    assert "nan" not in text
    assert "K: no pairs, a layer has one such head" in text
    assert main(["compare", str(one_head), str(one_head), "--spaces", "O"]) == 0
    assert "over all pairs" not in capsys.readouterr().out


def test_the_text_is_aligned_and_has_the_same_numbers(
    run: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = run("pairs", model, "--top", 4)["pairs"]
    assert main(["pairs", str(model), "--top", "4", "--results", str(tmp_path / "results")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for pair, line in zip(pairs, lines[-4:], strict=True):
        first, second = (f"{pair[end]['layer']}.{pair[end]['head']}" for end in ("source", "target"))
        numbers = [f"{pair['rho']:.4f}", f"{pair['pk']:.2f}", f"{pair['angle_deg']:.2f}"]
        assert line.split() == [first, "→", second, *numbers]
    assert len({len(line) for line in lines[-5:]}) == 1
    for command in (["inspect", str(model)], ["compare", str(model), str(model)]):
        assert main(command) == 0
        assert "tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["inspect", "no/such"],
            "model 'no/such' .did you mean hub:no/such.*: neither a folder or file, .* a row of .*gpt2",
        ),
        (["inspect", "../results"], "neither a folder or file"),
        (["inspect", "{empty}"], "no config.json"),
        (["pairs", "tiny", "--models-table", "absent.tsv"], "table of models absent.tsv: no such file"),
        (["compare", "{model}", "{wider}"], "tiny and wider: n_layers is 3 and 2; only models of one shape"),
        (["inspect", "{mystery}"], "mystery"),
    ],
)
def test_mistakes_end_with_one_line(
    arguments: list[str], message: str, model: Path, tensors: dict[str, np.ndarray], tmp_path: Path
) -> None:
    shorter = {name: array for name, array in tensors.items() if ".layers.2." not in name}
    places = {
        "empty": write_folder(tmp_path / "empty", {}, {}),
        "model": model,
        "wider": write_folder(
            tmp_path / "wider", LLAMA | {"num_hidden_layers": 2}, {"model.safetensors": safetensors(shorter)}
        ),
        "mystery": write_folder(tmp_path / "mystery", LLAMA | {"model_type": "mystery"}, {"model.safetensors": b""}),
    }
    (places["empty"] / "config.json").unlink()
    done = command_line(*(argument.format(**places) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert re.search(message, line)


def test_wrong_options_are_refused_with_the_usage() -> None:
    for arguments, message in (
        (["pairs", "x", "--spaces", "QX"], "'QX' is not one of O, Q, K, V, or two of these letters"),
        (["pairs", "x", "--top", "3", "--all"], "not allowed with argument"),
        (["pairs", "x", "--csv", "--json"], "not allowed with argument"),
        (["pairs", "x", "--rank-rtol", "2"], "'2' is not a number from 0 to below 1"),
        (["export", "x", "y.txt"], "'y.txt' does not end with .h5 or .csv"),
        (["pairs", "x", "--top", "0"], "'0' is not a positive whole number"),
        ([], "COMMAND"),
    ):
        done = command_line(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_help_and_inspect_start_without_numpy(model: Path) -> None:
    script = "import sys; from headspaces.command_line import main; main(sys.argv[1:]); print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", str(model)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "inspect" in command_line("--help").stdout


def test_a_reader_that_stops_is_no_error(model: Path) -> None:
    command = [sys.executable, "-m", "headspaces", "pairs", str(model), "--spaces", "OQ", "--top", "5000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_names_cannot_leave_the_results(tmp_path: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"")
    with pytest.raises(InputError, match="neither"):
        find_model("../x", tmp_path / "overlaps")


def command_line(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headspaces", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def of_rank_4(rng: np.random.Generator, folder: Path) -> Path:
    """A model whose heads all have rank 4 of 8, in bfloat16."""
    torch = pytest.importorskip("torch")
    tensors = llama_tensors(rng)
    for name, weight in tensors.items():
        if "self_attn" in name:
            rows = weight.T if "o_proj" in name else weight
            heads = [rng.normal(size=(8, 4)) @ rng.normal(size=(4, 24)) for _ in range(len(rows) // 8)]
            tensors[name] = (np.concatenate(heads).T if "o_proj" in name else np.concatenate(heads)).astype("float32")
    raw = {
        name: ("BF16", one.shape, torch.from_numpy(one.copy()).bfloat16().view(torch.int16).numpy().tobytes())
        for name, one in tensors.items()
    }
    write_folder(folder / "exact", LLAMA, {"model.safetensors": safetensors(tensors)})
    return write_folder(folder / "stored", LLAMA, {"model.safetensors": safetensors(raw)})


@pytest.mark.parametrize("spaces", ["OK", "O"])
def test_directions_within_rounding_are_left_out_where_asked(
    spaces: str, run: Any, rng: np.random.Generator, tmp_path: Path
) -> None:
    model = of_rank_4(rng, tmp_path)
    asked = ("--spaces", spaces, "--all")
    exact = run("pairs", tmp_path / "exact", *asked)["pairs"]
    assert max(pair["pk"] for pair in exact) < 4
    without, plain = (run("pairs", model, *asked, *more)["pairs"] for more in (["--leave-out-rounding"], []))
    wanted = {place(pair): pair["rho"] for pair in exact}
    found = {place(pair): pair["rho"] for pair in without}
    assert found == pytest.approx(wanted, abs=0.02)
    # With them every head has rank 8 of 24 dimensions.
    assert np.mean([pair["pk"] for pair in plain]) > 1.9 * np.mean([pair["pk"] for pair in exact])
    compared = run("compare", tmp_path / "exact", model, "--spaces", spaces, "--leave-out-rounding")
    assert compared["comparisons"][0]["max_abs_difference"] < 0.02
    assert [one["leave_out_rounding"] for one in compared["models"]] == [True, True]


def test_inspect_counts_directions_within_rounding(
    run: Any, rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = of_rank_4(rng, tmp_path)
    assert run("inspect", model)["within_rounding"] == {}
    counts = {kind: {"directions": 4 * n * LAYERS, "heads": n * LAYERS} for kind, n in zip("OQKV", (4, 4, 2, 2))}
    assert run("inspect", model, "--rounding")["within_rounding"] == counts
    assert main(["inspect", str(model), "--rounding"]) == 0
    assert re.search(r"may have made\n  O  48 of 12 heads\n", capsys.readouterr().out)
    assert main(["inspect", str(model)]) == 0
    assert "not counted (--rounding)" in capsys.readouterr().out
    # Once the workflow counted them, no weight is read.
    facts = {"revision": headers_of(tmp_path / "results", model).revision}
    path = store(tmp_path / "results", model, **facts)
    arrays = {
        f"within_rounding/{kind}": np.full((LAYERS, n), i) for i, (kind, n) in enumerate(zip("OQKV", (4, 4, 2, 2)))
    }
    attributes = {**read_attributes(path, "overlaps"), "kinds": "OQKV"}
    write_arrays(path, "overlaps", {**read_arrays(path, "overlaps"), **arrays}, attributes)
    assert run("inspect", model)["within_rounding"]["K"] == {"directions": 2 * 2 * LAYERS, "heads": 2 * LAYERS}
