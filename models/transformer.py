"""Multi-head softmax attention, the Transformer's token mixer.

Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv:1706.03762), equation 1 and
section 3.2.2; rotary positions: Su et al., "RoFormer: Enhanced Transformer with Rotary Position
Embedding", 2021 (arXiv:2104.09864), section 3.2.2.

Symbols of the paper and their names here:
    W^Q, W^K, W^V: query_key_value, all three of all heads
    W^O: output
    h: num_heads
    d_model: context.dim
    d_k, d_v: attention_dim // num_heads

Symbols of RoFormer and their names here:
    m: position, a row of angles in `rotate`
    d: channels
    theta_i: geometric_rates
    R_m x: rotate
"""

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from lra.common.options import Added
from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_parts
from lra.models.ops.attention import attention
from lra.models.ops.local_attention import BLOCK, allowed_pairs, local_attention
from lra.models.ops.rotary import geometric_rates, turn


def rotate(x: Tensor) -> Tensor:
    """Rotate pairs of channels by angles that grow with the position (RoFormer, equation 15).

    Pair c is rotated by position * 10000 ** (-2 c / channels) radians. Products of a query and a
    key then depend on the lag only (RoFormer, equation 16).

    x is (..., length, channels), with an even number of channels.
    """
    length, channels = x.shape[-2:]
    working = torch.promote_types(torch.float32, x.dtype)
    position = torch.arange(length, dtype=working, device=x.device)
    return turn(x, position[:, None] * geometric_rates(channels // 2, position))


class Transformer(Mixer):
    """Softmax attention between real positions, O(length^2); with a window, O(length * window).

    Args:
        num_heads: number of attention heads, each with the same number of channels.
        attention_dim: channels of queries, keys and values, over all heads. None: dim.
        projection_bias: whether the input and output projections have a bias.
        attention_dropout: dropout probability of attention weights.
        rotary: whether queries and keys are rotated by their positions.
        window: in positions. Position i attends to j with |i - j| < window. None: no limit.
    Raises: ValueError if num_heads does not divide attention_dim, or if heads have an odd number
        of channels and rotary is set.
    """

    name = "transformer"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        attention_dim: Annotated[PositiveInt | None, Added(None)] = None,
        projection_bias: Annotated[bool, Added(True)] = True,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        rotary: bool = False,
        window: Annotated[int, Field(ge=1, le=2**31)] | None = None,
    ) -> None:
        super().__init__()
        inner = channels_of_heads(context, num_heads, attention_dim)
        if rotary and inner // num_heads % 2:
            option = "attention_dim" if attention_dim else "model.dim"
            raise ValueError(
                f"rotary turns pairs of channels, and num_heads {num_heads} leaves each head "
                f"{inner // num_heads} of {option} {inner}"
            )
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.rotary = rotary
        self.window = window
        self.causal = context.causal
        self.query_key_value = LinearMap(context.dim, 3 * inner, bias=projection_bias)
        self.output = LinearMap(inner, context.dim, bias=projection_bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        query, key, value = split_parts(self.query_key_value(x), 3, self.num_heads)
        if self.rotary:
            query, key = rotate(query), rotate(key)
        mixed = self._attend(query, key, value, mask)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        length = query.shape[2]
        dropout = self.attention_dropout if self.training else 0.0
        if self.window is not None and BLOCK + 2 * self.window < length:
            heads = query, key, value
            return local_attention(
                heads, mask, window=self.window, causal=self.causal, dropout=dropout
            )
        allowed = None
        if self.window is not None or (mask is not None and self.causal):
            allowed = allowed_pairs(
                length, self.window, mask, causal=self.causal, device=query.device
            )
        elif mask is not None:
            allowed = mask[:, None, None, :]
        causal = self.causal and allowed is None
        return attention(query, key, value, allowed, dropout=dropout, causal=causal)
