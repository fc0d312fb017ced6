"""Schemas of what runs, benchmarks and evaluations leave behind, and commands on such records."""

__all__ = [
    "benchmark",
    "changes",
    "evaluation",
    "frame",
    "intervals",
    "merge_results",
    "packed",
    "remove_runs",
    "run",
    "schema",
    "scores",
]
