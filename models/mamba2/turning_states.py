"""The states of Mamba-3: a trapezoidal rule, and rotations that stand for complex poles.

Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space Principles", 2026
(arXiv:2603.15569), section 3. What the paper leaves open follows fla-org/flash-linear-attention,
such as softplus for the rates of decay. Since state-spaces/mamba@c69aaab, the authors' own code
computes these rates by another function, `heavy_tail_activation`.

Symbols of the paper and their names here: with a time step Delta, A Delta is -decay, lambda Delta
is entering, (1 - lambda) Delta is carried, and theta Delta is turns.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from lra.models.mamba2.selective_states import (
    DrawSteps,
    Selection,
    SelectiveStates,
    StateSizes,
    attend_over_heads,
    exponents_of_heads,
)
from lra.models.ops.deterministic import cumulative_sum
from lra.models.ops.rotary import turn


class TurningStates(SelectiveStates):
    """States h[k] = exp(-decay) R (h[k - 1] + carried B[k - 1] x[k - 1]) + entering B[k] x[k].

    R turns half of the states, in pairs. B and C are normalised, and each head adds a bias to
    them. The steps of a `Selection` are, for each head, entering, carried, decay and the turns.

    Raises: ValueError for fewer than 4 states.
    """

    def __init__(self, sizes: StateSizes, steps: DrawSteps) -> None:
        channels, states, heads, groups, _ = sizes
        if states // 4 == 0:
            raise ValueError(f"state_size {states} is too small: selective=mamba3 needs 4 or more")
        direct = 3 * heads + states // 4
        super().__init__(sizes, convolved=channels + 2 * groups * states, direct=direct)
        self.step_bias = nn.Parameter(steps(heads))
        self.norms = nn.ModuleList(nn.RMSNorm(states, eps=1e-5) for _ in range(2))
        self.biases = nn.Parameter(torch.ones(2, heads, states))
        self.factor = nn.Parameter(torch.ones(heads))

    def select(self, convolved: Tensor, direct: Tensor) -> Selection:
        (groups, heads), size = (self.num_groups, self.num_heads), self.num_groups * self.num_states
        x, *maps = convolved.split([self.channels, size, size], dim=-1)
        into, out = (
            norm(part.unflatten(-1, (groups, -1))).repeat_interleave(heads // groups, dim=-2) + bias
            for part, norm, bias in zip(maps, self.norms, self.biases, strict=True)
        )
        step, rate, share = direct[..., : 3 * heads].unflatten(-1, (3, heads)).unbind(dim=-2)
        rate = functional.softplus(rate).clamp(min=1e-4)
        parts = torch.stack([torch.sigmoid(share), torch.sigmoid(-share), rate], dim=-1)
        turns = math.pi * torch.tanh(direct[..., None, 3 * heads :])
        parts = torch.cat([parts, turns.expand(*parts.shape[:-1], -1)], dim=-1)
        step = functional.softplus(step + self.step_bias)[..., None]
        return Selection(x, (step * parts).flatten(-2), into, out)

    def poles(self) -> Tensor:
        """See `SelectiveStates.poles`: -1, as the steps hold the rates."""
        return -torch.ones_like(self.skip())[:, None]

    def skip(self) -> Tensor:
        return self.factor.repeat_interleave(self.channels // self.num_heads)

    def undecayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        return [self.step_bias], [self.factor]

    @staticmethod
    def run(chosen: Selection, poles: Tensor, bias: Tensor | None) -> Tensor:
        """Run as attention with decay to the positions before, and add what enters now."""
        x, steps, into, out = chosen
        entering, carried, decay, turns = split_steps(steps, into.shape[2])
        now = entering * (out * into).sum(dim=-1)
        angles = cumulative_sum(turns, 1, torch.float64)
        into, out = (turn_states(part, angles) for part in (into, out))
        exponents = exponents_of_heads(decay, poles)
        # Of the position before: what it carries here must not enter any earlier, not even rounded.
        step = (delay(entering) + carried) * exponents.exp()
        mixed = attend_over_heads(Selection(delay(x), step, delay(into), out), exponents)
        return mixed + (now[..., None] * x.unflatten(-1, (into.shape[2], -1))).flatten(2)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: the states, and what entered them last; (batch, channels, 2 states)."""
        return self.factor.new_zeros(batch, self.channels, 2 * self.num_states)

    def step(self, convolved: Tensor, direct: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x, steps, into, out = self.select(convolved, direct)
        parts = (part[:, :, None] for part in split_steps(steps, self.num_heads))
        entering, carried, decay, turns = parts
        held, last = state.unflatten(1, (self.num_heads, -1)).chunk(2, dim=-1)
        held = turn_states(held + carried[..., None] * last, -turns)
        latest = x.unflatten(-1, (self.num_heads, -1))[..., None] * into[..., None, :]
        held = (-decay).exp()[..., None] * held + entering[..., None] * latest
        mixed = (held @ out[..., None]).flatten(1) + self.skip() * x
        return mixed, torch.cat([held, latest], dim=-1).flatten(1, 2)

    def prefill(self, convolved: Tensor, direct: Tensor) -> tuple[Tensor, Tensor]:
        mixed, held = super().prefill(convolved, direct)
        # Of a step from any state, the second half is what entered last.
        _, after = self.step(convolved[:, -1], direct[:, -1], self.initial_state(len(held)))
        return mixed, torch.cat([held, after[..., self.num_states :]], dim=-1)


def delay(x: Tensor) -> Tensor:
    """Move each position to the next one, and zeros to the first: (batch, length, ...)."""
    return functional.pad(x, (*[0] * (2 * x.dim() - 4), 1, -1))


def split_steps(steps: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Return entering, carried and decay, (..., heads), and turns, (..., heads, angles)."""
    parts = steps.unflatten(-1, (heads, -1))
    return (*parts[..., :3].unbind(dim=-1), parts[..., 3:])


def turn_states(x: Tensor, angles: Tensor) -> Tensor:
    """Turn the first states: (..., states) by (..., angles)."""
    turning, others = x.tensor_split([2 * angles.shape[-1]], dim=-1)
    return torch.cat([turn(turning, angles), others], dim=-1)
