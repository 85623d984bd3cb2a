"""The attention weights of a checkpoint: which tensors they are, where, and their bytes.

Three steps: :func:`~headspaces.weights.source.read_headers` (configuration and tensor headers, no weights),
:func:`~headspaces.weights.fetch.fetch_block` (the needed tensors of some layers, into one file),
:func:`~headspaces.weights.blocks.read_block` (that file, as heads).
"""
