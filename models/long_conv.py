"""Long convolutions whose kernels are parameters: free kernels and multiscale kernels.

Free: Fu et al., "Simple Hardware-Efficient Long Convolutions for Sequence Modeling", ICML 2023
(arXiv:2302.06646), section 3, and HazyResearch/safari. Multiscale: Li et al., "What Makes
Convolutional Models Great on Long Sequence Modeling?" (SGConv), ICLR 2023 (arXiv:2210.09298),
section 3.2, and ctlllll/SGConv.

Symbols of the papers and their names here:
    K (with a bar), k: kernels
    lambda: threshold
    d, the size of a sub-kernel: SCALE_SIZE
    alpha, the decay from scale to scale: DECAY
    Z: norm
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import LearningRates, MixerContext
from lra.models.layers.basic import Dropout
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.state_space import ConvolutionMixer, Output, Rate, join_directions
from lra.models.ops.deterministic import stretch
from lra.models.ops.toeplitz import LagKernel

Kernel = Literal["free", "multiscale"]
Start = Literal["random", "exponential"]

SCALE_SIZE = 64
"""Number of parameters of a sub-kernel of SGConv, per channel."""
DECAY = 2.0
"""Factor by which each scale of SGConv is weaker than the next finer one."""


class FreeConvolution(LongConvolution):
    """Kernels with a parameter for every lag (Fu et al., algorithm 1); see `LongConv`."""

    def __init__(
        self,
        context: MixerContext,
        *,
        copies: int,
        start: Start,
        threshold: float,
        smoothing: int,
        kernel_dropout: float,
    ) -> None:
        super().__init__()
        dim, longest = context.dim, context.max_length
        self.channels = copies * dim
        self.threshold = threshold
        self.smoothing = smoothing
        self.dropout = Dropout(kernel_dropout)
        kernels = torch.randn(context.num_directions, copies * dim, longest)
        if start == "random":
            kernels = kernels * 0.002
        else:
            rate = (dim / 2) ** (torch.arange(dim) / dim).repeat(copies)
            lag = torch.arange(longest) / longest
            kernels = kernels * 0.02 * torch.exp(-rate[:, None] * lag)
        self.kernels = nn.Parameter(kernels)

    def generate(self, length: int) -> LagKernel:
        half = self.smoothing // 2
        kernels = self.kernels[..., : length + half]
        if half:
            kernels = functional.avg_pool1d(kernels, self.smoothing, stride=1, padding=half)
        kernels = self.dropout(functional.softshrink(kernels[..., :length], self.threshold))
        missing = length - kernels.shape[-1]
        return join_directions(functional.pad(kernels, (0, missing)), length)


class MultiscaleConvolution(LongConvolution):
    """Kernels that are sequences of sub-kernels at growing scales (SGConv).

    Each sub-kernel is twice as long and half as strong as the one before; the first two have
    SCALE_SIZE lags. The kernel is divided by its initial norm.
    """

    norm: Tensor

    def __init__(self, context: MixerContext, *, copies: int) -> None:
        super().__init__()
        self.channels = copies * context.dim
        self.max_length = context.max_length
        scales = 1 + max(0, math.ceil(math.log2(context.max_length / SCALE_SIZE)))
        shape = scales, context.num_directions, self.channels, SCALE_SIZE
        self.scales = nn.Parameter(torch.randn(shape))
        self.register_buffer("norm", torch.ones(()))
        whole = self._whole().detach()
        self.norm = torch.linalg.vector_norm(whole, dim=-1, keepdim=True)

    def _whole(self) -> Tensor:
        """Return kernels of all scales before they are divided: (directions, channels, lags)."""
        finest = len(self.scales) - 1
        stretched = [
            DECAY ** (finest - n) * stretch(scale, 2 ** max(0, n - 1))
            for n, scale in enumerate(self.scales)
        ]
        return torch.cat(stretched, dim=-1)

    def generate(self, length: int) -> LagKernel:
        whole = self._whole()
        kernels = (whole / self.norm)[..., : min(length, self.max_length)]
        missing = length - kernels.shape[-1]
        return join_directions(functional.pad(kernels, (0, missing)), length)


class LongConv(ConvolutionMixer[LongConvolution]):
    """Long convolution with free or multiscale kernels, O(length log length).

    Kernels have max_length lags. Coefficients at larger lags are zero.

    Args:
        kernel: "free" for one parameter per lag, or "multiscale" for a number of parameters that
            grows with log(max_length).
        copies: number of convolutions per channel; a projection joins their results.
        start: how free kernels start, see `FreeConvolution`.
        threshold: soft threshold of free kernels: coefficients move towards 0 by it, at most to 0.
        smoothing: number of lags in a moving average over free kernels, odd; 1 for none.
        kernel_dropout: dropout probability of the coefficients of free kernels.
        kernel_lr: highest learning rate of kernels, which have no weight decay. None: the run's
            rate.
        output: "glu" for a projection with a gate, or "linear" for one without.
    Raises: ValueError for an even smoothing, and for options of free kernels with multiscale ones.
    """

    name = "long-conv"

    def __init__(
        self,
        context: MixerContext,
        *,
        kernel: Kernel = "free",
        copies: Annotated[PositiveInt, Field(le=64)] = 1,
        start: Start = "random",
        threshold: Annotated[float, Field(ge=0, le=1e3)] = 0.0,
        smoothing: Annotated[int, Field(ge=1, le=1023)] = 1,
        kernel_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        kernel_lr: Rate | None = 0.001,
        output: Output = "glu",
    ) -> None:
        if smoothing % 2 == 0:
            raise ValueError(f"smoothing {smoothing} is even, expected as many lags on either side")
        if kernel == "free":
            convolution: LongConvolution = FreeConvolution(
                context, copies=copies, start=start, threshold=threshold,
                smoothing=smoothing, kernel_dropout=kernel_dropout,
            )  # fmt: skip
        else:
            if (start, threshold, smoothing, kernel_dropout) != ("random", 0, 1, 0):
                raise ValueError(
                    "start, threshold, smoothing and kernel_dropout concern free kernels, and "
                    "kernel is multiscale"
                )
            convolution = MultiscaleConvolution(context, copies=copies)
        super().__init__(context, convolution, output=output, drops_convolved=False)
        self.kernel_lr = kernel_lr

    def learning_rates(self) -> LearningRates:
        return dict.fromkeys(self.convolution.parameters(), self.kernel_lr)
