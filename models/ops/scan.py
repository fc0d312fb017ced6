"""First-order linear recurrences whose decays depend on the input, h[k] = a[k] h[k - 1] + x[k]."""

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
from models.ops.public_kernels import SCAN, on_gpu_by
from models.ops.reference import fast_form_of
from models.ops.vandermonde import block_length


def scan_reference(decay: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Compute `scan` one position at a time."""
    if reverse:
        return scan_reference(decay.flip(1), x.flip(1)).flip(1)
    state, states = torch.zeros_like(x[:, 0]) if x.shape[1] else x, []
    for a, position in zip(decay.unbind(dim=1), x.unbind(dim=1), strict=True):
        state = a * state + position
        states.append(state)
    return torch.stack(states, dim=1) if states else torch.zeros_like(x)


@fast_form_of(scan_reference)
def scan(decay: Tensor, x: Tensor, *, reverse: bool = False) -> Tensor:
    """Run h[k] = decay[k] * h[k - 1] + x[k], from h = 0 before the first position.

    Sequences are divided into about sqrt(length) chunks. All chunks run at the same time, and the
    states carried from chunk to chunk are added afterwards, in 2 sqrt(length) operations instead of
    length. On a GPU it runs by doubling, in fewer operations still. Nothing is divided by a decay,
    so decays may be 0. The backward pass is the same recurrence in reverse.

    Args:
        decay: (batch, length, channels), real or complex.
        x: of the same shape and type. At padding, which may come first or last, it must be 0.
        reverse: whether it runs from the last position to the first, h[k] = decay[k] * h[k + 1]
            + x[k].
    Returns: (batch, length, channels).
    Raises: TypeError if decay and x differ in shape or type.
    """
    if (decay.shape, decay.dtype) != (x.shape, x.dtype):
        raise TypeError(
            f"decay is {decay.dtype} {tuple(decay.shape)}, x is {x.dtype} {tuple(x.shape)}; "
            f"expected the same"
        )
    result = _Scan.apply(decay, x, reverse)
    assert isinstance(result, Tensor)
    return result


def scan_both_ways(decays: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Run `scan` from the first position to the last, and in reverse.

    Args:
        decays: (2, batch, length, channels), of each direction.
        x: (batch, length, channels), of the same type.
    Returns: the states of each direction, (batch, length, channels).
    """
    if is_by_doubling(x):
        return split_both_ways(scan(join_both_ways(*decays), join_both_ways(x)))
    return scan(decays[0], x), scan(decays[1], x, reverse=True)


class _Scan(Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, x: Tensor, reverse: bool) -> Tensor:
        states = _run(decay, x, reverse=reverse)
        ctx.save_for_backward(decay, states)
        ctx.reverse = reverse
        return states

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_states: Tensor
    ) -> tuple[Tensor | None, ...]:
        decay, states = ctx.saved_tensors
        # What follows a position, in the order of the recurrence, decays by its own decay.
        to_x = _run(_moved(decay, ctx.reverse).conj(), to_states, reverse=not ctx.reverse)
        to_decay = to_x * _moved(states, not ctx.reverse).conj()
        return to_decay, to_x, None


def _moved(x: Tensor, to_later: bool) -> Tensor:
    """Move positions by one, to later ones or to earlier ones, with a 0 in the free place."""
    moved = torch.zeros_like(x)
    if to_later:
        moved[:, 1:] = x[:, :-1]
    else:
        moved[:, :-1] = x[:, 1:]
    return moved


@on_gpu_by(SCAN)
def _run(decay: Tensor, x: Tensor, *, reverse: bool) -> Tensor:
    batch, length, channels = x.shape
    if x.numel() == 0:
        return x.clone()
    if is_by_doubling(x):
        return recur_by_doubling(decay, x, reverse=reverse)
    chunk = block_length(length)
    count = -(-length // chunk)
    whole = x.new_zeros(2, batch, count * chunk, channels)
    whole[0, :, :length] = x
    whole[1, :, :length] = decay.resolve_conj()
    chunks, products = whole.unflatten(2, (count, chunk))
    steps = range(chunk - 1, -1, -1) if reverse else range(chunk)
    for before, here in pairwise(steps):
        chunks[:, :, here].addcmul_(chunks[:, :, before], products[:, :, here])
        products[:, :, here].mul_(products[:, :, before])
    last = steps[-1]
    ends, over = chunks[:, :, last], products[:, :, last]
    order = range(count - 1, -1, -1) if reverse else range(count)
    for before, here in pairwise(order):
        ends[:, here].addcmul_(ends[:, before], over[:, here])
    if reverse:
        chunks[:, :-1, 1:].addcmul_(ends[:, 1:, None], products[:, :-1, 1:])
    else:
        chunks[:, 1:, :-1].addcmul_(ends[:, :-1, None], products[:, 1:, :-1])
    return whole[0, :, :length]
