"""Toroidal attention: softmax attention between positions on a circle, on several platters.

The mixer follows the guide to the program `torodial-attention`. The guide claims that a cyclic
shift of the sequence only shifts the result. With the frequencies that it describes the claim is
false, because they are not periodic around the circle. The default here, whole numbers of turns
around the circle, makes it exact.

Symbols of the description and their names here:
    N: the size of `Torus`, context.max_length
    D: num_platters
    (i, k): a position and a platter
    d_k: the channels of a head on a platter
    lambda: the weight of the distance, of each head
    delta: Pairs.distance, in models/toroidal/torus.py
    theta_i w_m + phi_k p_m: Torus.angles
    Omega: fusion
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import (
    GridModule,
    LearningRates,
    MixerContext,
    Recurrence,
    RecurrentMixer,
    State,
)
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import latest_in_slots
from lra.models.ops.rotary import turn
from lra.models.toroidal.attention import toroidal_attention
from lra.models.toroidal.platter_fusion import Fusion, build_fusion
from lra.models.toroidal.spectral_attention import spectral_attention
from lra.models.toroidal.torus import Harmonics, Reach, Torus

Circle = Literal["max_length", "real_length"]
Mode = Literal["attention", "spectral"]
Window = Annotated[int, Field(ge=1, le=2**31)]


class TorusPositions(nn.Module):
    """The torus of a context's positions, with one weight of the distance per head or none."""

    def __init__(
        self, context: MixerContext, torus: Torus, num_heads: int, distance_weight: float
    ) -> None:
        super().__init__()
        self.grid = None if context.grid is None else GridModule(context.grid)
        self.first_torus = torus
        self.distance_logit = None
        if distance_weight:
            # softplus of it is the weight
            logit = distance_weight + math.log(-math.expm1(-distance_weight))
            self.distance_logit = nn.Parameter(torch.full((num_heads,), logit))

    def torus(self, length: int) -> Torus:
        """Return the torus of sequences; ValueError for a length that is not that of the grid."""
        if self.grid is None:
            return self.first_torus
        self.grid.check_length(length)
        return replace(self.first_torus, sizes=self.grid.grid)

    @property
    def distance_weight(self) -> Tensor | None:
        """The weight of the distance in the scores of each head, (heads,); None if it has none."""
        return None if self.distance_logit is None else functional.softplus(self.distance_logit)


@functools.lru_cache(maxsize=16)
def _angles_of_all(
    torus: Torus, length: int, channels: int, harmonics: Harmonics, device: torch.device
) -> Tensor:
    """Return the angles of all positions: (1, length, platters, channels / 2)."""
    with torch.inference_mode(False):  # a training run may use them next
        return torus.angles(torch.arange(length, device=device)[None], channels, harmonics)


class Toroidal(RecurrentMixer):
    """Attention between positions on a circle, O(length^2); with a window, O(length * window).

    On a grid, rows and columns are one circle each, and a window makes the cost
    O(length * window * width). The channels are divided into platters. Each position has a query,
    a key and a value on each platter, and a query attends to the keys of all platters. The matrix
    products therefore cost num_platters times as much as those of ordinary attention.

    Args:
        num_heads: number of attention heads, each with the same number of channels per platter.
        num_platters: number of parts that the channels are divided into.
        window: in positions. Position i attends to j with |i - j| < window around the circle, on a
            grid along both axes. A causal mixer of sequences does not go around the circle: it
            attends to j with 0 <= i - j < window. None: no limit.
        wrap: whether positions lie on a circle instead of a line.
        depth_wrap: whether platters lie on a circle instead of a line.
        circle: length of the circle: "max_length", so that padding changes nothing, or
            "real_length", the length of each sequence, if the context is not causal.
        mode: "attention", or "spectral". Spectral mode has one weight per lag: a softmax over lags
            of the scores averaged over positions. It costs O(n log n) with n = max_length and is
            not causal.
        harmonics: how often channels turn around the circle: "integer", whole numbers from 1 to
            half the circle's length (a line is half of a circle), or "rope", the frequencies of
            the description, which are not periodic.
        distance_weight: initial weight of the distance. Each score is reduced by the weight times
            the distance: the steps between positions divided by the circle's length, plus the
            steps between platters divided by their number. Each head learns its weight, without
            weight decay. 0: scores do not depend on the distance.
        fusion: how the platters are combined after attention.
        fusion_rank: rank of fusion "low_rank". None: a quarter of the platters, at least 1.
    Raises: ValueError if heads and platters do not divide the channels, or if the channels of a
        head are not divisible by two (on a grid by four); for real_length on a grid, for it and
        spectral in a causal context, for a depth_wrap or a fusion of one platter, and for a rank
        that the fusion cannot have.
    """

    name = "toroidal"
    has_native_grid = True

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 2,
        num_platters: PositiveInt = 2,
        window: Window | None = None,
        wrap: bool = True,
        depth_wrap: bool = False,
        circle: Circle = "max_length",
        mode: Mode = "attention",
        harmonics: Harmonics = "integer",
        distance_weight: Annotated[float, Field(ge=0, le=1e3)] = 0.1,
        fusion: Fusion = "low_rank",
        fusion_rank: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        parts, axes = num_heads * num_platters, 1 if context.grid is None else 2
        if context.dim % (2 * axes * parts):
            raise ValueError(
                f"num_heads {num_heads} times num_platters {num_platters} does not divide "
                f"model.dim {context.dim} into parts of a multiple of {2 * axes} channels"
            )
        if circle == "real_length" and (context.causal or context.grid is not None):
            raise ValueError("circle real_length cannot be causal or a grid's; use max_length")
        if mode == "spectral" and context.causal:
            raise ValueError("mode spectral averages over all positions: it cannot be causal")
        if depth_wrap and num_platters == 1:
            raise ValueError("depth_wrap has no effect: num_platters is 1; leave it out")
        self.num_heads = num_heads
        self.num_platters = num_platters
        self.head_channels = context.dim // parts
        self.window = window
        self.has_own_circle = circle == "real_length"
        self.mode = mode
        self.harmonics: Harmonics = harmonics
        self.context = context
        self.query_key_value = LinearMap(context.dim, 3 * context.dim)
        sizes = (context.max_length,) if context.grid is None else context.grid
        torus = Torus(sizes, num_platters, wrap=wrap, depth_wrap=depth_wrap)
        self.positions = TorusPositions(context, torus, num_heads, distance_weight)
        self.fusion = build_fusion(fusion, num_platters, fusion_rank)
        self.output = LinearMap(context.dim, context.dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        torus = self.positions.torus(x.shape[1])
        if not self.has_own_circle:
            return self._mix(x, mask, torus)
        if mask is None:
            return self._mix(x, None, replace(torus, sizes=(x.shape[1],)))
        # Sequences of the same length lie on the same circle.
        mixed, lengths = torch.zeros_like(x), mask.sum(dim=1)
        for length in filter(None, lengths.unique().tolist()):
            rows = lengths == length
            circle = replace(torus, sizes=(length,))
            mixed[rows, :length] = self._mix(x[rows, :length], None, circle).to(x.dtype)
        return mixed

    def _mix(self, x: Tensor, mask: Tensor | None, torus: Torus) -> Tensor:
        angles = _angles_of_all(torus, x.shape[1], self.head_channels, self.harmonics, x.device)
        reach = Reach(torus, causal=self.context.causal, window=self.window)
        attend = spectral_attention if self.mode == "spectral" else toroidal_attention
        heads = self.heads(x, angles)
        return self.joined(attend(heads, reach, self.positions.distance_weight, mask))

    def heads(self, x: Tensor, angles: Tensor) -> list[Tensor]:
        """Compute queries, keys and values; queries and keys are turned by their angles.

        Returns: three of (batch, heads, length, platters, channels).
        """
        parts = (3, self.num_platters, self.num_heads, self.head_channels)
        heads = self.query_key_value(x).unflatten(2, parts).permute(2, 0, 4, 1, 3, 5)
        query_key, value = heads.split([2, 1])
        return [*turn(query_key, angles[:, None]), value[0]]

    def joined(self, mixed: Tensor) -> Tensor:
        """Combine the platters, and project the heads to the output."""
        return self.output(self.fusion(mixed.permute(0, 2, 3, 1, 4).flatten(3)).flatten(2))

    def learning_rates(self) -> LearningRates:
        """Exempt the weights of the distance from weight decay, which would pull them to log 2."""
        logit = self.positions.distance_logit
        return {} if logit is None else {logit: None}

    def freeze(self, length: int) -> RingBuffer:
        """Return a recurrence that holds keys and values of the window, or of all positions."""
        return RingBuffer(self, min(self.window or length, length))


class RingBuffer(Recurrence):
    """Attention to the latest keys and values; each new position replaces the oldest one."""

    def __init__(self, mixer: Toroidal, size: int) -> None:
        self.mixer = mixer
        self.size = size
        self.reach = Reach(mixer.positions.first_torus, causal=True)

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return empty keys and values, (batch, heads, size, platters, channels), at position 0."""
        mixer, like = self.mixer, self.mixer.output.weight
        shape = batch, mixer.num_heads, self.size, mixer.num_platters, mixer.head_channels
        return like.new_zeros(shape), like.new_zeros(shape), like.new_zeros(batch, dtype=torch.long)

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, State]:
        keys, values, position = state
        mixer, here = self.mixer, position[:, None]
        angles = self.reach.torus.angles(here, mixer.head_channels, mixer.harmonics)
        query, key, value = mixer.heads(x[:, None], angles)
        age = (here - torch.arange(self.size, device=x.device)) % self.size
        is_new = (age == 0)[:, None, :, None, None]
        keys, values = torch.where(is_new, key, keys), torch.where(is_new, value, values)
        weight, exists = mixer.positions.distance_weight, age <= here
        bias = self.reach.pairs(here, here - age, exists).bias(weight, query.dtype)
        mixed = functional.scaled_dot_product_attention(
            query.flatten(2, 3), keys.flatten(2, 3), values.flatten(2, 3), attn_mask=bias
        )
        joined = mixer.joined(mixed.unflatten(2, (1, mixer.num_platters)))
        return joined[:, 0], (keys, values, position + 1)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        mixer, (batch, length, _) = self.mixer, x.shape
        angles = _angles_of_all(
            self.reach.torus, length, mixer.head_channels, mixer.harmonics, x.device
        )
        keys, values = (
            latest_in_slots(part.transpose(1, 2), self.size).transpose(1, 2)
            for part in mixer.heads(x, angles)[1:]
        )
        return mixer(x), (keys, values, torch.full((batch,), length, device=x.device))
