"""Rotations of pairs of channels, so that products depend on differences of angles.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021
(arXiv:2104.09864), section 3.2.2.
"""

import torch
from torch import Tensor

BASE = 10000.0


def geometric_rates(pairs: int, like: Tensor, channels: float | None = None) -> Tensor:
    """Return the rates of RoFormer, 10000 ** (-2 pair / channels) radians per position: (pairs,).

    They have the type and the device of `like`. None: there are twice as many channels as pairs.
    """
    pair = torch.arange(pairs, dtype=like.dtype, device=like.device)
    return BASE ** (-2 * pair / (channels or 2 * pairs))


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate pairs of channels (RoFormer, equation 15).

    Channel c is paired with c + channels / 2, not with its neighbour as in the paper.

    Args:
        x: (..., channels), channels even.
        angles: (..., channels / 2) in radians, in single precision at least: bfloat16 cannot tell
            positions above 256 apart.
    Returns: (..., channels) in the type of x.
    """
    working = torch.promote_types(torch.float32, x.dtype)
    cosine, sine = angles.cos().to(working), angles.sin().to(working)
    first, second = x.to(working).chunk(2, dim=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return torch.cat(turned, dim=-1).to(x.dtype)
