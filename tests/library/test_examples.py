"""The examples of the library's docstrings, run as they stand, and what else every public name must say."""

import doctest
import importlib
import inspect

import numpy as np
import pytest
from support.project import ROOT

import headspaces as hs

MODULES = ("", *(f".library.{name}" for name in (
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


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'headspaces' has no attribute 'opne'"):
        hs.opne  # noqa: B018


def test_the_page_of_the_library_gives_what_it_says() -> None:
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "library.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 10
    assert failed == 0
