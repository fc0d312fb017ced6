"""Softmax attention within a distance, linear in length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def allowed_pairs(
    length: int, window: int | None, mask: Tensor | None, *, causal: bool, device: torch.device
) -> Tensor:
    """Say which position may attend to which: real ones, and each to itself.

    Without itself a padded position could be left with none, and its softmax with 0 / 0.

    Args:
        window: |i - j| < window. None: any distance.
        mask: (batch, length) bool; None when all positions are real.
    Returns: (1 or batch, 1, length, length) bool, [.., i, j].
    """
    lag = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)
    allowed = lag >= 0 if causal else torch.ones_like(lag, dtype=torch.bool)
    if window is not None:
        allowed = allowed & (lag.abs() < window)
    allowed = allowed[None, None]
    return allowed if mask is None else (allowed & mask[:, None, None, :]) | (lag == 0)


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    window: int,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Attend to real positions at |i - j| < window, O(length * window).

    Queries are cut into blocks of `window`; a block sees the keys of its own and of the two
    next to it. Equal to attention with `allowed_pairs`.

    Args:
        query: (batch, heads, length, channels); key and value alike.
        mask: (batch, length) bool; None when all positions are real.
        dropout: share of attention weights dropped.
    Returns: (batch, heads, length, channels).
    """
    batch, _, length, _ = query.shape
    blocks = -(-length // window)
    margin = blocks * window - length
    if mask is None:
        mask = query.new_ones(1, length, dtype=torch.bool)

    def around(x: Tensor) -> Tensor:
        """Cut (..., length, channels) into (..., blocks, 3 * window, channels)."""
        padded = functional.pad(x, (0, 0, window, window + margin))
        return padded.unfold(-2, 3 * window, window).transpose(-1, -2)

    keys, values = around(key), around(value)
    is_real = around(mask[..., None])[..., 0]
    queries = functional.pad(query, (0, 0, 0, margin)).unflatten(2, (blocks, window))
    place = torch.arange(window, device=query.device)[:, None] + window
    lag = place - torch.arange(3 * window, device=query.device)
    near = (lag.abs() < window) & (lag >= 0 if causal else True)
    allowed = (is_real[:, :, None, :] & near) | (lag == 0)
    allowed = allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]
    mixed = functional.scaled_dot_product_attention(
        *(x.transpose(1, 2).flatten(0, 1) for x in (queries, keys, values)),
        attn_mask=allowed,
        dropout_p=dropout,
    )
    mixed = mixed.unflatten(0, (batch, blocks))
    return mixed.transpose(1, 2).flatten(2, 3)[:, :, :length]
