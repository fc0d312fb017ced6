"""What the operators of TNN and FD-TNN have in common: a kernel over lags."""

from __future__ import annotations

import abc

import torch
from torch import Tensor
from torch.nn import functional

from models.base import LagOperator, MixerContext, Part, RecurrentMixer
from models.layers.gated_unit import GatedToeplitzUnit
from models.layers.kernel_cache import kernel_for, multiply_shared
from models.layers.recurrence import Recurrence, WrappedRecurrence, diagonal_from_kernel
from models.ops.toeplitz import toeplitz_matrix


class ToeplitzOperator(LagOperator):
    """Every channel multiplied by a Toeplitz matrix that the parameters generate."""

    @abc.abstractmethod
    def generate(self, length: int) -> tuple[Tensor, int]:
        """Generate the kernel for sequences of a length.

        Returns: (num_lags, channels) for increasing lags, and the first lag.
        """

    def coefficients(self, length: int) -> tuple[Tensor, int]:
        """Return what `generate` does, outside of autocast, once within `shared_kernels`.

        Autocast would round lags above 256 to bfloat16, and neighbours to one number.
        """
        with torch.autocast(next(self.parameters()).device.type, enabled=False):
            return kernel_for(self._key(length), length, self.generate)

    def _key(self, length: int) -> tuple[object, int]:
        return self, self.resolution(length)

    def resolution(self, length: int) -> int:
        """Return a number that is the same for lengths that see the same kernel."""
        return 0

    def matrix(self, length: int) -> Tensor:
        """See `LagOperator.matrix`."""
        return toeplitz_matrix(*self.coefficients(length), length)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x: (batch, length, channels) -> the same shape."""
        return multiply_shared(self._key(x.shape[1]), self.coefficients, x)


class ToeplitzMixer(RecurrentMixer):
    """A gated unit around operators whose kernels are over lags: TNN and FD-TNN."""

    def __init__(self, context: MixerContext, unit: GatedToeplitzUnit) -> None:
        super().__init__()
        self.context = context
        self.unit = unit

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        return self.unit(x, mask)

    def parts(self) -> dict[str, Part]:
        """See `Mixer.parts`."""
        return {**super().parts(), **self.unit.parts()}

    @torch.no_grad()
    def recurrence(self, length: int) -> Recurrence:
        """Convert the kernel exactly over `length` positions, with which the state grows.

        Raises: ValueError if the context is not causal, or has a grid.
        """
        unit = self.unit
        if not self.context.causal or not isinstance(unit.operator, ToeplitzOperator):
            raise ValueError(
                "only a causal mixer of sequences has a recurrence (model.causal=true)"
            )
        kernel, _ = unit.operator.coefficients(length)
        missing = length - kernel.shape[0]
        model = diagonal_from_kernel(functional.pad(kernel, (0, 0, 0, missing)))
        return WrappedRecurrence(
            model, before=lambda x: unit.activation(unit.value(x)), after=unit.gated
        )
