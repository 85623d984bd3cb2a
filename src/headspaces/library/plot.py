"""Drawings of the library, by the functions that draw the report: matplotlib axes in, axes out.

Colours and sizes are those of the report's figures, in the axes that are given, whatever matplotlib's settings are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headspaces.errors import InputError
from headspaces.library.model import ModelSpaces
from headspaces.report.results import ModelResults
from headspaces.spaces import ACROSS

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

LAYOUTS = ("ring", "layers")
"""How :func:`graph` places heads: those of no class in a ring, or layers upwards."""


def heatmap(values: xr.DataArray, axes: Axes | None = None) -> Axes:
    """Draw a matrix as colours, rows upwards (the function of PK's figure 7).

    Parameters
    ----------
    values
        Two axes, such as ``model.overlaps("O").sel(layer=3)``.
    axes
        Where to draw; by default new axes of a figure of its own. Pyplot does not know that figure: a notebook shows
        what is drawn in axes of ``plt.subplots()``.

    Returns
    -------
    matplotlib.axes.Axes
        With a colour bar beside them. Colours go from 0 to 1, or to the largest value where that is more.

    Raises
    ------
    InputError
        If there are other than two axes, or matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> model = hs.load({"O": np.random.default_rng(0).normal(size=(2, 4, 16, 2))})
    >>> axes = hs.plot.heatmap(model.overlaps("O").sel(layer=1))
    >>> axes.get_ylabel(), axes.get_xlabel()
    ('head', 'other_head')
    """
    if values.ndim != 2:
        raise InputError(f"heatmap: expected two axes, got {', '.join(map(str, values.dims))}; choose with .sel()")
    rows, columns = (str(name) for name in values.dims)
    filled = values.to_numpy()
    index = np.indices(filled.shape)
    frame = pd.DataFrame({"layer": index[0].ravel(), "head": index[1].ravel(), "value": filled.ravel()})

    def draw(axes: Axes) -> None:
        from headspaces.report.figures.pk_panels import attention_map

        attention_map(frame, axes)
        mesh = axes.collections[-1]
        mesh.set_clim(0, max(1.0, float(np.nanmax(filled, initial=0.0))))
        axes.set(xlabel=columns, ylabel=rows)
        axes.figure.colorbar(mesh, ax=axes, label=str(values.attrs.get("long_name", values.name or "")))

    return _drawn(draw, axes)


def graph(model: ModelSpaces, axes: Axes | None = None, *, layout: str = "ring", fold: bool | None = None) -> Axes:
    """Draw the graph of the 20 strongest pairs of each type, OQ, OK and OV, by PK (PK's figures 1 and 6).

    Parameters
    ----------
    model
        A model with all four kinds of heads and more than one layer.
    axes
        Where to draw; by default new axes of a figure of its own. Pyplot does not know that figure: a notebook shows
        what is drawn in axes of ``plt.subplots()``.
    layout
        ``ring``, or ``layers``: layers upwards.
    fold
        As in :class:`ModelSpaces`; PK's own graphs are unfolded.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the model has no such pairs, the layout is unknown, or matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> rng = np.random.default_rng(0)
    >>> model = hs.load({kind: rng.normal(size=(3, 4, 16, 2)) for kind in "OQKV"})
    >>> axes = hs.plot.graph(model, layout="layers")
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['0', '1', '2']
    """
    if layout not in LAYOUTS:
        raise InputError(f"graph: layout is {layout!r}, expected one of {', '.join(LAYOUTS)}")
    pk = {f"pk/{spaces}": model.projection_kernel(spaces, fold=fold).values for spaces in ACROSS}
    if not any(np.isfinite(values).any() for values in pk.values()):
        raise InputError(f"{model.name}: has no pair of a head and one of a later layer to draw")
    results = ModelResults(model.name, _attributes(model), {}, affinity=pk)

    def draw(axes: Axes) -> None:
        from headspaces.report.figures import layered, pk_panels
        from headspaces.report.figures.pk_numbers import pk_figure1, pk_figure6

        if layout == "ring":
            pk_panels.ring_graph(pk_figure1([results]), axes)
        else:
            layered.layered_graph(pk_figure6([results]), axes)

    return _drawn(draw, axes)


def layers(model: ModelSpaces, axes: Axes | None = None, *, quantity: str = "mean", fold: bool | None = None) -> Axes:
    """Draw the mean or the spread of rho within every layer, a line for each kind (RW figure 6).

    Parameters
    ----------
    model
        The model.
    axes
        Where to draw; by default new axes of a figure of its own. Pyplot does not know that figure: a notebook shows
        what is drawn in axes of ``plt.subplots()``.
    quantity
        ``mean`` or ``spread`` (standard deviation, ddof = 0). Dotted, what random subspaces give.
    fold
        As in :class:`ModelSpaces`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If no layer has a pair, the quantity is unknown, or matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import headspaces as hs
    >>> model = hs.load({"O": np.random.default_rng(0).normal(size=(5, 4, 16, 2))})
    >>> axes = hs.plot.layers(model, quantity="spread")
    >>> axes.get_ylabel()
    'spread of ρ'
    """
    if quantity not in ("mean", "spread"):
        raise InputError(f"layers: quantity is {quantity!r}, expected mean or spread")
    arrays: dict[str, np.ndarray] = {}
    for kind in model.kinds:
        arrays[f"within/{kind}/rho"] = model.overlaps(kind, fold=fold).values
        # Mean and spread ask for no angle.
        arrays[f"within/{kind}/angle"] = np.full(arrays[f"within/{kind}/rho"].shape, np.nan)
    results = ModelResults(model.name, _attributes(model), arrays)

    def draw(axes: Axes) -> None:
        from headspaces.report.figures.numbers import figure6 as numbers
        from headspaces.report.figures.panels import lines_by_layer

        frame = numbers([results])
        if frame.empty:
            raise InputError(f"{model.name}: no layer has two heads of one kind")
        lines_by_layer(frame[frame["quantity"] == quantity], axes)

    return _drawn(draw, axes)


def _attributes(model: ModelSpaces) -> dict[str, Any]:
    return {"model": model.name, **asdict(model.shape)}


def _drawn(draw: Callable[[Axes], None], axes: Axes | None) -> Axes:
    """Draw in the report's style, in the given axes or in new ones."""
    try:
        from headspaces.report.figures.in_style import draw_in_style
    except ImportError as error:
        raise InputError(f"drawing needs {error.name}: pip install 'headspaces[plot]'") from error
    return draw_in_style(draw, axes)
