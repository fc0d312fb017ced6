"""FD-TNN: a Toeplitz operator whose frequency response a network generates.

Moreno et al., "SKI to go Faster: Accelerating Toeplitz Neural Networks via Asymmetric
Kernels", 2023 (arXiv:2305.09028), Algorithm 2, sections 3.3 and 4.2.

Symbols of the paper and their names here:
    n: size / 2
    d: channels
    omega: angles in FrequencyOperator._encode
    RPE: RelativePositionEncoder, evaluated by FrequencyOperator.encode
    k-hat (k with a hat): FrequencyOperator.encode
    k-hat_causal: FrequencyOperator.response
    k_causal: FrequencyOperator._causal_kernel
    H{k-hat}: hilbert_transform_by_definition
    h: odd in hilbert_transform_by_definition
    TNO: FrequencyOperator
    GTU: GatedToeplitzUnit
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.base import MixerContext
from lra.models.layers.basic import Activation
from lra.models.layers.kernel_cache import compute_once
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.toeplitz_unit import (
    EncoderLayers,
    EncoderNorm,
    EncoderWidth,
    ExpandRatio,
    GatedToeplitzUnit,
    Norm,
    RelativePositionEncoder,
    ToeplitzMixer,
    inner_channels,
)
from lra.models.ops.toeplitz import LagKernel, circulant_multiply, fast_fft_length

FrequencyInput = Literal["angle", "cosine"]


class FrequencyOperator(LongConvolution):
    """The operator of FD-TNN: an encoder gives the kernel's frequency response, without decay.

    The causal form is Algorithm 2 of the paper, the bidirectional one its section 3.3.2. The
    response is sampled at size / 2 + 1 frequencies from 0 to pi. The size is the smallest power of
    two that is at least twice the task's longest sequence; it does not depend on the length of a
    batch, because padding would then change the kernel. For longer sequences it is doubled until
    it is at least twice their length.

    Args:
        encoder: gives one number per channel if causal, else two, the real and imaginary parts.
        frequency_input: the encoder's input. A smooth function of the angle has kinks at 0 and pi
            when it is continued around the circle, so its kernel falls no faster than
            1 / lag ** 2. A function of the cosine has none, as Theorems 2 and 3 assume.
    """

    def __init__(
        self,
        encoder: RelativePositionEncoder,
        channels: int,
        *,
        max_length: int,
        causal: bool,
        frequency_input: FrequencyInput,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.encoder = encoder
        self.max_length = max_length
        self.causal = causal
        self.frequency_input = frequency_input

    def resolution(self, length: int) -> int:
        """Return the size of the transform for sequences of a length: a power of two."""
        return 2 ** math.ceil(math.log2(2 * max(self.max_length, length)))

    def encode(self, size: int) -> Tensor:
        """Evaluate the encoder at size / 2 + 1 frequencies from 0 to pi, (outputs, frequencies)."""
        return compute_once(self, ("encoded", size), lambda: self._encode(size))

    def _encode(self, size: int) -> Tensor:
        weight = next(self.parameters())
        angles = torch.linspace(
            0, torch.pi, size // 2 + 1, dtype=weight.dtype, device=weight.device
        )
        return self.encoder(angles if self.frequency_input == "angle" else angles.cos())

    def response(self, size: int) -> Tensor:
        """Return the frequency response from 0 to pi: (channels, size / 2 + 1) complex.

        A causal operator encodes the real part, and the imaginary part follows from causality. A
        bidirectional one encodes both parts; the imaginary part is zero at 0 and pi.
        """
        if self.causal:
            return torch.fft.rfft(self._causal_kernel(size), n=size)
        real, imaginary = self.encode(size).chunk(2)
        return torch.complex(real, functional.pad(imaginary[:, 1:-1], (1, 1)))

    def _causal_kernel(self, size: int) -> Tensor:
        """Fold the even kernel of the real part onto lags 0..size / 2: (channels, size / 2 + 1).

        This does what the discrete Hilbert transform does in Algorithm 2: the response of a
        causal kernel's even part is the real part of its response, that of the odd part the
        imaginary part.
        """
        even = torch.fft.irfft(self.encode(size), n=size)
        half = size // 2
        return torch.cat([even[:, :1], 2 * even[:, 1:half], even[:, half : half + 1]], dim=1)

    def generate(self, length: int) -> LagKernel:
        size = self.resolution(length)
        if self.causal:
            return LagKernel(self._causal_kernel(size)[:, :length], 0)
        kernel = torch.fft.irfft(self.response(size), n=size)
        negative = kernel[:, size - length + 1 :]
        return LagKernel(torch.cat([negative, kernel[:, :length]], dim=1), 1 - length)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape.

        A bidirectional operator multiplies by the response directly, which saves the transform
        of a kernel over lags (section 3.3.2). For sequences that are much shorter than the
        longest, it uses the kernel over lags, cut to their length.
        """
        length = x.shape[1]
        size = self.resolution(length)
        if self.causal or 2 * fast_fft_length(2 * length - 1) <= size:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            response = compute_once(self, ("response", size), lambda: self.response(size))
            return circulant_multiply(response, size, x)


class FDTNN(ToeplitzMixer):
    """Gated Toeplitz unit whose encoder gives the frequency response, O(length log length).

    Args:
        expand_ratio: ratio of the channels inside the unit to those outside.
        activation: activation of the gate and the value.
        inner_norm: norm of the gated product, before the output projection.
        rpe_dim: width of the encoder.
        rpe_layers: number of hidden layers of the encoder.
        rpe_activation: activation in the encoder. With rpe_input=cosine it decides how fast
            kernels fall with the lag (Theorems 2 to 4): fastest with gelu, slowest with relu.
        rpe_norm: norm before each activation of the encoder. "last_layer" is a layer norm before
            the last activation only.
        rpe_residual: whether each hidden layer of the encoder adds to its input.
        rpe_input: the encoder's input for a frequency: its "angle", as published, or "cosine".
    Raises: ValueError if rpe_residual is set without hidden layers.
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
        rpe_norm: EncoderNorm = "simple_rms",
        rpe_residual: bool = False,
        rpe_input: FrequencyInput = "angle",
    ) -> None:
        hidden = inner_channels(expand_ratio, context.dim)

        def operator(max_length: int) -> FrequencyOperator:
            encoder = RelativePositionEncoder(
                hidden if context.causal else 2 * hidden, dim=rpe_dim, num_layers=rpe_layers,
                activation=rpe_activation, norm=rpe_norm, residual=rpe_residual,
            )  # fmt: skip
            return FrequencyOperator(
                encoder, hidden,
                max_length=max_length, causal=context.causal, frequency_input=rpe_input,
            )  # fmt: skip

        unit = GatedToeplitzUnit(
            context, operator, hidden=hidden, activation=activation, inner_norm=inner_norm
        )
        super().__init__(context, unit)
