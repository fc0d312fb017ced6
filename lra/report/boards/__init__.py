"""Which results compare with each other, and what rows and numbers they give."""

__all__ = [
    "averages",
    "benchmarks",
    "board",
    "cells",
    "comparison",
    "evaluations",
    "finding_runs",
    "intervals",
    "locality",
    "measures",
    "position_bits",
    "preset_speeds",
    "probes",
    "ranking",
    "rate_search",
    "results",
    "row_names",
    "slugs",
    "speeds",
    "standing",
]
