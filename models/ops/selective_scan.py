"""Selective state spaces with separate states for each channel.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023
(arXiv:2312.00752), section 3.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.ops.reference import has_fast_form


@has_fast_form("selective_scan")
def selective_scan(
    x: Tensor,
    step: Tensor,
    poles: Tensor,
    into: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Run h[k] = exp(dt[k] A) h[k - 1] + dt[k] (B[k] + bias) x[k], and y[k] = Re(C[k] h[k]).

    Args:
        x: (batch, length, channels).
        step: (batch, length, channels), dt, not negative. At padding, which may come first
            or last, it must be 0.
        poles: (channels, states), A, real or complex, of real part at most 0.
        into: (batch, length, groups, states), B, of the type of A; a group is of neighbours among
            the channels.
        out: (batch, length, groups, states), C.
        bias: (channels, states), or None.
    Returns: (batch, length, channels), real.
    """
    size = x.shape[-1] // into.shape[2]
    state = (x[:, 0, :, None] * poles) * 0
    results = []
    for k in range(x.shape[1]):
        b, c = (part[:, k].repeat_interleave(size, dim=1) for part in (into, out))
        b = b if bias is None else b + bias
        dt = step[:, k, :, None]
        state = (dt * poles).exp() * state + dt * b * x[:, k, :, None]
        results.append((c * state).real.sum(dim=-1))
    return torch.stack(results, dim=1) if results else torch.zeros_like(x)
