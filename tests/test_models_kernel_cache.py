"""Kernels that are made once: what is kept, for how long, and when it is made anew."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import nn

from lra.models.layers.kernel_cache import cache_kernels
from lra.models.layers.long_convolution import LongConvolution
from lra.models.ops.reference import reference_forms
from lra.models.ops.toeplitz import LagKernel


class Given(LongConvolution):
    """A convolution with a kernel that is a parameter."""

    def __init__(self, channels: int, longest: int) -> None:
        super().__init__()
        self.channels = channels
        values = torch.randn(channels, 2 * longest - 1, dtype=torch.float64)
        self.coefficients = nn.Parameter(values)
        self.made: list[int] = []

    def generate(self, length: int) -> LagKernel:
        self.made.append(length)
        return LagKernel(self.coefficients, -(self.coefficients.shape[1] // 2)).cut(length)


def test_kernels_are_made_once_for_the_longest_and_cut() -> None:
    convolution, lengths = Given(2, 9), [8, 4, 8, 9, 2]
    with cache_kernels(), cache_kernels():
        assert [convolution.kernel(n).last_lag + 1 for n in lengths] == lengths
        assert convolution.made == [8, 9]
        with reference_forms():
            convolution.kernel(8)
        assert convolution.made == [8, 9, 8]
    convolution.kernel(8)
    assert len(convolution.made) == 4


@pytest.mark.parametrize("change", ["in place", "replaced", "optimizer"])
def test_a_changed_parameter_is_noticed(change: str) -> None:
    convolution = Given(1, 4)
    optimizer = torch.optim.SGD(convolution.parameters(), lr=1.0)
    with cache_kernels():
        before = convolution.kernel(4).coefficients.detach().clone()
        if change == "in place":
            with torch.no_grad():
                convolution.coefficients.mul_(2)
        elif change == "replaced":
            convolution.coefficients = nn.Parameter(torch.zeros(1, 7, dtype=torch.float64))
        else:
            convolution.kernel(4).coefficients.sum().backward()
            optimizer.step()
        after = convolution.kernel(4).coefficients.detach()
    assert not torch.equal(before, after)
    assert torch.equal(after, convolution.coefficients)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_was_made_without_gradients_is_not_trained_with(
    mode: Callable[[], AbstractContextManager[None]],
) -> None:
    convolution, x = Given(1, 4), torch.randn(1, 4, 1, dtype=torch.float64)
    with cache_kernels():
        with mode():
            convolution(x)
        convolution(x).sum().backward()
    assert convolution.coefficients.grad is not None
