"""Softmax attention between the places and platters of a torus."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from models.ops.reference import fast_form_of
from models.ops.torus import Torus

BLOCK = 256
"""Queries of a block, platters counted, which are attended for together."""


@dataclass(frozen=True)
class Reach:
    """Which places attend to which, and at what cost."""

    torus: Torus
    causal: bool = False
    """Whether position i attends to j <= i only, on all platters."""
    window: int | None = None
    """On each axis steps apart are fewer than this; where causal, a window is behind alone."""

    def bias(
        self,
        query: Tensor,
        key: Tensor,
        weight: Tensor | None,
        *,
        mask: Tensor | None,
        periods: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor | None:
        """Tabulate what is added to scores: minus the weighted distance, -inf for no attention.

        A padded position attends to itself, or it might be left with nothing to attend to.

        Args:
            query: (queries,) int64, positions.
            key: (keys,) int64.
            weight: (heads,) of the distance. None: distances cost nothing.
            mask: (batch, keys) bool, True at real positions. None: all are real.
            periods: (batch, 1), of the one axis, where they are not the torus's own.
            dtype: of the result.
        Returns: (batch or 1, heads or 1, queries * platters, keys * platters); None if it is 0.
        """
        torus = self.torus
        places = torus.places(1 + int(max(query[-1], key[-1]))).to(key.device)
        apart = torus.apart(places[query], places[key], periods)
        allowed = self._allowed(query, key, apart)
        if mask is not None:
            is_itself = query[:, None] == key
            real = mask[:, None, :] | is_itself
            allowed = real if allowed is None else allowed & real
        if weight is None and allowed is None:
            return None
        return bias_table(torus, apart, allowed, weight=weight, periods=periods, dtype=dtype)

    def _allowed(self, query: Tensor, key: Tensor, apart: Tensor) -> Tensor | None:
        """Tell which position may attend to which: ((batch), queries, keys); None for all."""
        allowed = None
        if self.causal:
            allowed = query[:, None] >= key
        if self.window is not None:
            if self.causal and len(self.torus.sizes) == 1:
                near = query[:, None] - key < self.window
            else:
                near = (apart < self.window).all(dim=-1)
            allowed = near if allowed is None else allowed & near
        return allowed

    def keys_of(self, start: int, stop: int, length: int) -> Tensor:
        """List the positions that any of the queries in a range may attend to: (keys,) int64."""
        key = torch.arange(stop if self.causal else length)
        if self.window is None:
            return key
        if self.causal and len(self.torus.sizes) == 1:
            return key[max(0, start - self.window + 1) :]
        rows = self.torus.places(length)[:, 0]
        first, last = int(rows[start]), int(rows[stop - 1])
        period = self.torus.periods[0]
        ahead = (rows[key] - first) % period  # steps along the circle from the first query
        extent = (last - first) % period
        near = (ahead < extent + self.window) | (period - ahead < self.window)
        return key[near]


def bias_table(
    torus: Torus,
    apart: Tensor,
    allowed: Tensor | None,
    *,
    weight: Tensor | None,
    dtype: torch.dtype,
    periods: Tensor | None = None,
) -> Tensor:
    """Tabulate what is added to scores, platters counted; see `Reach.bias`.

    Args:
        torus: of the positions.
        apart: (..., queries, keys, axes) int64, steps.
        allowed: (..., queries, keys) bool, whether there is attention. None: there is.
        weight: (heads,) of the distance. None: distances cost nothing.
        dtype: of the result.
        periods: (..., 1), of the one axis, where they are not the torus's own.
    Returns: (batch or 1, heads or 1, queries * platters, keys * platters).
    """
    queries, keys = apart.shape[-3:-1]
    shape = (-1, 1, queries, 1, keys, 1)
    table = torch.zeros((1,) * 6, dtype=dtype, device=apart.device)
    if weight is not None:
        across = torus.distance(apart, periods).to(dtype).reshape(shape)
        beneath = torus.platter_distance(apart.device).to(dtype)[:, None, :]
        table = -weight.to(dtype).view(-1, 1, 1, 1, 1) * (across + beneath)
    if allowed is not None:
        table = table.masked_fill(~allowed.reshape(shape), -torch.inf)
    platters = torus.num_platters
    table = table.expand(-1, -1, queries, platters, keys, platters)
    return table.flatten(4).flatten(2, 3)


def toroidal_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach,
    *,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    periods: Tensor | None = None,
) -> Tensor:
    """Compute `toroidal_attention` with a table of all pairs of places and platters."""
    position = torch.arange(query.shape[2], device=query.device)
    bias = reach.bias(
        position, position, weight, mask=mask, periods=periods, dtype=query.dtype
    )  # fmt: skip
    mixed = functional.scaled_dot_product_attention(
        query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3), attn_mask=bias
    )
    return mixed.unflatten(2, query.shape[2:4])


@fast_form_of(toroidal_attention_reference)
def toroidal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reach: Reach,
    *,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    periods: Tensor | None = None,
) -> Tensor:
    """Attend from every place and platter to those within reach.

    Queries are taken in blocks, each with the keys within its reach, which the backward pass
    computes again. So what is kept is linear in the length, and with a window time is, too.

    Args:
        query: (batch, heads, length, platters, channels), its positions encoded.
        key: of the same shape.
        value: of the same shape.
        reach: which places attend to which.
        weight: (heads,) of the distance in scores. None: distances cost nothing.
        mask: (batch, length) bool, True at real positions. None: all are real.
        periods: (batch, 1), of the one axis, where they are not the torus's own.
    Returns: (batch, heads, length, platters, channels).
    """
    length, platters = query.shape[2:4]
    is_plain = weight is None and reach.window is None
    if is_plain and (not reach.causal or (platters == 1 and mask is None)):
        return _attend_to_all(query, key, value, mask, is_causal=reach.causal)
    block = max(1, BLOCK // platters)
    in_a_row = math.prod(reach.torus.sizes[1:])
    block = max(1, block // in_a_row) * in_a_row  # whole rows, so that its keys are, too

    def attend(
        query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None, start: int
    ) -> Tensor:
        stop = min(start + block, length)
        near = reach.keys_of(start, stop, length).to(query.device)
        here = torch.arange(start, stop, device=query.device)
        bias = reach.bias(
            here, near, weight, periods=periods, dtype=query.dtype,
            mask=None if mask is None else mask[:, near],
        )  # fmt: skip
        mixed = functional.scaled_dot_product_attention(
            query[:, :, start:stop].flatten(2, 3),
            key[:, :, near].flatten(2, 3),
            value[:, :, near].flatten(2, 3),
            attn_mask=bias,
        )
        return mixed.unflatten(2, (stop - start, platters))

    again: Any = functools.partial(checkpoint, attend, use_reentrant=False)
    blocks = [again(query, key, value, weight, start) for start in range(0, length, block)]
    return torch.cat(blocks, dim=2) if blocks else torch.zeros_like(query)


def _attend_to_all(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, is_causal: bool
) -> Tensor:
    """Attend to all real positions, or on one platter to those before, with no table of pairs."""
    allowed = None
    if mask is not None:
        is_alone = ~mask.any(dim=1, keepdim=True)  # of a row without any, which is never read
        real = (mask | is_alone).repeat_interleave(query.shape[3], dim=1)
        allowed = real[:, None, None, :]
    mixed = functional.scaled_dot_product_attention(
        query.flatten(2, 3), key.flatten(2, 3), value.flatten(2, 3),
        attn_mask=allowed, is_causal=is_causal,
    )  # fmt: skip
    return mixed.unflatten(2, query.shape[2:4])
