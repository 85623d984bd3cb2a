"""Heads at work: what writes do at later reads on a text, attention patterns, and the models and texts for it."""
