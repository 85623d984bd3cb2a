"""The pipeline on a real SLURM of one node gives what it gives without: ``make test-slurm``."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from support.project import ROOT
from support.slurm_cluster import NoClusterError, install_slurm, one_node_cluster
from support.workflow_runs import save_tiny

pytestmark = pytest.mark.slurm
CPUS = min(4, len(os.sched_getaffinity(0)))
# The queue is asked often, and no job asks for more cores than there are.
ON_CLUSTER = (
    "--profile", "workflow/profiles/slurm", "--slurm-status-command", "squeue", "--slurm-no-account",
    "--slurm-init-seconds-before-status-checks", "2", "--max-threads", str(CPUS),
)  # fmt: skip
DEMO = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of one node."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("there is room for one cluster on a machine: make test-slurm")
    try:
        install_slurm()
        with one_node_cluster(tmp_path_factory.mktemp("slurm"), CPUS):
            yield
    except NoClusterError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project: its results and logs are its own."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("workflow", "config", "src", "envs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    return folder


def snakemake(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "--nocolor", *arguments]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def submitted(output):
    """By rule or group, how many SLURM jobs of its own were submitted."""
    return Counter(re.findall(r"submitted with SLURM jobid \d+ \(log: \S*/slurm_logs/(?:rule|group)_([^/]+)/", output))


def same_files(one, other, pattern):
    names = sorted(str(path.relative_to(one)) for path in one.glob(pattern))
    assert names
    assert names == sorted(str(path.relative_to(other)) for path in other.glob(pattern))
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_a_tiny_model_from_checkpoint_to_table(cluster, project, tmp_path):
    source = save_tiny(tmp_path / "tiny")
    results = ("results/report/tiny/tables/table4.csv", "results/self_heads/tiny.h5")
    arguments = [*results, "--config", f"model={source}", "nulls={samples: 16}"]
    snakemake(project, *arguments, "--cores", "2", "--directory", str(tmp_path / "local"))
    output = snakemake(project, *ON_CLUSTER, *arguments, "--directory", str(tmp_path / "cluster"))
    for pattern in ("results/**/*.h5", "results/**/*.csv"):
        assert same_files(tmp_path / "local", tmp_path / "cluster", pattern)
    # Two shards of each null model, and the bases, overlaps and own spaces of heads together.
    jobs = submitted(output)
    assert jobs["null_shard"] == 4
    assert [count for name, count in jobs.items() if name.startswith("geometry")] == [1]
    assert not {"bases", "overlaps", "self_heads"} & set(jobs)


def test_the_demo_s_null_stage(cluster, project):
    """All shards as one job array; the merged file is the local run's."""
    merged = f"results/nulls/{DEMO}.h5"
    demo = ["--configfile", "config/demo.yaml"]
    snakemake(project, merged, "--cores", str(CPUS), *demo)
    local = project.with_name("local")
    shutil.move(project / "results" / "nulls", local / "results" / "nulls")
    output = snakemake(project, *ON_CLUSTER, "--slurm-array-jobs", "null_shard", merged, *demo)
    assert same_files(local / "results" / "nulls", project / "results" / "nulls", "**/*.h5")
    assert output.count("Submitted array job") == 1
    # What merges the shards is one job more.
    assert submitted(output) == {"nulls": 1}


def test_without_accounting_it_says_what_to_set(cluster, project, tmp_path):
    arguments = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "workflow/profiles/slurm",
        "--directory",
        str(tmp_path),
    ]
    source = save_tiny(tmp_path / "tiny")
    done = subprocess.run(
        [*arguments, "results/overlaps/tiny.h5", "--config", f"model={source}"],
        cwd=project, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert "accounting storage is disabled" in done.stdout + done.stderr
    assert "--slurm-status-command squeue" in done.stdout + done.stderr
