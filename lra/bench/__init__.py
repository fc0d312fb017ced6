"""Measurements of mixers, of classifiers and of parts alone: `python -m lra.bench --help`."""

__all__: list[str] = []
