"""Counting the arithmetic of a training step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

_FOURIER = {torch.ops.aten._fft_r2c, torch.ops.aten._fft_c2r, torch.ops.aten._fft_c2c}
_CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward
_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
_RECURRENT = {
    torch.ops.aten.mkldnn_rnn_layer: 1, torch.ops.aten.mkldnn_rnn_layer_backward: 2,
    torch.ops.aten._cudnn_rnn: 1, torch.ops.aten._cudnn_rnn_backward: 2,
}  # fmt: skip
"""Recurrent networks that are one operator: products of a position with each weight matrix."""


class FlopCounter(TorchDispatchMode):
    """Counts floating-point operations of what runs within it, backward passes included.

    Matrix products, convolutions, attention, recurrent networks and Fourier transforms count; what
    works number by number (norms, activations, gates) does not. A complex product counts as four
    real ones, a Fourier transform of n points as 5 n log2 n, of real ones as half of that (the
    convention of FFTW's benchmarks). Results are what they are outside of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.total += _flops(func.overloadpacket, args, kwargs, result)
        return result


def _flops(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    if packet is _CONVOLUTION_BACKWARD:
        return _convolution_backward(args[0], args[2], args[10])
    if packet in flop_registry:
        first = result[0] if isinstance(result, tuple) else result
        times = 4 if isinstance(first, Tensor) and first.is_complex() else 1
        return times * flop_registry[packet](*args, **kwargs, out_val=result)
    if packet in _FOURIER:
        return _fourier(args[0], result, args[1])
    if packet is _ATTENTION:
        return sdpa_flop_count(*(x.shape for x in args[:3]))
    if packet is _ATTENTION_BACKWARD:
        return sdpa_backward_flop_count(*(x.shape for x in args[:4]))
    if packet in _RECURRENT:
        weights = args[1:5] if isinstance(args[1], Tensor) else args[1]
        return _RECURRENT[packet] * _recurrent(args[0], weights)
    return 0


def _convolution_backward(gradient: Tensor, weight: Tensor, wanted: list[bool]) -> int:
    """Count what torch's own formula overstates for depthwise convolutions.

    Each of the two gradients costs what the forward pass did.
    """
    return 2 * gradient.numel() * math.prod(weight.shape[1:]) * (wanted[0] + wanted[1])


def _recurrent(x: Tensor, weights: Sequence[Tensor]) -> int:
    """Count the products of each position, (..., channels), with the matrices among weights."""
    positions = x.numel() // x.shape[-1]
    return 2 * positions * sum(weight.numel() for weight in weights if weight.dim() > 1)


def _fourier(before: Tensor, after: Tensor, dims: list[int]) -> int:
    """Count transforms along dims, between tensors of which one may be real."""
    is_real = not (before.is_complex() and after.is_complex())
    # The real side, or either, holds all points: the other one half of a spectrum.
    whole = after if before.is_complex() else before
    points = math.prod(whole.shape[dim] for dim in dims)
    per_point = (2.5 if is_real else 5.0) * math.log2(max(2, points))
    return round(whole.numel() * per_point)
