"""Mamba-2: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.mamba2.mixer import Mamba2

__all__ = ["Mamba2"]
