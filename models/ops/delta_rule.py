"""The gated delta rule: a state that erases the old value of a key before it stores a new one.

Yang, Kautz and Hatamizadeh, "Gated Delta Networks", ICLR 2025 (arXiv:2412.06464), section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.ops.reference import has_fast_form


@has_fast_form("delta_rule")
def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor
) -> Tensor:
    """Compute S[i]^T q[i], S[i] = a[i] S[i - 1] + b[i] k[i] (v[i] - a[i] S[i - 1]^T k[i])^T.

    Args:
        query: (batch, heads, length, channels).
        key: of the same shape, of length 1 at most. At padding, which may come first or last, it
            must be 0.
        value: (batch, heads, length, value channels).
        rate: (batch, heads, length), b, in [0, 1].
        log_decay: (batch, heads, length), the logarithm of a, at most 0.
    Returns: (batch, heads, length, value channels).
    """
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        state = log_decay[..., k, None, None].exp() * state
        held = (key[..., k, None, :] @ state)[..., 0, :]
        change = rate[..., k, None] * (value[..., k, :] - held)
        state = state + key[..., k, :, None] * change[..., None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)
