"""Evaluating trained models out of distribution: `python -m lra.evaluate --help`."""

__all__: list[str] = []
