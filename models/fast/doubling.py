"""Linear recurrences by doubling: in few operations, as a GPU wants them.

Doubling joins neighbouring blocks of positions in each round: what the earlier block ends with is
carried through the later one, all blocks at the same time (Sklansky, "Conditional-sum addition
logic", IRE Transactions on Electronic Computers, 1960).
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

OF_MATRICES = 5
"""Dimensions of blocks of positions whose factors are matrices."""


def matrix_recurrence(maps: Tensor, x: Tensor) -> Tensor:
    """Run h[k] = maps[k] h[k - 1] + x[k] by doubling, from h = 0 before the first position.

    Args:
        maps: (batch, length, rows, rows), real.
        x: (batch, length, rows, columns), of the same type. Nothing of it is empty.
    Returns: (batch, length, rows, columns).
    """
    return cast("Tensor", _MatrixRecurrence.apply(maps, x))


def gradients_by_doubling(
    factors: Tensor, states: Tensor, to_states: Tensor, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the factors and of x, of a `scan` with these states."""
    if factors.dim() == 1:
        to_x = recur_by_doubling(factors.conj(), to_states, reverse=not reverse)
        first, second = slice(None, -1), slice(1, None)
        later, earlier = (first, second) if reverse else (second, first)
        return torch.einsum("bks,bks->s", to_x[:, later], states[:, earlier].conj()), to_x
    # What follows a position, in the order of the recurrence, decays by its own factor.
    following = _moved(factors, reverse).conj()
    to_x = recur_by_doubling(following, to_states, reverse=not reverse)
    return to_x * _moved(states, not reverse).conj(), to_x


def _moved(x: Tensor, to_later: bool) -> Tensor:
    """Move positions by one, to later ones or to earlier ones, with a 0 in the free place."""
    moved = torch.zeros_like(x)
    if to_later:
        moved[:, 1:] = x[:, :-1]
    else:
        moved[:, :-1] = x[:, 1:]
    return moved


class _MatrixRecurrence(Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, x: Tensor) -> Tensor:
        states = recur_by_doubling(maps, x, reverse=False)
        ctx.save_for_backward(maps, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        maps, states = ctx.saved_tensors
        following = torch.cat([maps[:, 1:], torch.zeros_like(maps[:, :1])], dim=1)
        to_x = recur_by_doubling(following.mT, to_states, reverse=True)
        to_maps = torch.zeros_like(maps)
        torch.matmul(to_x[:, 1:], states[:, :-1].mT, out=to_maps[:, 1:])
        return to_maps, to_x


def recur_by_doubling(factors: Tensor, x: Tensor, *, reverse: bool) -> Tensor:
    """Run `scan`, also of matrices, in about 2 log2(length) rounds; see `matrix_recurrence`.

    Positions are divided into about sqrt(length) chunks. They are doubled within chunks first and
    over the ends of chunks afterwards, so that only half of the rounds move all numbers. Nothing is
    divided by a factor, so factors may be 0. x is not empty.
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
    """Add to the states of blocks what the end of the block before becomes, in place.

    Products of factors are (batch, blocks, positions, ...), or (positions, channels).
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
