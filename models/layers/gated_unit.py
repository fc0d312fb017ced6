"""The gated unit of TNN, SKI-TNN and FD-TNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from models.base import MixerContext
from models.layers.dropout import Dropout
from models.layers.linear_map import LinearMap
from models.layers.norms import Norm, build_norm
from models.layers.two_axes import along_axes
from models.ops.activations import ACTIVATIONS, Activation
from models.ops.linear_pair import linear_pair

ExpandRatio = Annotated[float, Field(gt=0, le=1000)]


class GatedToeplitzUnit(nn.Module):
    """The gated Toeplitz unit (GTU), W_3 norm(f(W_1 x) * T f(W_2 x)), for a linear operator T.

    The formula is in The Annotated TNN, "GTU". As in the published code, weights and biases of the
    three projections start normal with standard deviation 0.02. The context's inner dropout acts
    on the output of T, but only if the context has a grid.

    Args:
        context: facts about the model and the task.
        operator: builds T for sequences of at most a given length, a linear map of
            (batch, length, hidden) to the same shape. The unit has one operator, or one along each
            axis of the context's grid.
        hidden: number of channels inside the unit.
        activation: f, the activation of the gate and the value.
        inner_norm: norm over the inner channels, after the gate.
    """

    def __init__(
        self,
        context: MixerContext,
        operator: Callable[[int], nn.Module],
        *,
        hidden: int,
        activation: Activation,
        inner_norm: Norm,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.gate = LinearMap(context.dim, hidden)
        self.value = LinearMap(context.dim, hidden)
        self.output = LinearMap(hidden, context.dim)
        self.operator = along_axes(context, operator)
        self.dropout = Dropout(0.0 if context.grid is None else context.inner_dropout)
        self.norm = build_norm(inner_norm, hidden)
        for linear in (self.gate, self.value, self.output):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.normal_(linear.bias, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions, see `Mixer.forward`.

        Args:
            x: (batch, length, dim).
            mask: (batch, length) bool, True at real positions. None: all are real.
        Returns: (batch, length, dim).
        """
        gate, value = linear_pair(x, self.gate, self.value)
        value = self.activation(value)
        if mask is not None:
            # Here and not on x: the bias and the activation make zeros non-zero again.
            value = value.masked_fill(~mask[..., None], 0)
        return self._project(gate, self.dropout(self.operator(value)))

    def gated(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Multiply the operator's output by the gate, and project.

        Args:
            x: (..., dim), the unit's input.
            mixed: (..., hidden), the operator's output.
        Returns: (..., dim).
        """
        return self._project(self.gate(x), mixed)

    def _project(self, gate: Tensor, mixed: Tensor) -> Tensor:
        return self.output(self.norm(self.activation(gate) * mixed))


def inner_channels(expand_ratio: float, dim: int) -> int:
    """Return the number of channels inside a unit: `expand_ratio * dim`, at least one."""
    return max(1, round(expand_ratio * dim))
