"""The truncated normal law of flax."""

from __future__ import annotations

from torch import Tensor, nn

DEVIATION = 0.87962566103423978
"""Standard deviation of a normal law of deviation 1 that is cut off at -2 and 2."""


def draw_truncated_normal(tensor: Tensor, deviation: float) -> Tensor:
    """Fill a tensor with normal numbers of a deviation, those beyond two scales drawn again."""
    scale = deviation / DEVIATION
    return nn.init.trunc_normal_(tensor, std=scale, a=-2 * scale, b=2 * scale)
