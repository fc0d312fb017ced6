"""The layer around a long convolution: a direct term, an activation and a linear map."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.base import Mixer, MixerContext
from models.layers.dropout import Dropout, build_dropout
from models.layers.linear_map import LinearMap
from models.layers.long_convolution import LongConvolution
from models.ops.toeplitz import LagKernel

Output = Literal["glu", "linear"]
Convolution = TypeVar("Convolution", bound=LongConvolution)


class ConvolutionMixer(Mixer, Generic[Convolution]):
    """The layer GLU(W gelu(K x + D x)), or the same without GLU; K x is a convolution.

    The context's inner dropout acts on the output of gelu; it zeroes whole channels if the context
    has tied dropout. With `drops_convolved` dropout also acts on the input of gelu, never on whole
    channels. The former is as in the code of DSS, the latter as in that of S4.

    Args:
        context: facts about the model and the task.
        convolution: K, with dim channels or a multiple of them. Each copy of the channels has its
            own kernels, and W joins the copies.
        output: "glu", or "linear" for W without a gate.
        drops_convolved: whether there is dropout before gelu as well.
    """

    def __init__(
        self,
        context: MixerContext,
        convolution: Convolution,
        *,
        output: Output = "glu",
        drops_convolved: bool = True,
    ) -> None:
        super().__init__()
        self.context = context
        self.convolution = convolution
        self.is_gated = output == "glu"
        self.copies = convolution.channels // context.dim
        self.direct = nn.Parameter(torch.randn(convolution.channels))
        self.output = LinearMap(convolution.channels, context.dim * (2 if self.is_gated else 1))
        probability = context.inner_dropout
        self.dropout = build_dropout(probability, tied=context.tied_dropout)
        self.convolved_dropout = Dropout(probability if drops_convolved else 0.0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0)
        if self.copies > 1:
            x = x.repeat(1, 1, self.copies)
        mixed = self.convolved_dropout(self._with_direct(x, self.convolution(x)))
        return self._project(self.dropout(functional.gelu(mixed)))

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Add the direct term D x, activate and project, as in evaluation.

        Args:
            x: (..., dim), the mixer's input, of a convolution without copies.
            mixed: (..., dim), the convolution's output.
        Returns: (..., dim).
        """
        return self._project(functional.gelu(self._with_direct(x, mixed)))

    def _with_direct(self, x: Tensor, mixed: Tensor) -> Tensor:
        return mixed + self.direct.to(x.dtype) * x

    def _project(self, hidden: Tensor) -> Tensor:
        y = self.output(hidden)
        return functional.glu(y, dim=-1) if self.is_gated else y


def join_directions(kernels: Tensor, length: int) -> LagKernel:
    """Join a kernel for earlier positions and, if there is one, a kernel for later positions.

    Args:
        kernels: (directions, channels, length), for lags 0, 1, ...; ahead for lags -1, -2, ...
        length: positions.
    """
    ahead = kernels[1:, :, : length - 1].flip(-1)
    return LagKernel(torch.cat([*ahead, kernels[0]], dim=-1), (1 - length) * len(ahead))
