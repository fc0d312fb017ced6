"""Sparse Sinkhorn attention, the token mixer of the Sinkhorn Transformer.

Tay et al., "Sparse Sinkhorn Attention", ICML 2020 (arXiv:2002.11296), section 3. As in
google-research/long-range-arena, the sort network is one linear map of the sum of a block's keys.

Symbols of the paper and their names here:
    b or l_b: block_size
    N_B: number of blocks
    P: sort, the sort network
    R: logits, of blocks as sources in rows and as targets in columns
    S(R): order
    k of S^k: iterations
    tau: temperature
"""

import functools
import math
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads
from lra.models.ops.attention import attention
from lra.models.ops.local_attention import allowed_pairs

LOWEST = -1e30
"""Logarithm of a weight of 0. Negative infinity would give gradients of NaN."""


def sinkhorn_matrix(logits: Tensor, allowed: Tensor, iterations: int, *, causal: bool) -> Tensor:
    """Turn scores into weights whose sums over sources and over targets are about 1.

    Each iteration divides the weights by their sums over targets, and then by their sums over
    sources; so the latter are 1 exactly. In a causal model a weight is divided by the sum over the
    targets up to its own (causal Sinkhorn balancing), and depends on no later target.

    Args:
        logits: (..., sources, targets), logarithms of weights.
        allowed: (..., sources, targets) bool; all other weights are 0.
        iterations: number of iterations.
        causal: whether a weight depends on scores of the targets up to its own only.
    Returns: (..., sources, targets).
    """
    for _ in range(iterations):
        logits = logits.masked_fill(~allowed, LOWEST)
        if causal:
            logits = logits - logits.logcumsumexp(dim=-1)
        else:
            logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        logits = logits.masked_fill(~allowed, LOWEST)
        logits = logits - logits.logsumexp(dim=-2, keepdim=True)
    return logits.masked_fill(~allowed, LOWEST).exp()


def _sort(blocks: Tensor, order: Tensor) -> Tensor:
    """Average blocks by the weights of each target: (batch, blocks, heads, size, channels)."""
    rows = blocks.transpose(1, 2).flatten(3)
    return (order.mT.to(rows.dtype) @ rows).unflatten(3, blocks.shape[3:]).transpose(1, 2)


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
        iterations: Annotated[PositiveInt, Field(le=1000)] = 7,
        temperature: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.75,
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
        mixed = self._attend(query, key, value, self._order(key, real), real)
        return self.output(mixed.transpose(2, 3).flatten(3).flatten(1, 2)[:, :length])

    def _order(self, key: Tensor, real: Tensor) -> Tensor:
        """Return the weight of each block in each sorted block: (batch, heads, blocks, blocks)."""
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

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, order: Tensor, real: Tensor
    ) -> Tensor:
        """Attend to the real positions of the own block and of a sorted block.

        A position of a sorted block weighs as much as the matrix weighs the blocks in which it is
        real. Queries, keys and values are (batch, blocks, heads, size, channels), the latter two 0
        at padding; real positions (1 or batch, blocks, size).
        """
        batch, blocks, _, size, _ = query.shape
        real = real.expand(batch, -1, -1)
        within = allowed_pairs(
            size, None, real.flatten(0, 1), causal=self.context.causal, device=query.device
        )
        share = order.mT @ real[:, None].to(order.dtype)
        weight = share.clamp(min=torch.finfo(share.dtype).tiny).log()
        weight = weight.masked_fill(share == 0, LOWEST).to(query.dtype)
        bias = weight.transpose(1, 2).flatten(0, 1)[:, :, None]
        sorted_key, sorted_value = (_sort(part, order).flatten(0, 1) for part in (key, value))
        query, key, value = (part.flatten(0, 1) for part in (query, key, value))
        dropout = self.attention_dropout if self.training else 0.0
        attend = functools.partial(attention, query, dropout=dropout)
        if self.joint_softmax:
            near = torch.zeros_like(within, dtype=query.dtype).masked_fill(~within, -torch.inf)
            shape = *query.shape[:3], size
            both = torch.cat([near.expand(shape), bias.expand(shape)], dim=3)
            keys = torch.cat([key, sorted_key], dim=2)
            mixed = attend(keys, torch.cat([value, sorted_value], dim=2), both)
        else:
            mixed = attend(key, value, within)
            mixed = mixed + attend(sorted_key, sorted_value, bias)
        return mixed.unflatten(0, (batch, blocks))
