"""First-order linear recurrences, h[k] = factor[k] * h[k - 1] + x[k], one position at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from models.ops.reference import has_fast_form


@has_fast_form("recurrence")
def scan(factors: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Run h[k] = factors[k] * h[k - 1] + x[k], from h = 0 before the first position.

    Args:
        factors: (batch, length, channels), real or complex; (channels,) if they are the same at all
            positions. They may be 0.
        x: (batch, length, channels), of the same type. At padding, which may come first or last, it
            must be 0.
        reverse: whether it runs from the last position to the first, h[k] = factors[k] * h[k + 1]
            + x[k].
    Returns: (batch, length, channels).
    Raises: TypeError if factors and x differ in type, or in shape.
    """
    check_factors(factors, x)
    state, states = torch.zeros_like(x[:, :1]).sum(dim=1), []
    order = range(x.shape[1] - 1, -1, -1) if reverse else range(x.shape[1])
    for k in order:
        state = (factors if factors.dim() == 1 else factors[:, k]) * state + x[:, k]
        states.append(state)
    return torch.stack(states[::-1] if reverse else states, dim=1) if states else x.clone()


@has_fast_form("recurrence")
def scan_both_ways(factors: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run `scan` from the first position to the last, and in reverse.

    Args:
        factors: (2, batch, length, channels), of each direction, or (channels,) of both.
        x: (batch, length, channels), of the same type.
    Returns: the states of each direction, (batch, length, channels).
    """
    ahead, back = (factors, factors) if factors.dim() == 1 else factors
    return scan(ahead, x), scan(back, x, reverse=True)


def check_factors(factors: Tensor, x: Tensor) -> None:
    """Raise TypeError for factors of another type or shape than x has."""
    if factors.dtype != x.dtype or (factors.dim() > 1 and factors.shape != x.shape):
        raise TypeError(
            f"factors are {factors.dtype} {tuple(factors.shape)}, x is {x.dtype} "
            f"{tuple(x.shape)}; expected the same"
        )
