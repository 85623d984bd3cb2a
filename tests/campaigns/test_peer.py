"""The projection kernel beside TransformerLens 4.3's: its own unit tests on ours, and its models read by both.

Its sources come from the package index and go with the test: no line of them is in this repository. What differs, and
why, is in the table of docs/transformer_lens.md, which these tests read.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.project import ROOT, TESTS

pytestmark = pytest.mark.campaign
VERSION = "4.3.0"
NEEDED = ("einops", "fancy-einsum", "sentencepiece", "transformers-stream-generator", "typeguard")
PAGE = ROOT / "docs" / "transformer_lens.md"
UNIT_TESTS = "tests/unit/tools/test_projection_kernel.py"


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and re.search("No matching distribution|Could not install packages|Connection", done.stderr):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def environment(*paths: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, (*paths, ROOT / "src")))
    return os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the peer's unit tests on our functions: every test with the message that it failed with, or nothing."""
    folder = tmp_path_factory.mktemp("peer")
    pip("download", "--no-binary", "transformer-lens", f"transformer-lens=={VERSION}", "--dest", str(folder))
    with tarfile.open(folder / f"transformer_lens-{VERSION}.tar.gz") as archive:
        content = archive.extractfile(f"transformer_lens-{VERSION}/{UNIT_TESTS}")
        assert content is not None
        (folder / "test_theirs.py").write_bytes(content.read())
    analysis = folder / "transformer_lens" / "tools" / "analysis"
    for package in (folder / "transformer_lens", folder / "transformer_lens" / "tools", analysis, folder / "tests"):
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text("__all__ = []\n")
    shutil.copy(TESTS / "support" / "peer_names.py", analysis / "projection_kernel.py")
    refused = "from headspaces import InputError\nTYPECHECK_ERRORS = (InputError,)\n"
    (folder / "tests" / "typecheck_errors.py").write_text(refused)
    command = [
        sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", ".", "--import-mode",
        "importlib", "--junitxml", "found.xml", "-k", "not exports", "test_theirs.py",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout
    cases = ElementTree.parse(folder / "found.xml").getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    failures = {case.get("name", ""): case.find("failure") for case in cases}
    return {name: "" if failure is None else str(failure.get("message")) for name, failure in failures.items()}


def differences() -> dict[str, str]:
    """Read the page's table: every test of the peer's that does not hold here, with the reason."""
    section = PAGE.read_text(encoding="utf-8").split("## Its own unit tests")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    return {name: reason.strip() for reason, names in rows for name in re.findall(r"`(test_[^`]+)`", names)}


def test_its_unit_tests_hold_but_for_what_the_page_lists(outcomes: dict[str, str]) -> None:
    listed = differences()

    def reason(name: str) -> str | None:
        return listed.get(name, listed.get(name.split("[")[0]))

    failed = {name for name, message in outcomes.items() if message}
    assert {name for name in outcomes if reason(name)} == failed
    assert {name.split("[")[0] for name in listed} <= {name.split("[")[0] for name in outcomes}
    page = PAGE.read_text(encoding="utf-8")
    assert f"{len(outcomes) - len(failed)} of its {len(outcomes)} unit tests" in page
    for name in failed:
        if "other words" in reason(name):
            assert "Regex pattern did not match" in outcomes[name], name


def test_its_models_have_its_kernel(tmp_path: Path) -> None:
    pip("install", "--target", str(tmp_path), f"transformer-lens=={VERSION}", *NEEDED)
    script = TESTS / "support" / "peer_model.py"
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [(row["model"], row["dtype"]) for row in found] == [
        (model, f"torch.{dtype}")
        for dtype in ("float64", "float32")
        for model in ("GPT2LMHeadModel", "LlamaForCausalLM")
    ]
    for row in found:
        # In float32 the singular vectors and the products on its side are float32's: of PK's up to 12, 1.8e-6.
        assert row["pk"] < (1e-13 if row["dtype"] == "torch.float64" else 5e-6), row
        assert row["overlaps"] == 0
        assert row["notes"] == ["weights as they are stored: nothing is folded or centred"]
        assert "fold_ln" in row["processed"][0]
        assert ("center_writing_weights" in row["processed"][-1]) == (row["model"] == "GPT2LMHeadModel")
        # Its processing works in float32 whatever the model's type.
        assert row["folded"] < 1e-7
