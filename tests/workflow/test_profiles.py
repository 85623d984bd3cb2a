"""Profiles, and what jobs ask for: on a cluster that is played by stand-ins for its commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.project import ROOT
from support.slurm_stubs import ANSWERS, HANGS, NO_ACCOUNTING, submissions, write_stubs
from support.workflow_runs import save_tiny, snakemake

from headspaces.errors import InputError
from headspaces.jobs import slurm_check
from headspaces.jobs.slurm_check import check_job_states
from headspaces.store import read_attributes

PROFILES = sorted((ROOT / "workflow" / "profiles").iterdir())
SLURM = ROOT / "workflow" / "profiles" / "slurm"
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
PAPER_MODELS = 7


@pytest.mark.parametrize("entry", ["Snakefile", "workflow/Snakefile"])
def test_the_default_profile_is_found_from_both_entries(entry, tmp_path):
    """Snakemake looks for it in the working folder and beside the Snakefile: hence the link at the top."""
    assert [path.name for path in PROFILES] == ["default", "slurm"]
    assert (ROOT / "profiles").resolve() == ROOT / "workflow" / "profiles"
    command = [sys.executable, "-m", "snakemake", "-n", "--quiet", "--snakefile", str(ROOT / entry)]
    arguments = ["--config", f"model={save_tiny(tmp_path / 'tiny')}"]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.search(r"Using workflow specific profile \S+/profiles/default for", done.stderr)


def leaves(value):
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    return [leaf for inner in value for leaf in leaves(inner)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_profiles_ask_for_memory_once_and_in_numbers(profile):
    text = (profile / "config.yaml").read_text()
    settings = yaml.safe_load(text)
    assert not [leaf for leaf in [*settings, *leaves(settings)] if "mem_mb_per_cpu" in str(leaf)]
    for setting in leaves(settings):
        if found := re.fullmatch(r"(?:\w+:)?(mem_mb|runtime|disk_mb|\w*network)=(.*)", str(setting)):
            assert found[2].isdecimal(), setting


def test_the_slurm_profile_waits_for_files_and_resumes():
    settings = yaml.safe_load((SLURM / "config.yaml").read_text())
    assert settings["executor"] == "slurm"
    assert settings["latency-wait"] >= 30
    assert settings["rerun-incomplete"] is True
    assert settings["retries"] >= 1
    # A relative folder for logs would be sought in another place by the jobs; the plugin's own is absolute.
    assert "slurm-logdir" not in settings


def test_commented_settings_of_the_slurm_profile_are_settings():
    """What a user uncomments has to be known to Snakemake, with the plugin installed."""
    text = (SLURM / "config.yaml").read_text()
    options = re.findall(r"^# ([a-z][a-z-]+): ", text, re.MULTILINE)
    assert {"max-threads", "slurm-status-command", "slurm-no-account", "slurm-array-jobs"} <= set(options)
    known = subprocess.run([sys.executable, "-m", "snakemake", "--help"], capture_output=True, text=True, check=True)
    assert not [option for option in options if f"--{option}" not in known.stdout]


def jobs_of(output):
    """Resources of every job in a dry run, by rule."""
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:local)?rule )", output):
        rule = re.search(r"^\s*(?:local)?rule (\w+):", block, re.MULTILINE)
        resources = re.search(r"^\s*resources: (.*)$", block, re.MULTILINE)
        if rule:
            pairs = re.findall(r"(\w+)=([^,]*)", resources[1] if resources else "")
            threads = re.search(r"^\s*threads: (\d+)", block, re.MULTILINE)
            found.append((rule[1], dict(pairs) | {"threads": threads[1] if threads else "1"}))
    return found


@pytest.fixture(scope="module")
def paper_jobs(tmp_path_factory):
    """All jobs of the default study."""
    return jobs_of(snakemake(ROOT, "-n", "--cores", "64", "--directory", str(tmp_path_factory.mktemp("paper"))).stdout)


def test_every_rule_asks_for_memory_and_minutes():
    for file in RULES:
        for block in re.split(r"(?m)^(?=rule )", file.read_text())[1:]:
            asks = re.search(
                r"^        \*\*request(_on_device)?\(|^        mem_mb=.*\n        runtime=", block, re.MULTILINE
            )
            assert asks, block.split(":")[0]


def test_every_job_asks_for_memory_and_minutes(paper_jobs):
    for rule, resources in paper_jobs:
        if rule != "all":
            assert int(resources["mem_mb"]) >= 100, rule
            assert int(resources["runtime"]) >= 10, rule


def test_the_default_study_is_a_bounded_number_of_jobs(paper_jobs):
    """Large models have 90 shards of null samples and 24 blocks of layers at most, each burnt in once."""
    assert 100 < len(paper_jobs) <= 100 + 60 * PAPER_MODELS


def test_the_number_of_jobs_does_not_depend_on_the_number_of_heads(tmp_path):
    counts = []
    for name, heads in (("few", 4), ("many", 8)):
        table = tmp_path / f"{name}.tsv"
        row = [
            "name source kinds n_layers d_model n_query_heads n_kv_heads d_head",
            f"x {tmp_path} OQKV 3 24 {heads} 2 6",
        ]
        table.write_text("\n".join(row).replace(" ", "\t") + "\n")
        done = snakemake(
            ROOT, "-n", "--directory", str(tmp_path), "--config", f"models_table={table}", "models=[x]", "study=x"
        )
        counts.append(len(jobs_of(done.stdout)))
    assert counts[0] == counts[1] > 20


def test_all_pairs_of_32_layers_of_32_heads_fit_into_what_is_asked_for(tmp_path):
    table = tmp_path / "models.tsv"
    row = ["name source kinds n_layers d_model n_query_heads n_kv_heads d_head", f"x {tmp_path} OQKV 32 4096 32 32 128"]
    table.write_text("\n".join(row).replace(" ", "\t") + "\n")
    done = snakemake(
        ROOT, "results/overlaps/x.h5", "-n", "--directory", str(tmp_path), "--config", f"models_table={table}",
        "models=[x]", "study=x",
    )  # fmt: skip
    resources = dict(jobs_of(done.stdout))
    # All bases in float64, and the readers' once more, side by side.
    bases = 32 * 4 * 32 * 4096 * 128 * 8
    assert int(resources["overlaps"]["mem_mb"]) * 2**20 >= bases + 3 * bases / 4


# The queue is asked every second; more jobs than that are not there.
FAST = ("--slurm-init-seconds-before-status-checks", "1", "--max-threads", "2")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The tiny model up to its null samples on a played cluster: output, calls of sbatch, and the folder."""
    folder = tmp_path_factory.mktemp("played")
    project = folder / "project"
    for name in ("workflow", "config", "src", "envs"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", project)
    source = save_tiny(folder / "tiny")
    environment = write_stubs(folder / "bin")
    output = run(
        project, environment, "results/nulls/tiny.h5", "--slurm-status-command", "squeue", *FAST,
        "--directory", folder / "run", "--default-resources", "slurm_account=mine",
        "--config", f"model={source}", "fold=false", "nulls={samples: 1}",
    )  # fmt: skip
    return output, submissions(folder / "bin"), folder / "run"


def run(project, environment, *arguments, succeeds=True, timeout=240):
    command = [sys.executable, "-m", "snakemake", "--nocolor", "--profile", SLURM, *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SLURM_CONF")}
    done = subprocess.run(
        [str(part) for part in command], cwd=project, env=clean | environment, capture_output=True, text=True,
        check=False, timeout=timeout,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert (done.returncode == 0) is succeeds, output
    return output


def test_a_run_without_accounting_ends_when_the_queue_is_asked(played):
    output, _, folder = played
    assert (folder / "results/nulls/tiny.h5").is_file()
    # No account could be checked: a warning, no more.
    assert "Proceeding without account validation" in output


def test_one_memory_and_minutes_per_submission(played):
    _, calls, _ = played
    assert calls
    for call in calls:
        arguments = call["arguments"]
        assert arguments.count("--mem") == 1
        assert not any("mem-per" in argument for argument in arguments)
        assert int(arguments[arguments.index("--mem") + 1]) >= 100
        assert int(arguments[arguments.index("-t") + 1]) >= 10
        (cpus,) = [argument.split("=")[1] for argument in arguments if argument.startswith("--cpus-per-task=")]
        assert 1 <= int(cpus) <= 2


def test_logs_of_submissions_are_absolute_and_their_folder_is_there(played):
    _, calls, folder = played
    for call in calls:
        assert Path(call["output"]).is_absolute()
        assert Path(call["output"]).is_relative_to(folder)
        assert call["output_folder_is_there"]


def test_small_steps_share_a_submission(played):
    _, calls, _ = played
    names = [Path(call["output"]).relative_to(Path(call["output"]).parents[2]).parts[0] for call in calls]
    outputs = [shlex.join(call["arguments"]) for call in calls]
    assert sum("group_geometry" in output for output in outputs) == 1
    assert sum("rule_null_shard" in output for output in outputs) == 2
    assert not any("rule_bases" in name or "rule_overlaps" in name for name in names)


def test_jobs_see_the_driver_s_configuration(played):
    _, _, folder = played
    assert read_attributes(folder / "results/nulls/tiny.h5", "nulls")["fold"] is False
    assert read_attributes(folder / "results/overlaps/tiny.h5", "overlaps")["rank_rtol"] == 1e-6


def gpu_requests(call):
    return [argument for argument in call["arguments"] if argument.startswith(("--gpus", "--gres"))]


def test_no_job_asks_for_a_gpu_by_itself(played):
    """The setting is auto: a GPU is used where a job finds one."""
    _, calls, _ = played
    assert not [request for call in calls for request in gpu_requests(call)]


def test_jobs_ask_for_a_gpu_where_the_setting_says_cuda(tmp_path):
    """The request and the setting reach the job, which says that there is none here."""
    environment, source = write_stubs(tmp_path / "bin"), save_tiny(tmp_path / "tiny")
    run(
        ROOT, environment | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, "results/overlaps/tiny.h5",
        "--slurm-status-command", "squeue", *FAST, "--retries", "0", "--directory", tmp_path / "run", "--config",
        f"model={source}", "device=cuda", succeeds=False,
    )  # fmt: skip
    (call,) = submissions(tmp_path / "bin")
    assert "group_geometry" in call["output"]
    assert gpu_requests(call) == ["--gpus=1"]
    said = (tmp_path / "run/results/logs/overlaps/tiny.log").read_text()
    assert re.search(r"error: device is cuda, but torch .* sees no GPU; say cpu or auto", said)


def test_the_gpu_partition_of_one_step_needs_a_group_of_its_own(tmp_path):
    """As docs/cluster.md says; jobs of one group must ask for the same partition."""
    environment, source = write_stubs(tmp_path / "bin"), save_tiny(tmp_path / "tiny")
    run(
        ROOT, environment | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, "results/overlaps/tiny.h5",
        "--slurm-status-command", "squeue", *FAST, "--retries", "0", "--directory", tmp_path / "run",
        "--groups", "bases=bases", "overlaps=overlaps", "self_heads=self_heads",
        "--set-resources", "overlaps:slurm_partition=cards", "--config", f"model={source}", "device=cuda",
        succeeds=False,
    )  # fmt: skip
    calls = submissions(tmp_path / "bin")
    assert [gpu_requests(call) for call in calls] == [[], ["--gpus=1"]]
    assert ["cards" in " ".join(call["arguments"]) for call in calls] == [False, True]


def test_each_stage_asks_for_its_own_gpu(tmp_path):
    source = save_tiny(tmp_path / "tiny")
    done = snakemake(
        ROOT, "results/nulls/tiny.h5", "results/affinity/tiny.h5", "-n", "--directory", str(tmp_path), "--config",
        f"model={source}", "device={nulls: cuda, overlaps: cpu}",
    )  # fmt: skip
    asked = {
        rule: (resources.get("gpu"), int(resources.get("mem_mb", 0)) > 3 * 1024)
        for rule, resources in jobs_of(done.stdout)
    }
    assert asked["null_shard"] == asked["swap_shard"] == ("1", True)
    assert {asked[rule] for rule in ("overlaps", "affinity", "nulls", "bases")} == {(None, False)}


def test_without_accounting_a_run_stops_at_once_and_names_the_way_out(tmp_path):
    environment, source = write_stubs(tmp_path / "bin"), save_tiny(tmp_path / "tiny")
    arguments = ("results/overlaps/tiny.h5", "--directory", tmp_path / "run", "--config", f"model={source}")
    output = run(ROOT, environment, *arguments, succeeds=False, timeout=30)
    assert "Slurm accounting storage is disabled" in output
    assert "--slurm-status-command squeue" in output
    assert not submissions(tmp_path / "bin")


@pytest.mark.parametrize(
    ("command", "interval", "age", "sacct", "message"),
    [
        ("sacct", 40, 300, ANSWERS, None),
        (None, 40, None, ANSWERS, None),
        ("squeue", 40, 300, NO_ACCOUNTING, None),
        ("squeue", 40, 300, None, None),
        (None, 40, 300, None, None),
        ("squeue", 200, 300, ANSWERS, None),
        ("sacct", 40, 300, NO_ACCOUNTING, r"is disabled\): add --slurm-status-command squeue, or"),
        (None, 40, 300, NO_ACCOUNTING, r"add --slurm-status-command squeue, or"),
        ("squeue", 200, 300, NO_ACCOUNTING, r"squeue --slurm-init-seconds-before-status-checks 100"),
        ("squeue", 40, 60, NO_ACCOUNTING, r"after MinJobAge = 60 s; accounting or more than 180 s are needed"),
        ("squeue", 40, 60, None, r"there is no sacct\), and the queue forgets finished jobs"),
        ("squeue", 40, None, NO_ACCOUNTING, r"no MinJobAge\): is this a login node"),
        ("sacct", 40, 300, HANGS, r"no answer from sacct in 1 s"),
    ],
)
def test_what_is_said_when_finished_jobs_would_go_unnoticed(
    command, interval, age, sacct, message, tmp_path, monkeypatch
):
    folder = tmp_path / "bin"
    write_stubs(folder, min_job_age=age, sacct=sacct)
    # Nothing but the stand-ins: a machine may have commands of its own.
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(slurm_check, "ANSWER_SECONDS", 1)
    if message is None:
        check_job_states(command, interval)
    else:
        with pytest.raises(InputError, match=message):
            check_job_states(command, interval)
