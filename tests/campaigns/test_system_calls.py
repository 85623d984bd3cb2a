"""A fault campaign at the system's calls: each of a tiny study's jobs with calls that fail, in every way.

No good file disappears or changes, no part is left, and every end is the right result or one line in the system's
words.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from support.project import ROOT, TESTS


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library that lets calls fail, compiled now."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not sys.platform.startswith("linux"):
        pytest.skip("faults at system calls need a C compiler on Linux")
    built = tmp_path_factory.mktemp("library") / "system_calls.so"
    source = TESTS / "support" / "system_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.mark.parametrize("every", [pytest.param(101, marks=pytest.mark.campaign), 1999], ids=["many", "some"])
def test_no_failing_call_loses_a_file_or_gives_a_wrong_one(every, library, tmp_path):
    environment = os.environ | {
        "LD_PRELOAD": str(library), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "support.system_calls", str(tmp_path), str(every)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    print(f"\nsystem calls: {found['faults']} faults, {found['refused']} refused")
    assert not found["wrong"], "\n".join(found["wrong"])
    assert found["faults"] > found["refused"] > 0
