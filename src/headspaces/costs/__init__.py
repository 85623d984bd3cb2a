"""Costs of every stage, from a model's shape alone: memory, disk, operations, minutes, threads."""
