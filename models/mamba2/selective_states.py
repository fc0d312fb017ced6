"""Selective state spaces, whose time steps and maps depend on the input: Mamba, Mamba-2, B2S6."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lra.models.layers.basic import LinearMap
from lra.models.layers.state_space import complex_dtype, complex_parameter, random_complex
from lra.models.ops.recurrences import Selection, decaying_attention, selective_scan

DrawSteps = Callable[[int], Tensor]
"""Draws the initial time steps of a number of channels or heads, see `draw_step_biases`."""


class StateSizes(NamedTuple):
    """Sizes of selective states; each kind uses some of them."""

    channels: int
    num_states: int
    num_heads: int
    """Number of heads, or of blocks, with equally many channels each."""
    num_groups: int
    """Number of groups of heads that share B and C."""
    rank: int
    """Rank of the map to the time steps of channels."""


class SelectiveStates(nn.Module, abc.ABC):
    """States h[k] = exp(dt A) h[k - 1] + dt B x[k], and y[k] = Re(C h[k]) + D x[k].

    The input has two parts, of any number of channels. The first, `convolved`, is the output of a
    short convolution; it holds x and often B and C. The second, `direct`, comes straight from the
    input projection. x and the result have `channels`.
    """

    factor: nn.Parameter
    """D, (channels,) or one for each head."""

    def __init__(self, sizes: StateSizes, *, convolved: int, direct: int) -> None:
        super().__init__()
        self.channels, self.num_states, self.num_heads, self.num_groups, self.rank = sizes
        self.convolved = convolved
        self.direct = direct

    @abc.abstractmethod
    def select(self, convolved: Tensor, direct: Tensor) -> Selection:
        """Compute the inputs of the states from (..., convolved) and (..., direct)."""

    @abc.abstractmethod
    def poles(self) -> Tensor:
        """Return A: (channels, states), or (channels, 1) if all states of a channel share it."""

    def skip(self) -> Tensor:
        """Return D: (channels,)."""
        return self.factor

    @abc.abstractmethod
    def undecayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters without weight decay: those of time steps, and the others."""

    def bias(self) -> Tensor | None:
        """Return the bias that is added to B, (channels, states), or None."""
        return None

    @staticmethod
    def run(chosen: Selection, poles: Tensor, bias: Tensor | None) -> Tensor:
        """Run over sequences without the direct term D: (batch, length, channels)."""
        return selective_scan(chosen, poles, bias)

    def initial_state(self, batch: int) -> Tensor:
        """Return zeros: (batch, channels, states)."""
        return self.poles().new_zeros(batch, self.channels, self.num_states)

    def step(self, convolved: Tensor, direct: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Process a position: (batch, ...), a state -> (batch, channels) and the next state."""
        (x, step, *maps), bias = self.select(convolved, direct), self.bias()
        into, out = (p.repeat_interleave(self.channels // p.shape[1], dim=1) for p in maps)
        into = into if bias is None else into + bias
        dt = step.repeat_interleave(self.channels // step.shape[-1], dim=-1)
        state = self.transitions(dt[..., None] * self.poles()) * state
        state = state + (dt * x)[..., None] * into
        return (out * state).real.sum(dim=-1) + self.skip() * x, state

    @staticmethod
    def transitions(exponents: Tensor) -> Tensor:
        """Return what states are multiplied by at a position, from dt A."""
        return exponents.exp()

    def prefill(self, convolved: Tensor, direct: Tensor) -> tuple[Tensor, Tensor]:
        """Process the first positions: (batch, length, ...) -> their results, and the state."""
        chosen, length = self.select(convolved, direct), convolved.shape[1]
        # Further positions, of time step 0, change nothing, and their C read the states one by one.
        reading = torch.eye(self.num_states, dtype=chosen.out.dtype, device=chosen.out.device)
        if reading.is_complex():
            reading = torch.cat([reading, -1j * reading])
        count = len(reading)
        out = reading[None, :, None].expand(len(chosen.out), -1, chosen.out.shape[2], -1)
        x, step, into = (
            torch.cat([part, part.new_zeros(len(part), count, *part.shape[2:])], dim=1)
            for part in (chosen.x, chosen.step, chosen.into)
        )
        joined = Selection(x, step, into, torch.cat([chosen.out, out], dim=1))
        mixed = self.run(joined, self.poles(), self.bias())
        state = mixed[:, length:].mT
        if reading.is_complex():
            state = torch.complex(*state.chunk(2, dim=-1))
        return mixed[:, :length] + self.skip() * chosen.x, state.contiguous()


def mix_together(states: Sequence[SelectiveStates], chosen: Sequence[Selection]) -> list[Tensor]:
    """Run states of one kind, each over its own sequences, on a GPU in as few launches as one."""
    if len(states) == 1 or chosen[0].x.device.type == "cpu":
        pairs = zip(states, chosen, strict=True)
        return [some.run(part, some.poles(), some.bias()) for some, part in pairs]
    return mix_as_one(states, chosen)


def mix_as_one(states: Sequence[SelectiveStates], chosen: Sequence[Selection]) -> list[Tensor]:
    """Put the channels, heads and groups of all states side by side, and run them."""
    parts = zip(zip(*chosen, strict=True), (-1, -1, -2, -2), strict=True)
    joined = Selection(*(torch.cat(part, dim=dim) for part, dim in parts))
    poles = torch.cat([some.poles() for some in states])
    biases = [bias for some in states if (bias := some.bias()) is not None]
    mixed = states[0].run(joined, poles, torch.cat(biases) if biases else None)
    return list(mixed.chunk(len(states), dim=-1))


class MambaStates(SelectiveStates):
    """The states of Mamba (Gu and Dao 2023, section 3): real poles, and steps of low rank."""

    def __init__(self, sizes: StateSizes, steps: DrawSteps) -> None:
        super().__init__(sizes, convolved=sizes.channels, direct=0)
        channels, num_states, _, _, rank = sizes
        self.maps = LinearMap(channels, rank + 2 * num_states, bias=False)
        self.time = LinearMap(rank, channels)
        nn.init.uniform_(self.time.weight, -(rank**-0.5), rank**-0.5)
        self.time.bias.data.copy_(steps(channels))
        rates = torch.arange(1.0, num_states + 1)
        self.log_rate = nn.Parameter(rates.log().repeat(channels, 1))
        self.factor = nn.Parameter(torch.ones(channels))

    def select(self, convolved: Tensor, direct: Tensor) -> Selection:
        sizes = [self.rank, self.num_states, self.num_states]
        low, into, out = self.maps(convolved).split(sizes, dim=-1)
        step = functional.softplus(self.time(low))
        return Selection(convolved, step, into[..., None, :], out[..., None, :])

    def poles(self) -> Tensor:
        """See `SelectiveStates.poles`: -1, -2, ... at the start, S4D-Real."""
        return -self.log_rate.exp()

    def undecayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        return [self.time.bias], [self.log_rate, self.factor]


class HeadStates(SelectiveStates):
    """The states of Mamba-2 (Dao and Gu 2024, section 7): one real pole and time step per head.

    Groups of heads share B and C.
    """

    def __init__(self, sizes: StateSizes, steps: DrawSteps) -> None:
        channels, num_states, num_heads, num_groups, _ = sizes
        convolved = channels + 2 * num_groups * num_states
        super().__init__(sizes, convolved=convolved, direct=num_heads)
        self.log_rate = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        self.step_bias = nn.Parameter(steps(num_heads))
        self.factor = nn.Parameter(torch.ones(num_heads))

    def select(self, convolved: Tensor, direct: Tensor) -> Selection:
        maps = self.num_groups * self.num_states
        x, into, out = convolved.split([self.channels, maps, maps], dim=-1)
        into, out = (part.unflatten(-1, (self.num_groups, -1)) for part in (into, out))
        step = functional.softplus(direct + self.step_bias)
        return Selection(x, step, into, out)

    def _of_heads(self, x: Tensor) -> Tensor:
        """Repeat what heads have for their channels: (..., heads) -> (..., channels)."""
        return x.repeat_interleave(self.channels // self.num_heads, dim=-1)

    def poles(self) -> Tensor:
        return -self._of_heads(self.log_rate.exp())[:, None]

    def skip(self) -> Tensor:
        return self._of_heads(self.factor)

    @staticmethod
    def run(chosen: Selection, poles: Tensor, bias: Tensor | None) -> Tensor:
        """Run as attention with decay, see `decaying_attention`."""
        return attend_over_heads(chosen, exponents_of_heads(chosen.step, poles))

    def undecayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        return [self.step_bias], [self.log_rate, self.factor]


def exponents_of_heads(step: Tensor, poles: Tensor) -> Tensor:
    """Compute dt A of heads: (..., heads) and (channels, 1) -> (..., heads)."""
    return poles[:: len(poles) // step.shape[-1], 0] * step


def attend_over_heads(chosen: Selection, log_decay: Tensor, sign: Tensor | None = None) -> Tensor:
    """Attend with decays (batch, length, heads) to the signed dt x: (batch, length, channels)."""
    value = chosen.step[..., None] * chosen.x.unflatten(-1, (log_decay.shape[-1], -1))
    value = value if sign is None else sign * value
    query, key, value = (part.transpose(1, 2) for part in (chosen.out, chosen.into, value))
    return decaying_attention(query, key, value, log_decay.mT).transpose(1, 2).flatten(2)


class SignedHeadStates(HeadStates):
    """The states of Mamba-2 with transitions 2 exp(dt A) - 1, between -1 and 1.

    Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025
    (arXiv:2411.12537), section 4.
    """

    @staticmethod
    def transitions(exponents: Tensor) -> Tensor:
        return 1 + 2 * torch.expm1(exponents)

    @staticmethod
    def run(chosen: Selection, poles: Tensor, bias: Tensor | None) -> Tensor:
        """Run as attention with decay, see `decaying_attention`.

        The sign of a product of transitions is the product of two signs: of all transitions up to
        its first position, and of all up to its last one.
        """
        exponents = exponents_of_heads(chosen.step, poles)
        change = torch.expm1(exponents)
        is_positive = change > -0.5  # noqa: PLR2004 (a transition is 1 + 2 change)
        sign = (2 * is_positive.to(change.dtype) - 1).cumprod(dim=1)[..., None]
        beyond = torch.where(is_positive, 2 * change, -2 * exponents.exp())
        # The logarithm of 0 is -inf. The number next to 0 has the same gradient.
        with torch.no_grad():
            beyond.clamp_(min=torch.finfo(beyond.dtype).eps - 1)
        log_decay = torch.log1p(beyond)
        mixed = attend_over_heads(chosen, log_decay, sign)
        return (sign * mixed.unflatten(-1, (sign.shape[-2], -1))).flatten(2)


class BlockBiasedStates(SelectiveStates):
    """The states of B2S6 (Yu and Erichson 2025): complex poles, blocks, and a bias on B.

    Each block of channels has its own B, C and time steps, computed from the channels of the block.
    What the paper leaves open follows S4D: poles start as in S4D-Lin, one per conjugate pair.
    """

    def __init__(self, sizes: StateSizes, steps: DrawSteps) -> None:
        super().__init__(sizes, convolved=sizes.channels, direct=0)
        channels, num_states, num_blocks, _, _ = sizes
        size = channels // num_blocks
        bound = size**-0.5
        self.into, self.out = (
            complex_parameter(random_complex(num_blocks, num_states, size) * bound)
            for _ in range(2)
        )
        self.into_bias = complex_parameter(torch.ones(channels, num_states, dtype=complex_dtype()))
        self.time = nn.Parameter(torch.empty(num_blocks, size).uniform_(-bound, bound))
        self.step_bias = nn.Parameter(steps(channels))
        self.log_rate = nn.Parameter(torch.full((channels, num_states), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(num_states).repeat(channels, 1))
        self.factor = nn.Parameter(torch.ones(channels))

    def select(self, convolved: Tensor, direct: Tensor) -> Selection:
        blocks = convolved.unflatten(-1, (self.num_heads, -1))
        moved = (blocks * self.time).sum(dim=-1, keepdim=True).expand_as(blocks).flatten(-2)
        into, out = (_apply(blocks, torch.view_as_complex(w)) for w in (self.into, self.out))
        # States stand for pairs of conjugates.
        return Selection(convolved, functional.softplus(moved + self.step_bias), into, 2 * out)

    def poles(self) -> Tensor:
        """See `SelectiveStates.poles`: -1/2 + i pi n at the start."""
        return torch.complex(-self.log_rate.exp(), self.frequency)

    def bias(self) -> Tensor:
        return torch.view_as_complex(self.into_bias)

    def undecayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        others = [self.log_rate, self.frequency, self.factor, self.into_bias]
        return [self.time, self.step_bias], others


def _apply(x: Tensor, weight: Tensor) -> Tensor:
    """Map blocks: real x (..., blocks, size), complex weight (blocks, states, size)."""
    real = torch.view_as_real(weight).permute(0, 2, 1, 3).flatten(2)
    mapped = torch.einsum("...bs,bsn->...bn", x, real)
    return torch.view_as_complex(mapped.unflatten(-1, (-1, 2)).contiguous())
