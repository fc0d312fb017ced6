"""Attention with one head and a learned bias per lag, within chunks or over all positions."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lra.models.ops.reference import fast_form_of

Weighting = Literal["softmax", "laplace"]

BLOCK = 512
"""Number of queries in a block; the backward pass computes the weights again, block by block."""
LAPLACE_MEAN, LAPLACE_DEVIATION = 0.707107, 0.282095
"""sqrt(1 / 2) and sqrt(1 / (4 pi)), at which the Laplace function is nearest to relu ** 2 (Mega,
section 3.4), as the published code has them."""


def laplace(scores: Tensor) -> Tensor:
    """Return (1 + erf((scores - mean) / (deviation sqrt 2))) / 2 (Mega, equation 16)."""
    return 0.5 * (1 + torch.erf((scores - LAPLACE_MEAN) / (LAPLACE_DEVIATION * math.sqrt(2))))


def weights_of(
    query: Tensor, key: Tensor, bias: Tensor, allowed: Tensor, weighting: Weighting
) -> Tensor:
    """Compute the attention weights of keys for queries.

    Args:
        query: (..., queries, channels).
        key: (..., keys, channels).
        bias: (queries, keys), added to scores.
        allowed: (..., queries, keys) bool, True if the query may attend to the key.
        weighting: "softmax" of scores divided by the square root of the number of channels, or
            "laplace" of scores divided by the number of allowed keys.
    Returns: (..., queries, keys); zeros for a query that has no key.
    """
    scores = query @ key.mT
    if weighting == "softmax":
        scores = scores * query.shape[-1] ** -0.5 + bias
        has_any = allowed.any(dim=-1, keepdim=True)
        return scores.masked_fill(~allowed & has_any, -torch.inf).softmax(dim=-1) * has_any
    count = allowed.sum(dim=-1, keepdim=True).clamp(min=1)
    return laplace(scores / count + bias) * allowed


def bias_of(by_lag: Tensor, lag: Tensor) -> Tensor:
    """Look up the biases of lags, the query's position minus the key's.

    They are those of the lags longest - 1, ..., 1 - longest; the ends also hold for larger lags.
    """
    return by_lag[(len(by_lag) // 2 - lag).clamp(0, len(by_lag) - 1)]


def biased_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, by_lag: Tensor,
    *, weighting: Weighting, causal: bool, chunk: int | None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute `biased_attention` by a table of all pairs of positions."""
    length = query.shape[1]
    position = torch.arange(length, device=query.device)
    lag = position[:, None] - position
    allowed = torch.ones_like(lag, dtype=torch.bool)
    if causal:
        allowed = lag >= 0
    if chunk is not None:
        allowed = allowed & (position[:, None] // chunk == position // chunk)
    if mask is not None:
        allowed = allowed & mask[:, None]
    bias = bias_of(by_lag, lag)
    return weights_of(query, key, bias, allowed, weighting) @ value


@fast_form_of(biased_attention_reference)
def biased_attention(
    query: Tensor, key: Tensor, value: Tensor, by_lag: Tensor,
    *, weighting: Weighting, causal: bool, chunk: int | None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attend with one head, whose scores have a learned bias for every lag.

    With chunks, positions attend within their own chunk, in O(length chunk). Without chunks, blocks
    of queries are processed one by one, and the backward pass computes their weights again, so that
    memory is linear in the length.

    Args:
        query, key: (batch, length, channels).
        value: (batch, length, value channels).
        by_lag: (2 longest - 1,), see `bias_of`.
        weighting: see `weights_of`.
        causal: whether position i attends to j <= i only.
        chunk: positions of a chunk. None: the whole sequence is one chunk.
        mask: (batch, length) bool, True at real positions. None: all are real.
    Returns: (batch, length, value channels).
    """
    batch, length, _ = query.shape
    if query.numel() == 0:
        return value.clone()
    size = length if chunk is None else min(chunk, length)
    if mask is None and length % size:
        mask = torch.ones(batch, length, dtype=torch.bool, device=query.device)
    query, key, value = (_cut(x, size) for x in (query, key, value))
    real = None if mask is None else _cut(mask, size)[:, :, None]
    position = torch.arange(size, device=query.device)

    def attend(part: Tensor, first: int) -> Tensor:
        lag = position[first : first + part.shape[2], None] - position
        bias = bias_of(by_lag, lag)
        allowed = lag >= 0 if causal else torch.ones_like(lag, dtype=torch.bool)
        if real is not None:
            allowed = allowed & real
        return weights_of(part, key, bias, allowed, weighting) @ value

    parts = query.split(BLOCK, dim=2)
    if len(parts) == 1:
        mixed = attend(query, 0)
    else:
        again = [
            checkpoint(attend, part, n * BLOCK, use_reentrant=False) for n, part in enumerate(parts)
        ]
        mixed = torch.cat([part for part in again if isinstance(part, Tensor)], dim=2)
    return mixed.flatten(1, 2)[:, :length]


def _cut(x: Tensor, size: int) -> Tensor:
    """Cut (batch, length, ...) into chunks (batch, count, size, ...), zeros filling up the last."""
    missing = -x.shape[1] % size
    filled = functional.pad(x, (*(0, 0) * (x.dim() - 2), 0, missing)) if missing else x
    return filled.unflatten(1, (-1, size))
