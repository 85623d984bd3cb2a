"""Geometry of the subspaces that attention heads read from and write to.

The residual stream of a decoder is ``R^D``. Every head reads through three linear maps (query, key, value) and writes
through one (output). The package computes the subspaces of these maps and how strongly they overlap:

``geometry``     heads, bases, the kernel, angles, statistics
``weights``      the tensors of a checkpoint that hold the maps, for every architecture
``nulls``        null models: what chance would make of the overlaps
``affinity``     PK's scores, the graph of heads
``activations``  what heads do on a text
``study``, ``costs``, ``jobs``, ``report``  the workflow's settings, requests, jobs, and what it shows

Symbols follow the two papers that the pipeline rebuilds (RW and PK, see the README).
"""

__version__ = "0.1.0"
