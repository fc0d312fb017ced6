"""Sparse Sinkhorn attention, the token mixer of the Sinkhorn Transformer.

Tay et al., "Sparse Sinkhorn Attention", ICML 2020 (arXiv:2002.11296), section 3. As in
google-research/long-range-arena, the sort network is one linear map of the sum of a block's keys.

Symbols of the paper and their names here:
    Q, K, V: query, key, value
    b or l_b: block_size
    N_B: number of blocks
    P: sort, the sort network
    R: logits, of blocks as sources in rows and as targets in columns
    S(R): order
    k of S^k: iterations
    tau: temperature
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional

from models.base import Mixer, MixerContext
from models.layers.basic import LinearMap
from models.layers.heads import channels_of_heads
from models.ops.sinkhorn import sinkhorn_matrix, sorted_block_attention


class Sinkhorn(Mixer):
    """Softmax attention within blocks and to sorted blocks, O(length * (block_size + blocks)).

    Each block attends to itself and to one sorted block. The latter is a mean over all blocks, and
    its weights are a column of a doubly stochastic matrix that the sort network and Sinkhorn's
    normalisation compute from the keys. In a causal model the mean is over earlier blocks only.

    Args:
        num_heads: number of attention heads, each with the same number of channels.
        attention_dim: channels of queries, keys and values, over all heads. None: dim.
        projection_bias: whether the input and output projections have a bias.
        attention_dropout: dropout probability of attention weights.
        block_size: positions in a block; the last block may have fewer. None: the square root
            of `context.max_length`, rounded up, which gives about as many blocks as a block has
            positions.
        iterations: number of iterations of Sinkhorn's normalisation.
        temperature: scores of the sort network are divided by it.
        gumbel_noise: whether Gumbel noise is added to these scores in training.
        joint_softmax: whether one softmax goes over the own and the sorted block. Otherwise the
            results of two softmaxes are added.
    Raises: ValueError if num_heads does not divide attention_dim. `forward` raises it for sequences
        longer than the context's max_length, because the sort network has an output for each block.
    """

    name = "sinkhorn"
    takes_longer = False

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        attention_dim: PositiveInt | None = None,
        projection_bias: bool = True,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        block_size: PositiveInt | None = None,
        iterations: PositiveInt = 7,
        temperature: PositiveFloat = 0.75,
        gumbel_noise: bool = False,
        joint_softmax: bool = False,
    ) -> None:
        super().__init__()
        inner = channels_of_heads(context, num_heads, attention_dim)
        self.context = context
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        few = math.isqrt(context.max_length - 1) + 1
        self.block_size = min(block_size or few, context.max_length)
        self.iterations = iterations
        self.temperature = temperature
        self.gumbel_noise = gumbel_noise
        self.joint_softmax = joint_softmax
        self.query_key_value = LinearMap(context.dim, 3 * inner, bias=projection_bias)
        blocks = -(-context.max_length // self.block_size)
        self.sort = LinearMap(inner // num_heads, blocks, bias=False)
        self.output = LinearMap(inner, context.dim, bias=projection_bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See `Mixer.forward`."""
        length = x.shape[1]
        self.check_length(length, self.context.max_length)
        if mask is None:
            mask = x.new_ones(1, length, dtype=torch.bool)
        padding = -length % self.block_size
        real = functional.pad(mask, (0, padding)).unflatten(1, (-1, self.block_size))
        x = functional.pad(x.masked_fill(~mask[..., None], 0), (0, 0, 0, padding))
        projected = self.query_key_value(x.unflatten(1, real.shape[1:]))
        heads = projected.unflatten(3, (3, self.num_heads, -1)).permute(3, 0, 1, 4, 2, 5)
        # A bias is not 0 at padding.
        query, key, value = heads.masked_fill(~real[:, :, None, :, None], 0).unbind()
        mixed = sorted_block_attention(
            query,
            key,
            value,
            self._order(key, real),
            real,
            causal=self.context.causal,
            joint=self.joint_softmax,
            dropout=self.attention_dropout if self.training else 0.0,
        )
        return self.output(mixed.transpose(2, 3).flatten(3).flatten(1, 2)[:, :length])

    def _order(self, key: Tensor, real: Tensor) -> Tensor:
        """Return the weight of each block in each sorted block.

        Args:
            key: (batch, blocks, heads, size, channels), 0 at padding.
            real: (1 or batch, blocks, size) bool.
        Returns: (batch, heads, blocks, blocks), of sources and targets.
        """
        blocks = key.shape[1]
        logits = self.sort(key.sum(dim=3))[..., :blocks].transpose(1, 2)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.gumbel_noise and self.training:
            logits = logits - torch.empty_like(logits).exponential_().log()
        is_real = real.any(dim=2)
        allowed = is_real[:, None, :, None] & is_real[:, None, None, :]
        if self.context.causal:
            allowed = allowed.triu(1)
        return sinkhorn_matrix(
            logits / self.temperature, allowed, self.iterations, causal=self.context.causal
        )
