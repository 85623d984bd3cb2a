"""The examples of the library's docstrings, run as they stand, and what else every public name must say."""

import doctest
import importlib
import inspect
import re

import numpy as np
import pytest
from support.project import ROOT

import headspaces as hs

MODULES = ("", ".errors", ".spaces", *(f".library.{name}" for name in (
    "arrays", "chance", "comparison", "loading", "model", "plot", "results",
)))  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name: str) -> None:
    module = importlib.import_module(f"headspaces{name}")
    names = {"np": np, "hs": hs}
    failed, tried = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def public() -> dict[str, object]:
    functions = {name: getattr(hs, name) for name in hs.__all__ if inspect.isfunction(getattr(hs, name))}
    methods = {
        f"ModelSpaces.{name}": member
        for name, member in inspect.getmembers(hs.ModelSpaces, inspect.isfunction)
        if not name.startswith("_")
    }
    drawings = {f"plot.{name}": getattr(hs.plot, name) for name in ("heatmap", "graph", "layers")}
    return functions | methods | drawings


def test_the_public_names_are_these() -> None:
    assert set(public()) == {
        "compare", "load", "null_test", "orthonormal_bases", "principal_angles", "projection_kernel", "read",
        *(f"ModelSpaces.{name}" for name in (
            "angles", "effects", "overlaps", "projection_kernel", "spaces", "spectra", "top_pairs",
        )),
        "plot.graph", "plot.heatmap", "plot.layers",
    }  # fmt: skip
    assert set(hs.__all__) <= set(dir(hs))


@pytest.mark.parametrize("name", sorted(public()))
def test_every_public_function_says_shapes_units_errors_and_gives_an_example(name: str) -> None:
    text = inspect.getdoc(public()[name]) or ""
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"\n{section}\n---" in text, section
    assert ">>> " in text
    assert re.search(r"\bRW\b|\bPK\b|RW's|PK's|[A-Z]\w+ and [A-Z]\w+ \d{4}|README|See the class|scipy", text), (
        "its source"
    )


@pytest.mark.parametrize("name", ["ModelSpaces", "Shape", "InputError"])
def test_every_public_class_gives_an_example_and_says_what_it_holds(name: str) -> None:
    text = inspect.getdoc(getattr(hs, name)) or ""
    assert "\nExamples\n---" in text
    assert name == "InputError" or "\nAttributes\n---" in text
    assert {*dir(hs.ModelSpaces)} >= {"name", "shape", "kinds", "notes", "comparisons"}


def test_every_public_name_is_on_the_page_of_reference() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = {line.strip() for line in page.splitlines() if re.fullmatch(r"   [\w.]+", line)}
    assert listed == {*hs.__all__} - {"plot"} | {"plot.heatmap", "plot.graph", "plot.layers"}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'headspaces' has no attribute 'opne'"):
        hs.opne  # noqa: B018


@pytest.mark.parametrize("name", ["library", "own_model", "transformer_lens"])
def test_the_examples_of_a_page_give_what_it_says(name: str) -> None:
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / f"{name}.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 5
    assert failed == 0
