"""Known classes of heads: their files, and their arrays in the affinity file (PK, tables 1 and 2)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headspaces.errors import InputError
from headspaces.spaces import Shape

COLUMNS = ("class", "layer", "head", "evaluated", "origin")

PATTERNS = {"previous_token": "Previous Token", "induction": "Induction", "identity": "Identity"}
"""Attention patterns and the class of a head that has one."""

PATTERN_SCORE = 0.4
"""Mean attention from which a head belongs to a pattern's class."""


@dataclass(frozen=True)
class HeadClasses:
    """A set of head classes.

    ``names`` has the class of each head in one, by (layer, query head), in the file's order; ``evaluated`` are the
    heads that count as the circuit's in PK's tables; ``name`` is the file's.
    """

    name: str
    names: Mapping[tuple[int, int], str]
    evaluated: frozenset[tuple[int, int]]

    @property
    def order(self) -> list[str]:
        """The classes in the file's order."""
        return list(dict.fromkeys(self.names.values()))


def read_head_classes(path: str | Path, shape: Shape | None = None) -> HeadClasses:
    """Read a set of head classes: a table with tabs, one head a row, lines with ``#`` are comments.

    The columns are ``class``, ``layer``, ``head``, ``evaluated`` (yes or no) and ``origin`` (where the label is from);
    layers and heads are checked against a model's shape where it is given. Raises :class:`InputError` if the file
    cannot be read, a column is missing or unknown, a value is wrong, or a head occurs twice.
    """
    path = Path(path)
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the head classes ({error})") from error
    reader = csv.DictReader(lines, delimiter="\t", restval="")
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise InputError(f"{path}: the columns are {list(reader.fieldnames or ())}, expected {list(COLUMNS)}")
    names: dict[tuple[int, int], str] = {}
    evaluated = set()
    for number, row in enumerate(reader, start=1):
        where = f"{path}, row {number}"
        head = _number(row["layer"], "layer", where), _number(row["head"], "head", where)
        if shape and (head[0] >= shape.n_layers or head[1] >= shape.n_query_heads):
            raise InputError(
                f"{where}: the model has {shape.n_layers} layers of {shape.n_query_heads} heads, no head "
                f"{head[0]}.{head[1]}; are these another model's classes?"
            )
        if head in names:
            raise InputError(f"{where}: head {head[0]}.{head[1]} has two classes, {names[head]!r} and {row['class']!r}")
        if not row["class"] or row["evaluated"] not in ("yes", "no"):
            raise InputError(
                f"{where}: expected a class and evaluated yes or no, found {row['class']!r}, {row['evaluated']!r}"
            )
        names[head] = row["class"]
        if row["evaluated"] == "yes":
            evaluated.add(head)
    if not names:
        raise InputError(f"{path}: no head is named")
    return HeadClasses(path.stem, names, frozenset(evaluated))


def _number(text: str, what: str, where: str) -> int:
    if not text.isdecimal():
        raise InputError(f"{where}: {what} is {text!r}, expected a whole number from 0")
    return int(text)


def class_arrays(classes: HeadClasses, shape: Shape) -> dict[str, np.ndarray]:
    """Arrays of a set of classes for the affinity file.

    Returns
    -------
    dict
        ====================  ===========  =================================================
        name                  dimensions   meaning
        ====================  ===========  =================================================
        head_classes/set                   the set's name, UTF-8
        head_classes/order    class        the classes in their order, UTF-8
        head_classes/class    layer head   index into the order; -1 for a head of no class
        head_classes/counts   layer head   whether PK's tables count the head as the circuit's
        ====================  ===========  =================================================
    """
    index = np.full((shape.n_layers, shape.n_query_heads), -1)
    counts = np.zeros(index.shape, dtype=np.int64)
    for head, name in classes.names.items():
        index[head] = classes.order.index(name)
        counts[head] = head in classes.evaluated
    return {
        "head_classes/set": np.array(classes.name.encode()),
        "head_classes/order": np.array([name.encode() for name in classes.order]),
        "head_classes/class": index,
        "head_classes/counts": counts,
    }


def stored_head_classes(arrays: Mapping[str, np.ndarray]) -> HeadClasses | None:
    """Classes of :func:`class_arrays` from an affinity file; None where the model has none."""
    if "head_classes/set" not in arrays:
        return None
    order = [name.decode() for name in arrays["head_classes/order"].tolist()]
    index, counts = arrays["head_classes/class"], arrays["head_classes/counts"]
    classed = [(int(layer), int(head)) for layer, head in np.argwhere(index >= 0)]
    heads = sorted(classed, key=lambda head: (index[head], head))
    names = {head: order[index[head]] for head in heads}
    evaluated = frozenset(head for head in heads if counts[head])
    return HeadClasses(arrays["head_classes/set"].item().decode(), names, evaluated)


def classes_by_pattern(scores: Mapping[str, Float[np.ndarray, "_layer _head"]]) -> HeadClasses:
    """Class heads by what they attend to: the pattern with the largest score of at least :data:`PATTERN_SCORE`.

    The scores are those of :func:`headspaces.activations.attention.attention_patterns`.
    """
    stacked = np.stack([scores[name] for name in PATTERNS])
    largest = stacked.argmax(axis=0)
    classed = [(int(layer), int(head)) for layer, head in np.argwhere(stacked.max(axis=0) >= PATTERN_SCORE)]
    titles = list(PATTERNS.values())
    names = {head: titles[largest[head]] for head in sorted(classed, key=lambda head: (largest[head], head))}
    return HeadClasses("attention patterns", names, frozenset())
