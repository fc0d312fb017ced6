"""RTF: long convolutions whose kernels are rational transfer functions.

Parnichkun et al., "State-Free Inference of State-Space Models: The Transfer Function Approach",
ICML 2024 (arXiv:2405.06147), section 3. Settings, and what the paper leaves open, follow
ruke1ire/RTF.

Symbols of the paper and their names here:
    n: state_size
    l (of the kernel): RationalConvolution.resolution, the period
    a_1, ..., a_n: denominator
    b_1, ..., b_n: numerator
    h_0: ConvolutionMixer.direct at lag 0, and RationalConvolution.ahead at lag -1
"""

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import DecayingAt, LearningRates, MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.state_space import (
    ConvolutionMixer,
    ConvolutionRecurrence,
    PeriodicStateSpace,
    Rate,
    check_copies,
    join_directions,
    real_dtype,
)
from lra.models.ops.toeplitz import LagKernel


class RationalConvolution(LongConvolution):
    """Kernels with the transfer function b(z) / a(z) at the roots of unity of a period.

    Here a(z) = 1 + a_1 z^-1 + ... + a_n z^-n and b(z) = b_1 z^-1 + ... + b_n z^-n. A kernel is the
    impulse response, summed over all periods: k[l] = h[l] + h[l + period] + ... for poles inside
    the unit circle. It is finite wherever a(z) has no zero at such a root, for poles outside of the
    circle, too, which nothing rules out. The period is max_length, so that padding changes no
    kernel. In the released code it is `trunc_len`, which its settings for the benchmark set to the
    same length.
    """

    def __init__(self, context: MixerContext, *, copies: int, state_size: int) -> None:
        super().__init__()
        self.channels = context.dim
        self.smallest_period = max(context.max_length, state_size + 1)
        directions, precise = context.num_directions, real_dtype()
        self.denominator = nn.Parameter(torch.zeros(directions, copies, state_size, dtype=precise))
        shape = directions, context.dim, state_size
        self.numerator = nn.Parameter(torch.zeros(shape, dtype=precise))
        ahead = torch.randn(context.dim, dtype=precise)
        self.ahead = None if context.causal else nn.Parameter(ahead)

    def resolution(self, length: int) -> int:
        """Return the period, an even number, see `LongConvolution.resolution`."""
        period = max(length, self.smallest_period)
        return period + period % 2

    def kernels(self, length: int) -> Tensor:
        """Generate kernels of lags 0, 1, ... and -1, -2, ...: (directions, channels, length)."""
        period = self.resolution(length)
        b = torch.fft.rfft(functional.pad(self.numerator, (1, 0)), n=period)
        a = torch.fft.rfft(functional.pad(self.denominator, (1, 0), value=1.0), n=period)
        response = b / a.repeat_interleave(b.shape[1] // a.shape[1], dim=1)
        kernels = torch.fft.irfft(response, n=period)[..., :length]
        if self.ahead is None:
            return kernels
        behind, ahead = kernels
        return torch.stack([behind, ahead + functional.pad(self.ahead[:, None], (0, length - 1))])

    def generate(self, length: int) -> LagKernel:
        return join_directions(self.kernels(length), length)


class RTF(ConvolutionMixer[RationalConvolution], RecurrentMixer):
    """Convolution with a rational transfer function, O(length log length) for any state size.

    A step takes O(length), as its recurrence keeps one state for each frequency of the kernel. The
    companion form of the paper takes O(n), but with poles outside of the unit circle it would
    amplify its rounding errors with each step.

    Args:
        state_size: n, the degree of numerators and denominators.
        num_copies: number of denominators, each for an equal number of channels. None: one per
            channel.
        kernel_lr: highest learning rate of a, b and h_0. None: the run's rate.
        kernel_decays: whether a, b and h_0 have the run's weight decay.
    Raises: ValueError if num_copies does not divide the channels.
    """

    name = "rtf"

    def __init__(
        self,
        context: MixerContext,
        *,
        state_size: Annotated[int, Field(ge=1, le=2**12)] = 64,
        num_copies: PositiveInt | None = 1,
        kernel_lr: Rate | None = None,
        kernel_decays: bool = True,
    ) -> None:
        copies = check_copies(num_copies, context.dim)
        convolution = RationalConvolution(context, copies=copies, state_size=state_size)
        # The released layer drops single numbers, also where the blocks drop whole channels.
        untied = replace(context, tied_dropout=False)
        super().__init__(untied, convolution, drops_convolved=False)
        self.kernel_lr = kernel_lr
        self.kernel_decays = kernel_decays

    def learning_rates(self) -> LearningRates:
        kernels = [*self.convolution.parameters(), self.direct]
        if not self.kernel_decays:
            return dict.fromkeys(kernels, self.kernel_lr)
        return {} if self.kernel_lr is None else dict.fromkeys(kernels, DecayingAt(self.kernel_lr))

    def freeze(self, length: int) -> Recurrence:
        """Return a recurrence that is exact over the length."""
        states = PeriodicStateSpace(self.convolution.kernel(length), length)
        return ConvolutionRecurrence(self, states, length)
