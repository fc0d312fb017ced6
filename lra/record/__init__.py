"""Schemas of what runs, benchmarks and evaluations leave behind, and commands on such records."""

__all__ = [
    "benchmark",
    "evaluation",
    "frame",
    "merge_results",
    "position_losses",
    "remove_runs",
    "run",
    "schema",
    "token_scores",
]
