"""The data dictionary: every dataset of the pipeline's HDF5 files with its dimensions, unit and meaning.

The store writes it into the files, as dimension scales and attributes, and the page ``results/README.md`` shows it:
``python -m headspaces.fields results/README.md`` writes its table anew. Only the standard library is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from headspaces.spaces import KINDS

HEADS = {kind: "head" if kind in "OQ" else "kv_head" for kind in KINDS}
"""Dimension of a kind's heads: query heads write and query, key-value heads give keys and values."""


@dataclass(frozen=True)
class Field:
    """Datasets of one meaning.

    Attributes
    ----------
    name
        Path in the file. ``{X}`` and ``{Y}`` stand for a kind each, ``{null}`` for a null model, ``{score}`` for a
        score, ``{layer}`` for a layer's number. In the stream's files ``{end}`` stands for E or X, ``{in}`` for G or I,
        and ``{made}`` for nothing or ``centred_``.
    dimensions
        By axis. ``{X}`` and ``{Y}`` stand for the dimension of that kind's heads, see :data:`HEADS`; a second axis of
        the same heads is called ``other_``.
    unit
        ``1`` for a pure number; empty for text and indices.
    meaning
        One line.
    """

    name: str
    dimensions: tuple[str, ...]
    unit: str
    meaning: str

    def match(self, name: str) -> tuple[str, ...] | None:
        """Dimensions of a dataset of this field; None where the name is another field's."""
        found = _pattern(self.name).fullmatch(name)
        if found is None:
            return None
        heads = {group: HEADS[kind] for group, kind in found.groupdict().items() if kind in HEADS}
        named: list[str] = []
        for dimension in self.dimensions:
            plain = dimension.format(**heads)
            named.append(f"other_{plain}" if plain in named else plain)
        return tuple(named)


@lru_cache
def _pattern(name: str) -> re.Pattern[str]:
    kinds = {
        "X": f"[{KINDS}]", "Y": f"[{KINDS}]", "null": "[a-z_]+", "score": "[a-z_]+", "layer": "[0-9]+",
        "end": "[EX]", "in": "[GI]", "made": "|centred_",
    }  # fmt: skip
    parts = re.split(r"\{(\w+)\}", name)
    # A kind that stands twice, as in {X}{X}, is the same one.
    seen: set[str] = set()
    pattern = ""
    for literal, group in zip(parts[::2], [*parts[1::2], ""], strict=True):
        pattern += re.escape(literal)
        if group:
            pattern += f"(?P={group})" if group in seen else f"(?P<{group}>{kinds[group]})"
            seen.add(group)
    return re.compile(pattern)


_LATER = "; NaN unless the reader's layer is later"
_ACROSS = ("writer_layer", "reader_layer", "writer_{X}", "reader_{Y}")
_QUERY_TO = ("writer_layer", "reader_layer", "writer_head", "reader_{Y}")
_LEFT = ("layer", "removed")
_SOURCE_TO = ("source_layer", "target_layer", "source_{X}", "target_{Y}")

_RANKS = (
    Field("rank/{X}", ("layer", "{X}"), "1", "numerical rank of the head's map"),
    Field("within_rounding/{X}", ("layer", "{X}"), "1", "directions that rounding may have made; -1: unknown"),
    Field("direct_sum/{X}/rank", ("layer",), "1", "dimension of the sum of the layer's spaces"),
    Field("direct_sum/{X}/deficiency", ("layer",), "1", "sum of the ranks less the dimension of the sum"),
    Field("direct_sum/{X}/lambda_min", ("layer",), "1", "smallest eigenvalue of the sum of the spaces' projections"),
    Field(
        "direct_sum/{X}/condition", ("layer",), "1",
        "singular value of the stacked bases that is nearest to the tolerance, by the largest: the rank's margin",
    ),
)  # fmt: skip

_SAMPLE_STATISTICS = (
    ("spread", "1", "standard deviation (ddof = 0) of rho over all pairs"),
    ("mean", "1", "mean of rho over all pairs"),
    ("max", "1", "largest rho of all pairs; of the swap null model"),
    ("skewness", "1", "third central moment of rho over the spread cubed; of the swap null model"),
    ("median", "1", "median of rho over all pairs"),
    ("p95", "1", "95th percentile of rho over all pairs"),
    ("min_angle", "degree", "smallest principal angle of all pairs"),
)
"""Of a layer; the first four of a layer pair too."""

_NULLS = (
    *(Field(f"within/{{X}}/{{null}}/{name}", ("sample", "layer"), *rest) for name, *rest in _SAMPLE_STATISTICS),
    *(
        Field(f"cross/O{{Y}}/{{null}}/{name}", ("sample", "writer_layer", "reader_layer"), unit, meaning + _LATER)
        for name, unit, meaning in _SAMPLE_STATISTICS[:4]
    ),
    Field("pairs/{X}/{null}/rho", ("sample", "{X}_pair"), "1", "rho of all pairs i < j of one layer, by i, then j"),
    Field("pairs/{X}/layer", (), "", "that layer: the upper median of the layers' observed spreads"),
)  # fmt: skip

_SIDES = {
    "{end}": ("end", "one"), "O": ("layer", "head"), "M": ("layer", "one"), "{Y}": ("layer", "{Y}"),
    "{in}": ("layer", "one"), "U": ("end", "one"),
}  # fmt: skip
"""Dimensions of a writer or reader of the stream by its letter."""


def _stream(name: str, meaning: str, *letters: str, unit: str = "1") -> Iterator[Field]:
    """Fields of one meaning for pairs of a writer and a reader of the stream, which stand for the star in the name."""
    for pair in letters:
        writer, reader = re.findall(r"\{\w+\}|[A-Z]", pair)
        both = zip(_SIDES[writer], _SIDES[reader], strict=True)
        dimensions = tuple(one for written, read in both for one in (f"writer_{written}", f"reader_{read}"))
        yield Field(name.replace("*", pair), dimensions, unit, meaning)


_BESIDE = ("M{Y}", "OM", "MM", "OU", "MU", "{end}{Y}", "{end}M", "{end}U")
"""Writers and readers of edges that do not run from a head to a head; M reads as the whole MLP."""

_OF_AN_EDGE = {
    "effect": "A, the first-order effect of the edge on the mean loss",
    "absolute": "sum over tokens of the effect's absolute values",
    "window_effect_sd": "standard deviation (ddof = 1) of the windows' effects",
}

_EFFECTS = (
    *(Field(f"{{Y}}/{name}", _QUERY_TO, "nat", meaning + _LATER) for name, meaning in _OF_AN_EDGE.items()),
    Field(
        "{Y}/effect_second_order", _QUERY_TO, "nat",
        "A_2: the reader head computed exactly without the write, the loss to second order from there; of the edges of "
        "largest |A|, NaN for all others",
    ),
    *(
        field
        for name, meaning in _OF_AN_EDGE.items()
        for field in _stream(f"stream/*/{name}", meaning + _LATER, *_BESIDE, unit="nat")
    ),
    Field("{Y}/gradient_norm", ("layer", "{Y}"), "nat", "root mean square norm of the loss' gradient at the read"),
    Field("O/write_norm", ("layer", "head"), "1", "root mean square norm of the head's write"),
)  # fmt: skip
"""Of the loss on the text; those of second copies of random tokens stand under ``repeats/``, those of the difference of
two answers' logits under ``prompts/``."""

_STREAM_SCORE = "D <F F^T, G G^T> / (||F||^2 ||G||^2), folded; NaN unless the reader comes later in the stream"
_STREAM_SHARE = "share of the map's energy inside the head's space, tr(P S) / tr S; NaN where the score is"
_SPACES_SHARE = "share of the vector's squared norm inside the head's space"

FIELDS: Mapping[str, tuple[Field, ...]] = {
    "bases": (
        Field(
            "{X}/basis", ("layer", "{X}", "d_model", "direction"), "1",
            "orthonormal columns, the most weighted direction first, zero beyond the rank",
        ),
        Field("{X}/singular_values", ("layer", "{X}", "direction"), "1", "of the head's map, descending"),
        *_RANKS,
    ),
    "overlaps": (
        Field("within/{X}/rho", ("layer", "{X}", "{X}"), "1", "overlap PK / min(rank, rank); 1 on the diagonal"),
        Field("within/{X}/angle", ("layer", "{X}", "{X}"), "degree", "smallest principal angle"),
        Field("cross/{X}{Y}/rho", _ACROSS, "1", "overlap PK / min(rank, rank)" + _LATER),
        Field("cross/{X}{Y}/angle", _ACROSS, "degree", "smallest principal angle" + _LATER),
        Field(
            "cross/O{Y}/simple_composition", _QUERY_TO, "1",
            "||W_X W_O|| / (||W_X|| ||W_O||), unfolded" + _LATER,
        ),
        Field(
            "cross/O{Y}/weighted", _QUERY_TO, "1",
            "D ||R^T B||^2 / (||R||^2 ||B||^2), folded" + _LATER,
        ),
        *_RANKS,
        Field("direct_sum/{X}/random_condition", (), "1", "condition of as many heads of random directions"),
        Field("sources/{X}/directions_mean", _LEFT, "1", "mean rho of the layer without the top eigenvectors of S"),
        Field("sources/{X}/directions_spread", _LEFT, "1", "its standard deviation (ddof = 0)"),
        Field("sources/{X}/coordinates_mean", _LEFT, "1", "mean rho without the largest diagonal entries of S"),
        Field("sources/{X}/coordinates_spread", _LEFT, "1", "its standard deviation (ddof = 0)"),
        *(
            Field(f"sources/O{{Y}}/{removed}_{statistic}", ("writer_layer", "reader_layer", "removed"), "1", meaning)
            for removed, without in (("directions", "top eigenvectors"), ("coordinates", "largest coordinates"))
            for statistic, meaning in (
                ("mean", f"mean rho without the {without} of the writing layer's S in the writes" + _LATER),
                ("spread", "its standard deviation (ddof = 0)"),
            )
        ),
        Field("sources/{X}/participation", ("layer",), "1", "1 / sum u_c^4 of the closest pair's direction u"),
        Field("sources/{X}/singular_values", ("layer", "{X}_singular"), "1", "of the layer's maps side by side"),
        Field("sources/gain_max", ("layer",), "1", "largest absolute gain of the norm before the attention"),
        Field("sources/gain_median", ("layer",), "1", "median absolute gain of that norm"),
    ),
    "swap-start": (
        Field(
            "{layer}/{X}", ("{X}", "d_model", "direction"), "1",
            "bases of a layer after the swap null model's burn-in; orthonormal columns, zero beyond the rank",
        ),
    ),
    "null-shard": _NULLS,
    "nulls": (
        *_NULLS,
        Field("random/mean", (), "1", "expected rho of two independent uniform random subspaces"),
        Field("random/sd", (), "1", "its standard deviation, in closed form"),
        Field("random/rho", ("random_pair",), "1", "rho of independent pairs of random subspaces"),
    ),
    "orthonormal": tuple(field for field in _NULLS if not re.match("pairs/|.*/(max|skewness)$", field.name)),
    "series": (
        Field("steps", ("step",), "", "numbers of the steps"),
        Field("duplicate_of", ("step",), "", "the earlier step that holds the same attention tensors; -1: none"),
        Field("loss", ("step",), "nat", "mean next-token loss; the attribute loss_on says on what"),
        Field("induction", ("step", "layer", "head"), "1", "attention from second copies to the token after the first"),
        *(
            field
            for name, unit, meaning in (
                ("mean", "1", "mean of rho over all pairs"),
                ("spread", "1", "standard deviation (ddof = 0) of rho over all pairs"),
                ("min_angle", "degree", "smallest principal angle of all pairs"),
                ("largest_rw", "1", "largest spread of all samples of RW's two null models"),
                ("largest_swap", "1", "largest spread of all samples of the swap null model"),
            )
            for field in (
                Field(f"within/{{X}}/{name}", ("step", "layer"), unit, meaning),
                Field(f"cross/O{{Y}}/{name}", ("step", "writer_layer", "reader_layer"), unit, meaning + _LATER),
            )
        ),
        Field("cross/O{Y}/effect_sum", ("step",), "nat", "sum over all edges of their effects' sizes |A| on that loss"),
        Field("cross/O{Y}/spearman_effect", ("step",), "1", "Spearman correlation of |A| with rho over all edges"),
        *(
            Field(f"heads/{{X}}/{name}_{when}", ("step", "layer", "{X}"), unit, f"{meaning} at the {when} step")
            for name, unit, meaning in (
                ("rho", "1", "overlap of the head's space with its own"),
                ("angle", "degree", "root mean square of the principal angles between the head's space and its own"),
            )
            for when in ("last", "previous")
        ),
    ),
    "self_heads": (
        Field("{X}{Y}/rho", ("layer", "{X}", "{Y}"), "1", "overlap of all pairs within the layer"),
        Field("{X}{Y}/own", ("layer",), "1", "mean over heads of the overlap of a head's own two spaces"),
        Field("{X}{Y}/others", ("layer",), "1", "mean over pairs of different heads, or groups"),
        Field("{X}{Y}/p", ("layer",), "1", "one-sided p of the own mean under permuted labels"),
        Field("{X}{Y}/n_permutations", ("layer",), "1", "permutations that it was compared with"),
        Field("{X}{Y}/exhaustive", ("layer",), "", "1 where these are all permutations there are"),
    ),
    "activations": (
        Field("{Y}/linear", _QUERY_TO, "1", "mean squared norm over tokens of the linear term" + _LATER),
        Field("{Y}/normalisation", _QUERY_TO, "1", "of the normalisation term" + _LATER),
        Field("{Y}/total", _QUERY_TO, "1", "of the full first-order response" + _LATER),
        Field(
            "{Y}/energy_fraction", _QUERY_TO, "1",
            "tr(P_V C) / tr C, the share of a write's energy inside the read space" + _LATER,
        ),
        Field("O/energy", ("layer", "head"), "1", "tr C, mean squared norm of the head's write"),
        Field("O/second_moment", ("layer", "head", "direction", "direction"), "1", "E[z z^T] of the head outputs"),
        Field("run/loss_nats_per_token", (), "nat", "mean next-token loss on the text"),
        Field("run/n_tokens", (), "1", "tokens of the text that were run"),
        Field("run/n_windows", (), "1", "windows that they were cut into"),
        Field("run/window_tokens", (), "1", "tokens of a window"),
    ),
    "attention": (
        Field("identity", ("layer", "head"), "1", "mean attention of a token to itself"),
        Field("previous_token", ("layer", "head"), "1", "mean attention of a token to the one before"),
        Field(
            "induction", ("layer", "head"), "1",
            "on random tokens that repeat, mean attention to the token after the earlier copy",
        ),
        Field(
            "top_tokens", ("layer", "head", "top"), "",
            "tokens whose unembedding lies closest to the write space, the closest first",
        ),
        Field("top_token_texts", ("layer", "head", "top"), "", "their texts, UTF-8"),
    ),
    "attribution": (
        *_EFFECTS,
        *(
            replace(field, name=f"{measure}/{field.name}", meaning=f"{field.meaning} ({measure})")
            for measure in ("repeats", "prompts")
            for field in _EFFECTS
        ),
    ),
    "ablation": (
        Field("kind", ("edge",), "", "kind of the read: Q, K or V"),
        Field("chosen_by", ("edge",), "", "score by which the edge is among the strongest of its kind"),
        *(
            Field(f"{role}_{of}", ("edge",), "", f"{of} of the {role}; key-value heads read K and V")
            for role in ("writer", "reader")
            for of in ("layer", "head")
        ),
        Field("random_writer_head", ("edge",), "", "writer of a random edge of the same layers and kind"),
        Field("random_reader_head", ("edge",), "", "its reader"),
        Field("first_order", ("edge",), "nat", "effect A of the edge; ablation changes the loss by about -A"),
        Field("second_order", ("edge",), "nat", "A_2 of the edge: to second order, with the reader head exact"),
        Field("zero", ("edge", "window"), "nat", "change of the window's loss without the write at this read"),
        Field("mean", ("edge", "window"), "nat", "the same with the write's mean over the window in its place"),
        Field("random_zero", ("edge", "window"), "nat", "change of the loss without the random edge"),
    ),
    "stream": (
        *_stream("score/*", _STREAM_SCORE, "O{Y}", "O{in}", "M{Y}", "M{in}"),
        *_stream("{made}score/*", _STREAM_SCORE, "{end}{Y}", "{end}{in}", "{end}U", "OU", "MU"),
        *_stream("fraction/*", _STREAM_SHARE, "O{in}", "M{Y}"),
        *_stream("{made}fraction/*", _STREAM_SHARE, "{end}{Y}", "OU"),
        Field("purity/{X}", ("layer", "{X}"), "1", "tr A^2 / (tr A)^2 of the map's operator: 1 / its effective rank"),
        Field("purity/M", ("layer", "one"), "1", "the same of the MLP's output"),
        Field("purity/{in}", ("layer", "one"), "1", "the same of the MLP's inputs"),
        Field("{made}purity/{end}", ("end", "one"), "1", "the same of the embedding (E) or learnt positions (X)"),
        Field("{made}purity/U", ("end", "one"), "1", "the same of the unembedding"),
        Field("neurons/{X}/layer", ("layer", "{X}", "top"), "", "layer of the neuron; -1 where there are no more"),
        Field("neurons/{X}/neuron", ("layer", "{X}", "top"), "", "number of the neuron in its MLP"),
        Field("neurons/O/matrix", ("layer", "head", "top"), "", "input matrix by which it reads: 0 for G, 1 for I"),
        Field("neurons/{X}/share", ("layer", "{X}", "top"), "1", _SPACES_SHARE),
        Field("tokens/{X}/token", ("layer", "{X}", "top"), "", "token that is read, or for O written"),
        Field("tokens/{X}/text", ("layer", "{X}", "top"), "", "its text, UTF-8"),
        Field("tokens/{X}/share", ("layer", "{X}", "top"), "1", _SPACES_SHARE),
        Field("left_out", ("note",), "", "what the checkpoint lacks, ties, or is left out, one sentence each, UTF-8"),
    ),
    "affinity": (
        Field("pk/{X}{Y}", _SOURCE_TO, "1", "projection kernel" + _LATER),
        Field(
            "cs/O{Y}", ("source_layer", "target_layer", "source_head", "target_head"), "1",
            "composition score of full products, by query head on both sides" + _LATER,
        ),
        Field(
            "same_kind/{score}/{X}{X}", ("source_layer", "target_layer", "source_{X}", "target_{X}"), "1",
            "a score between maps of one kind, pairs inside a layer included; NaN where the target's layer is earlier",
        ),
        Field("{score}/O{Y}", ("source_layer", "target_layer", "source_head", "target_{Y}"), "1",
              "simple_cs, cka, procrustes, and the last two with residual coordinates as samples (_invariant)"
              + _LATER),
        Field("kl", ("source_kind", "target_kind"), "nat", "KL(random || observed PK)"),
        Field("head_classes/set", (), "", "name of the set of head classes, UTF-8"),
        Field("head_classes/order", ("head_class",), "", "the classes in their order, UTF-8"),
        Field("head_classes/class", ("layer", "head"), "", "index into the order; -1 for a head of no class"),
        Field("head_classes/counts", ("layer", "head"), "", "whether PK's tables count the head as the circuit's"),
    ),
}  # fmt: skip
"""By kind of file; of two fields that a name fits, the first holds."""

LABELS: Mapping[str, tuple[str, ...]] = {
    "source_kind": tuple("QKVO"), "target_kind": tuple("QKVO"), "removed": ("1", "4", "16", "64"),
}  # fmt: skip
"""Coordinates of the dimensions that are not counted from 0."""

DIMENSIONS: Mapping[str, str] = {
    "layer": "layer", "writer_layer": "layer of the writer", "reader_layer": "layer of the reader",
    "source_layer": "layer of the source", "target_layer": "layer of the target",
    "head": "query head", "kv_head": "key-value head", "d_model": "coordinate of the residual stream",
    "direction": "direction of a head, the most weighted first", "sample": "sample of a null model",
    "head_pair": "pair i < j of query heads, by i, then j", "kv_head_pair": "pair i < j of key-value heads",
    "random_pair": "pair of random subspaces", "top": "place in the list", "head_class": "class of heads",
    "removed": "number of directions or coordinates taken out",
    "head_singular": "singular value of query heads' maps, the largest first",
    "kv_head_singular": "singular value of key-value heads' maps, the largest first",
    "end": "begin or end of the stream", "one": "the only one in its layer", "note": "sentence",
    "edge": "chosen edge", "window": "window of the text, or sequence",
    "source_kind": "kind of the source", "target_kind": "kind of the target", "step": "step of a training, in order",
}  # fmt: skip
"""What is counted along a dimension; ``other_``, ``writer_``, … stand before the heads' of a second axis."""


def find_field(file_kind: str, name: str) -> tuple[Field, tuple[str, ...]] | None:
    """Field and dimensions of a dataset; None where the dictionary has none of this name."""
    for field in FIELDS.get(file_kind, ()):
        if (dimensions := field.match(name)) is not None:
            return field, dimensions
    return None


_ROLES = re.compile("^(other|writer|reader|source|target)_")

_COUNTED_BY = {"layer": "n_layers", "head": "n_query_heads", "kv_head": "n_kv_heads", "d_model": "d_model"}
"""Attributes of a file that say how long a dimension is."""

_COUNTED_BY_OF = {
    "bases": {"layer": "block_layers"},
    "null-shard": {"sample": "n_samples"},
    "nulls": {"sample": "samples"},
    "orthonormal": {"sample": "samples"},
}
"""And those of one kind of file."""


def dimension_fault(file_kind: str, name: str, shape: tuple[int, ...], says: Mapping[str, object]) -> str | None:
    """Say where an array's dimensions are not what its file's attributes say; None where all that are said agree.

    An array that is shorter than its file says would be taken for whole: a shard of fewer samples, a block of fewer
    layers.
    """
    found = find_field(file_kind, name)
    for axis, dimension in enumerate(found[1] if found else ()):
        plain = _ROLES.sub("", dimension)
        key = _COUNTED_BY_OF.get(file_kind, {}).get(plain) or _COUNTED_BY.get(plain, "")
        length = shape[axis] if axis < len(shape) else None
        if key in says and length != says[key]:
            return f"{key} is {says[key]}, but {name!r} has {length} in dimension {axis}"
    return None


def describe_dimension(name: str) -> str:
    """Say what is counted along a dimension."""
    if name in DIMENSIONS:
        return DIMENSIONS[name]
    role, _, plain = name.partition("_")
    return f"{role} {DIMENSIONS[plain]}"


def dictionary_page() -> str:
    """Write the data dictionary as Markdown: a table for each kind of file."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for kind, fields in FIELDS.items():
        yield f"### `{kind}`\n"
        if kind == "null-shard":
            yield "The fields of `nulls` but `random/`, for one null model and some samples.\n"
            continue
        if kind == "orthonormal":
            yield "The fields of `nulls` of RW's null models, of orthonormal columns, but `random/` and `pairs/`.\n"
            continue
        yield "| dataset | dimensions | unit | meaning |"
        yield "|---|---|---|---|"
        for field in fields:
            meaning = field.meaning.replace("|", r"\|")
            yield f"| `{field.name}` | {', '.join(field.dimensions) or 'none'} | {field.unit or '-'} | {meaning} |"
        yield ""


BEGIN, END = "<!-- data dictionary: python -m headspaces.fields results/README.md -->\n", "<!-- end -->"
"""Between these the page holds the table."""


def write_page(path: str | Path) -> None:
    """Write the table of a page anew."""
    text = Path(path).read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    Path(path).write_text(before + BEGIN + dictionary_page() + END + rest.split(END, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    write_page(sys.argv[1])
