"""First-order linear recurrences by doubling, for devices on which each operation is a launch.

Each round joins neighbouring blocks of positions: what the earlier block ends with is carried
through the later one, all blocks at the same time (Sklansky, "Conditional-sum addition logic", IRE
Transactions on Electronic Computers, 1960).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

OF_MATRICES = 5
"""Dimensions of blocks of positions whose factors are matrices."""


def is_by_doubling(x: Tensor) -> bool:
    """Whether recurrences over x run by doubling, as they do wherever operations are launched."""
    return x.device.type != "cpu"


def join_both_ways(x: Tensor, other: Tensor | None = None) -> Tensor:
    """Append what runs in reverse, so that one recurrence runs both ways.

    Args:
        x: (batch, length, ...), for the recurrence from the first position to the last.
        other: of the same shape, for the one in reverse. None: x.
    Returns: (2 batch, length, ...).
    """
    return torch.cat([x, (x if other is None else other).flip(1)])


def split_both_ways(states: Tensor) -> tuple[Tensor, Tensor]:
    """Undo `join_both_ways`: (2 batch, length, ...) -> two of (batch, length, ...)."""
    ahead, back = states.chunk(2)
    return ahead, back.flip(1)


def recur_by_doubling(factors: Tensor, x: Tensor, *, reverse: bool) -> Tensor:
    """Run h[k] = factors[k] * h[k - 1] + x[k] in about 2 log2(length) rounds.

    Positions are divided into about sqrt(length) chunks. They are doubled within chunks first and
    over the ends of chunks afterwards, so that only half of the rounds move all numbers. Nothing is
    divided by a factor, so factors may be 0.

    Args:
        factors: (batch, length, channels), or (channels,) if they are the same at all positions;
            or matrices, (batch, length, rows, rows).
        x: (batch, length, channels), or (batch, length, rows, columns), of the same type, not
            empty.
        reverse: whether it runs from the last position to the first.
    Returns: of the shape of x, a new tensor.
    """
    length = x.shape[1]
    chunk = 2 ** ((length - 1).bit_length() // 2)
    is_fixed = factors.dim() == 1

    def arrange(factors: Tensor, multiple: int) -> Tensor:
        if is_fixed:
            return _powers(factors, multiple, reverse)
        return _pad(factors, multiple).unflatten(1, (-1, multiple))

    states, reaching = _pad(x, chunk).unflatten(1, (-1, chunk)), arrange(factors, chunk)
    _double(states, reaching, reverse=reverse)
    count = states.shape[1]
    if count > 1:
        last, whole = 0 if reverse else chunk - 1, 2 ** (count - 1).bit_length()
        over = arrange(reaching[last] if is_fixed else reaching[:, :, last], whole)
        ends = _pad(states[:, :, last], whole)
        _double(ends[:, None], over, reverse=reverse)
        before, after = slice(0, count - 1), slice(1, count)
        if reverse:
            before, after = after, before
        reaching = reaching if is_fixed else reaching[:, after]
        _carry(ends[:, before], reaching, states[:, after])
    return states.flatten(1, 2)[:, :length]


def _pad(x: Tensor, multiple: int) -> Tensor:
    """Copy x and append zeros until its length is a multiple: (batch, length, ...)."""
    excess = -x.shape[1] % multiple
    x = x.resolve_conj()
    if excess:
        return functional.pad(x, (*[0, 0] * (x.dim() - 2), 0, excess))
    return x.clone(memory_format=torch.contiguous_format)


def _powers(factor: Tensor, count: int, reverse: bool) -> Tensor:
    """Raise to the powers 1..count, or count..1 in reverse: (channels,) -> (count, channels)."""
    powers = factor.resolve_conj().expand(count, -1).cumprod(dim=0)
    return powers.flip(0) if reverse else powers


def _double(states: Tensor, reaching: Tensor, *, reverse: bool) -> None:
    """Run the recurrence in place.

    Args:
        states: (batch, blocks, positions, ...), a power of 2 of positions; x, and afterwards h.
        reaching: the factors of all positions, and afterwards their products from the first
            position; or (positions, channels), the powers of a factor that is the same everywhere.
        reverse: whether it runs from the last position to the first.
    """
    half = 1
    while half < states.shape[2]:
        end = 0 if reverse else half - 1
        here, there = _halves(states, half, reverse)
        if reaching.dim() < states.dim():
            beyond = reaching[-half:] if reverse else reaching[:half]
            _carry(here[:, :, end], beyond, there)
        else:
            within, beyond = _halves(reaching, half, reverse)
            _carry(here[:, :, end], beyond, there)
            _compose(within[:, :, end], beyond)
        half *= 2


def _halves(x: Tensor, half: int, reverse: bool) -> tuple[Tensor, Tensor]:
    """Cut pairs of blocks, in the order of the recurrence: two of (batch, blocks, half, ...)."""
    left, right = x.unflatten(2, (-1, 2, half)).flatten(1, 2).unbind(dim=2)
    return (right, left) if reverse else (left, right)


def _carry(end: Tensor, beyond: Tensor, there: Tensor) -> None:
    """Add to the states of blocks what a state before each of them becomes, in place.

    Args:
        end: (batch, blocks, ...), the states before.
        beyond: (batch, blocks, positions, ...) or (positions, channels), products of factors.
        there: (batch, blocks, positions, ...), the states.
    """
    if beyond.dim() == OF_MATRICES:
        there.add_(_multiply(beyond, end))
    else:
        there.addcmul_(end[:, :, None], beyond)


def _compose(within: Tensor, beyond: Tensor) -> None:
    """Multiply products of factors by those of the block before, in place."""
    if beyond.dim() == OF_MATRICES:
        beyond.copy_(_multiply(beyond, within))
    else:
        beyond.mul_(within[:, :, None])


def _multiply(beyond: Tensor, matrix: Tensor) -> Tensor:
    """Multiply all matrices of a block by one, in a single product of tall matrices."""
    return (beyond.flatten(2, 3) @ matrix).unflatten(2, (-1, beyond.shape[3]))
