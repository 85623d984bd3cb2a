"""Headings and cells of the tables as a reader sees them: columns in words, numbers as RW rounds them."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from headspaces.report.document import MISSING
from headspaces.report.tidy_frames import missing, whole

METHODS = {"pk": "PK", "cs": "CS", "simple_cs": "Simple-CS", "cka": "linear CKA", "procrustes": "Procrustes"}
"""Names of the scores as PK writes them."""


class _Column(NamedTuple):
    """Heading of a column, and its decimals: at most, where several quantities share it and digits are limited."""

    heading: str
    decimals: int = 3
    digits: int | None = None


_COLUMNS = {
    "d_model": _Column("D"),
    "d_head": _Column("d"),
    "n_kv_heads": _Column("key-value heads"),
    "total_width": _Column("width"),
    "isotropic": _Column("isotropic d/D", 4),
    "random_sd": _Column("random sd", 4),
    "sampled_mean": _Column("sampled mean", 4),
    "sampled_sd": _Column("sampled sd", 4),
    "spread": _Column("spread", 4),
    "spread_rho": _Column("spread"),
    "min_angle_sine": _Column("its sine", 4),
    "n_pairs_below_1deg": _Column("pairs below 1°"),
    "median_min_angle_deg": _Column("median smallest angle (°)", 1),
    "observed_min_angle_deg": _Column("observed smallest angle (°)", 3),
    "reassignment_min_angle_deg": _Column("reassignment, smallest angle (°)", 3),
    "lambda_min_low": _Column("λ min, low"),
    "lambda_min_high": _Column("λ min, high"),
    "bound_high": _Column("λ min / H, high"),
    "condition_low": _Column("σ / σ max, low"),
    "random_condition": _Column("the same of random heads"),
    "min_max_rho": _Column("min max ρ"),
    "n_below_isotropic": _Column("layer pairs below isotropic"),
    "n_layers_below_10deg": _Column("layers below 10°"),
    "n_above_all": _Column("above all samples"),
    "n_samples": _Column("samples of each null"),
    "r_median": _Column("median r", 1),
    "mean_isotropic_ratio": _Column("mean / isotropic", 2),
    "spread_random_sd_ratio": _Column("spread / random sd", 1),
    "expected_above_all": _Column("of these by chance", 1),
    "ratio_median": _Column("median ratio", 1),
    "n_removed": _Column("how many"),
    "removed": _Column("taken out"),
    "mean_left": _Column("mean, part left", 2),
    "spread_left": _Column("spread, part left", 2),
    **{
        f"singular_{name}": _Column(f"singular value, {words}", 3, digits=3)
        for name, words in {
            "p95": "95 %",
            "p5": "5 %",
            **{word: word for word in ("first", "second", "median")},
        }.items()
    },
    "gain_max": _Column("largest gain", 2),
    "gain_median": _Column("median gain", 2),
    "participation": _Column("coordinates of the closest direction", 1),
    "q": _Column("p, false discovery rate"),
    "p_all": _Column("p over all conditions"),
    "p_condition": _Column("p over the condition"),
    "z": _Column("z", 1),
    "largest_z": _Column("its z", 1),
    "mean_z": _Column("z of the mean", 1),
    "mean_score": _Column("mean score", 2),
    "largest_score": _Column("largest score", 1),
    "share": _Column("share of the norm"),
    "n_fdr_5": _Column("stand at FDR 5 %"),
    "n_fdr_1": _Column("stand at FDR 1 %"),
    "n_all_5": _Column("stand at 5 % over all conditions"),
    "n_above_all_pairs": _Column("above all pairs of all samples"),
    "expected_above_all_pairs": _Column("of these by chance, at most", 1),
    "n_strongest": _Column("PK's strongest"),
    "n_strongest_fdr_1": _Column("of them stand at FDR 1 %"),
    "swap_z": _Column("z, swap", 1),
    "swap_p": _Column("p, swap"),
    "effect": _Column("effect A (nats)", 5),
    "absolute_effect": _Column("sum of |A| (nats)", 3),
    "largest_effect": _Column("largest A (nats)", 5),
    "largest_mean_change": _Column("largest change of a mean"),
    "duplicate_of": _Column("weights of step"),
    "r_rw": _Column("median r, RW's nulls", 2),
    "r_swap": _Column("median r, swap", 2),
    "n_above_all_rw": _Column("above all samples of RW's nulls"),
    "n_above_all_swap": _Column("above all samples of swap"),
    "effect_sum": _Column("sum of |A| (nats)"),
    "spearman_effect": _Column("Spearman of ρ and |A|", 2),
    "rho_last": _Column("ρ with the last step"),
    "rho_previous": _Column("ρ with the step before"),
    "angle_last_deg": _Column("angle to the last step (°)", 1),
    "angle_previous_deg": _Column("angle to the step before (°)", 1),
    "travelled_deg": _Column("way so far (°)", 1),
    "rotation_ratio_median": _Column("median ratio to rotation", 1),
    "reassignment_ratio_median": _Column("median ratio to reassignment", 1),
    "n_mean_below_all": _Column("mean below all samples"),
    "n_mean_above_all": _Column("mean above all samples"),
    "n_spread_above_all": _Column("spread above all samples"),
    **{
        f"{ratio}_{end}": _Column(f"{words}, {end}", 1)
        for ratio, words in (("mean_isotropic_ratio", "mean / isotropic"), ("spread_random_sd_ratio", "spread / sd"))
        for end in ("low", "high")
    },
    **{
        f"{name}_{end}": _Column(f"{name.replace('_', ' ')}, {end}", 4, digits=4)
        for name in ("observed", "sample", "sample_mean")
        for end in ("low", "high")
    },
    **{
        f"{null}_{name}": _Column(f"{null}, {words}", decimals)
        for null in ("rotation", "reassignment")
        for name, words, decimals in (
            ("mean_rho", "mean ρ", 3),
            ("spread_mean", "mean spread", 4),
            ("spread_max", "largest spread", 4),
            ("spread_p", "p", 3),
        )
    },
    "kl": _Column("KL (nats)"),
    **{f"kl_{edges}": _Column(f"KL, {edges - 1} bins") for edges in (128, 256, 1024)},
    "left_out_256": _Column("of the reference left out, 255 bins"),
    "distance_sds": _Column("distance (random sds)", 2),
    "mean_sds": _Column("mean (random sds)", 2),
    "sd_ratio": _Column("sd / random sd", 2),
    "pagerank": _Column("PageRank"),
    **{f"weight{end}": _Column(f"weight{end.replace('_', ' ')}", 1) for end in ("", "_in", "_out")},
    **{f"{side}_{kind}": _Column(f"{side}, {kind.upper()}") for side in ("in", "out") for kind in ("oq", "ok", "ov")},
    "pk": _Column("PK", 1),
    "cs": _Column("CS", 4),
    **{f"pk_{name}": _Column(f"PK {name.replace('cutoff', 'cut-off')}", 2) for name in ("cutoff", "limit")},
    **{f"cs_{name}": _Column(f"CS {name.replace('cutoff', 'cut-off')}", 4) for name in ("cutoff", "limit")},
    "max_weighted": _Column("largest weighted score", 1),
    **{
        f"{name}_{end}": _Column(f"{words}, mean ρ, {end}")
        for name, words in (("own_mean", "own spaces"), ("others_mean", "different heads"))
        for end in ("low", "high")
    },
    "p_high": _Column("largest p"),
    "n_smallest_p": _Column("layers of smallest possible p"),
    "random_sds": _Column("random sds from isotropic", 1),
    "isotropic_ratio": _Column("ratio to isotropic", 2),
    "isotropic_difference": _Column("mean less isotropic", 4),
    "mean_outside": _Column("mean outside all samples (1 above, -1 below)"),
    "mean_rho_difference": _Column("difference of the means", 6),
    "spread_difference": _Column("difference of the spreads", 6),
    "max_abs_difference": _Column("largest difference of ρ", 7),
    "median_abs_difference": _Column("median difference of ρ", 7),
    "max_relative_difference": _Column("largest relative difference", 5),
    "spread_other": _Column("spread, other", 4),
    "window_tokens": _Column("tokens of a window"),
    "loss_nats_per_token": _Column("loss (nats per token)"),
    "n_cross_term_positive": _Column("pairs of positive cross term"),
    "n_layer_pairs_negative": _Column("layer pairs of negative correlation"),
    **{
        f"{what}_{name}": _Column(f"{name.capitalize()} of ρ and {words}")
        for what, words in (("energy", "energy"), ("linear", "linear term"), ("composition", "composition score"))
        for name in ("spearman", "pearson")
    },
    **{
        f"layer_pair_spearman_{name}": _Column(f"Spearman of ρ and energy in a layer pair, {name}")
        for name in ("low", "median", "high")
    },
}
_WORDS = {"rho": "ρ", "p95": "95th percentile", "over": "/", "min": "smallest", "max": "largest"}
_LAST_WORDS = {
    **{word: word for word in ("low", "high", "median", "other", "invariant")},
    "sum": "of sums",
    "p5": "5 %",
    "p95": "95 %",
}


def column_heading(column: str) -> str:
    """Return a column's heading: the listed one, or its name in words with the unit in brackets."""
    if column in _COLUMNS:
        return _COLUMNS[column].heading
    name, unit = (column.removesuffix("_deg"), " (°)") if column.endswith("_deg") else (column, "")
    words = name.removeprefix("n_").replace("pr_auc", "PR-AUC").replace("roc_auc", "ROC-AUC").split("_")
    last = ", " + _LAST_WORDS[words.pop()] if len(words) > 1 and words[-1] in _LAST_WORDS else ""
    return " ".join(_WORDS.get(word, word) for word in words) + last + unit


def shown(value: Any, column: str) -> str:
    """Write one cell for the reader: rounded, never a rounded-off zero for a number that is not zero.

    A dash stands for a missing value, a heading for the name of a quantity, PK's name for that of a score. An
    eigenvalue that is exactly 0 has no decimals.
    """
    if missing(value) or value == "":
        return MISSING
    if isinstance(value, str):
        if column == "quantity":
            return column_heading(value)
        return METHODS.get(value, value) if column == "method" else value
    if whole(value) or (value == 0 and column.startswith(("lambda_min", "bound"))):
        return str(int(value))
    return _rounded(float(value), _decimals(column, float(value)))


def _decimals(column: str, value: float) -> int:
    if column in _COLUMNS:
        _, decimals, digits = _COLUMNS[column]
        if digits is None or value == 0 or math.isinf(value):
            return decimals
        return max(0, min(decimals, digits - 1 - math.floor(math.log10(abs(value)))))
    if column.endswith("_deg"):
        return 2
    return 1 if "ratio" in column else 3


def _rounded(value: float, decimals: int) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    # Halves are rounded up as on paper: d/D = 0.03125 is RW's 0.0313, where binary formatting gives 0.0312.
    text = str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))
    if float(text) != 0:
        return text
    return f"{0:.{decimals}f}" if value == 0 else f"{value:.1e}"
