"""Linformer: softmax attention to keys and values that are projected to fewer positions.

Wang et al., "Linformer: Self-Attention with Linear Complexity", 2020 (arXiv:2006.04768), equation 7
and the paragraphs on sharing in section 4.

Symbols of the paper and their names here:
    n: context.max_length
    k: projected_length
    h: num_heads
    d_m: context.dim
    d_k: attention_dim // num_heads
    E, F: LengthProjection.weight, with both maps
    W^Q: query, of all heads
    W^K, W^V: key_value, both of all heads
    W^O: output
"""

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_heads
from lra.models.ops.attention import attention
from lra.models.ops.reference import fast_form_of

Sharing = Literal["none", "heads", "key_value", "layers", "layers_by_head"]
NUM_HEADS, PROJECTED_LENGTH = 4, 64
"""Defaults of `num_heads` and `projected_length`."""


class LengthProjection(nn.Module):
    """Linear maps of positions to fewer positions, for keys and values.

    A shorter sequence uses the first columns, as if it were padded with zeros. Weights start with
    the Xavier uniform distribution, as in google-research/long-range-arena. There are two maps, of
    keys and of values, or a common one, and as many heads as have maps of their own.
    """

    def __init__(self, max_length: int, projected_length: int, *, maps: int, heads: int) -> None:
        super().__init__()
        bound = math.sqrt(6 / (max_length + projected_length))
        weight = torch.empty(maps, heads, projected_length, max_length).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)

    def forward(self, key_value: Tensor) -> Tensor:
        """Project keys and values, (2, batch, heads, length, channels), zeros at padding."""
        weight = self.weight[..., : key_value.shape[3]]
        # The dimensions of maps and heads have size 1 if a weight is shared, and are broadcast.
        return torch.einsum("mhkn,mbhnc->mbhkc", weight, key_value)


class Linformer(Mixer):
    """Softmax attention to keys and values of fewer positions, O(length * projected_length).

    The projections have one column for each position, so no sequence can be longer than
    max_length.

    Args:
        num_heads: number of attention heads, each with the same number of channels.
        projected_length: number of positions that keys and values are projected to.
        sharing: what shares one projection. "none": each head has its own for keys and for values;
            "heads": all heads share one for keys and one for values; "key_value": all heads share
            one for keys and values; "layers": all blocks share one for all heads, keys and values;
            "layers_by_head": all blocks share them, and each head has one for keys and values.
        attention_dim: channels of queries, keys and values, over all heads. None: dim.
        projection_bias: whether the input and output maps of the channels have a bias.
        attention_dropout: dropout probability of attention weights.
    Raises: ValueError if num_heads does not divide attention_dim, if the context is causal, and for
        shared layers if blocks have sequences of different lengths.
    """

    name = "linformer"
    takes_longer = False

    @classmethod
    def shared(cls, context: MixerContext, **options: Any) -> LengthProjection | None:
        """Build the projection of all blocks if they share it, see `Mixer.shared`."""
        sharing = options.get("sharing")
        if sharing not in ("layers", "layers_by_head"):
            return None
        length = options.get("projected_length", PROJECTED_LENGTH)
        heads = options.get("num_heads", NUM_HEADS) if sharing == "layers_by_head" else 1
        return LengthProjection(context.max_length, length, maps=1, heads=heads)

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = NUM_HEADS,
        projected_length: PositiveInt = PROJECTED_LENGTH,
        sharing: Sharing = "key_value",
        attention_dim: PositiveInt | None = None,
        projection_bias: bool = True,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__()
        if context.causal:
            raise ValueError("linformer mixes all positions in its projections: it is not causal")
        inner = channels_of_heads(context, num_heads, attention_dim)
        self.max_length = context.max_length
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.query = LinearMap(context.dim, inner, bias=projection_bias)
        self.key_value = LinearMap(context.dim, 2 * inner, bias=projection_bias)
        self.output = LinearMap(inner, context.dim, bias=projection_bias)
        if isinstance(context.shared, LengthProjection):
            self.projection = context.shared
            if (columns := self.projection.weight.shape[-1]) != context.max_length:
                raise ValueError(
                    f"sharing {sharing}: the projection is for {columns} positions, and a block "
                    f"has sequences of {context.max_length}; use sharing key_value"
                )
        else:
            self.projection = LengthProjection(
                context.max_length,
                projected_length,
                maps=2 if sharing in ("none", "heads") else 1,
                heads=num_heads if sharing == "none" else 1,
            )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.check_length(x.shape[1], self.max_length)
        x = self.without_padding(x, mask)
        query = split_heads(self.query(x), self.num_heads)
        key, value = self._keys_and_values(x, mask)
        dropout = self.attention_dropout if self.training else 0.0
        mixed = attention(query, key, value, dropout=dropout)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _keys_and_values_reference(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Compute `_keys_and_values` as the paper does: map all positions, and project them."""
        parts = self.key_value(x).unflatten(2, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if mask is not None:
            # The bias of the map is at padded positions, too.
            parts = parts.masked_fill(~mask[:, None, :, None], 0)
        return self.projection(parts)

    @fast_form_of(_keys_and_values_reference)
    def _keys_and_values(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Compute projected keys and values, for few positions if all heads share projections.

        E (x W) is (E x) W, and E x has only projected_length positions that W is applied to. The
        bias of W is multiplied by the sums of the rows of E. x has zeros at padded positions.

        Returns: (2, batch, heads, projected_length, channels).
        """
        _, heads, projected_length, _ = self.projection.weight.shape
        length = x.shape[1]
        if heads > 1 or projected_length >= length:
            return self._keys_and_values_reference(x, mask)
        weight = self.projection.weight[:, 0, :, :length]
        inputs = torch.einsum("mkn,bnd->mbkd", weight, x)
        maps = self.key_value.weight.unflatten(0, (2, -1))
        parts = torch.einsum("mbkd,mcd->mbkc", inputs, maps)
        if self.key_value.bias is not None:
            real = x.new_ones(1, length) if mask is None else mask.to(x.dtype)
            sums = torch.einsum("mkn,bn->mbk", weight, real)
            parts = parts + sums[..., None] * self.key_value.bias.unflatten(0, (2, 1, 1, -1))
        return parts.unflatten(3, (self.num_heads, -1)).transpose(2, 3)
