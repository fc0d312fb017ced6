"""S4: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.s4.mixer import S4

__all__ = ["S4"]
