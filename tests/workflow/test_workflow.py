"""The workflow as a user runs it, on a tiny model in a copy of the project."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.hub_double import Content, serving
from support.project import ROOT
from support.workflow_runs import D_HEAD, D_MODEL, N_HEADS, N_KV, N_LAYERS, planned, save_tiny, snakemake

from headspaces.geometry.pairs import layer_overlaps
from headspaces.store import read_arrays, read_attributes
from headspaces.weights.blocks import read_metadata

TABLE = "results/report/tiny/tables/table1.csv"
OVERLAPS = "results/overlaps/tiny.h5"
WEIGHTS = "results/weights/moving/layers000-002.safetensors"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project in which the tiny model has been run."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("workflow", "config", "src", "envs", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    save_tiny(folder / "tiny")
    snakemake(folder, TABLE, "--config", "model=tiny")
    return folder


def test_one_command_makes_the_table_of_ones_own_model(project):
    lines = (project / TABLE).read_text().splitlines()
    assert lines[0] == "model,scope,spaces,n_pairs,min_angle_deg,median_min_angle_deg"
    assert lines[1].startswith(f"tiny,within,O,{N_LAYERS * N_HEADS * (N_HEADS - 1) // 2},")
    assert len(lines) == 8


SUMS = ("rank", "deficiency", "lambda_min", "condition")


def test_the_overlaps_file_keeps_its_contract(project):
    arrays, attributes = read_arrays(project / OVERLAPS, "overlaps"), read_attributes(project / OVERLAPS, "overlaps")
    heads = {"O": N_HEADS, "Q": N_HEADS, "K": N_KV, "V": N_KV}
    expected = {}
    for kind, n in heads.items():
        expected |= {f"within/{kind}/{name}": (N_LAYERS, n, n) for name in ("rho", "angle")}
        expected |= {f"direct_sum/{kind}/{name}": (N_LAYERS,) for name in SUMS}
        expected[f"direct_sum/{kind}/random_condition"] = ()
        expected |= {f"{name}/{kind}": (N_LAYERS, n) for name in ("rank", "within_rounding")}
        left = [f"{taken}_{what}" for taken in ("directions", "coordinates") for what in ("mean", "spread")]
        expected |= {f"sources/{kind}/{name}": (N_LAYERS, 4) for name in left}
        expected[f"sources/{kind}/participation"] = (N_LAYERS,)
        expected[f"sources/{kind}/singular_values"] = (N_LAYERS, min(n * D_HEAD, D_MODEL))
    expected |= {f"sources/{name}": (N_LAYERS,) for name in ("gain_max", "gain_median")}
    for kind in "QKV":
        expected |= {
            f"cross/O{kind}/{name}": (N_LAYERS, N_LAYERS, N_HEADS, heads[kind])
            for name in ("rho", "angle", "simple_composition", "weighted")
        }
        expected |= {f"sources/O{kind}/{name}": (N_LAYERS, N_LAYERS, 4) for name in left}
    assert {name: array.shape for name, array in arrays.items()} == expected
    for name, value in {
        "format": "headspaces-overlaps", "format_version": 1, "model": "tiny", "source": str(project / "tiny"),
        "d_model": D_MODEL, "d_head": D_HEAD, "norm": "rmsnorm", "rank_rtol": 1e-6, "dtype": "float64", "fold": True,
    }.items():  # fmt: skip
        assert attributes[name] == value
    assert attributes["revision"].startswith("sha256:")
    assert "package_version" in attributes


@pytest.mark.parametrize(("seed", "cores"), [("0", "1"), ("7", "4")])
def test_a_second_run_does_nothing(seed, cores, project):
    done = snakemake(project, TABLE, "-n", "--cores", cores, "--config", "model=tiny", PYTHONHASHSEED=seed)
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_touch_reruns_nothing(project):
    for file in (project / "src").rglob("*.py"):
        file.touch()
    done = snakemake(project, TABLE, "-n", "--config", "model=tiny")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_setting_reruns_what_depends_on_it(project):
    """Under a name of its own: the weights are the same, what depends on the setting is made beside what is there."""
    unfolded = TABLE.replace("tiny", "tiny-fold-false")
    assert planned(snakemake(project, unfolded, "-n", "--config", "model=tiny", "fold=false")) == {
        "bases",
        "overlaps",
        "tables_overlaps",
    }
    for setting in ("nulls={samples: 40}", "device=cuda", "device={overlaps: cpu, nulls: cuda}"):
        assert planned(snakemake(project, TABLE, "-n", "--config", "model=tiny", setting)) == set()


def test_it_runs_from_another_folder_on_this_copy_of_the_package(project, tmp_path):
    snakemake(project, TABLE, "--directory", str(tmp_path), "--config", f"model={project / 'tiny'}", directory="/")
    assert (tmp_path / TABLE).read_text() == (project / TABLE).read_text()
    log = (tmp_path / "results/logs/overlaps/tiny.log").read_text()
    assert f"from {project / 'src'}, 1 threads" in log


def test_the_catalogue_s_snakefile_is_the_same_workflow(project, tmp_path):
    asked = ("-n", "--directory", str(tmp_path), "--config", f"model={project / 'tiny'}")
    rules = planned(snakemake(project, *asked))
    assert {"headers", "weights", "bases", "overlaps", "null_shard", "report_page"} <= rules
    assert planned(snakemake(project / "workflow", *asked)) == rules


def test_results_do_not_depend_on_the_cores(project, tmp_path):
    source = f"model={project / 'tiny'}"
    snakemake(project, OVERLAPS, "--cores", "1", "--directory", str(tmp_path), "--config", source)
    assert (tmp_path / OVERLAPS).read_bytes() == (project / OVERLAPS).read_bytes()


def test_a_repository_that_moves_between_two_jobs_is_noticed(tmp_path, project):
    """What is fetched is the commit whose headers were read; the log says that there is a newer one."""
    with serving() as double:
        repository = double.repository("owner/moving")
        files = {
            name: Content.of((project / "tiny" / name).read_bytes(), name != "config.json")
            for name in ("config.json", "model.safetensors")
        }
        first = repository.commit(files)
        environment = {"HF_ENDPOINT": double.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache")}
        own = ("--directory", str(tmp_path), "--config", "model=hub:owner/moving")
        snakemake(project, "results/weights/moving/headers.json", *own, **environment)
        other = save_tiny(tmp_path / "other", seed=1) / "model.safetensors"
        second = repository.commit(files | {"model.safetensors": Content.of(other.read_bytes(), True)})
        done = snakemake(project, *own[:2], WEIGHTS, *own[2:], **environment)
    assert f"hub:owner/moving is commit {second} by now; what was fetched is {first}, " in done.stderr
    assert read_metadata(tmp_path / WEIGHTS)["revision"] == first


def broken(folder, change):
    """The tiny model with its tensors changed."""
    save_tiny(folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


Q1 = "model.layers.1.self_attn.q_proj.weight"


def with_nan(tensors):
    tensors[Q1][2 * D_HEAD + 1, 3] = np.nan


def with_infinity(tensors):
    tensors["model.layers.2.self_attn.o_proj.weight"][0, 1] = -np.inf


def truncated(folder):
    save_tiny(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    return folder


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: folder / "absent", "absent.* does not exist"),
        (lambda folder: broken(folder / "x", lambda t: t.pop(Q1)), f"missing tensor '{Q1}'"),
        (lambda folder: broken(folder / "x", lambda t: t.update({Q1: t[Q1][:-1].copy()})), f"{Q1}' has the shape"),
        (lambda folder: save_tiny(folder / "x", num_attention_heads=5), "5"),
        (lambda folder: save_tiny(folder / "x", model_type="mystery"), "mystery"),
        (lambda folder: truncated(folder / "x"), "model.safetensors"),
        (lambda folder: broken(folder / "x", with_nan), f"{Q1}' holds 1 NaN or infinite values in Q head 2"),
        (
            lambda folder: broken(folder / "x", with_infinity),
            "o_proj.weight' holds 1 NaN or infinite values in O head 0",
        ),
    ],
    ids=["no_folder", "no_tensor", "shape", "heads", "architecture", "truncated", "nan", "infinity"],
)
def test_wrong_weights_end_with_one_line_and_no_result(prepare, message, project, tmp_path):
    import re

    source = prepare(tmp_path)
    done = snakemake(
        project, "results/overlaps/x.h5" if source.name == "x" else "all", "--directory", str(tmp_path / "run"),
        "--config", f"model={source}", check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode != 0
    lines = [line for line in output.splitlines() if re.search(message, line)]
    assert lines, output
    assert "Traceback" not in output
    left = [path for path in (tmp_path / "run").rglob("*") if path.suffix in (".h5", ".part", ".csv")]
    assert not left


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("modles=[gpt2]", "config: unknown key 'modles' (did you mean 'models'?); the keys are"),
        ("models=[gpt5]", "unknown model 'gpt5' (did you mean 'gpt2'?); known are"),
        ("seed=seven", "config: seed is 'seven', but must be of type integer"),
        ("published_as=gpt5", "config: published_as is 'gpt5', but must be one of gpt2, pythia-70m"),
    ],
)
def test_a_wrong_setting_ends_with_one_line(settings, message, project):
    done = snakemake(project, "-n", "--config", settings, check=False)
    assert done.returncode != 0
    assert [
        line for line in (done.stdout + done.stderr).splitlines() if line.strip().startswith(message) or message in line
    ]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("configuration", sorted(path.name for path in (ROOT / "config").glob("*.yaml")))
def test_dry_run_of_every_configuration(configuration, tmp_path):
    done = snakemake(
        ROOT, "-n", "--quiet", "--directory", str(tmp_path), "--configfile", str(ROOT / "config" / configuration)
    )
    assert done.returncode == 0


def test_the_conda_environment_has_the_versions_of_the_lock():
    lock = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().splitlines())
    names = {name.lower().replace("_", "-"): version for name, version in lock.items()}
    pins = [line.strip()[2:] for line in (ROOT / "envs" / "headspaces.yaml").read_text().splitlines() if "==" in line]
    assert len(pins) > 15
    for pin in pins:
        name, version = pin.split("==")
        assert names[name.lower().replace("_", "-")] == version


def test_real_gpt2_in_one_command(gpt2_folder, tmp_path):
    """PK's published numbers, unfolded: means over earlier-to-later pairs and the strongest OK pairs."""
    overlaps = "results/overlaps/gpt2-small-attention.h5"
    snakemake(ROOT, overlaps, "--directory", str(tmp_path), "--config", f"model={gpt2_folder}", "fold=false")
    (block,) = (tmp_path / "results/bases/gpt2-small-attention").glob("*.h5")
    bases = read_arrays(block, "bases")
    pairs = layer_overlaps({kind: bases[f"{kind}/basis"] for kind in "OQKV"}, within="", sources="QV", targets="QO")
    assert round(np.nanmean(pairs.across["QQ"]), 3) == 8.467
    assert round(np.nanmean(pairs.across["VO"]), 3) == 5.664
    rho = read_arrays(tmp_path / overlaps, "overlaps", ["cross/OK/rho"])["cross/OK/rho"]
    strongest = np.argsort(np.where(np.isnan(rho), -1, rho).ravel())[::-1][:3]
    found = [(*map(int, np.unravel_index(place, rho.shape)), round(64 * rho.flat[place], 1)) for place in strongest]
    # writer layer, reader layer, writer head, reader head
    assert found == [(4, 5, 11, 1, 39.3), (4, 5, 7, 1, 38.4), (4, 6, 11, 9, 38.4)]
