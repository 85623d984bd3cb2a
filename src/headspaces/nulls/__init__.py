"""Null models of the overlaps, and a head's own spaces against other heads'."""
