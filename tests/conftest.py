"""Shapes in the signatures are checked in every test; the linear algebra of a test has one thread."""

import os
import re
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
from jaxtyping import install_import_hook
from support.browser import open_browser
from support.project import GPT2

install_import_hook("headspaces", "beartype.beartype")


def pytest_terminal_summary(terminalreporter):
    """Say how many inputs or faults each campaign tried, and how many tests were skipped for want of what."""
    for report in terminalreporter.stats.get("passed", []):
        for line in re.findall(r"^.+: \d+ (?:inputs|faults), \d+ refused$", report.capstdout, re.MULTILINE):
            terminalreporter.write_line(line)
    skipped = Counter(skip_reason(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"skipped: {count} test{'s' if count > 1 else ''}: {reason}")


def skip_reason(longrepr):
    """Why a test was skipped, of what pytest keeps: a file, a line and ``Skipped: why``."""
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260110)


@pytest.fixture
def double(monkeypatch, tmp_path):
    """A running double of the Hub that the client in this process talks to, with an empty cache and no token."""
    from huggingface_hub import constants
    from support.hub_double import serving

    from headspaces.weights.hub import transfer

    with serving() as running:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, running.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(transfer, "FIRST_WAIT", 0.001)
        yield running


@pytest.fixture(scope="session")
def gpt2_folder() -> Path:
    """Attention weights of GPT-2 small, beside the repository."""
    if not GPT2.is_dir():
        pytest.skip(f"the real GPT-2 weights are not at {GPT2}")
    return GPT2


@pytest.fixture(scope="session")
def browser():
    """A real browser for the tests of pages."""
    yield from open_browser()
