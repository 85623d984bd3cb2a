"""Where the project lies."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
GPT2 = ROOT.parent / "shared" / "gpt2-small-attention"
"""Attention weights of GPT-2 small, beside the repository where they are at hand."""
