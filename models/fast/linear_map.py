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

import torch
from torch import Tensor
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
