"""Linear maps by the faster of torch's two libraries on x86 processors.

torch multiplies matrices in single precision by Intel's MKL, which is half as fast as possible on
processors that are not Intel's. Convolutions use oneDNN, which is fast on all of them. On such a
processor, large products are computed as convolutions: rows are images of one line, and W is a
filter of one pixel.
"""

import functools
import math
import os
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

# oneDNN keeps compiled code for the last shapes, 1,024 of them by default and 0.4 MiB each. Batches
# of sequences have a new number of rows at every step, which will hardly come again; a batch of
# sequences of one length needs at most 21.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")

FEWEST_PRODUCTS = 2**25
"""Smallest number of multiplications for which a convolution is faster in spite of its overhead."""
FEWEST_ROWS = 512
"""Smallest number of rows for which it pays to rearrange W for a convolution."""
FEWEST_CHANNELS = 8
"""Smallest number of inputs and of outputs; with fewer, memory bandwidth is the limit."""
FEWEST_IMAGES = 16
"""Smallest batch of images that torch passes to oneDNN when it has one thread."""
MOST_IMAGES = 128
"""Batch of images for which the gradient of W is fastest."""


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `lra.models.layers.basic.linear_map`."""
    if not is_by_convolution(x, weight):
        return functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    excess = -len(rows) % FEWEST_IMAGES if torch.get_num_threads() == 1 else 0
    if excess:
        rows = functional.pad(rows, (0, 0, 0, excess))
    images = math.gcd(len(rows), MOST_IMAGES)
    # Channels come last in memory, and stay there.
    pixels = rows.view(images, 1, -1, x.shape[-1]).permute(0, 3, 1, 2)
    y = functional.conv2d(pixels, weight[:, :, None, None], bias)
    y = y.permute(0, 2, 3, 1).reshape(-1, len(weight))
    if excess:
        y = y[:-excess]
    return y.view(*x.shape[:-1], len(weight))


def is_by_convolution(x: Tensor, weight: Tensor) -> bool:
    """Whether `linear_map` computes x (..., inputs) and weight (outputs, inputs) by convolution."""
    rows = x.numel() // max(1, x.shape[-1])
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and rows >= FEWEST_ROWS
        and min(weight.shape) >= FEWEST_CHANNELS
        and rows * weight.numel() >= FEWEST_PRODUCTS
        and not torch.is_autocast_enabled("cpu")
        and _mkl_is_slow()
    )


@functools.cache
def _mkl_is_slow() -> bool:
    """Say whether torch multiplies by MKL on a processor that is not Intel's."""
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    if not has_both or platform.machine() not in {"x86_64", "AMD64"}:
        return False
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return "Intel" not in platform.processor()
    return "GenuineIntel" not in cpuinfo.read_text(encoding="utf-8", errors="replace")


def linear_pair(x: Tensor, first: nn.Linear, second: nn.Linear) -> tuple[Tensor, Tensor]:
    """Apply two linear maps to x, converting x to autocast's type once.

    The gradient in x is summed within the matrix products, unless these are convolutions.
    """
    if is_by_convolution(x, first.weight) and is_by_convolution(x, second.weight):
        return first(x), second(x)
    device = x.device.type
    rounded = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    rows = x.reshape(-1, x.shape[-1])
    pair: Any = _Pair.apply(rows, first.weight, first.bias, second.weight, second.bias, rounded)
    a, b = (part.view(*x.shape[:-1], part.shape[-1]) for part in pair)
    return a, b


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
    def backward(ctx: Any, *gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w1, w2 = ctx.saved_tensors
        first, second = gradients
        input_type, parameter_type = ctx.types
        of_x = torch.addmm(first @ w1, second, w2).to(input_type)
        of_parameters = (first.T @ x, first.sum(dim=0), second.T @ x, second.sum(dim=0))
        return of_x, *(gradient.to(parameter_type) for gradient in of_parameters), None
