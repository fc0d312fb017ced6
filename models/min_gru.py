"""minGRU and minLSTM: GRU and LSTM whose gates depend on the input alone.

Feng et al., "Were RNNs All We Needed?", 2024 (arXiv:2410.01201). What the paper leaves open follows
lucidrains/minGRU-pytorch; ours adds a linear map of the states.

The paper computes the recurrence from logarithms of gates and candidates. `scan` needs none, and is
more exact: over 16,384 positions of float32, with gates and candidates of unit variance, the
relative error of a state is at most 3e-7, and that of the logarithms 1.6e-3.

Symbols of the paper and their names here:
    z_t: the sigmoid of update; 1 - z_t is kept
    f'_t, i'_t: kept and 1 - kept of minLSTM, normalised to the sum 1
    h~_t: candidate
    g: make_positive
    h_t: states
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from lra.models.base import MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import LinearMap
from lra.models.ops.recurrences import scan


def make_positive(x: Tensor) -> Tensor:
    """Compute x + 1/2 where x >= 0, and the sigmoid elsewhere: any shape."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


class MinGRU(RecurrentMixer, Recurrence):
    """minGRU or minLSTM, and a linear map of its states, O(length dim^2); O(dim^2) a step.

    If the context is not causal, there are gates and states for each direction, and the linear map
    takes the states of both.

    Args:
        cell: "gru" has one gate, z, and "lstm" two, f and i.
    """

    name = "min-gru"

    def __init__(self, context: MixerContext, *, cell: Literal["gru", "lstm"] = "gru") -> None:
        super().__init__()
        self.context = context
        self.cell = cell
        dim, directions = context.dim, context.num_directions
        self.parts = directions, 2 if cell == "gru" else 3, dim
        self.input = LinearMap(dim, directions * self.parts[1] * dim, bias=False)
        self.output = LinearMap(directions * dim, dim, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        kept, entering = self.gate(self.without_padding(x, mask))
        if mask is not None:
            entering = entering * mask[..., None, None]
        directions = zip(kept.unbind(dim=2), entering.unbind(dim=2), strict=True)
        states = [scan(*parts, reverse=back == 1) for back, parts in enumerate(directions)]
        return self.output(torch.cat(states, dim=-1).to(x.dtype))

    def gate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the share of the state that is kept, and what enters it.

        Args:
            x: (..., dim).
        Returns: (..., directions, dim) each, in single precision or above.
        """
        values = self.input(x).unflatten(-1, self.parts)
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        candidate, update = values[..., 0, :], values[..., 1, :]
        if self.cell == "lstm":  # sigmoid(update) is i / (f + i)
            forget, enter = functional.logsigmoid(values[..., 1:, :]).unbind(dim=-2)
            update = enter - forget
        return torch.sigmoid(-update), torch.sigmoid(update) * make_positive(candidate)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, dim)."""
        return self.output.weight.new_zeros(batch, self.context.dim)

    @torch.no_grad()
    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        kept, entering = self.gate(x)
        state = kept[:, 0] * state + entering[:, 0]
        return self.output(state.to(x.dtype)), state

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, Tensor]:
        kept, entering = self.gate(x)
        states = scan(kept[:, :, 0], entering[:, :, 0])
        return self.output(states.to(x.dtype)), states[:, -1].clone()
