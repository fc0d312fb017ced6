"""Softmax attention within a distance, linear in length."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lra.models.ops.attention import attention
from lra.models.ops.reference import fast_form_of

BLOCK = 256
"""Number of queries in a block."""


def allowed_pairs(
    length: int, window: int | None, mask: Tensor | None, *, causal: bool, device: torch.device
) -> Tensor:
    """Return which positions may attend to which: to real ones in the window, and to themselves.

    A padded position attends to itself, because a softmax over no positions would be 0 / 0.

    Args:
        length: in positions.
        window: i attends to j for |i - j| < window only. None: at any distance.
        mask: (batch, length) bool, True at real positions. None: all are real.
        causal: whether i attends to j <= i only.
        device: of the result.
    Returns: (1 or batch, 1, length, length) bool, True at [..., i, j] if i may attend to j.
    """
    lag = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)
    allowed = lag >= 0 if causal else torch.ones_like(lag, dtype=torch.bool)
    if window is not None:
        allowed = allowed & (lag.abs() < window)
    allowed = allowed[None, None]
    return allowed if mask is None else (allowed & mask[:, None, None, :]) | (lag == 0)


def local_attention_reference(
    heads: Sequence[Tensor], mask: Tensor | None, *, window: int, causal: bool, dropout: float
) -> Tensor:
    """Compute `local_attention` with a table of all pairs, O(length^2)."""
    query, key, value = heads
    pairs = allowed_pairs(query.shape[2], window, mask, causal=causal, device=query.device)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=pairs, dropout_p=dropout
    )


@fast_form_of(local_attention_reference)
def local_attention(
    heads: Sequence[Tensor], mask: Tensor | None, *, window: int, causal: bool, dropout: float
) -> Tensor:
    """Attend to real positions at |i - j| < window, O(length * (window + BLOCK)).

    Queries are processed in blocks, each with the keys in its window. The result equals attention
    with `allowed_pairs`. Memory is linear in the length as well: without a mask all blocks share
    one table of pairs, and with a mask the backward pass computes the blocks again.

    Args:
        heads: queries, keys and values, (batch, heads, length, channels).
        mask: (batch, length) bool, True at real positions. None: all are real.
        window: positions; i attends to j for |i - j| < window.
        causal: whether i attends to j <= i only.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, length, channels).
    """
    query, key, value = heads
    length = query.shape[2]
    table = _pairs_of_a_block(window, query, causal=causal)

    def attend(query: Tensor, key: Tensor, value: Tensor, start: int) -> Tensor:
        stop = min(start + BLOCK, length)
        low = max(0, start - window + 1)
        high = stop if causal else min(length, stop + window - 1)
        pairs = table[: stop - start, low - start + window - 1 :][:, : high - low]
        if mask is not None:
            pairs = _without_padding(pairs, mask[:, low:high], start - low)
        key, value = key[:, :, low:high], value[:, :, low:high]
        return attention(query[:, :, start:stop], key, value, pairs, dropout=dropout)

    starts = range(0, length, BLOCK)
    # By the devices of its tensors checkpoint knows whose random state dropout needs again.
    again: Any = functools.partial(checkpoint, attend, use_reentrant=False)
    attend_block = attend if mask is None else again
    return torch.cat([attend_block(query, key, value, start) for start in starts], dim=2)


def _pairs_of_a_block(window: int, query: Tensor, *, causal: bool) -> Tensor:
    """Return 0 where a query of a block may attend to a key, else -inf.

    Attention keeps this table as it is; it would turn a bool table into another one for each block.
    The first key is window - 1 positions before the block.
    """
    key_position = torch.arange(BLOCK + 2 * (window - 1), device=query.device) - (window - 1)
    lag = torch.arange(BLOCK, device=query.device)[:, None] - key_position
    near = (lag.abs() < window) & (lag >= 0 if causal else True)
    return torch.zeros_like(near, dtype=query.dtype).masked_fill(~near, -torch.inf)


def _without_padding(pairs: Tensor, mask: Tensor, first: int) -> Tensor:
    """Set -inf at padded keys, except where the query is the same position.

    The first query is at the position of the key number `first`: (batch, 1, queries, keys).
    """
    queries, keys = (torch.arange(size, device=pairs.device) for size in pairs.shape)
    is_other = queries[:, None] + first != keys
    return pairs.masked_fill(~mask[:, None, None] & is_other, -torch.inf)
