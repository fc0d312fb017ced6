"""The gated delta rule: a state that erases the old value of a key before it stores a new one.

Yang, Kautz and Hatamizadeh, "Gated Delta Networks", ICLR 2025 (arXiv:2412.06464), section 3; in
chunks by a triangular solve, as there (section 3.3).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from models.ops.decaying_attention import segment_sums
from models.ops.reference import fast_form_of


def delta_rule_reference(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor, *, chunk: int = 32
) -> Tensor:
    """Compute `delta_rule` one position at a time."""
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    results = []
    for k in range(key.shape[-2]):
        state = log_decay[..., k, None, None].exp() * state
        held = (key[..., k, None, :] @ state)[..., 0, :]
        change = rate[..., k, None] * (value[..., k, :] - held)
        state = state + key[..., k, :, None] * change[..., None, :]
        results.append((query[..., k, None, :] @ state)[..., 0, :])
    return torch.stack(results, dim=-2)


@fast_form_of(delta_rule_reference)
def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_decay: Tensor, *, chunk: int = 32
) -> Tensor:
    """Compute S[i]^T q[i], S[i] = a[i] S[i - 1] + b[i] k[i] (v[i] - a[i] S[i - 1]^T k[i])^T.

    Within a chunk the changes of the state solve a triangular system, and the state is carried from
    chunk to chunk. The cost is O(length (chunk + channels)) for each pair of a key channel and a
    value channel.

    Args:
        query: (batch, heads, length, channels).
        key: of the same shape, of length 1 at most. At padding, which may come first or last, it
            must be 0.
        value: (batch, heads, length, value channels).
        rate: (batch, heads, length), b, in [0, 1].
        log_decay: (batch, heads, length), the logarithm of a, at most 0.
        chunk: positions of a chunk.
    Returns: (batch, heads, length, value channels).
    """
    length = query.shape[-2]
    if query.numel() == 0 or value.numel() == 0:
        return torch.zeros_like(value)
    chunk = min(chunk, length)
    excess = -length % chunk
    query, key, value = (
        functional.pad(x, (0, 0, 0, excess)).unflatten(-2, (-1, chunk)) for x in (query, key, value)
    )
    rate, log_decay = (
        functional.pad(x, (0, excess)).unflatten(-1, (-1, chunk)) for x in (rate, log_decay)
    )
    fades = segment_sums(log_decay).exp()
    from_start = log_decay.cumsum(dim=-1).exp()[..., None]
    to_end = fades[..., -1, :, None]
    weighed = rate[..., None] * key
    system = ((weighed @ key.mT) * fades).tril(-1)
    right = torch.cat([rate[..., None] * value, weighed * from_start], dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new, of_state = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    scores = (query @ key.mT) * fades
    whole = from_start[..., -1:, :]
    chunks = (
        part.unbind(dim=-3)
        for part in (query * from_start, (key * to_end).mT, scores, new, of_state, whole)
    )
    state = torch.zeros_like(key[..., 0, 0, :, None] * value[..., 0, 0, None, :])
    results = []
    for queries, keys, pairs, added, held, fade in zip(*chunks, strict=True):
        changes = added - held @ state
        results.append(queries @ state + pairs @ changes)
        state = fade * state + keys @ changes
    return torch.cat(results, dim=-2)[..., :length, :]
