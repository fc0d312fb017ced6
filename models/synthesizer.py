"""Synthesizer: softmax attention whose scores do not compare queries with keys.

Tay et al., "Synthesizer: Rethinking Self-Attention for Transformer Models", ICML 2021
(arXiv:2005.00743), section 3. Initial weights of the random scores are those of
google-research/long-range-arena.

Symbols of the paper and their names here:
    N, l: context.max_length
    d: context.dim
    G(X): value
    B, R, R_1 R_2^T: DenseScores, RandomScores, FactorizedRandomScores
    k: rank
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_heads, split_parts
from lra.models.ops.attention import attention
from lra.models.ops.local_attention import allowed_pairs

ScoreKind = Literal["random", "factorized_random", "dense"]


class RandomScores(nn.Module):
    """Random Synthesizer: a learned score for each pair of positions (section 3.1.3).

    Entry [..., i, j] is the score of position j for the query at position i.
    """

    def __init__(self, heads: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(draw_glorot(heads, max_length, max_length))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        return self.table[None, :, :length, :length]


class FactorizedRandomScores(nn.Module):
    """Factorized Random Synthesizer: a learned table of pairs of a rank (section 3.1.4).

    Scores are products of what stands for queries and for keys, (1 or batch, heads, length, rank).
    """

    def __init__(self, heads: int, max_length: int, rank: int) -> None:
        super().__init__()
        self.query = nn.Parameter(draw_glorot(heads, max_length, rank))
        self.key = nn.Parameter(draw_glorot(heads, max_length, rank))

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        length = x.shape[1]
        return self.query[None, :, :length], self.key[None, :, :length]


class DenseScores(nn.Module):
    """Dense Synthesizer: each position computes its scores by a network of two layers.

    Section 3.1.1. The last layer has a row for each position that is attended to, so the scores are
    products of the hidden layer, which has `hidden` channels over all heads, with learned keys.
    """

    def __init__(self, dim: int, heads: int, hidden: int, max_length: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.hidden = LinearMap(dim, hidden, bias=bias)
        channels = hidden // heads
        self.key = nn.Parameter(torch.randn(heads, max_length, channels) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, max_length, 1)) if bias else None

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        length = x.shape[1]
        query, key = split_heads(functional.relu(self.hidden(x)), self.heads), self.key[:, :length]
        if self.bias is not None:  # a channel that is 1 in all queries
            query = functional.pad(query, (0, 1), value=1.0)
            key = torch.cat([key, self.bias[:, :length]], dim=-1)
        return query, key[None]


def draw_glorot(heads: int, rows: int, columns: int) -> Tensor:
    """Draw (heads, rows, columns) from flax's Xavier uniform distribution of the whole tensor.

    It counts heads times rows as inputs, and heads times columns as outputs.
    """
    bound = math.sqrt(6 / (heads * (rows + columns)))
    return torch.empty(heads, rows, columns).uniform_(-bound, bound)


def attend_by_scores(
    scores: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float
) -> Tensor:
    """Average values, (batch, heads, keys, channels), by the softmax of scores.

    Scores are (batch or 1, heads, queries, keys). Pairs that are not allowed, if not None, may not
    attend.
    """
    if allowed is not None:
        # Negative infinity would give gradients of NaN where no pair may attend.
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    if dropout:  # drops other weights in each sequence
        scores = scores.expand(len(value), -1, -1, -1)
    weights = functional.dropout(scores.softmax(dim=-1), dropout)
    # Weights of all sequences are one batch of size 1, which is broadcast without copies.
    return torch.einsum("bhqk,bhkc->bhqc", weights, value)


class Synthesizer(Mixer):
    """Softmax attention whose scores are learned or computed from single positions, O(length^2).

    Scores have parameters for each position, so no sequence can be longer than max_length.

    Args:
        scores: how the scores of a query's position i are made. "random": a learned table of all
            pairs; "factorized_random": a learned table of rank `rank`; "dense": a network computes
            them from the input at i.
        rank: rank of the table of scores factorized_random. None: 8.
        dot_product: whether scores of queries and keys are added, as in ordinary attention. The
            sum is not weighted.
        num_heads: number of attention heads, each with the same number of channels.
        attention_dim: channels of values and of queries, keys and hidden layers, over all heads.
            None: dim.
        projection_bias: whether all linear maps have a bias.
        attention_dropout: dropout probability of attention weights.
    Raises: ValueError if num_heads does not divide attention_dim, or if rank is given and scores
        is not factorized_random.
    """

    name = "synthesizer"
    takes_longer = False

    def __init__(
        self,
        context: MixerContext,
        *,
        scores: ScoreKind = "dense",
        rank: PositiveInt | None = None,
        dot_product: bool = False,
        num_heads: PositiveInt = 4,
        attention_dim: PositiveInt | None = None,
        projection_bias: bool = True,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__()
        inner = channels_of_heads(context, num_heads, attention_dim)
        if rank is not None and scores != "factorized_random":
            raise ValueError(f"rank concerns scores factorized_random, and scores is {scores}")
        self.context = context
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        length, dim, bias = context.max_length, context.dim, projection_bias
        self.scores: RandomScores | FactorizedRandomScores | DenseScores
        if scores == "random":
            self.scores = RandomScores(num_heads, length)
        elif scores == "factorized_random":
            self.scores = FactorizedRandomScores(num_heads, length, rank or 8)
        else:
            self.scores = DenseScores(dim, num_heads, inner, length, bias=bias)
        self.query_key = LinearMap(dim, 2 * inner, bias=bias) if dot_product else None
        self.value = LinearMap(dim, inner, bias=bias)
        self.output = LinearMap(inner, dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        self.check_length(length, self.context.max_length)
        x = self.without_padding(x, mask)
        allowed = None if mask is None else mask[:, None, None, :]
        if self.context.causal:
            allowed = allowed_pairs(length, None, mask, causal=True, device=x.device)
        value = split_heads(self.value(x), self.num_heads)
        dropout = self.attention_dropout if self.training else 0.0
        dots = None
        if self.query_key is not None:
            query, key = split_parts(self.query_key(x), 2, self.num_heads)
            dots = query * query.shape[-1] ** -0.5, key
        if isinstance(self.scores, RandomScores):
            scores = self.scores(x)
            scores = scores if dots is None else scores + dots[0] @ dots[1].mT
            mixed = attend_by_scores(scores, value, allowed, dropout=dropout)
        else:
            query, key = (part.expand(len(x), -1, -1, -1) for part in self.scores.factors(x))
            if dots is not None:  # longer vectors add their products
                query, key = (
                    torch.cat(pair, dim=-1) for pair in zip((query, key), dots, strict=True)
                )
            mixed = attention(query, key, value, allowed, dropout=dropout, scale=1.0)
        return self.output(mixed.transpose(1, 2).flatten(2))
