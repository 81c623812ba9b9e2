"""Measurements of pgjq, as ratios against a peer or a floor of the same run: `python -m benchmarks`."""
