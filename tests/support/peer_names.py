"""TransformerLens 4.3's names of the projection kernel, over this library's functions: what its own unit tests call.

Only names, axes, units and defaults are translated (the tolerance of ranks, radians, the normalisation, zeros for pairs
that are not there); every number comes from the library, and nothing is checked here.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import headspaces as hs
from headspaces.geometry.statistics import isotropic_mean, isotropic_sd


@dataclass
class SubspaceBasis:
    basis: torch.Tensor
    singular_values: torch.Tensor
    rank: int
    measured_rank: int
    rtol: float
    threshold: float
    input_shape: tuple[int, int]

    @property
    def ambient_dim(self) -> int:
        return self.basis.shape[0]


def default_rtol(width: int, dtype: torch.dtype) -> float:
    return width * torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps


def orthonormal_subspace(matrix: torch.Tensor, *, rank: Any = None, rtol: Any = None) -> SubspaceBasis:
    rtol = default_rtol(max(matrix.shape), matrix.dtype) if rtol is None else rtol
    found = hs.orthonormal_bases(matrix, rank_rtol=rtol)
    measured = int(found.rank)
    kept = measured if rank is None else rank
    threshold = float(found.singular_values[0]) * rtol
    return SubspaceBasis(
        found.basis[:, :kept], found.singular_values, kept, measured, rtol, threshold, tuple(matrix.shape)
    )


def projection_kernel(one: SubspaceBasis, other: SubspaceBasis, *, check_orthonormal: bool = True) -> SimpleNamespace:
    score = torch.tensor(hs.projection_kernel(one.basis, other.basis), dtype=torch.float64)
    angles = torch.deg2rad(hs.principal_angles(one.basis, other.basis))
    return SimpleNamespace(
        score=score, normalized=score / (one.rank * other.rank) ** 0.5, cosines=angles.cos(), angles=angles,
        rank_a=one.rank, rank_b=other.rank, ambient_dim=one.ambient_dim,
    )  # fmt: skip


def random_projection_kernel_moments(ambient_dim: int, rank: int) -> SimpleNamespace:
    mean, deviation = (rank * of_rho(ambient_dim, rank) for of_rho in (isotropic_mean, isotropic_sd))
    return SimpleNamespace(ambient_dim=ambient_dim, rank=rank, mean=mean, variance=deviation**2)


def _pairwise_projection_kernel(source: torch.Tensor, target: torch.Tensor, *, max_temp_bytes: int) -> torch.Tensor:
    return hs.projection_kernel(source, target)


class HeadAffinityResult(SimpleNamespace):
    def top_pairs(self, k: int = 20, *, normalized: bool = False) -> list[SimpleNamespace]:
        def end(head: str) -> SimpleNamespace:
            layer, number = map(int, head.split("."))
            return SimpleNamespace(layer=self.source_layer_indices[layer], head=number)

        frame = self.model.top_pairs(self.spaces, k, by="rho" if normalized else "pk", **self.settings)
        return [
            SimpleNamespace(source=end(row.writer), target=end(row.reader), score=row.pk) for row in frame.itertuples()
        ]


def attention_head_subspace_affinity(
    model: Any, *, source_role: str = "O", target_role: str, layer_order: str = "forward", rank: Any = None,
    rtol: float | None = None,
) -> HeadAffinityResult:  # fmt: skip
    layers, blocks = zip(*model.blocks_with("attn"), strict=True)
    weights = {role: torch.stack([getattr(block.attn, f"W_{role}").detach() for block in blocks]) for role in "OQKV"}
    weights["O"] = weights["O"].mT
    arrays = {role: weights[role] for role in (source_role, target_role)}
    shape, dtype = weights["Q"].shape, torch.promote_types(*(array.dtype for array in arrays.values()))
    rtol = default_rtol(max(shape[2:]), dtype) if rtol is None else rtol
    found, spaces = hs.load(arrays), source_role + target_role
    settings: dict[str, Any] = {"rank_rtol": rtol, "leading": rank}
    kernel = found.projection_kernel(spaces, **settings)
    scores = torch.from_numpy(kernel.transpose("writer_layer", "writer_head", "reader_layer", "reader_head").to_numpy())
    valid = torch.isfinite(scores)
    scores = torch.where(valid, scores, 0.0)
    measured = {role: torch.from_numpy(found.spaces(role, rank_rtol=rtol)["rank"].to_numpy()) for role in arrays}
    widths = [rank or array.shape[3] for array in arrays.values()]
    return HeadAffinityResult(
        model=found, spaces=spaces, settings=settings, scores=scores, normalized=scores / np.sqrt(np.prod(widths)),
        valid_mask=valid.contiguous(), source_layer_indices=layers, target_layer_indices=layers,
        source_head_kind="query", target_head_kind="query" if target_role == "Q" else "kv",
        source_ranks=measured[source_role], target_ranks=measured[target_role], source_rank=widths[0],
        target_rank=widths[1], rtol=rtol,
    )  # fmt: skip
