"""First-order linear recurrences with fixed diagonal matrices, h[k] = poles * h[k - 1] + x[k]."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from models.ops.doubling import (
    is_by_doubling,
    join_both_ways,
    recur_by_doubling,
    split_both_ways,
)
from models.ops.reference import fast_form_of
from models.ops.vandermonde import block_length


def diagonal_recurrence_reference(poles: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Compute `diagonal_recurrence` one position at a time."""
    if reverse:
        return diagonal_recurrence_reference(poles, x.flip(1)).flip(1)
    state, states = torch.zeros_like(x[:, 0]) if x.shape[1] else x, []
    for position in x.unbind(dim=1):
        state = poles * state + position
        states.append(state)
    return torch.stack(states, dim=1) if states else torch.zeros_like(x)


@fast_form_of(diagonal_recurrence_reference)
def diagonal_recurrence(poles: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Run h[k] = poles * h[k - 1] + x[k], from h = 0 before the first position.

    Sequences are divided into about sqrt(length) chunks. All chunks run at the same time, and the
    states carried from chunk to chunk are added afterwards. This takes 2 sqrt(length) operations
    instead of length, and linear time. On a GPU it runs by doubling. The backward pass is the same
    recurrence in reverse.

    Args:
        poles: (states,), real or complex.
        x: (batch, length, states), of the same type.
        reverse: whether it runs from the last position to the first.
    Returns: (batch, length, states).
    Raises: TypeError if poles and x are of different types.
    """
    if poles.dtype != x.dtype:
        raise TypeError(f"poles are {poles.dtype}, x is {x.dtype}; expected the same")
    result = _Recurrence.apply(poles, x, reverse)
    assert isinstance(result, Tensor)
    return result


def recur_both_ways(poles: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run `diagonal_recurrence` from the first position to the last, and in reverse.

    Args:
        poles: (states,), real or complex.
        x: (batch, length, states), of the same type.
    Returns: the states of each direction, (batch, length, states).
    """
    if is_by_doubling(x):
        return split_both_ways(diagonal_recurrence(poles, join_both_ways(x)))
    return diagonal_recurrence(poles, x), diagonal_recurrence(poles, x, reverse=True)


class _Recurrence(Function):
    @staticmethod
    def forward(ctx: Any, poles: Tensor, x: Tensor, reverse: bool) -> Tensor:
        states = _run(poles, x, reverse=reverse)
        ctx.save_for_backward(poles, states)
        ctx.reverse = reverse
        return states

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_states: Tensor
    ) -> tuple[Tensor | None, ...]:
        poles, states = ctx.saved_tensors
        to_x = _run(poles.conj(), to_states, reverse=not ctx.reverse)
        if ctx.reverse:
            later, earlier = to_x[:, :-1], states[:, 1:]
        else:
            later, earlier = to_x[:, 1:], states[:, :-1]
        to_poles = torch.einsum("bks,bks->s", later, earlier.conj())
        return to_poles, to_x, None


def _run(poles: Tensor, x: Tensor, *, reverse: bool) -> Tensor:
    batch, length, states = x.shape
    if x.numel() == 0:
        return x.clone()
    if is_by_doubling(x):
        return recur_by_doubling(poles, x, reverse=reverse)
    chunk = block_length(length)
    count = -(-length // chunk)
    whole = x.new_empty(batch, count * chunk, states)
    whole[:, :length] = x
    whole[:, length:] = 0
    chunks = whole.view(batch, count, chunk, states)
    steps = range(chunk - 1, -1, -1) if reverse else range(chunk)
    for before, here in pairwise(steps):
        chunks[:, :, here].addcmul_(chunks[:, :, before], poles)
    powers = poles.expand(chunk, -1).cumprod(dim=0)
    ends = chunks[:, :, steps[-1]]
    order = range(count - 1, -1, -1) if reverse else range(count)
    for before, here in pairwise(order):
        ends[:, here].addcmul_(ends[:, before], powers[-1])
    if reverse:
        chunks[:, :-1, 1:].addcmul_(ends[:, 1:, None], powers[:-1].flip(0))
    else:
        chunks[:, 1:, :-1].addcmul_(ends[:, :-1, None], powers[:-1])
    return whole[:, :length]
