"""Costs of every stage, as they follow from a model's shape: one function each, with the reasons.

Operations are floating-point additions and multiplications in float64. Where a stage does other work than large matrix
products, its operations are multiplied by how much slower than these they run, so that one rate gives the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headspaces import devices
from headspaces.costs import running
from headspaces.costs.cost import MIB, PROCESS, Cost, Workload
from headspaces.costs.running import VOCABULARY, n_parameters
from headspaces.costs.sizes import Size, number_bytes
from headspaces.spaces import NULLS
from headspaces.study.models import Model

NULL_MODELS = len(NULLS)  # RW's; the swap null has jobs of its own.
START_SECONDS = 4.0  # Start of a job: Snakemake's own process, and the imports of the one that computes.
MLP_WIDTH = 5.3  # Neurons of a wide MLP, over D.
TILES = 160 * MIB  # Per thread of the kernel: its tiles (64 MiB), and products of pairs of bases.


def _weights(model: Model, _work: Workload) -> Cost:
    """Fetch the attention's tensors.

    They stream through; packed ones are unpacked to float32 one at a time. Two bytes a number is what checkpoints have,
    four after unpacking. The network sets the time; the operations stand for checksums, 30 a byte.
    """
    size, disk = Size(model), model.bases_bytes / 8 * (4 if model.packed else 2)
    return Cost(PROCESS / 2 + 2 * size.panel, disk, 30 * disk, len(model.blocks), size.block_share)


def _bases(model: Model, work: Workload) -> Cost:
    """Make orthonormal bases and direct sums, in blocks of layers.

    QR of a head and the rotation of its basis take 6 D d^2, the small singular value decomposition 25 d^3, the QR of a
    layer's heads side by side (D x nd) 2 p q^2, q the smaller side; LAPACK runs at a third of the rate of products.

    In memory: the block's factors in float64, replaced by the bases as they are made, and half of it again when these
    are stacked; for each thread the folded factors, QR's copies of them and the heads side by side.
    """
    size, shape, d = Size(model), model.shape, model.shape.d_head
    sides = [sorted((shape.d_model, shape.n_heads(kind) * d)) for kind in model.kinds]
    sums = sum(2 * longer * shorter**2 for shorter, longer in sides)
    operations = 3.0 * shape.n_layers * (size.heads * (6 * shape.d_model * d**2 + 25 * d**3) + sums)
    tasks = min(work.threads, round(size.block_share * shape.n_layers) * len(model.kinds))
    memory = PROCESS + 1.5 * size.block + 5 * tasks * size.panel
    return Cost(memory, model.bases_bytes * size.stored, operations, len(model.blocks), size.block_share)


def _overlaps(model: Model, work: Workload) -> Cost:
    """Compute overlaps, angles and composition scores of all observed pairs, in one job.

    The kernel runs for rho and, where there are reads, for two composition scores; an angle takes ``F^T G`` (2 D d^2),
    its square (2 d^3) and eigenvalues (10 d^3, at half the rate of products). What makes the spread takes eight more
    products a pair within layers, the kernel of all pairs across layers eight times more, and eigenvalues of D x D
    matrices (10 D^3 a layer and kind).

    In memory, without reads: a block of layers, and the one before until it is replaced. With reads: all bases, or
    the scaled factors of all layers, the readers once more side by side, and the writes without what they share. On a
    GPU, beside the bases or maps, what the kernel needs, or the angles: a byte for every number, whether it is zero,
    and of a batch of pairs the bases, their products in two orders, and the squares.
    """
    size, d = Size(model), model.shape.d_head
    angles = model.n_observed_pairs * (2 * model.shape.d_model * d**2 + 22 * d**3)
    eigenvalues = 10.0 * model.shape.n_layers * len(model.kinds) * model.shape.d_model**3
    sources = 8 * model.n_within_pairs * 2 * model.shape.d_model * d**2 + eigenvalues
    operations = size.kernel(model.n_observed_pairs) * (3 if model.readers else 1) + angles + sources
    if model.readers:
        operations += 8 * size.kernel(model.n_observed_pairs - model.n_within_pairs)
    held = 2.1 * model.bases_bytes * size.stored if model.readers else size.blocks_held
    memory = PROCESS + work.threads * (TILES + size.panel) + held + 4 * size.inside + 12 * size.square
    share = 1.0 if model.readers else size.block_share
    pairs = model.n_observed_pairs if model.readers else round(size.inside * share / 8)
    layers, number = round(share * model.shape.n_layers), number_bytes(model.bases_dtype)
    on_gpu = layers * size.layer_numbers
    kernel = size.kernel_bytes(layers * size.heads, pairs, number)
    gpu = on_gpu * number + max(kernel, on_gpu + 5 * devices.GRAM_BYTES)
    return Cost(memory, 2 * size.inside + 4 * size.square, operations, gpu=gpu)


def _null_shard(model: Model, work: Workload) -> Cost:
    """Draw the samples of RW's null models, in shards.

    A sample takes :attr:`Model.null_sample_operations`, orthonormalisation (two rounds of Cholesky QR, 8 D d^2 a head),
    and the closest pair within each layer (``F^T G`` and squarings, 2 D d^2 + 10 d^3 a pair); all that at two thirds
    of the rate of products, which is twice as high in float32.

    In memory: the layers of a small model, or two of a large one's; the sample's bases where reads are compared with
    writes; for each thread a layer's factors in float64, scaled, in the sample's arithmetic, redrawn, and two rounds of
    orthonormalisation. On a GPU a layer and kind has up to five arrays at a time: the columns, redrawn, scaled, and two
    rounds of orthonormalisation; then the products of pairs of its bases, their squares and powers.
    """
    size, shape, d = Size(model), model.shape, model.shape.d_head
    rate = 2.0 if model.nulls_dtype == "float32" else 1.0
    bases = shape.n_layers * size.heads * 8 * shape.d_model * d**2
    closest = model.n_within_pairs * (2 * shape.d_model * d**2 + 10 * d**3)
    sample = 1.5 / rate * (model.null_sample_operations + bases + closest)
    kept = model.layers_kept * model.bases_bytes / shape.n_layers
    held = kept + (model.bases_bytes / rate if model.readers else 0)
    memory = PROCESS + held + work.threads * (2 * TILES + size.panel * (2 + 5 / rate)) + 4 * size.square
    samples, in_shard = NULL_MODELS * work.samples, min(model.samples_per_shard, work.samples)
    jobs = NULL_MODELS * -(-work.samples // model.samples_per_shard)
    return Cost(
        memory, 8 * samples * size.null_numbers, samples * sample, jobs, in_shard / samples, _sample_on_gpu(model)
    )


def _orthonormal(model: Model, work: Workload) -> Cost:
    """Draw RW's null models of orthonormal columns, in one job, with a block of bases in memory."""
    shards = _null_shard(model, replace(work, samples=work.orthonormal))
    memory = shards.memory + Size(model).block
    return replace(shards, memory=memory, jobs=1, longest=1.0)


def _sample_on_gpu(model: Model) -> int:
    """Bytes on a GPU of a null sample: what a layer and kind is drawn with, or the kernel over all that are drawn."""
    size, shape, number = Size(model), model.shape, number_bytes(model.nulls_dtype)
    drawing = 5 * size.panel * number // 8 + 5 * devices.PAIR_BYTES
    if not model.readers:
        return drawing
    kernel = size.kernel_bytes(shape.n_layers * size.heads, model.n_across_pairs, number)
    return shape.n_layers * size.layer_numbers * number + max(drawing, kernel)


def _swap_start(model: Model, work: Workload) -> Cost:
    """Burn the swap null model in, in blocks of layers; the bases that samples start from stay.

    In memory: a block's bases as stored and after the burn-in; for each thread a layer's, copied, and polished.
    """
    size, number = Size(model), 0.5 if model.scores_dtype == "float32" else 1.0
    operations = 1.5 * number * work.burn_in * model.sweep_operations
    memory = PROCESS + size.block * (size.stored + number) + work.threads * size.panel * 4 * number
    return Cost(memory, model.bases_bytes * number, operations, len(model.blocks), size.block_share)


def _swap_shard(model: Model, work: Workload) -> Cost:
    """Draw the samples of the swap null model, in shards: sweeps, and then the pairs as for the others.

    In memory: the sample's bases where reads are compared with writes; for each thread a layer's, copied, and polished.
    """
    size, shape, d = Size(model), model.shape, model.shape.d_head
    number = 0.5 if model.scores_dtype == "float32" else 1.0
    closest = model.n_within_pairs * (2 * shape.d_model * d**2 + 10 * d**3)
    sample = 1.5 * number * (model.pair_operations + work.sweeps * model.sweep_operations + closest)
    held = model.bases_bytes * number if model.readers else 0
    memory = PROCESS + held + work.threads * (2 * TILES + size.panel * 4 * number) + 4 * size.square
    per_shard = model.swap_samples_per_shard(work.sweeps)
    jobs, longest = -(-work.samples // per_shard), min(per_shard, work.samples) / work.samples
    return Cost(
        memory, 8 * work.samples * size.null_numbers, work.samples * sample, jobs, longest, _sample_on_gpu(model)
    )


def _nulls(model: Model, work: Workload) -> Cost:
    """Put the shards together, and draw random subspaces beside them: as many sets of heads as there are samples."""
    size, shape, d = Size(model), model.shape, model.shape.d_head
    counts = {shape.n_heads(kind) for kind in model.kinds}
    pairs = sum(n * (n - 1) // 2 for n in counts)
    operations = sum(counts) * 30 * shape.d_model * d**2 + pairs * (2 * shape.d_model * d**2 + 10 * d**3)
    disk = 8 * (NULL_MODELS + 1) * work.samples * size.null_numbers
    return Cost(PROCESS + 3 * disk + work.threads * (TILES + 4 * size.panel), disk, 1.5 * work.samples * operations)


def _nulls_at_once(model: Model, work: Workload) -> Cost:
    """Draw all samples of all null models of a small model in one job."""
    parts = [stage(model, replace(work, threads=1)) for stage in (_null_shard, _swap_start, _swap_shard, _nulls)]
    return replace(
        parts[-1], memory=max(part.memory for part in parts), operations=sum(part.operations for part in parts)
    )


def _series(model: Model, _work: Workload) -> Cost:
    """Compare a step's heads with themselves at two others: products and two singular value decompositions each."""
    size, shape, heads = Size(model), model.shape, 2 * model.shape.n_layers * Size(model).heads
    operations = heads * (10 * shape.d_model + 50 * shape.d_head) * shape.d_head**2
    return Cost(PROCESS + 6 * size.block, 8 * heads, operations)


def _self_heads(model: Model, work: Workload) -> Cost:
    """Compare heads' own spaces with others': three comparisons a layer, and 10,000 permutations of labels in each.

    In memory: a block of layers, and the one before until it is replaced.
    """
    size, shape = Size(model), model.shape
    pairs = shape.n_layers * shape.n_query_heads * (shape.n_query_heads + 2 * shape.n_kv_heads)
    permuted = 100 * 3 * 10_000 * shape.n_layers * shape.n_query_heads
    operations = 2 * shape.d_model * shape.d_head**2 * pairs + permuted
    return Cost(PROCESS + work.threads * TILES / 4 + size.blocks_held, 3 * size.inside, operations)


def _affinity(model: Model, work: Workload) -> Cost:
    """Score all heads with later ones.

    The kernel runs for PK of all kinds with all kinds and three times for writers with readers, and once more for each
    where a set of head classes asks for the scores between maps of one kind. Procrustes, of small models only, takes
    the singular values of two d x d matrices a pair (100 d^3 each at the rate of products).

    In memory, of a block of layers, or of two where there are more: heads as read, their stacks, bases, and by query
    head the full products and what they are made of; and the results. On a GPU the factors, and what the kernel needs.
    """
    size, shape, d = Size(model), model.shape, model.shape.d_head
    layer_pairs = shape.n_layers * (shape.n_layers - 1) // 2
    scored = model.n_across_pairs
    if model.head_classes:
        scored += model.n_within_pairs + layer_pairs * sum(shape.n_heads(kind) ** 2 for kind in model.kinds)
    operations = size.kernel(layer_pairs * size.heads**2) + 3 * size.kernel(scored)
    if model.invariant_procrustes:
        operations += scored * (200 * d**3 + 2 * shape.d_model * d**2)
    results = 8 * shape.n_layers**2 * (size.heads**2 + 3 * shape.n_query_heads**2) + 5 * size.square
    by_query_head = 4 * shape.n_query_heads / size.heads
    held = min(2, len(model.blocks)) * size.block * (4 + 2 * by_query_head)
    number = number_bytes(model.scores_dtype)
    layers = min(2, len(model.blocks)) * round(size.block_share * shape.n_layers)
    heads = layers * max(size.heads, 4 * shape.n_query_heads)
    gpu = heads * shape.d_model * d * number + size.kernel_bytes(heads, heads**2 // 2, number)
    return Cost(PROCESS + work.threads * TILES + held + 2 * results, results, operations, gpu=gpu)


def _stream_weights(model: Model, work: Workload) -> Cost:
    """Fetch MLPs and embeddings as the heads' tensors are: all other parameters, from above."""
    weights = _weights(model, work)
    disk = 2 * max(0.0, n_parameters(model) - model.bases_bytes / 8)
    return replace(weights, disk=disk, operations=30 * disk, jobs=weights.jobs + 1)


def _stream(model: Model, work: Workload) -> Cost:
    """Score all of the stream: operators of embeddings and MLPs, and the shares of neurons and tokens in heads' spaces.

    A row of an MLP's three matrices takes D^2, by symmetry, and a token four times that. Each neuron is multiplied with
    the bases of half of all heads, each token with all, in float32 at twice the rate; heads' operators meet the MLPs'.

    In memory: the bases, also in float32; the MLPs' operators, in two places while they are stacked; an MLP's rows in
    float64, a few times over; for each thread a slab of products.
    """
    size, shape, number = Size(model), model.shape, number_bytes(model.bases_dtype)
    rows, columns = MLP_WIDTH * shape.d_model, shape.n_layers * size.heads * shape.d_head
    operators = shape.d_model**2 * (3 * shape.n_layers * rows + 4 * VOCABULARY)
    shares = (3 * shape.n_layers * rows / 2 + VOCABULARY) * shape.d_model * columns
    meetings = 2 * shape.d_model**2 * shape.n_layers * size.heads * (2 * shape.d_head + 3 * shape.n_layers)
    held = model.bases_bytes * (size.stored + 0.5) + 5 * number * shape.n_layers * shape.d_model**2
    memory = PROCESS + held + 6 * 8 * rows * shape.d_model + work.threads * TILES
    return Cost(memory, 3 * size.square, operators + shares + meetings)


STAGES: Mapping[str, Callable[[Model, Workload], Cost]] = {
    function.__name__.removeprefix("_"): function
    for function in (
        _weights,
        _bases,
        _overlaps,
        _null_shard,
        _swap_start,
        _swap_shard,
        _nulls,
        _orthonormal,
        _nulls_at_once,
        _series,
        _self_heads,
        _affinity,
        running.activations,
        running.attention,
        running.attribution,
        running.ablation,
        _stream_weights,
        _stream,
    )
}
