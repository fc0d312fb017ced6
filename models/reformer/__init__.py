"""Reformer: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.reformer.mixer import Reformer

__all__ = ["Reformer"]
