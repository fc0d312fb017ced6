"""First-order linear recurrences of matrices, h[k] = a[k] h[k - 1] + x[k]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from models.ops.doubling import recur_by_doubling
from models.ops.reference import fast_form_of


def matrix_recurrence_reference(maps: Tensor, x: Tensor) -> Tensor:
    """Compute `matrix_recurrence` one position at a time."""
    state, states = torch.zeros_like(x[:, 0]), []
    for a, added in zip(maps.unbind(dim=1), x.unbind(dim=1), strict=True):
        state = a @ state + added
        states.append(state)
    return torch.stack(states, dim=1)


@fast_form_of(matrix_recurrence_reference)
def matrix_recurrence(maps: Tensor, x: Tensor) -> Tensor:
    """Run h[k] = maps[k] h[k - 1] + x[k], from h = 0 before the first position.

    It runs by doubling. The backward pass is the same recurrence in reverse, with transposed maps.

    Args:
        maps: (batch, length, rows, rows), real.
        x: (batch, length, rows, columns), of the same type. Nothing of it is empty.
    Returns: (batch, length, rows, columns).
    """
    result = _Recurrence.apply(maps, x)
    assert isinstance(result, Tensor)
    return result


class _Recurrence(Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, x: Tensor) -> Tensor:
        states = recur_by_doubling(maps, x, reverse=False)
        ctx.save_for_backward(maps, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, to_states: Tensor
    ) -> tuple[Tensor, Tensor]:
        maps, states = ctx.saved_tensors
        following = torch.cat([maps[:, 1:], torch.zeros_like(maps[:, :1])], dim=1)
        to_x = recur_by_doubling(following.mT, to_states, reverse=True)
        to_maps = torch.zeros_like(maps)
        torch.matmul(to_x[:, 1:], states[:, :-1].mT, out=to_maps[:, 1:])
        return to_maps, to_x
