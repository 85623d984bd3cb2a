"""Snakemake's own lint, but for one demand: the software of all rules is one environment, installed beforehand."""

import re
import subprocess
import sys

from support.project import ROOT


def test_snakemake_s_lint_finds_nothing_else():
    command = [sys.executable, "-m", "snakemake", "--lint"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = set(re.findall(r"^ +\* (.+):$", done.stdout + done.stderr, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule."}
