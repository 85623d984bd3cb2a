"""The plan of a study: from stored headers or from shapes, without a network and without fetching."""

import csv
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import yaml
from support.project import ROOT
from support.tiny_models import build

from headspaces.costs.plan import Machine, measure_machine, plan_page, plan_study
from headspaces.costs.stages import Workload
from headspaces.errors import InputError
from headspaces.study.models import Model, read_models
from headspaces.weights.headers_file import load_headers, write_headers
from headspaces.weights.source import read_headers

FIXTURES = ROOT / "tests" / "fixtures" / "headers"
MODELS = read_models(ROOT / "config" / "models.tsv")
# Shapes and types from the models' cards: bytes of the four projections, and of the norm's gain before reads.
TENSOR_BYTES = {
    "gpt2": 12 * (4 * 768 * 768 + 768) * 4,
    "qwen2.5-7b": 28 * (2 * 3584 * 3584 + 2 * 512 * 3584 + 3584) * 2,
    "qwen2.5-7b-instruct": 28 * 3584 * 3584 * 2,
    "qwen3-235b-a22b": 94 * 4096 * 8192 * 2,
    "pythia-70m": 6 * 512 * 512 * 2,
    "bloom-560m": 24 * (4 * 1024 * 1024 + 1024) * 2,
    "qwen2-0.5b-instruct": 24 * (2 * 896 * 896 + 2 * 128 * 896 + 896) * 2,
}


def run_plan(folder, *settings):
    """The command as a user gives it; no network is allowed."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "--nocolor"]
    command += ["--directory", str(folder), "plan", *settings]
    # A proxy that nobody serves makes every request fail at once.
    closed = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **closed, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "home")}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_table(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The paper study planned from the stored headers: the folder and what was printed."""
    folder = tmp_path_factory.mktemp("plan")
    for name in TENSOR_BYTES:
        (folder / "results" / "weights" / name).mkdir(parents=True)
        shutil.copy(FIXTURES / f"{name}.json", folder / "results" / "weights" / name / "headers.json")
    return folder, run_plan(folder)


def test_the_paper_study_is_planned_from_stored_headers(planned):
    folder, printed = planned
    rows = read_table(folder / "results/plan/paper.tsv")
    assert list(dict.fromkeys(row["model"] for row in rows)) == list(TENSOR_BYTES)
    assert {row["known_from"] for row in rows} == {"headers"}
    fetched = {row["model"]: int(row["fetch_bytes"]) for row in rows if row["stage"] == "weights"}
    for name, needed in TENSOR_BYTES.items():
        assert needed <= fetched[name] <= 1.01 * needed, name
    assert {row["layout"] for row in rows if row["model"] == "qwen3-235b-a22b"} == {"llama"}
    page = (folder / "results/plan/paper.md").read_text()
    assert page in printed
    assert "| qwen3-235b-a22b | llama | O | headers | 6.3 GB | 189,504 |" in page


def test_nothing_is_fetched_and_nothing_else_runs(planned):
    folder, printed = planned
    made = {str(path.relative_to(folder)) for path in (folder / "results").rglob("*") if path.is_file()}
    stored = {f"results/weights/{name}/headers.json" for name in TENSOR_BYTES}
    assert made - stored == {"results/plan/paper.tsv", "results/plan/paper.md", "results/logs/plan/paper.log"}
    assert "plan: 1 job done" in printed


def test_without_headers_it_says_that_it_reckons_from_the_shapes(tmp_path):
    printed = run_plan(tmp_path, "--configfile", str(ROOT / "config" / "demo.yaml"))
    rows = read_table(tmp_path / "results/plan/demo.tsv")
    demo = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    assert {row["model"].partition("-step")[0] for row in rows} == set(demo["models"])
    assert {row["known_from"] for row in rows} == {"shape"}
    assert "Where only the shape is known" in printed
    assert not (tmp_path / "results/weights").exists()


def test_another_machine_is_costed_as_given(planned):
    """Half the rate, twice the time; nothing is measured."""
    folder, _ = planned
    seconds = []
    for gflops in (100, 50):
        printed = run_plan(folder, "--config", f"plan={{cores: 1000000, gflops: {gflops}}}")
        assert f"a machine of 1000000 cores on which products run at {gflops} GFLOP/s" in printed
        rows = read_table(folder / "results" / "plan" / "paper.tsv")
        seconds.append({(row["model"], row["stage"]): float(row["seconds"]) for row in rows})
    slow, fast = seconds[1], seconds[0]
    assert all(slow[key] == pytest.approx(2 * fast[key], abs=0.2) for key in fast)


def test_rows_add_up_to_the_page():
    names = ["gpt2", "pythia-70m"]
    stages = {"gpt2": ["overlaps", "nulls"], "pythia-70m": ["overlaps"]}
    rows = plan_study([MODELS[name] for name in names], stages, {}, Machine(4, 100.0), Workload(samples=30))
    assert [(row.model, row.stage) for row in rows] == [
        *(
            ("gpt2", stage)
            for stage in ("weights", "bases", "overlaps", "null_shard", "swap_start", "swap_shard", "nulls")
        ),
        *(("pythia-70m", stage) for stage in ("weights", "bases", "overlaps")),
    ]
    # 12 layers of 4 x 66 pairs, and 66 pairs of layers of 12 x 36 heads; 6 layers of 28 pairs.
    pairs = {row.model: row.n_pairs for row in rows if row.stage == "overlaps"}
    assert pairs == {"gpt2": 12 * 4 * 66 + 66 * 12 * 36, "pythia-70m": 6 * 28}
    assert next(row for row in rows if row.stage == "null_shard").n_pairs == 60 * pairs["gpt2"]
    assert next(row for row in rows if row.stage == "swap_shard").n_pairs == 30 * pairs["gpt2"]
    (total,) = [line for line in plan_page(rows, Machine(4, 100.0)).splitlines() if line.startswith("| **all**")]
    cells = [cell.strip() for cell in total.strip("|").split("|")]
    assert cells[5] == f"{sum(pairs.values()):,}"
    assert float(cells[6]) == pytest.approx(sum(row.operations for row in rows), rel=0.05)
    assert cells[7] == f"{max(row.memory_mib for row in rows) * 2**20 / 1e9:.1f} GB"
    assert cells[8] == f"{sum(row.disk_bytes for row in rows) / 1e6:.0f} MB"


def test_the_stream_is_planned_by_the_bytes_of_its_tensors(tmp_path):
    """All that is no head's: embedding, MLPs, their norms, final norm and unembedding; nothing without the stage."""
    model = build("llama")
    model.save_pretrained(tmp_path / "folder")
    headers = read_headers(str(tmp_path / "folder"))
    headers = replace(headers, checkpoint=replace(headers.checkpoint, source="hub:some/model"))
    write_headers(headers, tmp_path / "headers.json")
    row = Model("m", "hub:some/model", headers.kinds, headers.shape)
    for stages, wanted in ((["stream"], ["weights", "bases", "stream_weights", "stream"]), ([], ["weights", "bases"])):
        rows = plan_study([row], {"m": stages}, {"m": tmp_path / "headers.json"}, Machine(1, 1.0), Workload())
        assert [one.stage for one in rows] == wanted
    rows = plan_study([row], {"m": ["stream"]}, {"m": tmp_path / "headers.json"}, Machine(1, 1.0), Workload())
    (one,) = [one for one in rows if one.stage == "stream_weights"]
    rest = [one for name, one in model.named_parameters() if "self_attn" not in name and "input_layernorm" not in name]
    assert one.fetch_bytes == 8 * sum(one.numel() for one in rest)
    unknown = plan_study([row], {"m": ["stream"]}, {}, Machine(1, 1.0), Workload())
    assert all(one.fetch_bytes > 0 for one in unknown if one.stage == "stream_weights")


def test_time_is_operations_by_the_rate_and_starts_by_the_cores():
    models, stages, work = [MODELS["gpt2"]], {"gpt2": ["nulls"]}, Workload(samples=30)
    slow, fast, wide = (
        next(row for row in plan_study(models, stages, {}, machine, work) if row.stage == "null_shard")
        for machine in (Machine(2, 50.0), Machine(2, 500.0), Machine(64, 500.0))
    )
    assert slow.seconds == pytest.approx(4 * 4 / 2 + slow.operations / 50e9)
    assert fast.seconds == pytest.approx(4 * 4 / 2 + slow.operations / 500e9)
    assert wide.seconds == pytest.approx(4 * 4 / 64 + slow.operations / 500e9)


def test_headers_of_another_shape_are_refused(tmp_path):
    model = MODELS["gpt2"]
    with pytest.raises(InputError, match=r"n_layers is 6, the models table says 12|kinds"):
        plan_study([model], {"gpt2": []}, {"gpt2": FIXTURES / "pythia-70m.json"}, Machine(1, 1.0), Workload())
    assert load_headers(FIXTURES / "gpt2.json").shape == model.shape


def test_the_rate_is_that_of_a_matrix_product():
    machine = measure_machine(1)
    matrix = np.ones((1024, 1024))
    elapsed = []
    for _ in range(8):
        start = time.perf_counter()
        matrix @ matrix
        elapsed.append(time.perf_counter() - start)
    assert machine.cores == 1
    assert 1 / 4 < machine.gflops / (2 * 1024**3 / min(elapsed) / 1e9) < 4
