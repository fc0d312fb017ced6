"""The common base of TNN and FD-TNN: a gated unit around a long convolution, as a mixer."""

from __future__ import annotations

import functools

from torch import Tensor
from torch.nn import functional

from models.base import MixerContext, Recurrence, RecurrentMixer
from models.layers.gated_unit import GatedToeplitzUnit
from models.layers.long_convolution import LongConvolution
from models.layers.recurrence import WrappedRecurrence, diagonal_from_kernel
from models.ops.toeplitz import LagKernel


class ToeplitzMixer(RecurrentMixer):
    """A mixer that is a gated unit around Toeplitz operators."""

    def __init__(self, context: MixerContext, unit: GatedToeplitzUnit) -> None:
        super().__init__()
        self.context = context
        self.unit = unit

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        return self.unit(x, mask)

    def freeze(self, length: int) -> Recurrence:
        """Convert the kernel into a recurrence that is exact over `length` positions.

        Args:
            length: positions for which it is exact; the state has length // 2 + 1 complex
                numbers per channel.
        Raises: ValueError if the context has a grid.
        """
        unit = self.unit
        if not isinstance(unit.operator, LongConvolution):
            raise ValueError("only a causal mixer of sequences, without a grid, has a recurrence")
        kernel = unit.operator.kernel(length)
        missing = length - kernel.coefficients.shape[1]
        whole = LagKernel(functional.pad(kernel.coefficients, (0, missing)), 0)
        model = diagonal_from_kernel(whole)
        return WrappedRecurrence(
            model,
            functools.partial(unit.operator.convolve_prefix, length=length),
            before=lambda x: unit.activation(unit.value(x)),
            after=unit.gated,
        )
