"""The tables and figures of the report: what each shows and which stages' files it reads.

Only the standard library is imported here: the Snakefile reads this module at every start to ask for the right files.
The functions that make them are in :mod:`headspaces.report.tables` and :mod:`headspaces.report.figures`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

SPREAD = "Spread: population standard deviation (ddof = 0) of ρ over the pairs of a condition."
LAMBDA_MIN = (
    "λ min: smallest eigenvalue of the sum of a layer's projections, over the layers; 0 where its spaces cannot span."
)
RANDOM_SD = "Random sd: standard deviation of ρ for two independent uniform random subspaces."
WITHIN = "O: write spaces; Q, K, V: read spaces of queries, keys, values."
ACROSS = "OQ, OK, OV: write spaces of a layer with the read spaces of queries, keys, values of each later layer."
ALL_SAMPLES = "All samples: those of both null models, rotation and reassignment, together."
RATIO = "r: observed spread / largest spread of all samples of both null models."
ISOTROPIC = "Isotropic value: d/D, the expected ρ of two independent uniform random subspaces."

KEY_VALUE_HEADS = "3.1: query head 1 of layer 3; 3k1: key-value head 1, where these are shared."
EARLIER = "Pairs: every head with every head of each later layer."
ALIGNED = (
    "CKA and Procrustes as in PK match dimension k of one head with k of the other: they depend on the arbitrary bases "
    "inside heads; the invariant columns do not."
)


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes
    ----------
    title
        What it shows, in one sentence: the caption.
    needs
        Stages whose files it cannot do without, for every model of the study.
    uses
        Stages whose files fill more of it where a model has them.
    notes
        Definitions that are printed below it.
    """

    title: str
    needs: tuple[str, ...] = ("overlaps",)
    uses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


TABLES: Mapping[str, Item] = {
    "table1": Item(
        "Smallest principal angles over the pairs of head spaces, within and across layers (RW table 1)",
        notes=(WITHIN, ACROSS),
    ),
    "table2": Item(
        "Lower bound of the largest overlap with a layer's write spaces, and what is measured (RW table 2)",
        notes=(
            ACROSS,
            "min max ρ: minimum over layer pairs and read spaces R of the largest ρ(R, U_i) with a write space U_i.",
            LAMBDA_MIN,
            ISOTROPIC,
        ),
    ),
    "table3": Item("Models and isotropic values (RW table 3)", notes=("Write pairs: of one layer.", ISOTROPIC)),
    "table4": Item(
        "The spread of ρ against the null models (RW table 4)",
        needs=("overlaps", "nulls"),
        notes=(
            WITHIN,
            ACROSS,
            SPREAD,
            ALL_SAMPLES,
            RATIO,
            "Ratios: observed spread / mean spread of a null model's samples.",
        ),
    ),
    "table5": Item(
        "Mean and spread of ρ between the write spaces of a layer (RW table 5)",
        notes=(SPREAD, ISOTROPIC, RANDOM_SD),
    ),
    "table6": Item(
        "Layers whose smallest angle between write spaces is not below every reassignment sample's (RW table 6)",
        needs=("overlaps", "nulls"),
        notes=("Reassignment: the smallest of the samples' smallest angles.",),
    ),
    "table7": Item(
        "Overlap between the read spaces of one kind within a layer, against the null models (RW table 7)",
        uses=("nulls",),
        notes=(SPREAD, ALL_SAMPLES),
    ),
    "table8": Item(
        "Spread and mean of ρ between write spaces and later layers' read spaces, against the nulls (RW table 8)",
        needs=("overlaps", "nulls"),
        notes=(ACROSS, SPREAD, ALL_SAMPLES),
    ),
    "table9": Item(
        "Largest ρ and largest spectrally weighted score of a layer pair (RW table 9)",
        notes=(
            ACROSS,
            "Each maximum is over the head pairs of the layer pair; the two need not belong to the same head pair.",
            "Weighted score: D ||R^T B||^2 / (||R||^2 ||B||^2), about 1 for independent Gaussian matrices.",
        ),
    ),
    "small_angles": Item(
        "Pairs of head spaces that nearly share a direction (RW section 4.1)",
        notes=(WITHIN, ACROSS),
    ),
    "direct_sum": Item(
        "Ranks of the head spaces and deficiency of their sum in a layer (RW sections 4.1 and 5.1)",
        notes=(
            WITHIN,
            "Width: heads of a layer times d. Deficiency: sum of the ranks less the dimension of the spaces' sum.",
            "Forced: max(0, width - D). A folded LayerNorm forces one more on reads, which it leaves D - 1 dimensions.",
            LAMBDA_MIN,
        ),
    ),
    "right_tail": Item(
        "The right tail of ρ in every condition (RW section 5.2)",
        notes=(
            WITHIN,
            ACROSS,
            SPREAD,
            ISOTROPIC,
            "Quantiles interpolate linearly. Mean smallest angle: over the pairs.",
        ),
    ),
    "conditions": Item(
        "Mean and spread of ρ in every condition beside the null samples (RW section 5.3)",
        uses=("nulls",),
        notes=(
            WITHIN,
            ACROSS,
            SPREAD,
            RATIO,
            "p: one-sided, (k + 1) / (n + 1), where k of n samples have at least this spread.",
        ),
    ),
    "baseline_ratios": Item(
        "Mean and spread of ρ against two random subspaces, ranges over the conditions (RW section 5.2)",
        notes=(WITHIN, ACROSS, SPREAD, ISOTROPIC, RANDOM_SD),
    ),
    "weighted_means": Item(
        "Mean spectrally weighted score of a layer pair, over the layer pairs (RW appendix G)",
        notes=(
            ACROSS,
            "Mean: over the head pairs of a layer pair; low, median and high: over the layer pairs.",
        ),
    ),
    "pair_counts": Item(
        "Pairs whose ρ lies below or above every pair of every null sample, in the layer of figure 2 (RW section 5.2)",
        needs=("overlaps", "nulls"),
        notes=(
            WITHIN,
            "Layer: the upper median of the layers' observed spreads. Both: rotation and reassignment together.",
        ),
    ),
    "null_counts": Item(
        "Conditions whose spread, mean, quantiles or smallest angle are outside every null sample "
        "(RW 5.2, 5.3, appendix F)",
        needs=("overlaps", "nulls"),
        notes=(
            WITHIN,
            ACROSS,
            SPREAD,
            "All: samples of both null models together. Quantiles and angles: within layers only.",
        ),
    ),
    "null_ranges": Item(
        "Observed values and null samples, ranges over the conditions (RW section 5.3, appendix F)",
        needs=("overlaps", "nulls"),
        notes=(
            WITHIN,
            ACROSS,
            SPREAD,
            "Sample mean: over a null model's samples of one condition; low and high: over the conditions.",
        ),
    ),
    "random_baseline": Item(
        "ρ of independent pairs of uniform random subspaces, sampled and in closed form (RW sections 5.1 and 5.3)",
        needs=("overlaps", "nulls"),
        notes=("Sampled sd: population standard deviation (ddof = 0) over the sampled pairs.", ISOTROPIC, RANDOM_SD),
    ),
    "mean_direction": Item(
        "Mean ρ between write spaces and later layers' read spaces, by layer distance (RW appendix F)",
        uses=("nulls",),
        notes=(ACROSS, ISOTROPIC, ALL_SAMPLES),
    ),
    "activations": Item(
        "The direct path from writes to later reads on a text: terms of the response, and ρ against measured shares "
        "(RW section 5.4)",
        needs=("overlaps", "activations"),
        uses=("affinity",),
        notes=(
            "Linear, normalisation, total: mean squared norms of the terms of A J(x) u (RW 4.2) and of their sum.",
            "Relative rms: root of normalisation / total. Sums: over all pairs; medians and 5-95 %: over pairs.",
            "Energy: tr(P_V C) / tr C with C = E[u u^T]. Composition: Elhage's score, by query head on both sides.",
            "Layer pair: correlation of ρ and energy over the head pairs of one layer pair.",
        ),
    ),
    "self_head": Item(
        "Overlap of a head's own spaces against those of different heads, by layer (RW section 5.5, appendix H)",
        needs=("overlaps", "self_heads"),
        notes=(
            "VO: value read and write; QK: query and key reads; QO: query read and write.",
            "Labels: heads, or key-value groups.",
            "p: one-sided, (k + 1) / (n + 1) for n random permutations of labels, k / n where n are all there are.",
        ),
    ),
    "v_spaces": Item(
        "Overlap between the value read spaces of a layer against two random subspaces (RW section 5.5)",
        notes=(ISOTROPIC, "Random sds: (mean ρ - isotropic value) / standard deviation of ρ for two random subspaces."),
    ),
    "model_pairs": Item(
        "Overlaps of two models of one shape, pair by pair (RW section 5.5)",
        notes=(
            WITHIN,
            ACROSS,
            "Relative difference: to the first model's ρ.",
            "ρ does not change when both spaces are rotated together.",
        ),
    ),
    "tuning": Item(
        "Two models of one shape side by side, by layer (RW section 5.5, appendix E)", notes=(WITHIN, SPREAD)
    ),
    "pk_table1": Item(
        "How well the largest score of a head's pairs finds the heads of a known circuit (PK table 1)",
        needs=("overlaps", "affinity"),
        notes=(
            "PR-AUC: trapezoids through the points of all thresholds, without the point of recall 0 (PK's, inferred).",
            ALIGNED,
            "Published: PK's for GPT-2 small. The circuit's heads are inferred: read off figure 1, two fitted.",
        ),
    ),
    "pk_table2": Item(
        "How well a score finds the pairs of heads of one class, mean over kinds and classes (PK table 2)",
        needs=("overlaps", "affinity"),
        notes=(
            "All unordered pairs of heads, by Q, K, V and O; positive: both of a class. PR-AUC: scikit-learn's curve.",
            ALIGNED,
            "Published: PK's for GPT-2 small; the protocol and the classes are inferred.",
        ),
    ),
    "pk_kl": Item(
        "How far the distribution of PK is from that of random subspaces (PK figure 8)",
        needs=("overlaps", "affinity"),
        notes=(
            EARLIER,
            "kl: KL(random || observed) in nats over 255 equal bins from 0 to d; random: normal approximation.",
            "∞ (inf in the CSV): a bin is empty in which random subspaces would have ten pairs or more.",
            "Published: PK's for GPT-2 small, where a model of its shape is in this study.",
        ),
    ),
    "pk_means": Item(
        "Mean and standard deviation of PK beside those of random subspaces (PK section 4)",
        needs=("overlaps", "affinity"),
        notes=(EARLIER, "PK: squared Frobenius norm of U^T V for orthonormal bases of unfolded maps, from 0 to d."),
    ),
    "pk_edges": Item(
        "The 20 strongest pairs of each type by PK (PK figure 1)", needs=("overlaps", "affinity"), notes=(EARLIER,)
    ),
    "cs_edges": Item(
        "The 20 strongest pairs of each type by the Composition Score (PK figure 1)",
        needs=("overlaps", "affinity"),
        notes=(EARLIER, "Composition Score: Elhage's, of the full products, by query head on both sides."),
    ),
    "pk_degrees": Item(
        "Hubs of the graph of the 20 strongest pairs of each type by PK (PK section 5)",
        needs=("overlaps", "affinity"),
        uses=("attention",),
        notes=("Weights: sums of PK over a head's edges. PageRank: weighted, along the edges, damping 0.85.",),
    ),
    "pk_nodes": Item(
        "Heads in the graphs of the 20 strongest pairs of each type, in a known class and in none (PK figure 1)",
        needs=("overlaps", "affinity"),
        uses=("attention",),
    ),
    "pk_cutoffs": Item(
        "Cut-offs of the strongest 3 % of the pairs by PK and by the Composition Score (PK figure 5)",
        needs=("overlaps", "affinity"),
        notes=(
            EARLIER,
            "Cut-off: 97th percentile; limit: 99.99th. A key-value head's pair counts for each of its query heads.",
        ),
    ),
    "head_classes": Item(
        "Heads whose classes are known (PK table 8)",
        needs=("overlaps", "affinity"),
        notes=("Labelled: all that figure 1 colours. Number of heads: those that PK's tables count as the circuit's.",),
    ),
    "identity": Item(
        "Mean attention of heads to the token itself, the one before, and the one after an earlier copy (PK figure 7)",
        needs=("overlaps", "attention"),
        notes=(
            "Itself and before: over the text's tokens but the first of each window.",
            "Induction: on random tokens that repeat, from the second copy to the token after the first.",
        ),
    ),
}

FIGURES: Mapping[str, Item] = {
    "figure1": Item(
        "A write u reaches a reader as its projection p on the read space R; u - p is in the kernel (RW figure 1)",
        needs=(),
    ),
    "figure2": Item(
        "Share of pairs whose ρ is at least a given value, in the layer of the upper median spread (RW figure 2)",
        needs=("overlaps", "nulls"),
        notes=("Lines: median over samples; bands: 5-95 % of the samples. Dotted: isotropic value.",),
    ),
    "figure3": Item(
        "Observed spread of ρ over the largest null sample's, every condition (RW figure 3)",
        needs=("overlaps", "nulls"),
        notes=(SPREAD, "Bars: medians; numbers: conditions with r > 1 of all. Triangles: r at most 1."),
    ),
    "figure4": Item(
        "Measured share of a write's energy that is projected on a read space, against ρ (RW figure 4)",
        needs=("overlaps", "activations"),
        notes=("Above: number of pairs (log scale), dashed: equality. Below: the ratio; median, 5-95 %, dashed: 1.",),
    ),
    "figure5": Item(
        "Rank correlation of ρ with the measured share in each layer pair; linear term against ρ (RW figure 5)",
        needs=("overlaps", "activations"),
        notes=("Bars: medians over layer pairs.",),
    ),
    "figure6": Item(
        "Mean and spread of ρ within a layer, by depth (RW figure 6)",
        notes=(SPREAD, "Dotted: isotropic value and the standard deviation of ρ for two random subspaces."),
    ),
    "figure7": Item(
        "Median and 95th percentile of ρ within a layer, against the null models (RW figure 7)",
        needs=("overlaps", "nulls"),
        notes=("Bars: 5-95 % of the samples. Dotted: isotropic value.",),
    ),
    "figure8": Item(
        "Spread of ρ within a layer and the largest null sample's (RW figure 8)",
        needs=("overlaps", "nulls"),
        notes=(SPREAD,),
    ),
    "figure9": Item(
        "Ratio r of the spread, and the direction of the mean against all null samples, by layer pair (RW figure 9)",
        needs=("overlaps", "nulls"),
        notes=(SPREAD, ALL_SAMPLES, RATIO),
    ),
    "pk_figure1": Item(
        "The 20 strongest pairs of each type as a graph, by PK and by the Composition Score (PK figure 1)",
        needs=("overlaps", "affinity"),
        uses=("attention",),
        notes=(
            "Inside the ring: heads of a class. Outside: other heads by layer, clockwise from the top.",
            KEY_VALUE_HEADS,
        ),
    ),
    "pk_figure4": Item(
        "PK of all pairs of a model of two layers (PK figure 4)",
        needs=("overlaps", "affinity"),
        uses=("attention",),
        notes=(
            "A line at PK's mean for random subspaces has no width, one at the model's largest PK the full width.",
            "Classes: by attention, at least 0.4.",
        ),
    ),
    "pk_figure5": Item(
        "PK against the Composition Score (PK figure 5)",
        needs=("overlaps", "affinity"),
        notes=("Dashed: the strongest 3 %. Axes end at the 99.99th percentile.",),
    ),
    "pk_figure6": Item(
        "The 20 strongest pairs of each type by PK, layers upwards (PK figure 6)",
        needs=("overlaps", "affinity"),
        uses=("attention",),
        notes=(
            "Writes leave a head at its top; queries, keys and values enter at its bottom, from the left.",
            "Words, of models that were run: tokens whose centred unembedding vectors lie closest to the write space.",
            KEY_VALUE_HEADS,
        ),
    ),
    "pk_figure7": Item(
        "What heads attend to: the token itself, the one before, the one after an earlier copy (PK figure 7)",
        needs=("overlaps", "attention"),
    ),
    "pk_figure8": Item(
        "How far the distribution of PK is from that of random subspaces (PK figure 8)",
        needs=("overlaps", "affinity"),
        notes=("Rows: earlier heads. ∞: a bin is empty in which random subspaces would have ten pairs or more.",),
    ),
}


def possible(items: Mapping[str, Item], stages: Collection[str]) -> list[str]:
    """Return the names of the items that a study with these stages can make, in order."""
    return [name for name, item in items.items() if set(item.needs) <= set(stages)]


def stages_read(item: Item, stages: Collection[str]) -> list[str]:
    """Return the stages whose files an item reads in a study with these stages, in order."""
    return [stage for stage in (*item.needs, *item.uses) if stage in stages]
