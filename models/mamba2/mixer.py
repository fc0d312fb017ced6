"""Mamba-2, and the selective state spaces of Mamba, Mamba-3 and B2S6 for comparison.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023
(arXiv:2312.00752), section 3; Dao and Gu, "Transformers are SSMs", ICML 2024 (arXiv:2405.21060),
section 7; Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space Principles", 2026
(arXiv:2603.15569), section 3; Yu and Erichson, "Block-Biased Mamba for Long-Range Sequence
Processing", NeurIPS 2025 (arXiv:2505.09022).

With negative eigenvalues the transitions of Mamba-2 are between -1 and 1 (Grazzi et al.,
"Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025, arXiv:2411.12537,
section 4).

Symbols of the papers and their names here:
    A, Delta, B, C, D: SelectiveStates.poles, Selection.step, .into, .out, SelectiveStates.skip
    N: state_size
    E: expand
    x, z: the convolved part, gate
    h (B2S6): num_heads
"""

import functools
import math
from collections.abc import Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.common.options import Added
from lra.models.base import DecayingAt, LearningRates, MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import LinearMap
from lra.models.layers.short_convolution import ShortConvolution, SoftplusStep, draw_step_biases
from lra.models.layers.state_space import Rate
from lra.models.mamba2.selective_states import (
    BlockBiasedStates,
    HeadStates,
    MambaStates,
    Selection,
    SelectiveStates,
    SignedHeadStates,
    StateSizes,
    mix_together,
)
from lra.models.mamba2.turning_states import TurningStates

Selective = Literal["mamba1", "mamba2", "mamba3", "b2s6"]
StateSize = Annotated[int, Field(ge=1, le=2**12)]


def choose_heads(
    selective: Selective, inner: int, num_heads: int | None, num_groups: int | None
) -> tuple[int, int]:
    """Return the numbers of heads or blocks, and of groups, for so many inner channels."""
    if num_groups is not None and selective not in {"mamba2", "mamba3"}:
        raise ValueError(
            f"num_groups {num_groups} concerns selective=mamba2 and mamba3, not {selective}"
        )
    if num_heads is not None and selective == "mamba1":
        raise ValueError(f"num_heads {num_heads} does not concern selective=mamba1, without heads")
    of_64 = max(1, inner // 64)
    defaults = {"mamba1": 1, "mamba2": of_64, "mamba3": of_64, "b2s6": math.gcd(8, inner)}
    heads, groups = num_heads or defaults[selective], num_groups or 1
    if inner % heads:
        raise ValueError(f"num_heads {heads} does not divide the {inner} inner channels")
    if heads % groups:
        raise ValueError(f"num_groups {groups} does not divide num_heads {heads}")
    return heads, groups


class Direction(nn.Module):
    """One direction: a short convolution and silu, or neither of one tap, and the state space."""

    def __init__(self, states: SelectiveStates, conv_size: int) -> None:
        super().__init__()
        self.states = states
        self.convolution = None
        if conv_size > 1:
            self.convolution = ShortConvolution(states.convolved, conv_size, bias=True)

    def select(self, convolved: Tensor, direct: Tensor, mask: Tensor | None) -> Selection:
        """Compute the inputs of the states from sequences whose padding is 0."""
        if self.convolution is not None:
            convolved = functional.silu(self.convolution(convolved))
        with torch.autocast(convolved.device.type, enabled=False):
            working = torch.promote_types(convolved.dtype, torch.float32)
            chosen = self.states.select(convolved.to(working), direct.to(working))
        if mask is None:
            return chosen
        # A time step of 0: no state decays at padding, and nothing enters.
        mask = mask[..., None]
        return chosen._replace(x=chosen.x * mask, step=chosen.step * mask)


class Mamba2(RecurrentMixer, Recurrence):
    """A short convolution, a selective state space and a gate, O(length dim).

    If the context is not causal, it runs in both directions. They share the input map and the
    gate, and their results are added.

    Args:
        selective: the state space. "mamba2" has one pole and one time step per head; "mamba1" has
            poles per channel, and time steps from a map of low rank; "mamba3" has poles that depend
            on the input, rotations of states and a trapezoidal step; "b2s6" has complex poles,
            blocks of channels, and a bias on B.
        state_size: N, states per channel; they are complex in b2s6.
        num_heads: number of heads of mamba2 and mamba3, or of blocks of b2s6. None: heads of 64
            channels, or gcd(8, inner channels) blocks.
        num_groups: number of groups of heads of mamba2 and mamba3 that share B and C. None: one.
        expand: ratio of inner channels to dim.
        conv_size: number of taps of the short convolution; 1 for none, as in the paper of mamba3.
        directions: if the context is not causal, whether each direction has its "own" convolution,
            poles and time steps, or both have "shared" ones.
        step_min: smallest initial time step.
        step_max: largest initial time step.
        step_lr: highest learning rate of the time steps. None: the run's rate.
        negative_eigenvalues: whether the states of mamba2 are multiplied by numbers between -1 and
            1 instead of 0 and 1. Tasks that track a state, such as parity, need this.
    Raises: ValueError if heads, blocks or groups do not divide evenly, for options that the
        state space does not have, and if step_min exceeds step_max.
    """

    name = "mamba2"

    def __init__(
        self,
        context: MixerContext,
        *,
        selective: Selective = "mamba2",
        state_size: StateSize = 16,
        num_heads: PositiveInt | None = None,
        num_groups: PositiveInt | None = None,
        expand: Annotated[int, Field(ge=1, le=64)] = 2,
        conv_size: Annotated[int, Field(ge=1, le=64)] = 4,
        directions: Literal["own", "shared"] = "own",
        step_min: SoftplusStep = 1e-3,
        step_max: SoftplusStep = 0.1,
        step_lr: Rate | None = None,
        negative_eigenvalues: Annotated[bool, Added(False)] = False,
    ) -> None:
        super().__init__()
        if negative_eigenvalues and selective != "mamba2":
            raise ValueError(f"negative_eigenvalues concerns selective=mamba2, not {selective}")
        inner = expand * context.dim
        self.context = context
        self.step_lr = step_lr
        heads = choose_heads(selective, inner, num_heads, num_groups)
        sizes = StateSizes(inner, state_size, *heads, rank=math.ceil(context.dim / 16))
        steps = functools.partial(draw_step_biases, smallest=step_min, largest=step_max)
        signed = SignedHeadStates if negative_eigenvalues else HeadStates
        kinds = {
            "mamba1": MambaStates,
            "mamba2": signed,
            "mamba3": TurningStates,
            "b2s6": BlockBiasedStates,
        }
        count = 1 if context.causal or directions == "shared" else 2
        modules = [Direction(kinds[selective](sizes, steps), conv_size) for _ in range(count)]
        self.directions = cast("Sequence[Direction]", nn.ModuleList(modules))
        states = modules[0].states
        self.parts = [inner, states.convolved, states.direct]
        self.input = LinearMap(context.dim, sum(self.parts), bias=False)
        self.output = LinearMap(inner, context.dim, bias=False)
        self.norm_groups = (num_groups or 1) if selective == "mamba2" else None
        if self.norm_groups is not None:
            self.scale = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        gate, convolved, direct = self.input(x).split(self.parts, dim=-1)
        directions, parts = [self.directions[0]], [(convolved, direct, mask)]
        if not self.context.causal:
            directions.append(self.directions[-1])
            turned = convolved.flip(1), direct.flip(1), None if mask is None else mask.flip(1)
            parts.append(turned)
        chosen = [d.select(*part) for d, part in zip(directions, parts, strict=True)]
        with torch.autocast(x.device.type, enabled=False):
            mixed = mix_together([d.states for d in directions], chosen)
            ahead, *behind = (
                part + d.states.skip() * some.x
                for part, d, some in zip(mixed, directions, chosen, strict=True)
            )
        mixed = ahead + behind[0].flip(1) if behind else ahead
        return self.project(mixed.to(x.dtype), gate)

    def project(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """Gate, normalise in mamba2, and project: (..., inner) twice -> (..., dim)."""
        gated = mixed * functional.silu(gate)
        if self.norm_groups is not None:
            groups = gated.unflatten(-1, (self.norm_groups, -1))
            gated = functional.rms_norm(groups, groups.shape[-1:], eps=1e-5).flatten(-2)
            gated = gated * self.scale
        return self.output(gated)

    def learning_rates(self) -> LearningRates:
        rates: dict[nn.Parameter, float | DecayingAt | None] = {}
        for direction in self.directions:
            steps, others = direction.states.undecayed()
            rates |= {**dict.fromkeys(others), **dict.fromkeys(steps, self.step_lr)}
        return rates

    def initial_state(self, batch: int) -> tuple[Tensor, ...]:
        """Return zeros: the states and, with a convolution, the latest inputs."""
        direction = self.directions[0]
        states = direction.states.initial_state(batch)
        if direction.convolution is None:
            return (states,)
        return states, direction.convolution.initial_state(batch)

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        (states, *latest), direction = state, self.directions[0]
        gate, convolved, direct = self.input(x).split(self.parts, dim=-1)
        if direction.convolution is not None:
            convolved, inputs = direction.convolution.step(convolved, latest[0])
            convolved, latest = functional.silu(convolved), [inputs]
        mixed, states = direction.states.step(convolved, direct, states)
        return self.project(mixed.to(x.dtype), gate), (states, *latest)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        direction, latest = self.directions[0], []
        gate, convolved, direct = self.input(x).split(self.parts, dim=-1)
        if direction.convolution is not None:
            latest = [direction.convolution.state_after(convolved)]
            convolved = functional.silu(direction.convolution(convolved))
        mixed, states = direction.states.prefill(convolved, direct)
        return self.project(mixed.to(x.dtype), gate), (states, *latest)
