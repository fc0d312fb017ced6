"""FD-TNN: a Toeplitz operator whose frequency response is encoded.

Moreno et al., "SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric
Kernels", 2023 (arXiv:2305.09028), Algorithm 2, sections 3.3 and 4.2.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from models.base import MixerContext
from models.layers.gated_unit import ExpandRatio, GatedToeplitzUnit, inner_channels
from models.layers.kernel_cache import made_once
from models.layers.long_convolution import ToeplitzMixer, ToeplitzOperator
from models.layers.relative_position_encoder import (
    EncoderLayers,
    EncoderWidth,
    Norm,
    RelativePositionEncoder,
)
from models.ops.activations import Activation
from models.ops.circulant import circulant_multiply
from models.ops.toeplitz import fast_fft_length

FrequencyInput = Literal["angle", "cosine"]


class _Join(Function):
    """Real parts over imaginary parts, (2 channels, frequencies), to a complex response.

    Its imaginary parts at both ends are zero. (As torch's own functions would join them, at half
    the passes over memory.)
    """

    @staticmethod
    def forward(ctx: Any, parts: Tensor) -> Tensor:
        real, imaginary = parts.contiguous().chunk(2)
        response = torch.complex(real, imaginary)
        response.imag[:, :: response.shape[1] - 1] = 0
        return response

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> Tensor:
        of_parts = torch.cat([gradients[0].real, gradients[0].imag])
        of_parts[len(gradients[0]) :, :: of_parts.shape[1] - 1] = 0
        return of_parts


class FrequencyOperator(ToeplitzOperator):
    """The FD-TNO: an encoder of the frequency gives the kernel's response; there is no decay.

    The response is sampled at size / 2 + 1 frequencies from 0 to pi, size being a power of
    two of at least twice the longest sequence: the published choice for full lengths. It
    does not depend on a sequence's own length, or padding would change the kernel; sequences
    beyond the longest see it at twice the resolution, as often as it takes.

    Args:
        encoder: gives one number per channel, or, bidirectional, two: real and imaginary parts.
        frequency_input: what the encoder sees of a frequency, the angle or its cosine. The
            even and periodic continuation of a function of the angle has a kink at 0 and at
            pi, whatever the function's smoothness, and so a kernel that falls no faster than
            the lag squared; a function of the cosine continues as smoothly as it is itself,
            as Theorems 2 and 3 assume.
    """

    def __init__(
        self,
        encoder: RelativePositionEncoder,
        *,
        max_length: int,
        causal: bool,
        frequency_input: FrequencyInput,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.max_length = max_length
        self.causal = causal
        self.frequency_input = frequency_input

    def size_for(self, length: int) -> int:
        """Return the transform size whose frequencies sequences of a length use."""
        return 2 ** math.ceil(math.log2(2 * max(self.max_length, length)))

    def resolution(self, length: int) -> int:
        """See `ToeplitzOperator.resolution`."""
        return self.size_for(length)

    def encode(self, size: int) -> Tensor:
        """Evaluate the encoder from 0 to pi, once within `shared_kernels`.

        Returns: (size / 2 + 1, outputs).
        """
        return made_once((self, "encoded", size), lambda: self._encode(size))

    def _encode(self, size: int) -> Tensor:
        weight = next(self.parameters())
        angles = torch.linspace(
            0, torch.pi, size // 2 + 1, dtype=weight.dtype, device=weight.device
        )
        return self.encoder(angles if self.frequency_input == "angle" else angles.cos())

    def response(self, size: int) -> Tensor:
        """Return the complex frequency response, (channels, size / 2 + 1).

        Causal: the encoded real part, and the imaginary part that makes the kernel causal.
        Bidirectional: both parts encoded, the imaginary one zero at 0 and pi.
        """
        if self.causal:
            return torch.fft.rfft(self._causal_kernel(size), n=size)
        response = _Join.apply(self.encode(size).T)
        assert isinstance(response, Tensor)
        return response

    def _causal_kernel(self, size: int) -> Tensor:
        """Fold the even kernel of the real part onto lags 0..size / 2: (channels, size / 2 + 1).

        This is the discrete Hilbert transform: the even part of a causal kernel has the real
        part of its response, the odd part the imaginary one.
        """
        even = torch.fft.irfft(self.encode(size).T, n=size)
        half = size // 2
        return torch.cat([even[:, :1], 2 * even[:, 1:half], even[:, half : half + 1]], dim=1)

    def generate(self, length: int) -> tuple[Tensor, int]:
        """See `ToeplitzOperator.generate`."""
        size = self.size_for(length)
        if self.causal:
            return self._causal_kernel(size)[:, :length].T, 0
        kernel = torch.fft.irfft(self.response(size), n=size)
        return torch.cat([kernel[:, size - length + 1 :], kernel[:, :length]], dim=1).T, 1 - length

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape.

        Full lengths are multiplied by the response as it is, with one transform fewer than
        a kernel over lags takes. Much shorter sequences cut that kernel to their length.
        """
        length = x.shape[1]
        size = self.size_for(length)
        if self.causal or 2 * fast_fft_length(2 * length - 1) <= size:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            response = made_once((self, "response", size), lambda: self.response(size))
            return circulant_multiply(response, size, x)


def hilbert_transform_dense(real: Tensor) -> Tensor:
    """Compute the discrete Hilbert transform of a real, even response by its sum: the reference.

    (H k)[m] = sum over l of h[m - l] k[l], where h is 0 at even places and
    2 / size * cot(pi l / size) at odd ones; as the size grows, Definition 1's 2 / (pi l).

    Args:
        real: (channels, size / 2 + 1), the response from 0 to pi.
    Returns: (channels, size / 2 + 1); the causal kernel's response is real - i * (H real).
    """
    size = 2 * (real.shape[1] - 1)
    circle = torch.cat([real, real[:, 1:-1].flip(1)], dim=1)
    places = torch.arange(size, dtype=real.dtype, device=real.device)
    odd = torch.where(places % 2 == 1, 2 / size / torch.tan(torch.pi * places / size), 0)
    index = (torch.arange(real.shape[1])[:, None] - torch.arange(size)[None]) % size
    return circle @ odd[index].T


class FDTNN(ToeplitzMixer):
    """Gated Toeplitz unit around a frequency response, O(length log length).

    Args:
        expand_ratio: channels inside the unit over channels outside.
        activation: of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        rpe_dim: width of the encoder of frequencies.
        rpe_layers: its hidden layers.
        rpe_activation: its activation; with rpe_input cosine it sets how fast kernels fall
            with the lag (Theorems 2 to 4): gelu faster than silu, silu faster than relu.
        rpe_norm: its norm, before each activation.
        rpe_residual: whether each of its hidden layers adds to its input.
        rpe_input: what it sees of a frequency: the angle, as published, or its cosine.
    Raises: ValueError for options of the encoder that contradict one another.
    """

    name = "fd-tnn"
    has_native_grid = True

    def __init__(
        self,
        context: MixerContext,
        *,
        expand_ratio: ExpandRatio = 3.0,
        activation: Activation = "silu",
        inner_norm: Norm = "none",
        rpe_dim: EncoderWidth = 32,
        rpe_layers: EncoderLayers = 3,
        rpe_activation: Activation = "relu",
        rpe_norm: Norm = "simple_rms",
        rpe_residual: bool = False,
        rpe_input: FrequencyInput = "angle",
    ) -> None:
        hidden = inner_channels(expand_ratio, context.dim)

        encode = functools.partial(
            RelativePositionEncoder,
            hidden if context.causal else 2 * hidden,
            dim=rpe_dim,
            num_layers=rpe_layers,
            activation=rpe_activation,
            norm=rpe_norm,
            residual=rpe_residual,
        )

        def operator(max_length: int) -> FrequencyOperator:
            return FrequencyOperator(
                encode(),
                max_length=max_length,
                causal=context.causal,
                frequency_input=rpe_input,
            )

        unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )
        super().__init__(context, unit)
