"""The functions of the report's tables: ``TABLES[name](models)`` makes the rows of the table of that name.

Titles, notes and the stages whose files a table reads are its entry in ``study/items.yaml``.
"""

from __future__ import annotations

from headspaces.report.tables import (
    against_nulls,
    beyond,
    conditions,
    connections,
    disjoint,
    effects,
    observed,
    on_text,
    own_spaces,
    pk,
    series,
    stream,
    sure,
)
from headspaces.study import items

_MODULES = (
    against_nulls, beyond, conditions, connections, disjoint, effects, observed, on_text, own_spaces, pk, series,
    stream, sure,
)  # fmt: skip

TABLES = items.functions_of(items.TABLES, _MODULES)
