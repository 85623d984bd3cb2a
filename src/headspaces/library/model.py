"""A model's head spaces, what :func:`headspaces.load` gives; heavy imports wait until numbers are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headspaces.library.answers import Answers
from headspaces.library.comparisons import OF_THE_PAPER, check_count, check_one_kind, check_order, check_spaces
from headspaces.library.effects import MeasuredEffects
from headspaces.library.source import HeadSource, summary
from headspaces.spaces import Shape

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class ModelSpaces(MeasuredEffects):
    """The spaces that a model's heads read from and write to, and how they overlap.

    Made by :func:`headspaces.load`. Methods take the name of a comparison, ``spaces``: one letter of ``OQKV`` for all
    pairs of one kind within each layer; two letters for every head of a layer with every head of all later layers
    (``OK``: writes with later keys' reads), any of the 16. They also take

    fold
        Whether norms are folded into the spaces; by default what :func:`headspaces.load` was told.
    rank_rtol
        Tolerance of ranks, likewise.
    leading
        How many of a head's most weighted directions span its space; all by default.

    Numbers are computed when asked for, bases kept while below 2 GiB. Examples have numpy as np, headspaces as hs.

    Attributes
    ----------
    heads : HeadSource
        What is known without weights: ``name``, ``origin``, ``revision``, ``architecture``, ``layout``, ``norm``,
        ``shape``, ``kinds``, ``dtypes``, ``notes``.
    answers : Answers
        Where the numbers come from, as bare arrays.

    Examples
    --------
    >>> model = hs.load({"O": np.ones((3, 4, 16, 2)), "K": np.ones((3, 2, 16, 2))}, name="m")
    >>> model.name, model.kinds, model.comparisons, model.shape.n_kv_heads
    ('m', 'OK', ('O', 'K', 'OK'), 2)
    """

    def __init__(self, heads: HeadSource, fold: bool, rank_rtol: float | None, overlaps_file: Path | None) -> None:
        self.heads = heads
        self.answers = Answers(heads, fold, rank_rtol, overlaps_file)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.heads.name

    @property
    def shape(self) -> Shape:
        """Numbers and widths of layers and heads."""
        return self.heads.shape

    @property
    def kinds(self) -> str:
        """The kinds of heads that are there, letters of ``OQKV``."""
        return self.heads.kinds

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, one sentence each."""
        return self.heads.notes

    @property
    def comparisons(self) -> tuple[str, ...]:
        """The comparisons of RW that the model allows: ``O`` … ``V`` within layers, ``OQ``, ``OK``, ``OV`` across."""
        return tuple(name for name in OF_THE_PAPER if set(name) <= set(self.kinds))

    def __repr__(self) -> str:
        return summary(self.heads, self.answers.fold)

    def spaces(self, kind: str, *, fold: bool | None = None, rank_rtol: float | None = None) -> xr.Dataset:
        """Return orthonormal bases, singular values and ranks of all spaces of one kind.

        Parameters
        ----------
        kind
            ``O``, ``Q``, ``K`` or ``V``.
        fold, rank_rtol
            See the class.

        Returns
        -------
        xarray.Dataset
            ``basis`` (layer, head, d_model, direction): orthonormal columns, the most weighted direction first, zero
            beyond the rank; ``singular_values`` (layer, head, direction) of the head's map, descending; ``rank``
            (layer, head). Float64, no units.

        Raises
        ------
        InputError
            If there is no such kind, or the weights cannot be read.

        Examples
        --------
        >>> model = hs.load({"O": np.random.default_rng(0).normal(size=(3, 4, 16, 2))})
        >>> dict(model.spaces("O").sizes)
        {'layer': 3, 'head': 4, 'd_model': 16, 'direction': 2}
        >>> np.linalg.norm(model.spaces("O")["basis"].sel(layer=1, head=2), axis=0).round(12).tolist()
        [1.0, 1.0]
        """
        from headspaces.library.labels import label_spaces

        name = check_spaces(kind, self.kinds, self.name)
        check_one_kind(name, self.name)
        found = self.answers.computed(fold, rank_rtol).all_layers([name])[name]
        return label_spaces(found, self.answers.attributes(name, fold, rank_rtol, None))

    def overlaps(
        self, spaces: str, *, fold: bool | None = None, rank_rtol: float | None = None, leading: int | None = None
    ) -> xr.DataArray:
        """Return rho, the projection kernel over the smaller of the two ranks (RW 4.2), of all pairs of a comparison.

        Parameters
        ----------
        spaces, fold, rank_rtol, leading
            See the class.

        Returns
        -------
        xarray.DataArray
            Float64 from 0 to 1. Across layers (writer_layer, reader_layer, writer_head, reader_head), NaN unless the
            reader's layer is later; within (layer, head, other_head), 1 on the diagonal. NaN where a space is empty.

        Raises
        ------
        InputError
            If there is no such comparison, or the weights cannot be read.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> model = hs.load({kind: rng.normal(size=(3, 4, 16, 2)) for kind in "OK"})
        >>> rho = model.overlaps("OK")
        >>> rho.dims
        ('writer_layer', 'reader_layer', 'writer_head', 'reader_head')
        >>> float(rho.sel(writer_layer=0, reader_layer=2, writer_head=1, reader_head=3).round(4))
        0.1347
        """
        from headspaces.geometry.pairs import normalised

        name = check_spaces(spaces, self.kinds, self.name)
        squared, smaller = self.answers.geometry(name, fold, rank_rtol, leading).kernel(name)
        rho = normalised(squared, smaller)
        return self._labelled(rho, name, ("overlap rho", "1"), fold, rank_rtol, leading)

    def projection_kernel(
        self, spaces: str, *, fold: bool | None = None, rank_rtol: float | None = None, leading: int | None = None
    ) -> xr.DataArray:
        """Return PK, the sum of the squared cosines of all principal angles, of all pairs of a comparison.

        Parameters
        ----------
        spaces, fold, rank_rtol, leading
            See the class. PK's own numbers are unfolded.

        Returns
        -------
        xarray.DataArray
            Float64 from 0 to the smaller rank; axes as in :meth:`overlaps`.

        Raises
        ------
        InputError
            If there is no such comparison, or the weights cannot be read.

        Examples
        --------
        >>> model = hs.load({"O": np.random.default_rng(0).normal(size=(2, 3, 16, 2))})
        >>> model.projection_kernel("O").sel(layer=0).values.diagonal().round(12).tolist()
        [2.0, 2.0, 2.0]
        """
        name = check_spaces(spaces, self.kinds, self.name)
        squared, _ = self.answers.geometry(name, fold, rank_rtol, leading).kernel(name)
        return self._labelled(squared, name, ("projection kernel", "1"), fold, rank_rtol, leading)

    def angles(
        self, spaces: str, *, fold: bool | None = None, rank_rtol: float | None = None, leading: int | None = None
    ) -> xr.DataArray:
        """Return the smallest principal angle of all pairs of a comparison.

        Parameters
        ----------
        spaces, fold, rank_rtol, leading
            See the class.

        Returns
        -------
        xarray.DataArray
            Degrees, float64 from 0 to 90 with an error below 1e-6; axes as in :meth:`overlaps`.

        Raises
        ------
        InputError
            If there is no such comparison, or the weights cannot be read.

        Examples
        --------
        >>> axes = np.eye(4).reshape(1, 4, 4, 1)[:, :2]  # two heads that write to one axis each
        >>> hs.load({"O": axes}).angles("O").values.tolist()
        [[[0.0, 90.0], [90.0, 0.0]]]
        """
        name = check_spaces(spaces, self.kinds, self.name)
        found = self.answers.geometry(name, fold, rank_rtol, leading).angles(name)
        return self._labelled(found, name, ("smallest principal angle", "degree"), fold, rank_rtol, leading)

    def top_pairs(
        self,
        spaces: str = "OK",
        k: int | None = 20,
        *,
        by: str = "rho",
        fold: bool | None = None,
        rank_rtol: float | None = None,
        leading: int | None = None,
    ) -> pd.DataFrame:
        """Return the pairs of a comparison that overlap most, strongest first.

        Parameters
        ----------
        spaces, fold, rank_rtol, leading
            See the class.
        k
            How many pairs; None for all.
        by
            ``rho``, ``pk`` or ``angle_deg`` (smallest first). Ties go to earlier layers and heads.

        Returns
        -------
        pandas.DataFrame
            ``writer`` and ``reader`` as ``layer.head``, such as ``4.11`` (within layers ``head`` and ``other_head``);
            ``pk``; ``rho``; ``angle_deg``, the smallest principal angle in degrees; where the results hold them for
            edges from writes to reads, ``effect`` in nats. Fewer rows where there are fewer pairs.

        Raises
        ------
        InputError
            If there is no such comparison, ``k`` or ``by`` is wrong, or the weights cannot be read.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> model = hs.load({kind: rng.normal(size=(3, 4, 16, 2)) for kind in "OK"})
        >>> model.top_pairs("OK", k=2).round(3)
          writer reader     pk    rho  angle_deg
        0    0.0    1.0  0.583  0.291     55.056
        1    0.3    1.0  0.567  0.284     48.753
        """
        from headspaces.library.ranking import ranked_pairs

        name = check_spaces(spaces, self.kinds, self.name)
        check_count(k, "k", self.name)
        check_order(by, self.name)
        geometry = self.answers.geometry(name, fold, rank_rtol, leading)
        return ranked_pairs(geometry, name, k, by, self.answers.effects(name))

    def spectra(self, *, fold: bool | None = None, rank_rtol: float | None = None) -> pd.DataFrame:
        """Return how many directions every head's map uses.

        Parameters
        ----------
        fold, rank_rtol
            See the class.

        Returns
        -------
        pandas.DataFrame
            A row for each head: ``kind``; ``head`` as ``layer.head``; ``rank``, numerical; ``stable_rank``,
            ``||W||_F^2 / ||W||_2^2``; ``entropy_rank``, the exponential of the entropy of the singular values' shares
            (Roy and Vetterli 2007). No units. Zero maps have rank 0 and no other value (NaN).

        Raises
        ------
        InputError
            If the weights cannot be read.

        Examples
        --------
        >>> hs.load({"O": np.eye(4)[:, :3].reshape(1, 1, 4, 3)}).spectra().round(9)
          kind head  rank  stable_rank  entropy_rank
        0    O  0.0     3          3.0           3.0
        """
        from headspaces.library.ranking import spectra_frame

        return spectra_frame({kind: self.answers.computed(fold, rank_rtol).each_layer(kind) for kind in self.kinds})

    def _labelled(self, values: Any, spaces: str, quantity: tuple[str, str], *settings: Any) -> xr.DataArray:
        from headspaces.library.labels import label_pairs

        return label_pairs(values, spaces, quantity, self.answers.attributes(spaces, *settings))
