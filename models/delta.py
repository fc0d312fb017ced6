"""The gated delta rule: a matrix state that replaces the value stored for a key.

Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025
(arXiv:2412.06464), section 3. What the paper leaves open follows fla-org/flash-linear-attention.

Symbols of the paper and their names here:
    alpha: exp(log_decay)
    beta: rate

With negative eigenvalues beta is between 0 and 2 (Grazzi et al.,
"Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025, arXiv:2411.12537,
section 4). With several products a position stores several values, one after the other (Siems et
al., "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products", NeurIPS 2025,
arXiv:2502.10297, section 3); n_h of that paper is products.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.common.options import Added
from lra.models.base import LearningRates, MixerContext, Recurrence, RecurrentMixer
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads
from lra.models.layers.short_convolution import ShortConvolution, draw_step_biases
from lra.models.ops.recurrences import delta_products
from lra.models.ops.toeplitz import depthwise_convolution


class Direction(nn.Module):
    """The parameters of one direction: a short convolution and the decays."""

    def __init__(self, channels: int, num_heads: int, conv_size: int) -> None:
        super().__init__()
        self.convolution = ShortConvolution(channels, conv_size, bias=False)
        # 0 would make the logarithm infinite.
        self.log_rate = nn.Parameter(torch.empty(num_heads).uniform_(1e-4, 16).log())
        self.step_bias = nn.Parameter(draw_step_biases(num_heads, 1e-3, 0.1))


def log_decays(moved: Tensor, log_rate: Tensor, step_bias: Tensor) -> Tensor:
    """Return the logarithms of decays: (..., heads) -> the same shape."""
    return -log_rate.exp() * functional.softplus(moved + step_bias)


class Delta(RecurrentMixer, Recurrence):
    """Gated delta rule, O(dim^2 expand products / num_heads) a position, and a decoding step.

    If the context is not causal, the rule runs in both directions. They share the projections,
    and their results are added before the norm.

    Args:
        num_heads: number of heads, each with its own state.
        expand: ratio of value channels to key channels; there are dim key channels.
        conv_size: number of taps of the short convolutions of queries, keys and values.
        directions: if the context is not causal, whether each direction has its "own" convolution
            and decays, or both have "shared" ones.
        negative_eigenvalues: whether the rate of change is between 0 and 2 instead of 0 and 1, so
            that a state may change its sign along a key. Tasks that track a state, such as parity,
            need this.
        products: number of keys and values of a position, which are stored one after the other.
            With negative eigenvalues, two of them can rotate a state, and one can only reflect it.
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
        negative_eigenvalues: Annotated[bool, Added(False)] = False,
        products: Annotated[int, Field(ge=1, le=16), Added(1)] = 1,
    ) -> None:
        super().__init__()
        dim = channels_of_heads(context, num_heads)
        self.context = context
        self.num_heads = num_heads
        self.highest_rate = 2 if negative_eigenvalues else 1
        self.products = products
        values = expand * dim
        self.parts = [dim, products * dim, products * values]
        self.query_key_value = LinearMap(dim, sum(self.parts), bias=False)
        self.rate_and_decay = LinearMap(dim, (products + 1) * num_heads, bias=False)
        self.gate = LinearMap(dim, values, bias=False)
        self.output = LinearMap(values, dim, bias=False)
        self.norm = nn.RMSNorm(values // num_heads, eps=1e-5)
        count = 1 if context.causal or directions == "shared" else 2
        modules = [Direction(sum(self.parts), num_heads, conv_size) for _ in range(count)]
        self.directions = cast("Sequence[Direction]", nn.ModuleList(modules))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)  # and so keys, which have no bias
        parts = self.query_key_value(x), self.rate_and_decay(x)
        numbers = [0] if self.context.causal else [0, -1]
        with torch.autocast(x.device.type, enabled=False):
            mixed = delta_products(*self.rule_arguments(numbers, *parts)).transpose(1, 2)
        if not self.context.causal:
            ahead, back = mixed.chunk(2, dim=2)
            mixed = ahead + back.flip(1)
        return self.project(x, mixed)

    def rule_arguments(
        self, numbers: Sequence[int], projected: Tensor, moved: Tensor
    ) -> list[Tensor]:
        """Compute the arguments of `delta_products`, whose heads are those of all directions.

        Their numbers are 0, and -1 for the one in reverse.

        Returns: (batch, directions heads, length, ...) five times.
        """
        each = [self.directions[number] for number in numbers]
        projected, moved = (
            torch.cat([part.flip(1) if number else part for number in numbers], dim=-1)
            for part in (projected, moved)
        )
        taps = torch.cat([direction.convolution.taps for direction in each], dim=1)
        convolved = depthwise_convolution(projected, taps.T, 0).unflatten(-1, (len(each), -1))
        rate, decay = self.split_rates(moved.unflatten(-1, (len(each), -1)))
        log_rate = torch.stack([direction.log_rate for direction in each])
        step_bias = torch.stack([direction.step_bias for direction in each])
        arguments = (*self.heads(convolved), rate, log_decays(decay, log_rate, step_bias))
        working = torch.promote_types(projected.dtype, torch.float32)
        return [part.flatten(2, 3).transpose(1, 2).to(working) for part in arguments]

    def split_rates(self, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Compute rates, (..., heads, products), and what decays depend on, (..., heads)."""
        moved = moved.unflatten(-1, (self.products + 1, self.num_heads))
        rate, decay = moved.split([self.products, 1], dim=-2)
        return self.highest_rate * torch.sigmoid(rate.mT), decay[..., 0, :]

    def heads(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, (..., heads, size), keys and values, (..., heads, products, size)."""
        keys, values, heads = sum(self.parts[:2]), self.parts[2], self.num_heads
        query_key, value = functional.silu(convolved).split([keys, values], dim=-1)
        query_key = query_key.unflatten(-1, (1 + self.products, heads, -1))
        norm = torch.rsqrt(query_key.square().sum(dim=-1, keepdim=True) + 1e-6)
        query, key = (query_key * norm).split([1, self.products], dim=-3)
        value = value.unflatten(-1, (self.products, heads, -1))
        query = query[..., 0, :, :] * query.shape[-1] ** -0.5
        return query, key.transpose(-3, -2), value.transpose(-3, -2)

    def project(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Normalise, gate and project: x (..., dim), mixed (..., heads, size) -> (..., dim)."""
        normalized = self.norm(mixed).flatten(-2).to(x.dtype)
        return self.output(normalized * functional.silu(self.gate(x)))

    def learning_rates(self) -> LearningRates:
        """Exempt the decays from weight decay, see `Mixer.learning_rates`."""
        return dict.fromkeys(p for d in self.directions for p in (d.log_rate, d.step_bias))

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """Return zeros: the matrices, (batch, heads, key size, value size), and latest inputs."""
        latest = self.directions[0].convolution.initial_state(batch)
        key_size, (value_size,) = self.parts[0] // self.num_heads, self.norm.normalized_shape
        return latest.new_zeros(batch, self.num_heads, key_size, value_size), latest

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        (matrix, latest), direction = state, self.directions[0]
        convolved, latest = direction.convolution.step(self.query_key_value(x), latest)
        query, *stored = self.heads(convolved)
        rates, decay = self.split_rates(self.rate_and_decay(x))
        log_decay = log_decays(decay, direction.log_rate, direction.step_bias)
        matrix = log_decay.exp()[..., None, None] * matrix
        each = (part.unbind(dim=2) for part in (*stored, rates[..., None]))
        for key, value, rate in zip(*each, strict=True):
            held = (key[..., None, :] @ matrix)[..., 0, :]
            change = rate * (value - held)
            matrix = matrix + key[..., :, None] * change[..., None, :]
        mixed = (query[..., None, :] @ matrix)[..., 0, :]
        return self.project(x, mixed), (matrix, latest)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        projected = self.query_key_value(x)
        query, *others = self.rule_arguments([0], projected, self.rate_and_decay(x))
        # Further positions, of key 0, change nothing, and their queries read the matrix's rows.
        size = query.shape[-1]
        rows = torch.eye(size, dtype=query.dtype, device=x.device).expand(*query.shape[:2], -1, -1)
        further = [part.new_zeros(*part.shape[:2], size, *part.shape[3:]) for part in others]
        joined = (torch.cat(pair, dim=2) for pair in zip(others, further, strict=True))
        mixed, matrix = delta_products(torch.cat([query, rows], dim=2), *joined).tensor_split(
            [x.shape[1]], dim=2
        )
        y = self.project(x, mixed.transpose(1, 2))
        return y, (matrix.clone(), self.directions[0].convolution.state_after(projected))
