"""The gated delta rule: a matrix state that replaces the value stored for a key.

Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025
(arXiv:2412.06464), section 3. What the paper leaves open follows fla-org/flash-linear-attention.

Symbols of the paper and their names here:
    q, k, v: query, key, value
    alpha: exp(log_decay)
    beta: rate
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import DecayingAt, MixerContext, PrefillRecurrence, Recurrence, RecurrentMixer
from models.layers.linear_map import LinearMap
from models.layers.selective_states import StepRange
from models.layers.short_convolution import ShortConvolution
from models.ops.delta_rule import delta_rule


class Direction(nn.Module):
    """The parameters of one direction: a short convolution and the decays.

    Args:
        channels: of queries, keys and values together.
        num_heads: heads.
        conv_size: taps of the convolution.
    """

    def __init__(self, channels: int, num_heads: int, conv_size: int) -> None:
        super().__init__()
        self.convolution = ShortConvolution(channels, conv_size, bias=False)
        # 0 would make the logarithm infinite.
        self.log_rate = nn.Parameter(torch.empty(num_heads).uniform_(1e-4, 16).log())
        self.step_bias = nn.Parameter(StepRange(1e-3, 0.1).draw(num_heads))

    def log_decays(self, moved: Tensor) -> Tensor:
        """Return the logarithms of the decays: (..., heads) -> the same shape."""
        return -self.log_rate.exp() * functional.softplus(moved + self.step_bias)


class Delta(RecurrentMixer):
    """Gated delta rule, O(length dim^2 expand / num_heads); O(dim^2 expand / num_heads) a step.

    If the context is not causal, the rule runs in both directions. They share the projections,
    and their results are added before the norm.

    Args:
        num_heads: number of heads, each with its own state.
        expand: ratio of value channels to key channels; there are dim key channels.
        conv_size: number of taps of the short convolutions of queries, keys and values.
        directions: if the context is not causal, whether each direction has its "own" convolution
            and decays, or both have "shared" ones.
    Raises: ValueError if num_heads does not divide the channels.
    """

    name = "delta"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        expand: Annotated[int, Field(ge=1, le=64)] = 2,
        conv_size: Annotated[int, Field(ge=1, le=64)] = 4,
        directions: Literal["own", "shared"] = "own",
    ) -> None:
        super().__init__()
        dim = context.dim
        if dim % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide model.dim {dim}")
        self.context = context
        self.num_heads = num_heads
        values = expand * dim
        self.parts = [dim, dim, values]
        self.query_key_value = LinearMap(dim, sum(self.parts), bias=False)
        self.rate_and_decay = LinearMap(dim, 2 * num_heads, bias=False)
        self.gate = LinearMap(dim, values, bias=False)
        self.output = LinearMap(values, dim, bias=False)
        self.norm = nn.RMSNorm(values // num_heads, eps=1e-5)
        count = 1 if context.causal or directions == "shared" else 2
        self.directions = nn.ModuleList(
            Direction(sum(self.parts), num_heads, conv_size) for _ in range(count)
        )

    def direction(self, number: int) -> Direction:
        """Return the parameters of a direction: 0 for the first, -1 for the last."""
        direction = self.directions[number]
        assert isinstance(direction, Direction)
        return direction

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        if mask is not None:  # and so keys, which have no bias, until real positions come
            x = x.masked_fill(~mask[..., None], 0)
        parts = self.query_key_value(x), self.rate_and_decay(x)
        mixed = self._run(0, *parts)
        if not self.context.causal:
            mixed = mixed + self._run(-1, *(part.flip(1) for part in parts)).flip(1)
        return self.project(x, mixed.to(x.dtype))

    def _run(self, number: int, projected: Tensor, moved: Tensor) -> Tensor:
        """Run in one direction: (batch, length, ...) -> (batch, length, heads, size)."""
        parts = self.rule_arguments(number, projected, moved)
        with torch.autocast(projected.device.type, enabled=False):
            return delta_rule(*parts).transpose(1, 2)

    def rule_arguments(self, number: int, projected: Tensor, moved: Tensor) -> list[Tensor]:
        """Compute the arguments of `delta_rule` for one direction, from (batch, length, ...)."""
        direction = self.direction(number)
        query, key, value = self.heads(direction.convolution(projected))
        rate, log_decay = self.rates(direction, moved)
        working = torch.promote_types(projected.dtype, torch.float32)
        return [part.transpose(1, 2).to(working) for part in (query, key, value, rate, log_decay)]

    def heads(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values: (..., channels) -> three of (..., heads, size)."""
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1))
            for part in functional.silu(convolved).split(self.parts, dim=-1)
        )
        query, key = (
            part * torch.rsqrt(part.square().sum(dim=-1, keepdim=True) + 1e-6)
            for part in (query, key)
        )
        return query * query.shape[-1] ** -0.5, key, value

    def rates(self, direction: Direction, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Return beta and the logarithms of decays: (..., 2 heads) -> two of (..., heads)."""
        rate, decay = moved.chunk(2, dim=-1)
        return torch.sigmoid(rate), direction.log_decays(decay)

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Normalise, gate and project: x (..., dim), mixed (..., heads, size) -> (..., dim)."""
        return self.output(self.norm(mixed).flatten(-2) * functional.silu(self.gate(x)))

    def learning_rates(self) -> Mapping[nn.Parameter, float | DecayingAt | None]:
        """Exempt the decays from weight decay, see `Mixer.learning_rates`."""
        each = [self.direction(number) for number in range(len(self.directions))]
        return dict.fromkeys(p for own in each for p in (own.log_rate, own.step_bias))

    def freeze(self, length: int) -> Recurrence:
        """Return the recurrence of the convolutions and of the matrices."""
        return _DeltaRecurrence(self)


class _DeltaRecurrence(PrefillRecurrence):
    def __init__(self, mixer: Delta) -> None:
        self.mixer = mixer
        self.direction = mixer.direction(0)

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return zeros: the matrices, (batch, heads, key size, value size), and latest inputs."""
        latest = self.direction.convolution.initial_state(batch)
        sizes = [part // self.mixer.num_heads for part in self.mixer.parts]
        return latest.new_zeros(batch, self.mixer.num_heads, sizes[1], sizes[2]), latest

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `Recurrence.step`."""
        mixer, (matrix, latest) = self.mixer, state
        convolved, latest = self.direction.convolution.step(mixer.query_key_value(x), latest)
        query, key, value = mixer.heads(convolved)
        rate, log_decay = mixer.rates(self.direction, mixer.rate_and_decay(x))
        matrix = log_decay.exp()[..., None, None] * matrix
        held = (key[..., None, :] @ matrix)[..., 0, :]
        change = rate[..., None] * (value - held)
        matrix = matrix + key[..., :, None] * change[..., None, :]
        mixed = (query[..., None, :] @ matrix)[..., 0, :]
        return mixer.project(x, mixed.to(x.dtype)), (matrix, latest)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `PrefillRecurrence.prefill`."""
        mixer, length = self.mixer, x.shape[1]
        projected = mixer.query_key_value(x)
        query, *others = mixer.rule_arguments(0, projected, mixer.rate_and_decay(x))
        # Further positions, of key 0, change nothing, and their queries read the matrix's rows.
        size = query.shape[-1]
        rows = torch.eye(size, dtype=query.dtype, device=x.device).expand(*query.shape[:2], -1, -1)
        further = [part.new_zeros(*part.shape[:2], size, *part.shape[3:]) for part in others]
        joined = (torch.cat(pair, dim=2) for pair in zip(others, further, strict=True))
        mixed, matrix = delta_rule(torch.cat([query, rows], dim=2), *joined).tensor_split(
            [length], dim=2
        )
        y = mixer.project(x, mixed.transpose(1, 2).to(x.dtype))
        return y, (matrix.clone(), self.direction.convolution.state_after(projected))
