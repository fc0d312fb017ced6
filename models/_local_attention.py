"""Softmax attention within a distance, linear in length."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BLOCK = 256
"""Queries attended for at once."""


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
    """Attend to real positions at |i - j| < window, O(length * (window + BLOCK)).

    Queries are taken in blocks, each with the keys within its reach. Equal to attention with
    `allowed_pairs`. What is kept for the backward pass is linear in the length too: without a
    mask the blocks share one table of pairs, with one they are computed again.

    Args:
        query: (batch, heads, length, channels); key and value alike.
        mask: (batch, length) bool; None when all positions are real.
        dropout: share of attention weights dropped.
    Returns: (batch, heads, length, channels).
    """
    length = query.shape[2]
    lag = _block_lags(window, query.device)
    near = (lag.abs() < window) & (lag >= 0 if causal else True)
    # As a summand, which attention keeps as it is; of a bool it would make one for each block.
    pairs = torch.zeros(near.shape, dtype=query.dtype, device=query.device)
    pairs = pairs.masked_fill(~near, -torch.inf)

    def attend(start: int) -> Tensor:
        stop = min(start + BLOCK, length)
        low = max(0, start - window + 1)
        high = stop if causal else min(length, stop + window - 1)
        rows, columns = slice(0, stop - start), slice(low - start + window - 1, None)
        allowed = pairs[rows, columns][:, : high - low]
        if mask is not None:
            is_padding = ~mask[:, None, None, low:high]
            other = lag[rows, columns][:, : high - low] != 0
            allowed = allowed.masked_fill(is_padding & other, -torch.inf)
        return functional.scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, low:high],
            value[:, :, low:high],
            attn_mask=allowed,
            dropout_p=dropout,
        )

    parts = []
    for start in range(0, length, BLOCK):
        if mask is None:
            parts.append(attend(start))
        else:
            parts.append(checkpoint(attend, start, use_reentrant=False))
    return torch.cat(parts, dim=2)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _block_lags(window: int, device: torch.device) -> Tensor:
    """Return the lags of a block's queries to the keys from window - 1 before its start on."""
    place = torch.arange(BLOCK + 2 * (window - 1), device=device) - (window - 1)
    return torch.arange(BLOCK, device=device)[:, None] - place
