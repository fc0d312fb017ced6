"""Synthesizer: softmax attention whose scores do not compare queries with keys.

Tay et al., "Synthesizer: Rethinking Self-Attention for Transformer Models", ICML 2021
(arXiv:2005.00743), section 3. Initial weights of the random scores are those of
google-research/long-range-arena.

Symbols of the paper and their names here:
    N, l: context.max_length
    d: context.dim
    G(X): value
    B, C, R, R_1 R_2^T: TableScores and LowRankScores
    k: rank
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from models.base import Mixer, MixerContext
from models.layers.basic import LinearMap
from models.layers.heads import channels_of_heads, split_heads, split_parts
from models.ops.local_attention import allowed_pairs

ScoreKind = Literal["random", "factorized_random", "dense", "factorized_dense"]


class RandomScores(nn.Module):
    """Random Synthesizer: a learned score for each pair of positions (section 3.1.3)."""

    def __init__(self, heads: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(draw_glorot(heads, max_length, max_length))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        return self.table[None, :, :length, :length]


class FactorizedRandomScores(nn.Module):
    """Factorized Random Synthesizer: a learned table of pairs of a rank (section 3.1.4)."""

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


class FactorizedDenseScores(nn.Module):
    """Factorized Dense Synthesizer: each score is a product of two that a position computes.

    Section 3.1.2. Position j of a sequence stands for a row and a column of a table that is as
    square as possible. Each position computes one factor for each row and one for each column. In
    the paper the number of rows times that of columns is max_length; here it may be larger.
    """

    def __init__(self, dim: int, heads: int, hidden: int, max_length: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.columns = math.isqrt(max_length - 1) + 1
        self.rows = -(-max_length // self.columns)
        self.hidden = LinearMap(dim, hidden, bias=bias)
        channels = hidden // heads
        shape = heads, channels, self.rows + self.columns
        self.weight = nn.Parameter(torch.randn(shape) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, 1, shape[-1])) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        factors = split_heads(functional.relu(self.hidden(x)), self.heads) @ self.weight
        if self.bias is not None:
            factors = factors + self.bias
        of_row, of_column = factors.split([self.rows, self.columns], dim=-1)
        of_row = of_row[..., : -(-x.shape[1] // self.columns)]
        table = of_row[..., :, None] * of_column[..., None, :]
        return table.flatten(3)[..., : x.shape[1]]


def draw_glorot(heads: int, rows: int, columns: int) -> Tensor:
    """Draw (heads, rows, columns) from flax's Xavier uniform distribution of the whole tensor.

    It counts heads times rows as inputs, and heads times columns as outputs.
    """
    bound = math.sqrt(6 / (heads * (rows + columns)))
    return torch.empty(heads, rows, columns).uniform_(-bound, bound)


def attend_by_scores(
    scores: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float
) -> Tensor:
    """Average values with the softmax of scores as weights.

    Args:
        scores: (batch or 1, heads, queries, keys).
        value: (batch, heads, keys, channels).
        allowed: bool, broadcast to scores, True for pairs that may attend. None: all may.
        dropout: fraction of attention weights dropped.
    Returns: (batch, heads, queries, channels).
    """
    if allowed is not None:
        # Negative infinity would give gradients of NaN where no pair may attend.
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    if dropout:  # drops other weights in each sequence
        scores = scores.expand(len(value), -1, -1, -1)
    weights = functional.dropout(scores.softmax(dim=-1), dropout)
    # Weights of all sequences are one batch of size 1, which is broadcast without copies.
    return torch.einsum("bhqk,bhkc->bhqc", weights, value)


TableScores = RandomScores | FactorizedDenseScores
"""Scores of all pairs: (batch, length, dim) -> (batch or 1, heads, length, length).

Entry [..., i, j] is the score of position j for the query at position i.
"""
LowRankScores = FactorizedRandomScores | DenseScores
"""Scores that are products of two vectors, as those of attention are.

`factors` maps (batch, length, dim) to what stands for queries and for keys, each (batch or 1,
heads, length, rank).
"""


class Synthesizer(Mixer):
    """Softmax attention whose scores are learned or computed from single positions, O(length^2).

    Scores have parameters for each position, so no sequence can be longer than max_length.

    Args:
        scores: how the scores of a query's position i are made. "random": a learned table of all
            pairs; "factorized_random": a learned table of rank `rank`; "dense": a network computes
            them from the input at i; "factorized_dense": a network computes factors of them.
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
            raise ValueError(
                f"rank is an option of scores factorized_random only, and scores is {scores}"
            )
        self.context = context
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        length, dim, bias = context.max_length, context.dim, projection_bias
        self.scores: TableScores | LowRankScores
        if scores == "random":
            self.scores = RandomScores(num_heads, length)
        elif scores == "factorized_random":
            self.scores = FactorizedRandomScores(num_heads, length, rank or 8)
        elif scores == "dense":
            self.scores = DenseScores(dim, num_heads, inner, length, bias=bias)
        else:
            self.scores = FactorizedDenseScores(dim, num_heads, inner, length, bias=bias)
        self.query_key = LinearMap(dim, 2 * inner, bias=bias) if dot_product else None
        self.value = LinearMap(dim, inner, bias=bias)
        self.output = LinearMap(inner, dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        self.check_length(length, self.context.max_length)
        if mask is not None:
            # Padded positions have weights of 0, but 0 times infinity or NaN is NaN.
            x = x.masked_fill(~mask[..., None], 0)
        allowed = None if mask is None else mask[:, None, None, :]
        if self.context.causal:
            allowed = allowed_pairs(length, None, mask, causal=True, device=x.device)
        value = split_heads(self.value(x), self.num_heads)
        dropout = self.attention_dropout if self.training else 0.0
        if isinstance(self.scores, LowRankScores):
            query, key = self._add_dot_product(x, *self.scores.factors(x))
            query, key = (factor.expand(len(x), -1, -1, -1) for factor in (query, key))
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=allowed, dropout_p=dropout, scale=1.0
            )
        else:
            scores = self.scores(x)
            if self.query_key is not None:
                query, key = self._query_and_key(x)
                scores = scores + query @ key.mT
            mixed = attend_by_scores(scores, value, allowed, dropout=dropout)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _query_and_key(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Make queries and keys of a dot product, (batch, heads, length, channels), scaled."""
        assert self.query_key is not None
        query, key = split_parts(self.query_key(x), 2, self.num_heads)
        return query * query.shape[-1] ** -0.5, key

    def _add_dot_product(self, x: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Append queries and keys to factors of scores, which adds their products."""
        if self.query_key is None:
            return query, key
        factors = zip((query, key), self._query_and_key(x), strict=True)
        query, key = (
            torch.cat([own.expand(len(x), -1, -1, -1), more], dim=-1) for own, more in factors
        )
        return query, key
