"""Multi-head softmax attention, the Transformer's token mixer.

Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv:1706.03762), equation 1 and
section 3.2.2; rotary positions: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021 (arXiv:2104.09864), section 3.2.2.

Symbols of the paper and their names here:
    Q, K, V: query, key, value
    W^Q, W^K, W^V: query_key_value, all three of all heads
    W^O: output
    h: num_heads
    d_model: context.dim
    d_k, d_v: context.dim // num_heads

Symbols of RoFormer and their names here:
    m: position, a row of angles in `rotate`
    d: channels
    theta_i: rates in `rotate`
    R_m x: rotate
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import Mixer, MixerContext
from models.ops.local_attention import BLOCK, allowed_pairs, local_attention


def rotate(x: Tensor) -> Tensor:
    """Rotate pairs of channels by angles that grow with the position (RoFormer, equation 15).

    Channel c is paired with c + channels / 2, not with its neighbour as in the paper, and rotated
    by position * 10000 ** (-2 c / channels) radians. Products of a query and a key then depend on
    their distance alone (RoFormer, equation 16).

    Args:
        x: (..., length, channels), channels even.
    Returns: (..., length, channels).
    """
    length, channels = x.shape[-2:]
    # In single precision at least: bfloat16 cannot tell positions above 256 apart.
    working = torch.promote_types(torch.float32, x.dtype)
    place = torch.arange(channels // 2, dtype=working, device=x.device)
    rates = 10000.0 ** (-2 * place / channels)
    angles = torch.arange(length, dtype=working, device=x.device)[:, None] * rates
    cosine, sine = angles.cos(), angles.sin()
    first, second = x.to(working).chunk(2, dim=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return torch.cat(turned, dim=-1).to(x.dtype)


class Transformer(Mixer):
    """Softmax attention between real positions, O(length^2); with a window, O(length * window).

    Args:
        num_heads: attention heads, each with the same number of channels.
        attention_dropout: fraction of attention weights dropped in training.
        rotary: whether queries and keys carry rotary positions.
        window: positions; attention reaches |i - j| < window. None: no limit.
    Raises: ValueError if num_heads does not divide the channels, or, with rotary, leaves each
        head an odd number of them.
    """

    name = "transformer"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        rotary: bool = False,
        window: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        if context.dim % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide model.dim {context.dim}")
        if rotary and context.dim // num_heads % 2:
            raise ValueError(
                f"rotary turns pairs of channels, and num_heads {num_heads} leaves each head "
                f"{context.dim // num_heads} of model.dim {context.dim}"
            )
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.rotary = rotary
        self.window = window
        self.causal = context.causal
        self.query_key_value = nn.Linear(context.dim, 3 * context.dim)
        self.output = nn.Linear(context.dim, context.dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        batch, length, dim = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if self.rotary:
            query, key = rotate(query), rotate(key)
        mixed = self._attend(query, key, value, mask)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, dim))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        length = query.shape[2]
        dropout = self.attention_dropout if self.training else 0.0
        if self.window is not None and BLOCK + 2 * self.window < length:
            return local_attention(
                query, key, value, mask, window=self.window, causal=self.causal, dropout=dropout
            )
        allowed = None
        if self.window is not None or (mask is not None and self.causal):
            allowed = allowed_pairs(
                length, self.window, mask, causal=self.causal, device=query.device
            )
        elif mask is not None:
            allowed = mask[:, None, None, :]
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=allowed,
            dropout_p=dropout,
            is_causal=self.causal and allowed is None,
        )
