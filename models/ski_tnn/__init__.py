"""SKI-TNN: the mixer in `mixer.py`, and what it alone computes by."""

from lra.models.ski_tnn.mixer import SKITNN

__all__ = ["SKITNN"]
