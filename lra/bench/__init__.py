"""Measuring mixers: `python -m lra.bench --help`."""
