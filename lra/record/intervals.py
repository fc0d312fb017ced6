"""Intervals of confidence of results."""

from __future__ import annotations

import math

_Z95 = 1.959964


def wilson_interval(proportion: float, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion of `total` draws, in percent (Wilson, 1927)."""
    z2 = _Z95**2
    scale = 1 + z2 / total
    middle = (proportion + z2 / (2 * total)) / scale
    spread = math.sqrt(proportion * (1 - proportion) / total + z2 / (4 * total**2)) / scale
    half = _Z95 * spread
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)
