"""The workflow inside another one, as a module, and from a clone whose path has a space and brackets in it."""

import os
import shutil
import subprocess
import sys

import pytest
from support.project import ROOT
from support.workflow_runs import save_tiny

from headspaces.store import read_attributes

OVERLAPS = "results/overlaps/tiny.h5"
OTHER = """
configfile: "{clone}/config/config.yaml"
configfile: "config/study.yaml"


module headspaces:
    snakefile:
        "{clone}/workflow/Snakefile"
    config:
        config


use rule * from headspaces


rule strongest:
    default_target: True
    input:
        "results/overlaps/tiny.h5",
    output:
        "results/copy.h5",
    run:
        import shutil

        shutil.copy(input[0], output[0])
"""
STUDY = "study: other\nmodels: [tiny]\nmodels_table: config/models.tsv\nfold: false\n"
MODELS = (
    "name\tsource\tkinds\tn_layers\td_model\tn_query_heads\tn_kv_heads\td_head\ntiny\t{source}\tOQKV\t3\t24\t4\t2\t6\n"
)


def run(folder, *arguments):
    """Snakemake as it is typed in a folder."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", *arguments]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere") / "a clone [old]"
    for name in ("workflow", "config", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    return folder


@pytest.fixture(scope="module")
def other(clone, tmp_path_factory):
    """Another workflow that uses this one."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "config").mkdir()
    (folder / "Snakefile").write_text(OTHER.format(clone=clone))
    (folder / "config" / "study.yaml").write_text(STUDY)
    (folder / "config" / "models.tsv").write_text(MODELS.format(source=save_tiny(folder / "tiny")))
    return folder


def test_another_workflow_uses_this_one_as_a_module(clone, other):
    """Its own target, with the other's settings and models; the numbers are those of the clone by itself."""
    planned = run(other, "-n")
    assert "rule overlaps:" in planned
    assert "rule null_shard:" not in planned
    run(other)
    assert (other / "results/copy.h5").read_bytes() == (other / OVERLAPS).read_bytes()
    assert read_attributes(other / OVERLAPS, "overlaps")["fold"] is False
    assert f"from {clone / 'src'}" in (other / "results/logs/overlaps/tiny.log").read_text()
    assert "Nothing to be done" in run(other, "-n")
    run(clone, OVERLAPS, "--config", f"model={other / 'tiny'}", "fold=false")
    assert (clone / OVERLAPS).read_bytes() == (other / OVERLAPS).read_bytes()


def test_the_study_s_page_is_a_target_of_the_other_workflow(other):
    planned = run(other, "-n", "results/report/other/report.html")
    for rule in ("null_shard", "affinity", "tables_overlaps", "figures_overlaps", "report_page"):
        assert f"rule {rule}:" in planned
