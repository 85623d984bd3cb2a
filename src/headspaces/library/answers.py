"""Where a model's numbers come from: the pipeline's results where they fit a question, else the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspaces.errors import InputError
from headspaces.library.comparisons import check_count
from headspaces.library.source import HeadSource
from headspaces.spaces import ACROSS

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int

    from headspaces.library.overlaps_of import ComputedGeometry, Geometry


class Answers:
    """The geometry of a model under given settings.

    Parameters
    ----------
    heads
        Where the heads come from.
    fold, rank_rtol
        What holds where a question says nothing: whether norms are folded, and the tolerance of ranks or None for RW's.
    overlaps_file
        An overlaps file of the pipeline, or None.
    """

    def __init__(self, heads: HeadSource, fold: bool, rank_rtol: float | None, overlaps_file: Path | None) -> None:
        self.fold = fold
        self._heads, self._rank_rtol, self._overlaps_file = heads, rank_rtol, overlaps_file
        self._computed: dict[tuple[bool, float, int | None], ComputedGeometry] = {}

    def settings(self, fold: bool | None, rank_rtol: float | None) -> tuple[bool, float]:
        """Return whether norms are folded and the tolerance of ranks, given those or by default."""
        from headspaces.geometry.bases import RANK_RTOL

        tolerance = self._rank_rtol if rank_rtol is None else rank_rtol
        tolerance = RANK_RTOL if tolerance is None else float(tolerance)
        if not 0 <= tolerance < 1:
            raise InputError(f"{self._heads.name}: rank_rtol is {tolerance}, expected a number from 0 to below 1")
        return self.fold if fold is None else bool(fold), tolerance

    def computed(self, fold: bool | None, rank_rtol: float | None, leading: int | None = None) -> ComputedGeometry:
        """Return the geometry that is computed from the weights under some settings."""
        from headspaces.library.overlaps_of import ComputedGeometry

        check_count(leading, "leading", self._heads.name)
        key = (*self.settings(fold, rank_rtol), leading)
        if key not in self._computed:
            # One set of bases at a time is kept in memory.
            self._computed = {key: ComputedGeometry(self._heads.read, self._heads.shape, *key)}
        return self._computed[key]

    def geometry(
        self, spaces: str, fold: bool | None = None, rank_rtol: float | None = None, leading: int | None = None
    ) -> Geometry:
        """Return what answers for a comparison: the pipeline's results where they fit, else the weights."""
        stored = self._stored(spaces, fold, rank_rtol) if leading is None else None
        return stored or self.computed(fold, rank_rtol, leading)

    def origin_of(self, spaces: str) -> str:
        """Return where the numbers of a comparison come from: a file of the pipeline, or the weights."""
        found = self._stored(spaces, None, None) is not None
        return str(self._overlaps_file) if found else "computed from the checkpoint"

    def _stored(self, spaces: str, fold: bool | None, rank_rtol: float | None) -> Geometry | None:
        if self._overlaps_file is None:
            return None
        from headspaces.library.overlaps_of import StoredGeometry, dataset
        from headspaces.library.results import stored_results

        results = stored_results(self._overlaps_file, self._heads, *self.settings(fold, rank_rtol))
        return StoredGeometry(results) if results and dataset(spaces, "rho") in results.overlaps else None

    def effects(self, spaces: str) -> np.ndarray | None:
        """Return the first-order effects of a comparison's edges on the first loss, where the pipeline has them."""
        if self._overlaps_file is None or spaces not in ACROSS:
            return None
        from headspaces.library.results import stored_effects

        return stored_effects(self._overlaps_file, self._heads, spaces[1])

    def within_rounding(self, *, read_weights: bool) -> dict[str, Int[np.ndarray, "layer head"]]:
        """Count every head's directions that the storage's rounding may have made, by kind.

        -1 where the rounding of a type is not known. Counts come from the pipeline's results where they fit; else from
        the weights, or there are none where these are not to be read.
        """
        kinds = self._heads.kinds
        if self._overlaps_file is not None:
            from headspaces.library.results import stored_results

            results = stored_results(self._overlaps_file, self._heads, *self.settings(None, None))
            arrays = results.overlaps if results else {}
            if all(f"within_rounding/{kind}" in arrays for kind in kinds):
                return {kind: arrays[f"within_rounding/{kind}"] for kind in kinds}
        if not read_weights:
            return {}
        import numpy as np

        from headspaces.geometry.rounding import directions_within_rounding

        counts: dict[str, list[np.ndarray]] = {kind: [] for kind in kinds}
        _, rank_rtol = self.settings(None, None)
        for heads in self._heads.read(kinds):
            for kind, factors in heads.factors.items():
                counts[kind].append(directions_within_rounding(factors, kind, heads.dtypes.get(kind, ""), rank_rtol))
        return {kind: np.stack(rows) for kind, rows in counts.items()}

    def attributes(
        self, spaces: str, fold: bool | None, rank_rtol: float | None, leading: int | None
    ) -> dict[str, Any]:
        """Return what the attributes of a labelled array say."""
        folded, tolerance = self.settings(fold, rank_rtol)
        return {
            "model": self._heads.name,
            "source": self._heads.origin,
            "revision": self._heads.revision,
            "spaces": spaces,
            "fold": int(folded),
            "rank_rtol": tolerance,
            "leave_out_rounding": int(self._heads.leave_out_rounding),
            **({"leading": leading} if leading is not None else {}),
        }
