"""Spectral attention on a torus: a softmax over lags gives one circulant matrix per head."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.ops.reference import fast_form_of
from lra.models.toroidal.torus import Reach, Torus


def lag_bias(torus: Torus, window: int | None, weight: Tensor | None, like: Tensor) -> Tensor:
    """Return the bias of each lag: minus the weighted distance, or -inf outside of the window.

    Returns: (heads or 1, *periods, platter_period).
    """
    periods = (*torus.periods, torus.platter_period)
    sizes = (*torus.sizes, torus.num_platters)
    total = like.new_zeros(periods)
    is_there = torch.ones(periods, dtype=torch.bool, device=like.device)
    for axis, (period, size) in enumerate(zip(periods, sizes, strict=True)):
        lag = torch.arange(period, device=like.device)
        steps = torch.minimum(lag, period - lag)
        shape = [1] * len(periods)
        shape[axis] = period
        total = total + (steps.to(like.dtype) / size).view(shape)
        is_near = steps < size if period > size else torch.ones_like(steps, dtype=torch.bool)
        if window is not None and axis < len(torus.sizes):
            is_near = is_near & (steps < window)
        is_there = is_there & is_near.view(shape)
    heads = like.new_zeros(1) if weight is None else -weight.to(like.dtype)
    bias = heads.view(-1, *[1] * len(periods)) * total
    return bias.masked_fill(~is_there, -torch.inf)


def spectral_attention_reference(
    heads: Sequence[Tensor], reach: Reach, weight: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Compute `spectral_attention` with every lag's shifted arrays, O((length * platters)^2)."""
    length = heads[0].shape[2]
    torus = reach.torus.with_room(length)
    scale = _scale(heads[0], torus, mask)
    query, key, value = (_on_torus(x, torus, mask) for x in heads)
    dims = tuple(range(2, query.ndim - 1))
    lags = list(torch.cartesian_prod(*(torch.arange(size) for size in query.shape[2:-1])))
    shifted = [key.roll(lag.tolist(), dims) for lag in lags]
    scores = torch.stack([(query * rolled).sum(dim=(*dims, -1)) for rolled in shifted], dim=2)
    scores = scores / scale + lag_bias(torus, reach.window, weight, query).flatten(1)
    weights = scores.softmax(dim=2)
    mixed = sum(
        (
            weights[:, :, n].reshape(*weights.shape[:2], *[1] * (query.ndim - 2))
            * value.roll(lag.tolist(), dims)
            for n, lag in enumerate(lags)
        ),
        torch.zeros_like(value),
    )
    return _in_sequence(mixed, torus, length)


@fast_form_of(spectral_attention_reference)
def spectral_attention(
    heads: Sequence[Tensor], reach: Reach, weight: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Mix by one weight for each lag, O(n log n) for n places of the torus.

    The score of a lag, along the axes and between platters, is the product of query and key at
    that lag, averaged over the real positions and over the platters; weights are its softmax over
    lags. Padding, like all that is beyond the sequence, is zeros on the torus. A sequence that is
    longer than the torus's one axis has one of its own length. Transforms run in at least single
    precision.

    Args:
        heads: queries, keys and values, (batch, heads, length, platters, channels), with their
            positions encoded.
        reach: where positions lie, and how far lags reach; it is not causal.
        weight: (heads,) of the distance in scores. None: distances cost nothing.
        mask: (batch, length) bool, True at real positions. None: all are real.
    Returns: (batch, heads, length, platters, channels), in the type of values.
    """
    value = heads[2]
    if value.numel() == 0:
        return value
    dtype, length, torus = value.dtype, value.shape[2], reach.torus.with_room(value.shape[2])
    working = torch.promote_types(torch.float32, dtype)
    query, key, value = (x.to(working) for x in heads)
    scale = _scale(query, torus, mask)
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (_on_torus(x, torus, mask) for x in (query, key, value))
        bias = lag_bias(torus, reach.window, weight, query)
        mixed = _by_transforms(query, key, value, bias, scale)
    return _in_sequence(mixed, torus, length).to(dtype)


def _by_transforms(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: Tensor
) -> Tensor:
    """Mix what lies on the torus, (batch, heads, *periods, platter_period, channels)."""
    sizes = query.shape[2:-1]
    dims = tuple(range(2, query.ndim - 1))

    def transform(x: Tensor) -> Tensor:
        return torch.fft.rfftn(x, dim=dims)

    together = (transform(query) * transform(key).conj()).sum(dim=-1)
    scores = torch.fft.irfftn(together, s=sizes, dim=dims)
    scores = scores / scale.view(-1, *[1] * (scores.ndim - 1)) + bias
    weights = scores.flatten(2).softmax(dim=2).view_as(scores)
    mixed = transform(value) * transform(weights)[..., None]
    return torch.fft.irfftn(mixed, s=sizes, dim=dims)


def _scale(query: Tensor, torus: Torus, mask: Tensor | None) -> Tensor:
    """Return what sums over positions and channels are divided by: (batch or 1, 1, 1)."""
    if mask is None:
        count = query.new_full((1, 1), query.shape[2])
    else:
        count = mask.sum(dim=1, keepdim=True).clamp(min=1).to(query.dtype)
    return (count * torus.num_platters * query.shape[-1] ** 0.5)[..., None]


def _on_torus(x: Tensor, torus: Torus, mask: Tensor | None) -> Tensor:
    """Lay positions on the torus: -> (batch, heads, *periods, platter_period, channels)."""
    length, total = x.shape[2], math.prod(torus.sizes)
    if mask is not None:
        x = x.masked_fill(~mask[:, None, :, None, None], 0)
    x = functional.pad(x, (0, 0, 0, 0, 0, total - length)).unflatten(2, torus.sizes)
    missing = [0, 0, 0, torus.platter_period - torus.num_platters]
    for period, size in zip(reversed(torus.periods), reversed(torus.sizes), strict=True):
        missing += [0, period - size]
    return functional.pad(x, missing)


def _in_sequence(x: Tensor, torus: Torus, length: int) -> Tensor:
    """Take the positions from the torus: -> (batch, heads, length, platters, channels)."""
    for axis, size in enumerate((*torus.sizes, torus.num_platters), start=2):
        x = x.narrow(axis, 0, size)
    return x.flatten(2, 1 + len(torus.sizes))[:, :, :length]
