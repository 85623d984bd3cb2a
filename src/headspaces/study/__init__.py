"""A study: its configuration, its models, the published numbers and the items of its report.

The Snakefile reads this package at every start: no module in it imports numpy, pandas or torch.
"""
