"""Linear attention with decays that depend on the input.

The matrix form of state-space duality (Dao and Gu, "Transformers are SSMs", ICML 2024,
arXiv:2405.21060, section 6), with decays of single channels of keys as gated linear attention has
them (Yang et al., ICML 2024, arXiv:2312.06635).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from models.ops.deterministic import cumulative_sum
from models.ops.public_kernels import DECAYING_ATTENTION, on_gpu_by
from models.ops.reference import fast_form_of
from models.ops.scan import scan
from models.ops.shared_decays import attend_with_shared_decays


def decaying_attention_reference(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, *, chunk: int | None = None
) -> Tensor:
    """Compute `decaying_attention` one position at a time."""
    shared = value.shape[1] // max(1, key.shape[1])
    query, key = (x.repeat_interleave(shared, dim=1) for x in (query, key))
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        decay = log_decay[..., k, :].exp()[..., None]
        state = decay * state + key[..., k, :, None] * value[..., k, None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)


@fast_form_of(decaying_attention_reference)
@on_gpu_by(DECAYING_ATTENTION)
def decaying_attention(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, *, chunk: int | None = None
) -> Tensor:
    """Compute y[i] = sum over j <= i of (q[i] . exp(a[j + 1] + ... + a[i]) k[j]) v[j].

    Within a chunk all pairs of positions get a score, and states are carried from chunk to chunk.
    If each key channel has its own decay, a chunk is halved repeatedly: keys in the left half decay
    up to the middle, queries in the right half from there. Both factors are at most 1, so nothing
    is divided by a decay. The cost is O(length (chunk + channels)) for each pair of a key channel
    and a value channel.

    Args:
        query: (batch, heads, length, channels), real or complex. If a head's decay is shared by
            its channels, neighbouring heads may share queries and keys: (batch, groups, ...).
        key: of the same shape. At padding, which may come first or last, it must be 0.
        value: (batch, heads, length, value channels), of the same type.
        log_decay: (batch, heads, length, channels or 1), a, whose real part is at most 0.
        chunk: positions of a chunk, a power of 2. None: 32, or more for long sequences.
    Returns: (batch, heads, length, value channels).
    """
    length = query.shape[-2]
    if query.numel() == 0 or value.numel() == 0:
        return torch.zeros_like(value)
    is_shared = log_decay.shape[-1] == 1
    if chunk is None:
        chunk = _chunk_of(length, query.shape[-1]) if is_shared else 32
    while chunk >= 2 * length:
        chunk //= 2
    excess = -length % chunk
    query, key, value, log_decay = (
        (torch.nn.functional.pad(x, (0, 0, 0, excess)) if excess else x).unflatten(-2, (-1, chunk))
        for x in (query, key, value, log_decay)
    )
    if is_shared:
        mixed = attend_with_shared_decays(query, key, value, log_decay[..., 0])
    else:
        mixed = _scores_by_halves(query, key, log_decay) @ value
        if query.shape[-3] > 1:
            mixed = mixed + _carried(query, key, value, log_decay)
    return mixed.flatten(-3, -2)[..., :length, :]


def _chunk_of(length: int, channels: int) -> int:
    """Return a chunk, whose scores and state take about as long, for few enough of them."""
    return 2 ** round(math.log2(max(32, min(channels, 64), length**0.5 / 2)))


def segment_sums(x: Tensor) -> Tensor:
    """Compute x[j + 1] + ... + x[i] for all i >= j, without subtracting cumulative sums.

    Args:
        x: (..., positions).
    Returns: (..., positions, positions), -inf where i < j.
    """
    count = x.shape[-1]
    rows = x[..., None].expand(*x.shape, count)
    is_later = torch.ones(count, count, dtype=torch.bool, device=x.device)
    sums = cumulative_sum(rows.masked_fill(~is_later.tril(-1), 0), -2)
    return sums.masked_fill(~is_later.tril(), -torch.inf)


def _scores_by_halves(query: Tensor, key: Tensor, log_decay: Tensor) -> Tensor:
    """Score the pairs of a chunk: (..., chunk, channels) three times -> (..., chunk, chunk)."""
    chunk = query.shape[-2]
    # (..., blocks, positions, positions), of blocks that double
    scores = (query * key).sum(dim=-1)[..., None, None]
    half = 1
    while half < chunk:
        (_, right), (left, _), (fading, reaching) = (
            x.unflatten(-2, (-1, 2, half)).unbind(dim=-3) for x in (query, key, log_decay)
        )
        arriving, leaving = cumulative_sum(reaching, -2).exp(), _to_the_end(fading).exp()
        cross = (right * arriving) @ (left * leaving).mT
        first, second = scores.unflatten(-3, (-1, 2)).unbind(dim=-3)
        upper = torch.cat([first, torch.zeros_like(cross)], dim=-1)
        scores = torch.cat([upper, torch.cat([cross, second], dim=-1)], dim=-2)
        half *= 2
    return scores[..., 0, :, :]


def _to_the_end(log_decay: Tensor) -> Tensor:
    """Add up what comes after each position: (..., positions, channels) -> the same shape."""
    later = cumulative_sum(log_decay[..., 1:, :].flip(-2), -2).flip(-2)
    return torch.nn.functional.pad(later, (0, 0, 0, 1))


def _carried(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """Attend to all chunks before: (..., chunks, chunk, value channels)."""
    added = (key * _to_the_end(log_decay).exp()).mT @ value
    decay = log_decay.sum(dim=-2).exp()[..., None].to(added.dtype).expand_as(added)
    # (batch, heads, chunks, channels, value channels): one recurrence for each number of a state
    shape = added.shape
    rows = (x.flatten(0, 1).flatten(-2) for x in (decay, added))
    states = scan(*rows).view(shape)
    before = torch.cat([torch.zeros_like(states[:, :, :1]), states[:, :, :-1]], dim=2)
    return (query * cumulative_sum(log_decay, -2).exp()) @ before
