"""Attention scores that are learned for pairs of positions or computed from one position's input.

Tay et al., "Synthesizer: Rethinking Self-Attention for Transformer Models", ICML 2021
(arXiv:2005.00743), section 3. Initial weights of the random scores are those of
google-research/long-range-arena.
"""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.basic import LinearMap
from models.layers.heads import split_heads


class SyntheticScores(nn.Module, abc.ABC):
    """Scores of all pairs of positions, for each head."""

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Compute the scores: (batch, length, dim) -> (batch or 1, heads, length, length).

        Entry [..., i, j] is the score of position j for the query at position i.
        """


class LowRankScores(SyntheticScores):
    """Scores that are products of two vectors, as those of attention are."""

    @abc.abstractmethod
    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of all positions: (batch, length, dim) -> two tensors.

        Returns: the vectors that stand for queries and for keys, each (batch or 1, heads, length,
            rank). Their products are the scores.
        """

    def forward(self, x: Tensor) -> Tensor:
        """See `SyntheticScores.forward`."""
        query, key = self.factors(x)
        return query @ key.mT


class RandomScores(SyntheticScores):
    """Random Synthesizer: a learned score for each pair of positions (section 3.1.3).

    Args:
        heads: number of heads.
        max_length: longest sequence, in positions.
    """

    def __init__(self, heads: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(draw_glorot(heads, max_length, max_length))

    def forward(self, x: Tensor) -> Tensor:
        """See `SyntheticScores.forward`."""
        length = x.shape[1]
        return self.table[None, :, :length, :length]


class FactorizedRandomScores(LowRankScores):
    """Factorized Random Synthesizer: a learned table of pairs with a low rank (section 3.1.4).

    Args:
        heads: number of heads.
        max_length: longest sequence, in positions.
        rank: k.
    """

    def __init__(self, heads: int, max_length: int, rank: int) -> None:
        super().__init__()
        self.query = nn.Parameter(draw_glorot(heads, max_length, rank))
        self.key = nn.Parameter(draw_glorot(heads, max_length, rank))

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `LowRankScores.factors`."""
        length = x.shape[1]
        return self.query[None, :, :length], self.key[None, :, :length]


class DenseScores(LowRankScores):
    """Dense Synthesizer: each position computes its scores by a network of two layers.

    Section 3.1.1. The last layer has a row for each position that is attended to, so the scores are
    products of the hidden layer with learned keys.

    Args:
        dim: channels of the input.
        heads: number of heads.
        hidden: channels of the hidden layer, over all heads.
        max_length: longest sequence, in positions.
        bias: whether both layers have a bias.
    """

    def __init__(self, dim: int, heads: int, hidden: int, max_length: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.hidden = LinearMap(dim, hidden, bias=bias)
        channels = hidden // heads
        self.key = nn.Parameter(torch.randn(heads, max_length, channels) * channels**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, max_length, 1)) if bias else None

    def factors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `LowRankScores.factors`; a bias adds a channel that is 1 in all queries."""
        length = x.shape[1]
        query, key = split_heads(functional.relu(self.hidden(x)), self.heads), self.key[:, :length]
        if self.bias is not None:
            query = functional.pad(query, (0, 1), value=1.0)
            key = torch.cat([key, self.bias[:, :length]], dim=-1)
        return query, key[None]


class FactorizedDenseScores(SyntheticScores):
    """Factorized Dense Synthesizer: each score is a product of two that a position computes.

    Section 3.1.2. Position j of a sequence stands for a row and a column of a table that is as
    square as possible. Each position computes one factor for each row and one for each column. In
    the paper the number of rows times that of columns is max_length; here it may be larger.

    Args:
        dim: channels of the input.
        heads: number of heads.
        hidden: channels of the hidden layer, over all heads.
        max_length: longest sequence, in positions.
        bias: whether both layers have a bias.
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
        """See `SyntheticScores.forward`."""
        factors = split_heads(functional.relu(self.hidden(x)), self.heads) @ self.weight
        if self.bias is not None:
            factors = factors + self.bias
        of_row, of_column = factors.split([self.rows, self.columns], dim=-1)
        of_row = of_row[..., : -(-x.shape[1] // self.columns)]
        table = of_row[..., :, None] * of_column[..., None, :]
        return table.flatten(3)[..., : x.shape[1]]


def draw_glorot(heads: int, rows: int, columns: int) -> Tensor:
    """Draw a table for each head from flax's Xavier uniform distribution of the whole tensor.

    It counts heads times rows as inputs, and heads times columns as outputs.

    Returns: (heads, rows, columns).
    """
    bound = math.sqrt(6 / (heads * (rows + columns)))
    return torch.empty(heads, rows, columns).uniform_(-bound, bound)
