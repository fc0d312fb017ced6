"""Synthesizer: softmax attention whose scores do not compare queries with keys.

Tay et al., "Synthesizer: Rethinking Self-Attention for Transformer Models", ICML 2021
(arXiv:2005.00743), section 3.

Symbols of the paper and their names here:
    N, l: context.max_length
    d: context.dim
    G(X): value
    B, C, R, R_1 R_2^T: the results of the modules in models/layers/synthetic_scores.py
    k: rank
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from models.base import Mixer, MixerContext
from models.layers.basic import LinearMap
from models.layers.heads import channels_of_heads, split_heads, split_parts
from models.layers.synthetic_scores import (
    DenseScores,
    FactorizedDenseScores,
    FactorizedRandomScores,
    LowRankScores,
    RandomScores,
    SyntheticScores,
)
from models.ops.factor_attention import attend_by_factors, attend_by_scores
from models.ops.local_attention import allowed_pairs

ScoreKind = Literal["random", "factorized_random", "dense", "factorized_dense"]


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
        self.scores: SyntheticScores
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
        """See `Mixer.forward`.

        Raises: ValueError for more than max_length positions.
        """
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
            mixed = attend_by_factors(query, key, value, allowed, dropout=dropout)
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
