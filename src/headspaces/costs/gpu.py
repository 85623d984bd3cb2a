"""How much GPU memory the jobs of a stage hold at once, from the model's shape; beside :mod:`headspaces.costs.stages`.

The driver's own part, some hundred MiB, comes on top. Only what Snakemake imports anyway is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from headspaces.costs.sizes import Size
from headspaces.devices import BATCH_BYTES, MIB, tile_rows
from headspaces.study.models import Model

WORKSPACE = 128 * MIB
"""What the GPU's libraries take for themselves, and what is lost between pieces of memory."""

THREADS_WORKSPACE = 512 * MIB
"""The same where a job's 16 threads all ask the GPU for products: up to 32 MiB each."""

PAIR_BYTES = 64 * MIB
"""Products of pairs of bases while the closest pair is sought (:data:`headspaces.geometry.closest_pair.PAIR_BYTES`)."""

GRAM_BYTES = 32 * MIB
"""Products of pairs of bases for their angles (:data:`headspaces.geometry.kernel.GRAM_BYTES`)."""


def _number(dtype: str) -> int:
    return 4 if dtype == "float32" else 8


def _kernel(model: Model, heads: int, pairs: int, number: int) -> int:
    """Bytes of the kernel beside its factors, and of its results (:mod:`headspaces.geometry.kernel`).

    *Operator*: a chunk of tiles over all heads. *Gram*: all factors once more in one stack, and those of one side
    transposed; the products of a batch of pairs, their squares, and a copy. Results are sums and summands in float64,
    of up to twice the pairs.
    """
    d_model, d_head = model.shape.d_model, model.shape.d_head
    if 2 * d_head**2 * pairs < d_model * (pairs + heads * d_head):
        own = 2 * number * heads * d_model * d_head + 3 * BATCH_BYTES
    else:
        own = min(tile_rows(number * heads), d_model) ** 2 * number * heads
    return own + 32 * pairs


def _overlaps(model: Model) -> int:
    """Bytes of the observed pairs: all bases, or scaled maps, at once where reads are compared, else a block's.

    Beside them what the kernel needs, or the angles: a byte for every number, whether it is zero, and of a batch of
    pairs the bases, their products in two orders, and the squares.
    """
    size, number = Size(model), _number(model.bases_dtype)
    share = 1.0 if size.readers else size.block_share
    layers = round(share * model.shape.n_layers)
    held = layers * size.heads * model.shape.d_model * model.shape.d_head * number
    pairs = model.n_observed_pairs if size.readers else round(size.inside * share / 8)
    return held + max(_kernel(model, layers * size.heads, pairs, number), held // number + 5 * GRAM_BYTES)


def _null_shard(model: Model) -> int:
    """Bytes of one sample: its bases where reads are compared with writes, and what one layer and kind is drawn with.

    Of a layer and kind up to five arrays at a time: the columns, redrawn, scaled, and two rounds of orthonormalisation;
    then the products of pairs of its bases, their squares and powers. Or what the kernel needs, once all are drawn.
    """
    size, number = Size(model), _number(model.nulls_dtype)
    drawing = 5 * size.panel * number // 8 + 5 * PAIR_BYTES
    if not size.readers:
        return drawing
    heads = model.shape.n_layers * size.heads
    held = heads * model.shape.d_model * model.shape.d_head * number
    return held + max(drawing, _kernel(model, heads, size.across, number))


def _affinity(model: Model) -> int:
    """Bytes of the factors of one block of layers, or of a pair of blocks where there are more, by query head."""
    size, number = Size(model), _number(model.nulls_dtype)
    layers = min(2, len(model.blocks)) * round(size.block_share * model.shape.n_layers)
    heads = layers * max(size.heads, 4 * model.shape.n_query_heads)
    held = heads * model.shape.d_model * model.shape.d_head * number
    return held + _kernel(model, heads, heads**2 // 2, number)


GPU_RULES: Mapping[str, Callable[[Model], int]] = {
    "overlaps": _overlaps,
    "null_shard": _null_shard,
    "affinity": _affinity,
}
"""By rule, the bytes of GPU memory that a job holds at once."""


def gpu_mb(rule: str, model: Model) -> int:
    """Return the GPU memory that a job of a rule, a key of :data:`GPU_RULES`, needs for a model, in MiB."""
    # Angles are the only products that many threads ask for.
    workspace = WORKSPACE + (THREADS_WORKSPACE if rule == "overlaps" else 0)
    return math.ceil((GPU_RULES[rule](model) + workspace) / MIB)
