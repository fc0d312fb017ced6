"""Schemas of what runs, benchmarks and evaluations leave behind, and commands on such records."""

__all__: list[str] = []
