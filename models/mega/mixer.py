"""Mega: gated attention of one head on top of a damped exponential moving average.

Ma et al., "Mega: Moving Average Equipped Gated Attention", ICLR 2023 (arXiv:2209.10655), section 3;
what the paper leaves open follows facebookresearch/mega.

Symbols of the paper and their names here:
    d: context.dim
    z: attention_dim
    v: value_dim
    h (of the average): average_size
    c: chunk
    X': smoothed
    Z, U, gamma (a gate), phi: the parts of Mega.parts; phi is the gate against the residual
    kappa, mu: query_key_scale and query_key_shift
    b_rel: by_lag
"""

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import GatedMixer, GatedRecurrence, MixerContext, RecurrentMixer
from lra.models.layers.basic import LinearMap, build_dropout
from lra.models.layers.heads import latest_in_slots
from lra.models.layers.long_convolution import LongConvolution
from lra.models.layers.state_space import DiagonalStateSpace
from lra.models.mega.biased_attention import Weighting, bias_of, biased_attention, weights_of
from lra.models.ops.toeplitz import LagKernel
from lra.models.ops.vandermonde import vandermonde_product


class DampedAverage(LongConvolution):
    """Sums of damped exponential moving averages (section 3.1).

    Each channel has several averages with different decays q, whose kernels over lags are
    p beta q ** lag. The channel's kernel is their sum weighted by gamma. With two directions there
    is another kernel for later positions; both include lag 0.
    """

    def __init__(self, *, channels: int, directions: int, size: int) -> None:
        super().__init__()
        self.channels = channels
        shape = directions, channels, size
        self.delta = nn.Parameter(torch.randn(shape) * 0.2)
        self.alpha = nn.Parameter(torch.randn(shape) * 0.2)
        signs = torch.ones(size)
        signs[1::2] = -1
        self.beta = nn.Parameter(signs + torch.randn(shape) * 0.02)
        self.gamma = nn.Parameter(torch.randn(shape))

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """Return log q and the weights p beta gamma / sqrt(size), (directions, channels, size)."""
        p = torch.sigmoid(self.delta)
        log_decays = torch.log1p(-p * torch.sigmoid(self.alpha))
        return log_decays, p * self.beta * self.gamma * self.gamma.shape[-1] ** -0.5

    def generate(self, length: int) -> LagKernel:
        log_decays, weights = self.coefficients()
        rows = log_decays.flatten(0, 1), weights.flatten(0, 1)[None]
        kernels = vandermonde_product(*rows, length).view(-1, self.channels, length)
        if len(kernels) == 1:
            return LagKernel(kernels[0], 0)
        behind, ahead = kernels
        both = (behind[:, :1] + ahead[:, :1], behind[:, 1:])
        return LagKernel(torch.cat([ahead[:, 1:].flip(-1), *both], dim=-1), 1 - length)

    def recurrence(self) -> DiagonalStateSpace:
        """Return the recurrence of the kernel of lags behind."""
        log_decays, weights = self.coefficients()
        return DiagonalStateSpace(log_decays[0].exp(), weights[0])


class Mega(GatedMixer, RecurrentMixer):
    """Moving average equipped gated attention, O(length^2); with a chunk, O(length * chunk).

    The context's inner dropout acts on the values. Both dropouts zero whole channels if the
    context has tied dropout.

    Args:
        attention_dim: z, channels of queries and keys.
        value_dim: v, channels of values and of their gate. None: 2 * dim.
        average_size: number of moving averages per channel and direction.
        chunk: in positions. Attention is computed within chunks of this length. None: over the
            whole sequence; lags of max_length or more share the bias of lag max_length - 1.
        weighting: "softmax", or "laplace", whose attention weights are not normalised.
        average_dropout: dropout probability of X'.
    """

    name = "mega"

    def __init__(
        self,
        context: MixerContext,
        *,
        attention_dim: PositiveInt = 64,
        value_dim: PositiveInt | None = None,
        average_size: PositiveInt = 16,
        chunk: PositiveInt | None = None,
        weighting: Weighting = "softmax",
        average_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__()
        dim = context.dim
        self.context = context
        self.attention_dim = attention_dim
        self.value_dim = 2 * dim if value_dim is None else value_dim
        self.chunk = None if chunk is None else min(chunk, context.max_length)
        self.weighting: Weighting = weighting
        self.average = DampedAverage(
            channels=dim, directions=context.num_directions, size=average_size
        )
        self.direct = nn.Parameter(torch.randn(dim))
        self.value = LinearMap(dim, self.value_dim)
        self.parts = LinearMap(dim, 2 * dim + attention_dim + self.value_dim)
        self.output = LinearMap(self.value_dim, dim)
        self.query_key_scale = nn.Parameter(torch.randn(2, attention_dim) * 0.02)
        self.query_key_shift = nn.Parameter(torch.zeros(2, attention_dim))
        longest = context.max_length if self.chunk is None else self.chunk
        self.by_lag = nn.Parameter(torch.randn(2 * longest - 1) * 0.02)
        self.average_dropout = build_dropout(average_dropout, tied=context.tied_dropout)
        self.value_dropout = build_dropout(context.inner_dropout, tied=context.tied_dropout)
        for linear in (self.value, self.parts, self.output):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def value_and_gate(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `GatedMixer.value_and_gate` (Mega, equations 7 to 15)."""
        x = self.without_padding(x, mask)
        query, key, value, rest = self.attended(x, self.average(x))
        return self.gated(self.attend(query, key, value, mask), rest)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend over whole sequences, see `biased_attention`."""
        return biased_attention(
            query, key, value, self.by_lag,
            weighting=self.weighting, causal=self.context.causal, chunk=self.chunk, mask=mask,
        )  # fmt: skip

    def attended(self, x: Tensor, average: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the inputs of attention and of the gates from x and its moving average.

        Returns: queries and keys (..., attention_dim), values (..., value_dim), and the other parts
            for `gated`, (..., 2 * dim + value_dim).
        """
        smoothed = functional.silu(average + self.direct.to(x.dtype) * x)
        smoothed = self.average_dropout(smoothed)
        dim, sizes = x.shape[-1], (self.attention_dim, self.value_dim)
        gate, shared, value_gate, direct = self.parts(smoothed).split([dim, *sizes, dim], dim=-1)
        shared = functional.silu(shared)[..., None, :] * self.query_key_scale.to(shared.dtype)
        query, key = (shared + self.query_key_shift.to(shared.dtype)).unbind(dim=-2)
        rest = torch.cat([gate, value_gate, direct], dim=-1)
        return query, key, self.value_dropout(functional.silu(self.value(x))), rest

    def gated(self, mixed: Tensor, rest: Tensor) -> Tensor:
        """Return value and gate: mixed (..., value_dim) from attention, rest from `attended`."""
        dim = self.context.dim
        gate, value_gate, direct = rest.split([dim, self.value_dim, dim], dim=-1)
        value = functional.silu(direct + self.output(mixed * functional.silu(value_gate)))
        return torch.cat([value, torch.sigmoid(gate)], dim=-1)

    def freeze(self, length: int) -> GatedRecurrence:
        """Return a recurrence that holds averages, keys and values; chunks limit its size."""
        return _Chunked(self, length if self.chunk is None else self.chunk)


MegaState = tuple[Tensor, Tensor, Tensor, Tensor]


class _Chunked(GatedRecurrence):
    """Averages, and attention to the keys and values of this chunk so far."""

    def __init__(self, mixer: Mega, size: int) -> None:
        self.mixer = mixer
        self.size = size
        self.average = mixer.average.recurrence()

    def initial_state(self, batch: int) -> MegaState:
        """Return zeros: averages, keys, values and the position, (batch, ...)."""
        mixer, like = self.mixer, self.mixer.output.weight
        return (
            self.average.initial_state(batch),
            like.new_zeros(batch, self.size, mixer.attention_dim),
            like.new_zeros(batch, self.size, mixer.value_dim),
            like.new_zeros(batch, dtype=torch.long),
        )

    @torch.no_grad()
    def value_and_gate(self, x: Tensor, state: MegaState) -> tuple[Tensor, MegaState]:
        averages, keys, values, position = state
        average, averages = self.average.step(x, averages)
        query, key, value, rest = self.mixer.attended(x, average)
        slot = position % self.size
        slots = torch.arange(self.size, device=x.device)
        is_here = (slots == slot[:, None])[..., None]
        keys, values = (
            torch.where(is_here, key[:, None], keys),
            torch.where(is_here, value[:, None], values),
        )
        lag = slot[:, None] - slots
        bias = bias_of(self.mixer.by_lag, lag)[:, None]
        weights = weights_of(query[:, None], keys, bias, (lag >= 0)[:, None], self.mixer.weighting)
        mixed = (weights @ values)[:, 0]
        return self.mixer.gated(mixed, rest), (averages, keys, values, position + 1)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, MegaState]:
        mixer, (batch, length, _) = self.mixer, x.shape
        query, key, value, rest = mixer.attended(x, mixer.average(x))
        y = mixer.gated(mixer.attend(query, key, value, None), rest)
        keys, values = (latest_in_slots(part, self.size) for part in (key, value))
        position = torch.full((batch,), length, device=x.device)
        return y, (self.average.state_after(x), keys, values, position)
