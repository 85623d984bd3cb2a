"""A model's overlaps as a file: labelled arrays, as the pipeline's overlaps file, or a row for each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from headspaces.errors import InputError
from headspaces.files import whole_file
from headspaces.library.comparisons import check_spaces
from headspaces.library.model import ModelSpaces
from headspaces.library.overlaps_of import dataset
from headspaces.store import write_arrays


def export(model: ModelSpaces, path: Path, spaces: Sequence[str] = ()) -> tuple[str, ...]:
    """Write overlaps and smallest angles of comparisons.

    Parameters
    ----------
    model
        The model.
    path
        ``.h5``: ``within/{X}/rho``, ``/angle``, ``cross/{X}{Y}/rho``, ``/angle``, ``rank/{X}`` as in
        ``results/overlaps/``, which :func:`headspaces.read` opens; ``.csv``: ``spaces``, ``writer``, ``reader``,
        ``pk``, ``rho``, ``angle_deg`` of every pair, strongest first. The file appears whole or not at all.
    spaces
        Which; by default all of the papers' that the model allows.

    Returns
    -------
    The comparisons that were written.

    Raises
    ------
    InputError
        If a comparison is not possible, the weights cannot be read or the file cannot be written.
    """
    names = tuple(check_spaces(name, model.kinds, model.name) for name in spaces) or model.comparisons
    if path.suffix == ".csv":
        frames = []
        for name in names:
            frame = model.top_pairs(name, None)
            frame.columns = pd.Index(["writer", "reader", *frame.columns[2:]])
            frames.append(frame.assign(spaces=name)[["spaces", *frame.columns]])
        with whole_file(path) as beside:
            pd.concat(frames).to_csv(beside, index=False, float_format="%.12g", lineterminator="\n")
        return names
    if path.suffix != ".h5":
        raise InputError(f"{path}: expected a name that ends with .h5 or .csv")
    fold, rank_rtol = model.answers.settings(None, None)
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        arrays[dataset(name, "rho")] = model.overlaps(name).values
        arrays[dataset(name, "angle")] = model.angles(name).values
    for kind in dict.fromkeys("".join(names)):
        arrays[f"rank/{kind}"] = model.spaces(kind)["rank"].values
    heads = model.heads
    write_arrays(path, "overlaps", arrays, {
        "model": heads.name, "source": heads.origin, "revision": heads.revision, "model_type": heads.architecture,
        "kinds": heads.kinds, "norm": heads.norm, "fold": fold, "rank_rtol": rank_rtol,
        "leave_out_rounding": heads.leave_out_rounding, "dtype": "float64",
        **asdict(heads.shape),
    })  # fmt: skip
    return names
