"""Costs of the stages that run a model; see :mod:`headspaces.costs.stages`."""

from __future__ import annotations

from headspaces.costs.cost import MIB, Cost, Workload
from headspaces.costs.sizes import Size
from headspaces.spaces import READS
from headspaces.study.models import Model

TORCH_PROCESS = 900 * MIB  # A process with torch and transformers: measured 500 to 800 MiB.
VOCABULARY = 150_000  # Tokens of a large vocabulary: the shape does not tell.
N_SCORES = 4  # Scores whose strongest edges are ablated.
SEQUENCE = 256  # Tokens of a sequence whose attention is kept.


def activations(model: Model, work: Workload) -> Cost:
    """Run the model on a text, and measure what its writes do at later reads.

    The forward pass takes two operations a parameter and token in float32; every writer head and later layer moments of
    d x d and d x D over the tokens.

    In memory: the model in float32, all heads and bases in float64, what the heads put out and the norms read on every
    token, and the writes along every later residual.
    """
    shape, d, tokens = model.shape, model.shape.d_head, work.tokens
    parameters, size = n_parameters(model), Size(model)
    moments = shape.n_layers**2 / 2 * shape.n_query_heads * tokens * 2 * d * (d + shape.d_model)
    kept = 4 * shape.n_layers * tokens * (shape.n_query_heads * d + shape.d_model)
    along = 8 * shape.n_layers**2 * tokens * shape.n_query_heads
    own = 8 * tokens * (4 * shape.d_model + 6 * shape.n_query_heads * d)
    memory = TORCH_PROCESS + 4 * parameters + 2 * model.bases_bytes + kept + along + work.threads * own
    return Cost(memory, 4 * size.square, parameters * tokens + 2 * moments)


def attention(model: Model, work: Workload) -> Cost:
    """Run the model on the text and on repeated random tokens, with attention weights, and unembed every write.

    In memory: the model in float32, all heads in float64, and the attention of one sequence; the unembedding once more.
    """
    shape, tokens = model.shape, work.tokens
    parameters, d = n_parameters(model), shape.d_head
    weights = 4 * shape.n_layers * shape.n_query_heads * SEQUENCE**2
    memory = TORCH_PROCESS + 4 * parameters + model.bases_bytes + 2 * weights + 8 * VOCABULARY * shape.d_model
    unembedding = 2 * shape.n_layers * shape.n_query_heads * shape.d_model * d * VOCABULARY
    return Cost(memory, 8 * 100 * shape.n_layers * shape.n_query_heads, 2 * parameters * tokens + unembedding)


def attribution(model: Model, work: Workload) -> Cost:
    """Multiply all writes with the gradients of all later reads, on a text and on half as many repeated tokens.

    A forward and a backward pass, two operations a parameter and token each, and ``2 D`` a token and pair; in float32,
    at twice the rate, but over a third more pairs than there are. Then another forward and three backward
    passes, and one layer's attention for each edge whose effect is to second order.

    In memory: the model in float32, all heads in float64 and the folded maps of all reads once more in float32; of a
    sequence on each thread what the backward pass needs (its logits most), what is kept, writes, gradients, products.
    """
    shape, parameters, size = model.shape, n_parameters(model), Size(model)
    n_reads = shape.n_query_heads + 2 * shape.n_kv_heads
    pairs = shape.n_layers**2 / 2 * shape.n_query_heads * n_reads
    tokens = 1.5 * work.tokens
    of_layers = shape.n_layers * (26 * shape.d_model + 2 * shape.n_query_heads * SEQUENCE)
    backward = 4 * work.threads * SEQUENCE * (3 * VOCABULARY + of_layers)
    memory = (
        TORCH_PROCESS + 4 * parameters + 1.5 * model.bases_bytes + backward + work.threads * (2**27 + 24 * size.square)
    )
    attention = 3 * shape.d_model**2 + 2 * SEQUENCE * shape.n_query_heads * shape.d_head
    heads = len(READS) * work.second_order * attention
    passes = (6 if work.second_order else 2) * parameters
    return Cost(memory, 8 * size.square, tokens * (passes + 2.7 * shape.d_model * pairs + heads))


def ablation(model: Model, work: Workload) -> Cost:
    """Take edges out of the model one by one: of each kind by each of four scores, a matched one for each, twice.

    Three forward passes an edge, of half of the layers and the unembedding, on every window.

    In memory: the model in float32, all heads in float64, and what all layers gave on one window.
    """
    shape, parameters, size = model.shape, n_parameters(model), Size(model)
    runs = 3 * len(READS) * N_SCORES * work.edges
    memory = TORCH_PROCESS + 4 * parameters + 1.5 * model.bases_bytes + 12 * size.square
    memory += 4 * SEQUENCE * (3 * VOCABULARY + 2 * shape.n_layers * shape.d_model)
    return Cost(memory, 8 * 20 * runs, runs * work.tokens * (parameters + VOCABULARY * shape.d_model) / 2)


def n_parameters(model: Model) -> int:
    """Parameters of a dense model, from above: its attention, a gated MLP of width 5.3 D, and embeddings."""
    shape = model.shape
    attention = 2 * shape.d_model * shape.d_head * (shape.n_query_heads + shape.n_kv_heads)
    return shape.n_layers * (attention + 16 * shape.d_model**2) + VOCABULARY * shape.d_model
