"""Sparse attention: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.sparse.mixer import Sparse

__all__ = ["Sparse"]
