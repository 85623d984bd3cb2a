"""Geometry of the subspaces that attention heads read from and write to.

The residual stream of a decoder is ``R^D``. Every head reads through three linear maps (query, key, value) and writes
through one (output). The package computes the subspaces of these maps and how strongly they overlap:

``weights``   which tensors of a checkpoint hold the maps, and their bytes
``layouts``   where each architecture keeps its heads
``heads``     the maps of one layer as stacks ``(head, d_model, d_head)``, with the norm folded into the reads
``bases``     orthonormal bases, ranks, direct sums
``overlaps``  the kernel: squared overlaps, smallest principal angles
``store``     the HDF5 files of the pipeline

Symbols follow the two papers that the pipeline rebuilds (RW and PK, see the README).
"""

__version__ = "0.1.0"
