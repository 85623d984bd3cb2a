"""Geometry of head spaces: pure functions of arrays, and the stage ``overlaps``, all pairs of a model."""
