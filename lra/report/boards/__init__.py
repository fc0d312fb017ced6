"""Which results compare with each other, and what rows and numbers they give."""

__all__ = [
    "averages",
    "benchmarks",
    "board",
    "cells",
    "comparison",
    "evaluations",
    "grids",
    "measures",
    "position_bits",
    "predictions",
    "preset_speeds",
    "probes",
    "ranking",
    "results",
    "row_names",
    "slugs",
    "speeds",
    "standing",
]
