"""The registry of the report's tables and figures, read from ``items.yaml`` beside this module.

The function that makes a table or a figure has the name of its entry. Only the standard library and yaml are imported:
the Snakefile reads this module at every start to ask for the right files.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ITEMS_FILE = Path(__file__).with_name("items.yaml")


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Its fields are explained at the top of ``items.yaml``; ``name`` names its files, and the function that makes it.
    """

    name: str
    title: str
    look: str
    needs: tuple[str, ...] = ("overlaps",)
    uses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    published: bool = False
    short: str = ""

    @property
    def origin(self) -> str:
        """The paper that has it, RW or PK, as its title says; empty for what is in neither."""
        found = re.search(r"\((RW|PK) ", self.title)
        return found[1] if found else ""

    @property
    def heading(self) -> str:
        """Its name in words: ``Table 4``, ``Right tail``, ``PK table 1``."""
        words = re.sub(r"(table|figure)(\d)", r"\1 \2", self.name).replace("_", " ")
        return "PK" + words[2:] if words.startswith("pk ") else words[:1].upper() + words[1:]

    def stages_read(self, stages: Collection[str]) -> list[str]:
        """Return the stages whose files it reads of a model with these stages, in order."""
        return [stage for stage in (*self.needs, *self.uses) if stage in stages]


def functions_of(items: Iterable[str], modules: Iterable[ModuleType]) -> dict[str, Any]:
    """Look up the function that makes each item: the one of its name in one of the modules.

    Raises :class:`LookupError` if no module has a function of an item's name.
    """
    known = ChainMap(*map(vars, modules))
    if missing := [name for name in items if name not in known]:
        raise LookupError(f"{ITEMS_FILE.name}: {missing[0]}: no function of this name makes it; add one")
    return {name: known[name] for name in items}


def _read() -> tuple[dict[str, Item], dict[str, Item]]:
    # The C loader takes a tenth of the time: every job and every start of Snakemake reads this.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(ITEMS_FILE.read_text(encoding="utf-8"), loader)  # noqa: S506 (both are safe)
    tables, figures = ({name: _item(name, entry) for name, entry in entries[k].items()} for k in ("tables", "figures"))
    return tables, figures


def _item(name: str, entry: Mapping[str, Any]) -> Item:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Item(name, **given)


TABLES, FIGURES = _read()
