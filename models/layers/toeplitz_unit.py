"""What TNN, SKI-TNN and FD-TNN are made of: the gated unit, its encoder and its recurrence.

Citations give headings of The Annotated TNN, the commented code of Qin et al., ICLR 2023.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from lra.models.base import GridModule, Mixer, MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import (
    ACTIVATIONS,
    Activation,
    Dropout,
    LinearMap,
    SimpleRMSNorm,
    to_autocast_type,
)
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.state_space import PeriodicStateSpace
from lra.models.ops.reference import fast_form_of

ExpandRatio = Annotated[float, Field(gt=0, le=1000)]
EncoderLayers = Annotated[int, Field(ge=0, le=1000)]
EncoderWidth = Annotated[int, Field(ge=1, le=2**16)]
Norm = Literal["simple_rms", "layer", "none"]
EncoderNorm = Literal["simple_rms", "layer", "none", "last_layer"]


class RelativePositionEncoder(nn.Module):
    """The relative position encoder (RPE), an MLP from a number to one value per channel.

    It is a linear layer from the number to `dim`, then `num_layers` hidden layers of norm,
    activation and linear layer, then an output layer of the same three parts ("Relative Position
    Encoder"). The norm "last_layer" is a layer norm before the last activation only. With two
    hidden layers this is the encoder that OpenNLPLab/lra builds, whatever its settings state. With
    `residual` each hidden layer adds its result to its input.

    Raises: ValueError for residual without hidden layers.
    """

    def __init__(
        self,
        channels: int,
        *,
        dim: int,
        num_layers: int,
        activation: Activation,
        norm: EncoderNorm,
        residual: bool,
    ) -> None:
        super().__init__()
        if residual and num_layers == 0:
            raise ValueError("rpe_residual concerns hidden layers, and rpe_layers is 0")
        self.activation = ACTIVATIONS[activation]
        self.residual = residual
        self.first = LinearMap(1, dim)
        before, last = ("none", "layer") if norm == "last_layer" else (norm, norm)
        self.norms = nn.ModuleList(_build_norm(before, dim) for _ in range(num_layers))
        self.norms.append(_build_norm(last, dim))
        widths = [dim] * num_layers + [channels]
        self.linears = nn.ModuleList(LinearMap(dim, width) for width in widths)

    def forward(self, numbers: Tensor) -> Tensor:
        """Encode numbers, which are lags or frequencies: (count,) -> (channels, count)."""
        hidden = self.first(numbers[:, None])
        for norm, linear in zip(list(self.norms)[:-1], list(self.linears)[:-1], strict=True):
            encoded = linear(self.activation(norm(hidden)))
            hidden = hidden + encoded if self.residual else encoded
        last = self.linears[-1]
        assert isinstance(last, nn.Linear)
        hidden = self.activation(self.norms[-1](hidden))
        return torch.addmm(last.bias[:, None], last.weight, hidden.T)


class RowsThenColumns(GridModule):
    """An operator along the rows, then one along the columns, times two.

    TNN's published code for images adds rows-then-columns and columns-then-rows. Both operators are
    linear and act on one axis each, so both orders are the same map: (A x I)(I x B) =
    (I x B)(A x I). Computing one order and doubling it is half the work.
    """

    def __init__(self, rows: nn.Module, columns: nn.Module, grid: tuple[int, int]) -> None:
        super().__init__(grid)
        self.rows = rows
        self.columns = columns

    def forward_reference(self, x: Tensor) -> Tensor:
        """Compute `forward` as published: both orders, added."""
        first = self.along_columns(self.columns, self.along_rows(self.rows, x))
        return first + self.along_rows(self.rows, self.along_columns(self.columns, x))

    @fast_form_of(forward_reference)
    def forward(self, x: Tensor) -> Tensor:
        """Mix a grid in raster order: (batch, height * width, channels) -> the same shape."""
        return 2 * self.along_columns(self.columns, self.along_rows(self.rows, x))


class GatedToeplitzUnit(nn.Module):
    """The gated Toeplitz unit (GTU), W_3 norm(f(W_1 x) * T f(W_2 x)), for a linear operator T.

    As in the published code, weights and biases of the three projections start normal with standard
    deviation 0.02. The context's inner dropout acts on the output of T, but only if the context has
    a grid.

    Args:
        operator: builds T for sequences of at most a given length, a linear map of
            (batch, length, hidden) to the same shape. The unit has one operator, or one along each
            axis of the context's grid.
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
        if context.grid is None:
            self.operator = operator(context.max_length)
        else:
            height, width = context.grid
            self.operator = RowsThenColumns(operator(width), operator(height), context.grid)
        self.dropout = Dropout(0.0 if context.grid is None else context.inner_dropout)
        self.norm = _build_norm(inner_norm, hidden)
        for linear in (self.gate, self.value, self.output):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.normal_(linear.bias, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = Mixer.without_padding(x, mask)
        x = to_autocast_type(x)
        gate, value = self.gate(x), self.value(x)
        # Again, as the bias and the activation make zeros non-zero again.
        value = Mixer.without_padding(self.activation(value), mask)
        return self.project(gate, self.dropout(self.operator(value)))

    def project(self, gate: Tensor, mixed: Tensor) -> Tensor:
        """Multiply T's output by the gate, (..., hidden) both, and project: (..., dim)."""
        return self.output(self.norm(self.activation(gate) * mixed))


def inner_channels(expand_ratio: float, dim: int) -> int:
    """Return the number of channels inside a unit: `expand_ratio * dim`, at least one."""
    return max(1, round(expand_ratio * dim))


class ToeplitzMixer(RecurrentMixer):
    """A mixer that is a gated unit around Toeplitz operators."""

    def __init__(self, context: MixerContext, unit: GatedToeplitzUnit) -> None:
        super().__init__()
        self.context = context
        self.unit = unit

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.unit(x, mask)

    def freeze(self, length: int) -> ToeplitzRecurrence:
        assert isinstance(self.unit.operator, LongConvolution)
        return ToeplitzRecurrence(self.unit, self.unit.operator, length)


class ToeplitzRecurrence(Recurrence):
    """The unit with a state space for T."""

    def __init__(self, unit: GatedToeplitzUnit, operator: LongConvolution, length: int) -> None:
        self.unit = unit
        self.convolve = functools.partial(operator.convolve_prefix, length=length)
        self.inner = PeriodicStateSpace(operator.kernel(length), length)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, hidden, length // 2 + 1) complex."""
        return self.inner.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        mixed, state = self.inner.step(self.unit.activation(self.unit.value(x)), state)
        return self.unit.project(self.unit.gate(x), mixed), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value = self.unit.activation(self.unit.value(x))
        y = self.unit.project(self.unit.gate(x), self.convolve(value))
        return y, self.inner.state_after(value)


def _build_norm(norm: Norm, dim: int) -> nn.Module:
    """Build the norm of a given name over the last dimension, of size `dim`."""
    if norm == "none":
        return nn.Identity()
    return nn.LayerNorm(dim) if norm == "layer" else SimpleRMSNorm()
