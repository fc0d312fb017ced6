"""Functions that make tables, and the forms that a table is written in."""

__all__ = [
    "evaluations", "latex", "mixer_options", "probes", "published", "results", "speeds", "table",
    "terminal",
]  # fmt: skip
