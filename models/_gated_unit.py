"""The gated unit that the Toeplitz family of mixers shares."""

from __future__ import annotations

from torch import Tensor, nn

from models._activations import ACTIVATIONS, Activation


class GatedToeplitzUnit(nn.Module):
    """Compute W_o (f(W_u x) * T f(W_v x)) around a linear operator T over positions.

    The GTU of TNN (The Annotated TNN, GTU). Weights and biases of the
    three projections start as the published code's: normal with deviation 0.02.

    Args:
        operator: maps (batch, length, hidden) to the same shape and is linear in it.
    """

    def __init__(self, dim: int, hidden: int, activation: Activation, operator: nn.Module) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.gate = nn.Linear(dim, hidden)
        self.value = nn.Linear(dim, hidden)
        self.output = nn.Linear(hidden, dim)
        self.operator = operator
        for linear in (self.gate, self.value, self.output):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.normal_(linear.bias, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix positions: x (batch, length, dim), mask (batch, length) -> (batch, length, dim)."""
        value = self.activation(self.value(x))
        if mask is not None:
            # Here and not on x: the bias and the activation make zeros non-zero again.
            value = value.masked_fill(~mask[..., None], 0)
        return self.output(self.activation(self.gate(x)) * self.operator(value))
