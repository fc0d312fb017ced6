"""Functions that make tables, and the forms that a table is written in."""

__all__ = ["evaluations", "latex", "probes", "published", "results", "speeds", "table", "terminal"]
