"""Affinity: scores of how strongly heads match each other (PK), the graph of the strongest, and their evaluation."""
