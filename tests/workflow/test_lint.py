"""Snakemake's own lint, but for one demand: the software of all rules is one environment, installed beforehand."""

import json
import subprocess
import sys

from support.project import ROOT


def test_snakemake_s_lint_finds_nothing_else():
    command = [sys.executable, "-m", "snakemake", "--lint", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    titles = {lint["title"] for part in found.values() for rule in part for lint in rule["lints"]}
    assert titles == {"Specify a conda environment or container for each rule."}
