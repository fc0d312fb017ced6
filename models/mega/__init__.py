"""Mega: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.mega.mixer import Mega

__all__ = ["Mega"]
