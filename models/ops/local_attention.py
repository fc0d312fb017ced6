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
    table = _pairs_of_a_block(window, query, causal=causal)

    def attend(start: int) -> Tensor:
        stop = min(start + BLOCK, length)
        low = max(0, start - window + 1)
        high = stop if causal else min(length, stop + window - 1)
        pairs = table[: stop - start, low - start + window - 1 :][:, : high - low]
        if mask is not None:
            pairs = _without_padding(pairs, mask[:, low:high], start - low)
        return functional.scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, low:high],
            value[:, :, low:high],
            attn_mask=pairs,
            dropout_p=dropout,
        )

    starts = range(0, length, BLOCK)
    if mask is None:
        return torch.cat([attend(start) for start in starts], dim=2)
    parts = [checkpoint(attend, start, use_reentrant=False) for start in starts]
    return torch.cat(parts, dim=2)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _pairs_of_a_block(window: int, query: Tensor, *, causal: bool) -> Tensor:
    """Return 0 where a block's query may see a key and -inf elsewhere, in the type of the query.

    A summand, which attention keeps as it is; of a bool it would make one for each block.

    Returns: (BLOCK, BLOCK + 2 (window - 1)), from the key window - 1 before the block on.
    """
    place = torch.arange(BLOCK + 2 * (window - 1), device=query.device) - (window - 1)
    lag = torch.arange(BLOCK, device=query.device)[:, None] - place
    near = (lag.abs() < window) & (lag >= 0 if causal else True)
    return torch.zeros_like(near, dtype=query.dtype).masked_fill(~near, -torch.inf)


def _without_padding(pairs: Tensor, mask: Tensor, first: int) -> Tensor:
    """Bar padded keys from all queries but themselves: (batch, 1, queries, keys).

    Args:
        pairs: (queries, keys).
        mask: (batch, keys).
        first: the key that is the first query itself.
    """
    queries, keys = (torch.arange(size, device=pairs.device) for size in pairs.shape)
    is_other = queries[:, None] + first != keys
    return pairs.masked_fill(~mask[:, None, None] & is_other, -torch.inf)
