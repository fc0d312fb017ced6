"""Two linear maps of the same input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from models.ops.linear_map import is_by_convolution
from models.ops.reference import fast_form_of


def linear_pair_reference(x: Tensor, first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor]:
    """Compute `linear_pair` by one linear map after the other."""
    return first(x), second(x)


@fast_form_of(linear_pair_reference)
def linear_pair(x: Tensor, first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor]:
    """Apply two linear maps to x, converting x to autocast's type once.

    The gradient in x is summed within the matrix products, unless these are convolutions.

    Args:
        x: (..., inputs).
        first: with a bias.
        second: with a bias.
    Returns: (..., outputs of the first) and (..., outputs of the second).
    """
    if is_by_convolution(x, first.weight) and is_by_convolution(x, second.weight):
        return first(x), second(x)
    device = x.device.type
    rounded = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    rows = x.reshape(-1, x.shape[-1])
    a, b = _Pair.apply(rows, first.weight, first.bias, second.weight, second.bias, rounded)
    batch = x.shape[:-1]
    return a.view(*batch, first.out_features), b.view(*batch, second.out_features)


class _Pair(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
        *parameters, rounded = arguments
        ctx.types = x.dtype, parameters[0].dtype
        x, w1, b1, w2, b2 = (tensor.to(rounded) for tensor in (x, *parameters))
        ctx.save_for_backward(x, w1, w2)
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x, w1, b1), functional.linear(x, w2, b2)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, w1, w2 = ctx.saved_tensors
        first, second = gradients
        input_type, parameter_type = ctx.types
        of_x = torch.addmm(first @ w1, second, w2).to(input_type)
        of_parameters = (first.T @ x, first.sum(dim=0), second.T @ x, second.sum(dim=0))
        return of_x, *(gradient.to(parameter_type) for gradient in of_parameters), None
