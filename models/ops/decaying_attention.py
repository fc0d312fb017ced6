"""Linear attention with decays that depend on the input.

State-space duality (Dao and Gu, "Transformers are SSMs", ICML 2024, arXiv:2405.21060, section 6),
with decays of single channels of keys as gated linear attention has them (Yang et al., ICML 2024,
arXiv:2312.06635).
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.ops.reference import has_fast_form


@has_fast_form("decaying_attention")
def decaying_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Compute y[i] = sum over j <= i of (q[i] . exp(a[j + 1] + ... + a[i]) k[j]) v[j].

    Args:
        query: (batch, heads, length, channels), real or complex. If a head's decay is shared by
            its channels, neighbouring heads may share queries and keys: (batch, groups, ...).
        key: of the same shape. At padding, which may come first or last, it must be 0.
        value: (batch, heads, length, value channels), of the same type.
        log_decay: (batch, heads, length, channels or 1), a, whose real part is at most 0.
    Returns: (batch, heads, length, value channels).
    """
    shared = value.shape[1] // max(1, key.shape[1])
    query, key = (x.repeat_interleave(shared, dim=1) for x in (query, key))
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        decay = log_decay[..., k, :].exp()[..., None]
        state = decay * state + key[..., k, :, None] * value[..., k, None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)
