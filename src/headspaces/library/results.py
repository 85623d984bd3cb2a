"""Result files of the pipeline: any of them as labelled arrays, and a model's overlaps where they fit a question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headspaces.errors import InputError
from headspaces.report.results import ModelResults, StoredArrays, first_measure, read_results
from headspaces.store import file_kind, read_attributes

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from headspaces.library.source import HeadSource


def read(path: str | Path) -> xr.DataTree | xr.Dataset:
    """Open a result file of the pipeline.

    Parameters
    ----------
    path
        An HDF5 file (``results/overlaps/{model}.h5`` and all others) or a table (``.csv``).

    Returns
    -------
    xarray.DataTree or xarray.Dataset
        The file's groups and datasets under their own names, such as ``tree["cross/OK/rho"]``, with named dimensions
        and coordinates, units and meanings; numbers are read when they are used. A table is a dataset over ``row``.
        ``results/README.md`` lists every dataset with its dimensions and unit.

    Raises
    ------
    InputError
        If the file cannot be read, has changed since it was written, or is no result file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import headspaces as hs
    >>> from headspaces.store import write_arrays
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "m.h5"
    ...     write_arrays(path, "overlaps", {"rank/O": np.full((2, 3), 64)}, {"model": "m"})
    ...     with hs.read(path) as tree:
    ...         rank = tree["rank/O"].load()
    >>> rank.dims, rank.attrs["long_name"]
    (('layer', 'head'), "numerical rank of the head's map")
    """
    import pandas as pd
    import xarray as xr

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a result of the pipeline, an .h5 or a .csv file")
    if path.suffix == ".csv":
        try:
            table = pd.read_csv(path)
        except (ValueError, OSError) as error:
            raise InputError(f"{path}: not a readable table ({error})") from error
        return xr.Dataset.from_dataframe(table.rename_axis(index="row"))
    file_kind(path)
    tree: xr.DataTree = xr.open_datatree(path, engine="h5netcdf", phony_dims="access")
    return tree


def stored_effects(overlaps: Path, heads: HeadSource, kind: str) -> np.ndarray | None:
    """Give the effects beside an overlaps file on the first loss, where they are of the same weights; else None.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    path = overlaps.parents[1] / "attribution" / overlaps.name
    if not path.is_file():
        return None
    facts = read_attributes(path, "attribution")
    expected = {"source": heads.origin, "revision": heads.revision}
    if any(facts.get(name) != value for name, value in expected.items()):
        return None
    arrays = StoredArrays(path, "attribution")
    return arrays[f"{first_measure(arrays)}{kind}/effect"]


def stored_results(path: Path, heads: HeadSource, fold: bool, rank_rtol: float) -> ModelResults | None:
    """Give a model's overlaps file, where it is of the same weights and settings; else None.

    Raises
    ------
    InputError
        If the file is damaged or another model's.
    """
    results = read_results(heads.name, {"overlaps": path})
    expected = {
        "source": heads.origin, "revision": heads.revision, "fold": fold, "rank_rtol": rank_rtol,
        "leave_out_rounding": heads.leave_out_rounding,
    }  # fmt: skip
    same = all(results.attributes.get(name) == value for name, value in expected.items())
    return results if same else None
