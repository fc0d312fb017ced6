"""Softmax attention by scores, and by factors of scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.reference import fast_form_of


def attend_by_scores(
    scores: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float
) -> Tensor:
    """Average values with the softmax of scores as weights.

    Args:
        scores: (batch or 1, heads, queries, keys).
        value: (batch, heads, keys, channels).
        allowed: bool, shaped as scores or broadcast to them, True for pairs that may attend. None:
            all may.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, queries, channels).
    """
    if allowed is not None:
        # Negative infinity would give gradients of NaN where no pair may attend.
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    if dropout:  # drops other weights in each sequence
        scores = scores.expand(len(value), -1, -1, -1)
    weights = functional.dropout(scores.softmax(dim=-1), dropout)
    # Weights of all sequences are one batch of size 1, which is broadcast without copies.
    return torch.einsum("bhqk,bhkc->bhqc", weights, value)


def attend_by_factors_reference(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float
) -> Tensor:
    """Compute `attend_by_factors` with the table of all scores."""
    return attend_by_scores(query @ key.mT, value, allowed, dropout=dropout)


@fast_form_of(attend_by_factors_reference)
def attend_by_factors(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float
) -> Tensor:
    """Average values with the softmax of products of queries and keys, which are not scaled.

    torch's attention needs no table of all scores on a GPU.

    Args:
        query: (batch or 1, heads, queries, rank).
        key: (batch or 1, heads, keys, rank).
        value: (batch, heads, keys, channels).
        allowed: see `attend_by_scores`.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, queries, channels).
    """
    query, key = (factor.expand(len(value), -1, -1, -1) for factor in (query, key))
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout, scale=1.0
    )
