"""The registry of tables and figures: every entry says what a reader and the Snakefile need."""

import subprocess
import sys
from types import ModuleType

import pytest

from headspaces.study.items import FIGURES, TABLES, functions_of


def test_every_entry_has_a_title_and_says_what_to_look_at():
    assert len(TABLES) > 30
    assert len(FIGURES) == 23
    for item in (*TABLES.values(), *FIGURES.values()):
        assert len(item.title) > 20, item.name
        assert len(item.look) > 20, item.name
        assert item.name in TABLES or item.name in FIGURES
    titles = [item.title for item in TABLES.values()]
    assert len(set(titles)) == len(titles)


def test_stages_that_are_needed_and_used():
    assert TABLES["table4"].needs == ("overlaps", "nulls")
    assert FIGURES["figure1"].needs == ()
    assert TABLES["table7"].stages_read(["overlaps", "nulls"]) == ["overlaps", "nulls"]
    assert TABLES["table7"].stages_read(["nulls", "overlaps", "affinity"]) == ["overlaps", "nulls"]
    assert TABLES["table7"].stages_read(["overlaps"]) == ["overlaps"]
    assert [name for name, item in TABLES.items() if item.published] == ["pk_table1", "pk_table2", "pk_kl"]


def test_a_function_is_found_by_the_name_of_its_entry():
    module = ModuleType("made_up")
    module.table1 = lambda models: models
    assert functions_of(["table1"], [ModuleType("empty"), module]) == {"table1": module.table1}
    with pytest.raises(LookupError, match=r"items\.yaml: table2: no function of this name makes it"):
        functions_of(["table1", "table2"], [module])


def test_the_registry_needs_only_the_standard_library_and_yaml():
    heavy = ["numpy", "pandas", "h5py", "matplotlib"]
    code = f"import sys, headspaces.study.items; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
