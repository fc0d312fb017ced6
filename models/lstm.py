"""LSTM and GRU: torch's own recurrent networks.

LSTM: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997, with the
forget gate of Gers, Schmidhuber and Cummins (Neural Computation 12(10), 2000). GRU: Cho et al.,
"Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014 (arXiv:1406.1078).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from lra.models.base import MixerContext, Recurrence, RecurrentMixer, State
from lra.models.layers.basic import LinearMap

NETWORKS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class LSTM(RecurrentMixer, Recurrence):
    """LSTM or GRU, and a linear map of its states, O(length dim^2); O(dim^2) a step.

    Positions are computed one after another. If the context is not causal, there is a network for
    each direction, and the linear map takes the states of both.

    Args:
        cell: "lstm" or "gru", each with dim hidden channels in a direction.
    """

    name = "lstm"

    def __init__(self, context: MixerContext, *, cell: Literal["lstm", "gru"] = "lstm") -> None:
        super().__init__()
        self.context = context
        dim, directions = context.dim, context.num_directions
        networks = [NETWORKS[cell](dim, dim, batch_first=True) for _ in range(directions)]
        self.networks = nn.ModuleList(networks)
        self.output = LinearMap(directions * dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        states, _ = self._run(self.networks[0], x)
        if not self.context.causal:
            back, _ = self._run(self.networks[1], reverse_sequences(x, mask))
            states = torch.cat([states, reverse_sequences(back, mask)], dim=-1)
        return self.output(states)

    def _run(self, network: nn.Module, x: Tensor, *before: State) -> tuple[Tensor, State]:
        """Return all states, of the type of x, and the last ones as torch has them."""
        # oneDNN has no LSTM in bfloat16 on many CPUs, and torch then raises an error.
        with torch.autocast(x.device.type, enabled=False):
            states, after = network(x.to(self.output.weight.dtype), *before)
        return states.to(x.dtype), after

    def initial_state(self, batch: int) -> State:
        """Return zeros: (batch, dim), the states; twice for an LSTM, which also has cells."""
        zeros = self.output.weight.new_zeros(batch, self.context.dim)
        return (zeros, zeros) if isinstance(self.networks[0], nn.LSTM) else zeros

    @torch.no_grad()
    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        # torch's states are (layers, batch, dim), of a single layer here.
        before = state[None] if isinstance(state, Tensor) else tuple(part[None] for part in state)
        states, after = self._run(self.networks[0], x[:, None], before)
        return self.output(states[:, 0]), _of_only_layer(after)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        states, after = self._run(self.networks[0], x)
        return self.output(states), _of_only_layer(after)


def _of_only_layer(state: State) -> State:
    return state[0] if isinstance(state, Tensor) else tuple(part[0] for part in state)


def reverse_sequences(x: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the real positions of each sequence, and leave padding where it is.

    torch's packed sequences would also keep padding out, but their networks are slower on a CPU,
    and a GPU has to wait for their lengths.

    Args:
        x: (batch, length, channels).
        mask: see `Mixer.forward`.
    Returns: (batch, length, channels).
    """
    if mask is None:
        return x.flip(1)
    position = torch.arange(x.shape[1], device=x.device)
    order = torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - position, position)
    return x.gather(1, order[..., None].expand_as(x))
