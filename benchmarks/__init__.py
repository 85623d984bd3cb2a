"""Speeds and memory of the package as ratios, all measured in one run: ``python -m benchmarks`` (``make bench``)."""
