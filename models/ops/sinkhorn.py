"""Attention within blocks and to blocks that a doubly stochastic matrix sorts.

Tay et al., "Sparse Sinkhorn Attention", ICML 2020 (arXiv:2002.11296), section 3. A block attends to
itself and to one sorted block, which is a mean over all blocks, weighted by a column of the matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.local_attention import allowed_pairs

LOWEST = -1e30
"""Logarithm of a weight of 0. Negative infinity would give gradients of NaN."""


def sinkhorn_matrix(logits: Tensor, allowed: Tensor, iterations: int, *, causal: bool) -> Tensor:
    """Turn scores into weights whose sums over sources and over targets are about 1.

    Each iteration divides the weights by their sums over targets, and then by their sums over
    sources; so the latter are 1 exactly. In a causal model a weight is divided by the sum over the
    targets up to its own (causal Sinkhorn balancing), and depends on no later target.

    Args:
        logits: (..., sources, targets), logarithms of weights.
        allowed: (..., sources, targets) bool; all other weights are 0.
        iterations: number of iterations.
        causal: whether a weight depends on scores of the targets up to its own only.
    Returns: (..., sources, targets).
    """
    for _ in range(iterations):
        logits = logits.masked_fill(~allowed, LOWEST)
        if causal:
            logits = logits - logits.logcumsumexp(dim=-1)
        else:
            logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        logits = logits.masked_fill(~allowed, LOWEST)
        logits = logits - logits.logsumexp(dim=-2, keepdim=True)
    return logits.masked_fill(~allowed, LOWEST).exp()


def sorted_block_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    order: Tensor,
    real: Tensor,
    *,
    causal: bool,
    joint: bool,
    dropout: float,
) -> Tensor:
    """Attend to the real positions of the own block and of a sorted block.

    A position of a sorted block weighs as much as the matrix weighs the blocks in which it is real.

    Args:
        query: (batch, blocks, heads, size, channels).
        key: (batch, blocks, heads, size, channels), 0 at padding.
        value: (batch, blocks, heads, size, channels), 0 at padding.
        order: (batch, heads, blocks, blocks), the weight of each source in each target.
        real: (1 or batch, blocks, size) bool, True at real positions.
        causal: whether a position attends to none after it in its own block.
        joint: whether one softmax goes over both blocks. Otherwise each has its own softmax, and
            both results are added.
        dropout: fraction of attention weights dropped.
    Returns: (batch, blocks, heads, size, channels).
    """
    batch, blocks, _, size, _ = query.shape
    real = real.expand(batch, -1, -1)
    within = allowed_pairs(size, None, real.flatten(0, 1), causal=causal, device=query.device)
    share = order.mT @ real[:, None].to(order.dtype)
    weight = share.clamp(min=torch.finfo(share.dtype).tiny).log()
    weight = weight.masked_fill(share == 0, LOWEST).to(query.dtype)
    bias = weight.transpose(1, 2).flatten(0, 1)[:, :, None]
    sorted_key, sorted_value = (_sort(part, order).flatten(0, 1) for part in (key, value))
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    if joint:
        own = torch.zeros_like(within, dtype=query.dtype).masked_fill(~within, -torch.inf)
        shape = *query.shape[:3], size
        key, value = torch.cat([key, sorted_key], dim=2), torch.cat([value, sorted_value], dim=2)
        both = torch.cat([own.expand(shape), bias.expand(shape)], dim=3)
        mixed = _attend(query, key, value, both, dropout)
    else:
        mixed = _attend(query, key, value, within, dropout)
        mixed = mixed + _attend(query, sorted_key, sorted_value, bias, dropout)
    return mixed.unflatten(0, (batch, blocks))


def _attend(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, dropout: float) -> Tensor:
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout
    )


def _sort(blocks: Tensor, order: Tensor) -> Tensor:
    """Average blocks by the weights of each target: (batch, blocks, heads, size, channels)."""
    rows = blocks.transpose(1, 2).flatten(3)
    return (order.mT.to(rows.dtype) @ rows).unflatten(3, blocks.shape[3:]).transpose(1, 2)
