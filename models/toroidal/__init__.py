"""Toroidal attention: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.toroidal.mixer import Toroidal

__all__ = ["Toroidal"]
