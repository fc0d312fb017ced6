"""Multi-head softmax attention, the Transformer's token mixer.

Vaswani et al., "Attention Is All You Need", 2017, section 3.2.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import Mixer, MixerContext


class Transformer(Mixer):
    """Softmax attention between all real positions, O(length^2).

    Args:
        num_heads: attention heads, each with an equal share of the channels.
        attention_dropout: share of attention weights dropped in training.
    Raises: ValueError if num_heads does not divide the channels.
    """

    name = "transformer"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__()
        if context.dim % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide model.dim {context.dim}")
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.causal = context.causal
        self.query_key_value = nn.Linear(context.dim, 3 * context.dim)
        self.output = nn.Linear(context.dim, context.dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        batch, length, dim = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        allowed = None if mask is None else mask[:, None, None, :]
        if allowed is not None and self.causal:
            allowed = allowed & torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=allowed,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=self.causal and allowed is None,
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, length, dim))
