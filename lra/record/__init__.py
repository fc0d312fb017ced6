"""Schemas of what runs, benchmarks and evaluations leave behind, and commands on such records."""

__all__ = [
    "benchmark", "changes", "evaluation", "intervals", "merge_results", "metrics", "packed",
    "predictions", "run", "schema", "scores", "table",
]  # fmt: skip
