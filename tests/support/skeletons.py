"""Skeletons of published decoders: configurations, and the names, types and shapes that their repositories store.

``tests/fixtures/skeletons/{name}.yaml`` is a repository's checkpoint, or one GGUF ``file`` in it: what is
expected (``shape`` and words of the ``notes``, or why the model is ``refused``) and a line for each run of tensors, as
``model.layers.{0-31}.mlp.up_proj.weight BF16 14336x4096``. Names, types, shapes and what a configuration says of the
decoder are the public ones; which tensor lies in which of the shards, and at which byte, is made up.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import yaml

from support.hub_double import Content
from support.paper_models import Tensor, header_file
from support.project import TESTS

FOLDER = TESTS / "fixtures" / "skeletons"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "F8_E4M3": 1}
"""By type of a safetensors file, bytes of a number."""


@dataclass(frozen=True)
class Skeleton:
    """One model; `about` is the content of its file."""

    about: dict[str, Any]

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Every tensor, by name."""
        lines = (line.split() for line in self.about["tensors"].splitlines())
        return sorted(
            (name, dtype, tuple(map(int, shape.split("x"))) if shape != "scalar" else ())
            for pattern, dtype, shape in lines
            for name in expanded(pattern)
        )

    def files(self) -> dict[str, Content]:
        """Files of the repository: headers, then zeros."""
        config = json.dumps(self.about["config"]).encode()
        contents = {"config.json": Content.of(config, large=False)}
        contents |= {name: Content(b"", 10**9, large=True) for name in self.about.get("beside", ())}
        number, (parts, placed) = self.about["shards"], self._parts()
        if number == 1:
            return contents | {"model.safetensors": header_file(parts[0], BYTES)}
        names = [f"model-{index:05d}-of-{number:05d}.safetensors" for index in range(1, number + 1)]
        index = {"metadata": {}, "weight_map": {name: names[part] for name, part in placed.items()}}
        contents["model.safetensors.index.json"] = Content.of(json.dumps(index).encode(), large=False)
        return contents | {name: header_file(part, BYTES) for name, part in zip(names, parts, strict=True)}

    def write_gguf(self, folder: Path) -> Path:
        """Write a GGUF file: its header, then zeros that take no room on the disk."""
        path = folder / self.about["file"]
        writer = gguf.GGUFWriter(path, self.about["config"]["general.architecture"])
        for key, value in self.about["config"].items():
            if key != "general.architecture":
                writer.add_float32(key, value) if isinstance(value, float) else writer.add_uint32(key, value)
        filled = 0
        for name, dtype, shape in self.tensors:
            number = gguf.GGMLQuantizationType[dtype]
            block, size = gguf.GGML_QUANT_SIZES[number]
            n_bytes = math.prod(shape) // block * size
            writer.add_tensor_info(name, shape, np.dtype("float32"), n_bytes, number)
            filled += writer.ggml_pad(n_bytes, writer.data_alignment)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        os.truncate(path, writer.ggml_pad(path.stat().st_size, writer.data_alignment) + filled)
        return path

    def _parts(self) -> tuple[list[list[Tensor]], dict[str, int]]:
        """Deal the tensors to the shards, by size."""
        sizes = [BYTES[dtype] * math.prod(shape) for _, dtype, shape in self.tensors]
        number, total, filled = self.about["shards"], sum(sizes), 0
        parts: list[list[Tensor]] = [[] for _ in range(number)]
        placed = {}
        for tensor, size in zip(self.tensors, sizes, strict=True):
            part = min(number - 1, filled * number // total)
            parts[part].append(tensor)
            placed[tensor[0]] = part
            filled += size
        return parts, placed


def read_skeleton(name: str, folder: Path = FOLDER) -> Skeleton:
    """Read one model's file."""
    return Skeleton(yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))


def expanded(pattern: str) -> Iterator[str]:
    """Names that a pattern with runs of numbers stands for."""
    before, *rest = re.split(r"\{(\d+-\d+)\}", pattern, maxsplit=1)
    if not rest:
        yield before
        return
    first, last = map(int, rest[0].split("-"))
    for after in expanded(rest[1]):
        yield from (f"{before}{number}{after}" for number in range(first, last + 1))
