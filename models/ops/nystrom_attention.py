"""Softmax attention approximated by the Nyström method, linear in length.

Xiong et al., "Nyströmformer", AAAI 2021 (arXiv:2102.03902). The three softmax matrices of the paper
are `weights_to_landmarks`, `between_landmarks` and `weights_of_landmarks` in the reference form.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.reference import fast_form_of


def averaging_matrix(counts: Tensor, length: int, num_segments: int, dtype: torch.dtype) -> Tensor:
    """Return the matrix that averages the real positions within segments of nearly equal size.

    The first segments have counts // num_segments positions each, and the last ones have one more
    position if the division has a remainder.

    Args:
        counts: (batch,), number of real positions, which come first in each row.
        length: in positions, padding included.
        num_segments: number of segments. A row with fewer real positions is not meaningful.
        dtype: of the result.
    Returns: (batch, num_segments, length).
    """
    counts = counts[:, None]
    size = (counts // num_segments).clamp(min=1)
    num_short = num_segments * (size + 1) - counts
    position = torch.arange(length, device=counts.device)
    segment = torch.minimum(position // size, (position + num_short) // (size + 1))
    is_within = segment[:, None] == torch.arange(num_segments, device=counts.device)[:, None]
    members = is_within.to(dtype)
    return members / members.sum(dim=-1, keepdim=True)


def iterate_pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Approximate the Moore-Penrose inverse by an iteration of order four.

    The first iterate is the transposed matrix over the largest sum of a column, which is the
    matrix's own and does not depend on other sequences or heads.

    Args:
        matrix: (..., size, size), not negative, with rows that sum to 1.
        iterations: number of iterations.
    Returns: (..., size, size).
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / matrix.sum(dim=-2, keepdim=True).amax(dim=-1, keepdim=True)
    for _ in range(iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = 0.25 * inverse @ (13 * identity - product @ inner)
    return inverse


def nystrom_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    averages: Tensor,
    mask: Tensor | None,
    *,
    iterations: int,
) -> Tensor:
    """Compute `nystrom_attention` in the order of the paper, O(length * landmarks^2)."""
    scale = query.shape[-1] ** -0.5
    query_landmarks, key_landmarks = averages @ query, averages @ key
    to_keys = scale * query_landmarks @ key.mT
    if mask is not None:
        to_keys = to_keys.masked_fill(~mask[:, None, None, :], torch.finfo(to_keys.dtype).min)
    weights_of_landmarks = to_keys.softmax(dim=-1)
    weights_to_landmarks = (scale * query @ key_landmarks.mT).softmax(dim=-1)
    between_landmarks = (scale * query_landmarks @ key_landmarks.mT).softmax(dim=-1)
    inverse = iterate_pseudo_inverse(between_landmarks, iterations)
    return (weights_to_landmarks @ inverse) @ (weights_of_landmarks @ value)


@fast_form_of(nystrom_attention_reference)
def nystrom_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    averages: Tensor,
    mask: Tensor | None,
    *,
    iterations: int,
) -> Tensor:
    """Attend by way of landmarks, O(length * landmarks).

    Landmarks attend to all positions, and all positions attend to landmarks. The products of
    matrices are taken from the right, so that no matrix of length times landmarks is multiplied by
    one of landmarks times landmarks, and both attentions are torch's own.

    Args:
        query: (batch, heads, length, channels).
        key: (batch, heads, length, channels).
        value: (batch, heads, length, channels).
        averages: (1 or batch, 1, landmarks, length), whose product with queries and with keys
            gives their landmarks.
        mask: (batch, length) bool, True at real positions. None: all are real.
        iterations: of the pseudo-inverse.
    Returns: (batch, heads, length, channels).
    """
    allowed = None if mask is None else mask[:, None, None, :]
    query_landmarks, key_landmarks = averages @ query, averages @ key
    summaries = functional.scaled_dot_product_attention(
        query_landmarks, key, value, attn_mask=allowed
    )
    scores = query.shape[-1] ** -0.5 * query_landmarks @ key_landmarks.mT
    inverse = iterate_pseudo_inverse(scores.softmax(dim=-1), iterations)
    return functional.scaled_dot_product_attention(query, key_landmarks, inverse @ summaries)
