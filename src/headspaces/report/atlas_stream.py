"""Each head's strongest neurons and tokens on the atlas, from the arrays of the stream file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headspaces.report.atlas_packing import Packed, as_base64, pack
from headspaces.spaces import KINDS


def strongest_lists(stream: Mapping[str, np.ndarray]) -> Packed:
    """List by ``neurons`` or ``tokens`` and kind of space, layer by layer, head by head; empty without the stage.

    Every list has ``count`` places, the ``share`` of each (undefined where there is none), numbers (uint32) and, of
    tokens, their text where the file has it. ``matrices`` says what the numbers of an MLP's matrices mean.
    """
    lists = {
        what: {kind: _of_kind(stream, f"{what}/{kind}/") for kind in KINDS if f"{what}/{kind}/share" in stream}
        for what in ("neurons", "tokens")
    }
    if not any(lists.values()):
        return {}
    return lists | {"matrices": ["gate", "up"] if "purity/I" in stream else ["in"]}


def _of_kind(stream: Mapping[str, np.ndarray], start: str) -> Packed:
    share = stream[f"{start}share"]
    labels = {name: stream.get(start + name) for name in ("layer", "neuron", "matrix", "token")}
    packed: Packed = {"count": share.shape[-1], "share": pack(share, "share")}
    # Places that are empty (-1) wrap round; their share says that they are empty.
    packed |= {name: as_base64(values.astype("<u4")) for name, values in labels.items() if values is not None}
    if (texts := stream.get(f"{start}text")) is not None:
        packed["text"] = [text.decode(errors="replace") for text in texts.ravel().tolist()]
    return packed
