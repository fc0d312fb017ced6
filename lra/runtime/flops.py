"""Counting the arithmetic of a training step."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count


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
    if packet in _FORMULAS:
        return _FORMULAS[packet](args, result)
    if packet in flop_registry:
        first = result[0] if isinstance(result, tuple) else result
        times = 4 if isinstance(first, Tensor) and first.is_complex() else 1
        return times * flop_registry[packet](*args, **kwargs, out_val=result)
    return 0


def _convolution_backward(args: tuple[Any, ...], result: Any) -> int:
    """Count what torch's own formula overstates for depthwise convolutions.

    Each of the two gradients costs what the forward pass did.
    """
    gradient, weight, wanted = args[0], args[2], args[10]
    return 2 * gradient.numel() * math.prod(weight.shape[1:]) * (wanted[0] + wanted[1])


def _fourier(args: tuple[Any, ...], after: Tensor) -> int:
    """Count transforms along dimensions, between tensors of which one may be real."""
    before, dims = args[:2]
    is_real = not (before.is_complex() and after.is_complex())
    # The real side, or either, holds all points: the other one half of a spectrum.
    whole = after if before.is_complex() else before
    points = math.prod(whole.shape[dim] for dim in dims)
    per_point = (2.5 if is_real else 5.0) * math.log2(max(2, points))
    return round(whole.numel() * per_point)


def _recurrent(args: tuple[Any, ...], result: Any) -> int:
    """Count the products of each position with the weight matrices of a recurrent network.

    Weights are a list, or four arguments. Those with one dimension are biases.
    """
    x, weights = args[0], args[1:5] if isinstance(args[1], Tensor) else args[1]
    positions = x.numel() // x.shape[-1]
    return 2 * positions * sum(weight.numel() for weight in weights if weight.dim() > 1)


_ATEN = torch.ops.aten
_FORMULAS: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    _ATEN.convolution_backward: _convolution_backward,
    _ATEN._fft_r2c: _fourier,
    _ATEN._fft_c2r: _fourier,
    _ATEN._fft_c2c: _fourier,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: lambda args, _: sdpa_flop_count(
        *(x.shape for x in args[:3])
    ),
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda args, _: sdpa_backward_flop_count(*(x.shape for x in args[:4]))
    ),
    _ATEN.mkldnn_rnn_layer: _recurrent,
    _ATEN.mkldnn_rnn_layer_backward: lambda args, result: 2 * _recurrent(args, result),
    _ATEN._cudnn_rnn: _recurrent,
    _ATEN._cudnn_rnn_backward: lambda args, result: 2 * _recurrent(args, result),
}
"""What torch does not count, or overstates: formulas of an operator's arguments and result."""
