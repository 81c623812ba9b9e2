"""Curves of growth: see `benchmarks/curves/__main__.py`."""
