"""Heads of attention, which have an equal number of channels each, and memories of positions."""

import torch
from torch import Tensor

from lra.models.base import MixerContext


def channels_of_heads(
    context: MixerContext, num_heads: int, attention_dim: int | None = None
) -> int:
    """Return the number of channels that the heads have together: attention_dim, or dim.

    Raises: ValueError if num_heads does not divide the channels.
    """
    channels = attention_dim or context.dim
    if channels % num_heads:
        option = "attention_dim" if attention_dim else "model.dim"
        raise ValueError(f"num_heads {num_heads} does not divide {option} {channels}")
    return channels


def split_parts(x: Tensor, parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """Divide channels among parts and heads: each part is (batch, heads, length, ...)."""
    return x.unflatten(-1, (parts, num_heads, -1)).permute(2, 0, 3, 1, 4).unbind()


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Divide channels among heads: (batch, length, channels) -> (batch, heads, length, ...)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def latest_in_slots(x: Tensor, size: int) -> Tensor:
    """Arrange the latest of (batch, length, ...) in a ring: slot p % size holds position p."""
    length = x.shape[1]
    slots = x.new_zeros(len(x), size, *x.shape[2:])
    positions = torch.arange(max(0, length - size), length, device=x.device)
    slots[:, positions % size] = x[:, positions]
    return slots
