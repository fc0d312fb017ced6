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
    delta: Torus.distance + Torus.platter_distance, in models/ops/torus.py
    Omega: fusion
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import (
    DecayingAt,
    GridModule,
    MixerContext,
    PrefillRecurrence,
    RecurrentMixer,
    State,
)
from models.layers.basic import LinearMap
from models.layers.heads import latest_in_slots
from models.ops.rotary import turn
from models.ops.spectral_attention import spectral_attention
from models.ops.toroidal_attention import toroidal_attention
from models.ops.torus import Harmonics, Reach, Torus, pairs_of

Circle = Literal["max_length", "real_length"]
Mode = Literal["attention", "spectral"]
Window = Annotated[int, Field(ge=1, le=2**31)]
Fusion = Literal["low_rank", "attention", "mean", "none"]


class LowRankFusion(nn.Module):
    """Multiply the platters, (..., platters, channels), by I + U V^T.

    The description has U V^T without I. With rank 1 this would leave a single vector, multiplied by
    one number per platter.
    """

    def __init__(self, num_platters: int, rank: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(num_platters, rank) * 0.1)
        self.right = nn.Parameter(torch.randn(num_platters, rank) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.left @ (self.right.T @ x)


class AttentionFusion(nn.Module):
    """Attention between platters, softmax(Q K^T / sqrt(channels)) V.

    Q, K and V are linear maps from platters to platters that all channels share.
    """

    def __init__(self, num_platters: int) -> None:
        super().__init__()
        self.query_key_value = nn.Parameter(
            torch.randn(3, num_platters, num_platters) * num_platters**-0.5
        )

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (weight @ x for weight in self.query_key_value)
        scores = query @ key.transpose(-1, -2) * x.shape[-1] ** -0.5
        return scores.softmax(dim=-1) @ value


class MeanFusion(nn.Module):
    """Replace each platter by the mean of all platters."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=-2, keepdim=True).expand_as(x)


def build_fusion(fusion: Fusion, num_platters: int, rank: int | None = None) -> nn.Module:
    """Build a fusion; a low rank of None is a quarter of the platters, at least 1.

    Raises: ValueError for a rank of another fusion, a rank above the platters, and a fusion by mean
        or attention of one platter.
    """
    if rank is not None and fusion != "low_rank":
        raise ValueError(f"fusion_rank {rank} has no effect: fusion is {fusion}; leave it out")
    if rank is not None and rank > num_platters:
        raise ValueError(f"fusion_rank {rank} exceeds num_platters {num_platters}")
    if num_platters == 1 and fusion in ("mean", "attention"):
        raise ValueError(f"fusion {fusion} has no effect: num_platters is 1; use fusion none")
    return {
        "low_rank": lambda: LowRankFusion(num_platters, rank or max(1, num_platters // 4)),
        "attention": lambda: AttentionFusion(num_platters),
        "mean": MeanFusion,
        "none": nn.Identity,
    }[fusion]()


class TorusPositions(nn.Module):
    """The torus of a context's positions, with one weight of the distance per head.

    The torus is the context's, and channels are those of a head on a platter; see `Toroidal`.
    """

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: int,
        torus: Torus,
        channels: int,
        harmonics: Harmonics,
        distance_weight: float,
    ) -> None:
        super().__init__()
        self.grid = None if context.grid is None else GridModule(context.grid)
        self.first_torus = torus
        self.channels = channels
        self.harmonics: Harmonics = harmonics
        self.distance_logit = None
        if distance_weight:
            # softplus of it is the weight
            logit = distance_weight + math.log(-math.expm1(-distance_weight))
            self.distance_logit = nn.Parameter(torch.full((num_heads,), logit))

    @property
    def torus(self) -> Torus:
        """The torus on which positions and platters lie."""
        own = self.first_torus
        return own if self.grid is None else replace(own, sizes=self.grid.grid)

    @property
    def distance_weight(self) -> Tensor | None:
        """The weight of the distance in the scores of each head, (heads,); None if it has none."""
        return None if self.distance_logit is None else functional.softplus(self.distance_logit)

    def angles(self, places: Tensor, periods: Tensor | None = None) -> Tensor:
        """Compute the angles that encode places; see `Torus.angles`."""
        return self.torus.angles(places, self.channels, self.harmonics, periods)

    def angles_of_all(self, length: int, device: torch.device) -> Tensor:
        """Return the angles of all positions, which are kept: (1, length, platters, channels / 2).

        Raises: ValueError for another number of positions than the grid has.
        """
        if self.grid is not None:
            self.grid.check_length(length)
        return _angles_of_all(self.torus, length, self.channels, self.harmonics, device)


@functools.lru_cache(maxsize=16)
def _angles_of_all(
    torus: Torus, length: int, channels: int, harmonics: Harmonics, device: torch.device
) -> Tensor:
    with torch.inference_mode(False):  # a training run may use them next
        places = torus.coordinates(torch.arange(length, device=device))[None]
        return torus.angles(places, channels, harmonics)


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
        head are not divisible by two (on a grid by four); for real_length without wrap, with a
        window, on a grid, in a causal context or with spectral; for spectral in a causal context;
        for a depth_wrap or a fusion without effect, and for a rank that the fusion cannot have.
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
        self.head_channels = _head_channels(context, num_heads, num_platters)
        if circle == "real_length":
            _check_real_length(context, window=window, wrap=wrap, mode=mode)
        if mode == "spectral" and context.causal:
            raise ValueError(
                "mode spectral averages scores over all positions, later ones, too: it cannot be "
                "causal; use mode attention"
            )
        if depth_wrap:
            _check_depth_wrap(num_platters, harmonics, distance_weight, mode)
        self.num_heads = num_heads
        self.num_platters = num_platters
        self.window = window
        self.has_own_circle = circle == "real_length"
        self.mode = mode
        self.context = context
        self.query_key_value = LinearMap(context.dim, 3 * context.dim)
        sizes = (context.max_length,) if context.grid is None else context.grid
        self.positions = TorusPositions(
            context,
            num_heads=num_heads,
            torus=Torus(sizes, num_platters, wrap=wrap, depth_wrap=depth_wrap),
            channels=self.head_channels,
            harmonics=harmonics,
            distance_weight=distance_weight,
        )
        self.fusion = build_fusion(fusion, num_platters, fusion_rank)
        self.output = LinearMap(context.dim, context.dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length, torus = x.shape[1], self.positions.torus
        angles = self.positions.angles_of_all(length, x.device)
        if mask is not None:
            # Their weights are 0, but 0 times infinity or NaN is NaN.
            x = x.masked_fill(~mask[..., None], 0)
        periods = None
        if self.has_own_circle:
            periods = torch.full((1, 1), length, device=x.device)
            if mask is not None:
                periods = mask.sum(dim=1, keepdim=True).clamp(min=1)
            places = torus.coordinates(torch.arange(length, device=x.device))[None]
            angles = self.positions.angles(places, periods)
        query, key, value = self.heads(x, angles)
        weight = self.positions.distance_weight
        if self.mode == "spectral":
            mixed = spectral_attention(
                query, key, value, torus, weight=weight, window=self.window, mask=mask
            )
        else:
            reach = Reach(torus, causal=self.context.causal, window=self.window)
            mixed = toroidal_attention(
                query, key, value, reach, weight=weight, mask=mask, periods=periods
            )
        return self.joined(mixed)

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

    def learning_rates(self) -> Mapping[nn.Parameter, float | DecayingAt | None]:
        """Exempt the weights of the distance from weight decay, which would pull them to log 2."""
        logit = self.positions.distance_logit
        return {} if logit is None else {logit: None}

    def freeze(self, length: int) -> RingBuffer:
        """Return a recurrence that holds keys and values of the window, or of all positions.

        Raises: ValueError if the context has a grid.
        """
        if self.positions.grid is not None:
            raise ValueError("only a causal mixer of sequences, without a grid, has a recurrence")
        return RingBuffer(self, min(self.window or length, length))


class RingBuffer(PrefillRecurrence):
    """Attention to the latest keys and values; each new position replaces the oldest one."""

    def __init__(self, mixer: Toroidal, size: int) -> None:
        self.mixer = mixer
        self.size = size

    def initial_state(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return empty keys and values, (batch, heads, size, platters, channels), at position 0."""
        mixer, like = self.mixer, self.mixer.output.weight
        shape = batch, mixer.num_heads, self.size, mixer.num_platters, mixer.head_channels
        return like.new_zeros(shape), like.new_zeros(shape), like.new_zeros(batch, dtype=torch.long)

    @torch.no_grad()
    def step(self, x: Tensor, state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, State]:
        keys, values, position = state
        torus, place = self.mixer.positions.torus, position[:, None, None]
        query, key, value = self.mixer.heads(x[:, None], self.mixer.positions.angles(place))
        age = (position[:, None] - torch.arange(self.size, device=x.device)) % self.size
        is_new = (age == 0)[:, None, :, None, None]
        keys, values = torch.where(is_new, key, keys), torch.where(is_new, value, values)
        steps = torus.count_steps(place, place - age[..., None])
        pairs = pairs_of(torus, steps, (age <= position[:, None])[:, None])
        bias = pairs.bias(self.mixer.positions.distance_weight, query.dtype)
        mixed = functional.scaled_dot_product_attention(
            query.flatten(2, 3), keys.flatten(2, 3), values.flatten(2, 3), attn_mask=bias
        )
        joined = self.mixer.joined(mixed.unflatten(2, (1, self.mixer.num_platters)))
        return joined[:, 0], (keys, values, position + 1)

    @torch.no_grad()
    def prefill(self, x: Tensor) -> tuple[Tensor, State]:
        mixer, (batch, length, _) = self.mixer, x.shape
        heads = mixer.heads(x, mixer.positions.angles_of_all(length, x.device))[1:]
        keys, values = (
            latest_in_slots(part.transpose(1, 2), self.size).transpose(1, 2) for part in heads
        )
        return mixer(x), (keys, values, torch.full((batch,), length, device=x.device))


def _head_channels(context: MixerContext, num_heads: int, num_platters: int) -> int:
    """Return the channels of a head on a platter.

    Raises: ValueError if they are not whole pairs, of each axis as many.
    """
    parts, axes = num_heads * num_platters, 1 if context.grid is None else 2
    if context.dim % parts:
        raise ValueError(
            f"num_heads {num_heads} times num_platters {num_platters} does not divide model.dim "
            f"{context.dim}"
        )
    channels = context.dim // parts
    if channels % (2 * axes):
        raise ValueError(
            f"num_heads {num_heads} and num_platters {num_platters} leave each head {channels} of "
            f"model.dim {context.dim}, expected a multiple of {2 * axes}: harmonics turn pairs"
        )
    return channels


def _check_depth_wrap(num_platters: int, harmonics: Harmonics, weight: float, mode: Mode) -> None:
    """Raise ValueError for platters on a circle where that changes nothing."""
    circle, line = (Torus((1,), num_platters, depth_wrap=wrap) for wrap in (True, False))
    here = torch.device("cpu")
    same = circle.platter_distance(here).equal(line.platter_distance(here))
    by_distance = harmonics == "rope" and mode == "attention"
    reasons = {
        "num_platters is 1": num_platters == 1,
        "harmonics rope do not turn with it, and two platters are as far apart on a line": (
            by_distance and same
        ),
        "harmonics rope do not turn with it, and distance_weight is 0": by_distance and weight == 0,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"depth_wrap has no effect: {reason}; leave it out")


def _check_real_length(
    context: MixerContext, *, window: int | None, wrap: bool, mode: Mode
) -> None:
    """Raise ValueError for circles of the sequences' own where they cannot be."""
    reasons = {
        "wrap is false, and there is no circle": not wrap,
        "a causal mixer may not know how long a sequence will be": context.causal,
        "a grid is as large as it is": context.grid is not None,
        "a window is of the circle that all share (mixer.window=null: none)": window is not None,
        "mode spectral has one circle for all sequences": mode == "spectral",
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"circle real_length: {reason}; use circle max_length")
