"""Reformer: the mixer in `mixer.py`, and what it alone computes by."""

from models.reformer.mixer import Reformer

__all__ = ["Reformer"]
