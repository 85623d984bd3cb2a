"""What made a file: the attributes that every cache hands on, and the check that a checkpoint is the one meant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headspaces.errors import DamagedFileError, check_own
from headspaces.weights.layout import Layout


def model_attributes(metadata: Mapping[str, str]) -> dict[str, str | int]:
    """Root attributes of a file made from a block of weights.

    ``metadata`` is that of :func:`headspaces.weights.blocks.read_metadata`.
    """
    return {
        "source": metadata["source"],
        "revision": metadata["revision"],
        "model_type": metadata["model_type"],
        "kinds": metadata["kinds"],
        "norm": Layout.from_json(metadata["layout"]).norm,
        "first_layer": int(metadata["first_layer"]),
        "block_layers": int(metadata["n_layers"]),
        "weights_sha256": hashlib.sha256(metadata["sha256"].encode()).hexdigest(),
        **json.loads(metadata["shape"]),
    }


def joined(blocks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Attributes of what is made from all blocks of a model, which must be of one making and complete.

    ``blocks`` has root attributes by the blocks' paths, in the order of the layers. Raises :class:`DamagedFileError` if
    a block is of another checkpoint or other settings than the first, or of other layers than its place says: a file
    was swapped.
    """
    own = ("first_layer", "block_layers", "weights_sha256")
    first = next(iter(blocks.values()))
    common = {name: value for name, value in first.items() if name not in own}
    layer = 0
    for path, attributes in blocks.items():
        for name, value in common.items():
            if attributes.get(name) != value:
                raise DamagedFileError(
                    path, f"{name} is {attributes.get(name)!r}, but {value!r} in the model's first block"
                )
        if attributes["first_layer"] != layer:
            raise DamagedFileError(path, f"begins at layer {attributes['first_layer']}, expected {layer}")
        layer += int(attributes["block_layers"])
    sums = "".join(str(attributes["weights_sha256"]) for attributes in blocks.values())
    return common | {"weights_sha256": hashlib.sha256(sums.encode()).hexdigest()}


def checked_weights(blocks: Mapping[str, Mapping[str, str]], source: str) -> dict[str, dict[str, Any]]:
    """Attributes of all blocks of a model's weights, by their paths: all of that source, each of its own layers.

    ``blocks`` has what :func:`headspaces.weights.blocks.read_metadata` gives, in the order of the layers. Raises
    :class:`DamagedFileError` if a block is another model's or of other layers: a file was swapped.
    """
    attributes = {path: model_attributes(metadata) for path, metadata in blocks.items()}
    for path, found in attributes.items():
        check_own(path, found, {"source": source})
    joined(attributes)
    return attributes


def pinned(attributes: Mapping[str, Any]) -> str:
    """Source of a model at the commit that its weights were read from."""
    source = str(attributes["source"])
    return f"{source.split('@')[0]}@{attributes['revision']}" if source.startswith("hub:") else source


def fingerprint(files: Iterable[str]) -> str:
    """SHA-256 of the contents of a job's code, in the order of the files' names."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: Path(path).name):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()
