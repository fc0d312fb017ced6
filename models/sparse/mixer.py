"""Softmax attention between the pairs of a sparse pattern.

Child et al., "Generating Long Sequences with Sparse Transformers", 2019 (arXiv:1904.10509), section
4.3, patterns strided and fixed; Beltagy et al., "Longformer: The Long-Document Transformer", 2020
(arXiv:2004.05150), section 3.1, pattern longformer; Zaheer et al., "Big Bird: Transformers for
Longer Sequences", NeurIPS 2020 (arXiv:2007.14062), section 2 and appendix D, pattern bigbird; Tay
et al., "Long Range Arena", ICLR 2021 (arXiv:2011.04006), table 1, pattern local.

Symbols of the papers and their names here:
    l (Child et al.): block_size
    c (Child et al.): num_summary
    w (Longformer): window_size - 1
    Q_g, K_g, V_g (Longformer): global_query_key_value
    b (BigBird): block_size
    r (BigBird): num_random
    g (BigBird): 2, and w: 3
"""

import sys
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_parts
from lra.models.sparse.attention import attend_to_all, sparse_attention
from lra.models.sparse.patterns import (
    Pattern,
    fixed_pattern,
    local_pattern,
    random_pattern,
    strided_pattern,
    window_pattern,
)

PatternName = Literal["strided", "fixed", "longformer", "bigbird", "local"]

OPTIONS: dict[PatternName, set[str]] = {
    "strided": {"block_size"},
    "fixed": {"block_size", "num_summary"},
    "longformer": {"window_size"},
    "bigbird": {"block_size", "num_random", "random_within"},
    "local": {"block_size"},
}
"""The options that belong to a pattern; the other options are for all patterns."""
BLOCK_SIZE = 64
WINDOW_SIZE = 512
NUM_RANDOM = 3


def draw_blocks(*, heads: int, blocks: int, num_random: int, within: int, layer: int) -> Tensor:
    """Draw the random blocks that each block of queries attends to (BigBird, appendix D).

    Blocks are drawn without replacement from all but the global ones, which are the first and the
    last, the queries' own, the two beside it, and those from the number `within` on. The same
    arguments always give the same blocks, as `numpy.random.RandomState` never changes.

    Returns: (heads, max(1, blocks - 2), num_random), numbers from the first block that is not
        global, and -1 where there are not enough blocks.
    """
    table = np.full((heads, max(1, blocks - 2), num_random), -1, dtype=np.int64)
    for head, block in np.ndindex(table.shape[:2]):
        choice = np.arange(min(within - 1, blocks - 2))
        choice = choice[np.abs(choice - block) > 1]
        generator = np.random.RandomState([layer, head, block])
        drawn = generator.permutation(choice)[:num_random]
        table[head, block, : len(drawn)] = drawn
    return torch.from_numpy(table)


class Sparse(Mixer):
    """Softmax attention to a part of the positions, which a pattern chooses.

    The cost of a position is that of the keys that it attends to. Pattern longformer has about
    window_size + num_global of them, local has block_size, and bigbird (5 + num_random) *
    block_size. These do not grow with the length. Strided has block_size + length / block_size, and
    fixed has block_size + (num_summary + 1) * length / block_size.

    Strided and fixed never look ahead, as in the paper: only global positions do, unless the model
    is causal. Pattern bigbird cannot be causal.

    Args:
        pattern: "strided", the last block_size positions and those at multiples of block_size
            behind; "fixed", the position's own block up to the position, and summaries at the ends
            of the blocks behind; "longformer", a window; "bigbird", the position's own block, the
            two beside it, random blocks, and the first and the last block, which are global;
            "local", the position's own block.
        num_heads: number of attention heads, each with the same number of channels.
        attention_dim: channels of queries, keys and values, over all heads. None: dim.
        projection_bias: whether the input and output projections have a bias.
        attention_dropout: dropout probability of attention weights.
        window_size: number of positions that a position attends to with pattern longformer, itself
            included. If it is even, one more is ahead than behind. None: 512.
        block_size: positions in a block of patterns strided, fixed, bigbird and local. None: 64.
        num_summary: number of last positions of each block that are summaries with pattern fixed.
            The first position of a block is a summary, too. None: a quarter of the block.
        num_random: number of random blocks that each block attends to in each head, with pattern
            bigbird. None: 3.
        random_within: random blocks of bigbird are drawn from the first random_within positions,
            rounded up to whole blocks. None: from all. A sequence longer than
            `context.max_length` has random blocks of its own.
        num_global: number of first positions that attend to all and that all attend to. The pattern
            begins after them. With pattern longformer they have queries, keys and values of their
            own. Pattern bigbird has global blocks instead.
    Raises: ValueError if num_heads does not divide attention_dim, for options of another pattern,
        for as many summaries as a block has positions, or more, and for pattern bigbird in a causal
        model.
    """

    name = "sparse"
    random_blocks: Tensor

    def __init__(
        self,
        context: MixerContext,
        *,
        pattern: PatternName = "longformer",
        num_heads: PositiveInt = 4,
        attention_dim: PositiveInt | None = None,
        projection_bias: bool = True,
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        window_size: PositiveInt | None = None,
        block_size: PositiveInt | None = None,
        num_summary: PositiveInt | None = None,
        num_random: NonNegativeInt | None = None,
        random_within: PositiveInt | None = None,
        num_global: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        inner = channels_of_heads(context, num_heads, attention_dim)
        options = {
            "window_size": window_size, "block_size": block_size, "num_summary": num_summary,
            "num_random": num_random, "random_within": random_within,
        }  # fmt: skip
        for option, number in options.items():
            if number is not None and option not in OPTIONS[pattern]:
                valid = f"its options are {', '.join(sorted(OPTIONS[pattern]))}"
                raise ValueError(f"pattern {pattern} has no option {option}; {valid}")
        if pattern == "bigbird" and (context.causal or num_global):
            raise ValueError("pattern bigbird cannot have num_global or be causal; use longformer")
        self.context, self.max_length = context, context.max_length
        self.pattern: PatternName = pattern
        self.window_size = window_size or WINDOW_SIZE
        self.block_size = size = block_size or BLOCK_SIZE
        self.num_summary = count = num_summary or max(1, size // 4)
        if pattern == "fixed" and count >= size:
            raise ValueError(f"pattern fixed needs num_summary < block_size, got {count}, {size}")
        self.num_random = NUM_RANDOM if num_random is None else num_random
        self.random_within = random_within
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.num_global = num_global
        self.query_key_value = LinearMap(context.dim, 3 * inner, bias=projection_bias)
        self.output = LinearMap(inner, context.dim, bias=projection_bias)
        if pattern == "longformer" and num_global:
            self.global_query_key_value = LinearMap(context.dim, 3 * inner, bias=projection_bias)
        if pattern == "bigbird":
            drawn = self._draw_blocks(context.max_length)
            self.register_buffer("random_blocks", drawn, persistent=False)
        if pattern in ("strided", "fixed"):
            self.looks_ahead = num_global > 0
        elif pattern == "longformer" and not num_global:
            self.reach = self._window()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        length = x.shape[1]
        dropout = self.attention_dropout if self.training else 0.0
        heads = split_parts(self.query_key_value(x), 3, self.num_heads)
        mixed = sparse_attention(heads, mask, self._pattern(length), dropout)
        if self.pattern == "longformer" and self.num_global:
            query, key, value = split_parts(self.global_query_key_value(x), 3, self.num_heads)
            count = min(self.num_global, length)
            position = torch.arange(count, device=x.device)
            heads = query[:, :, :count], key, value
            first = attend_to_all(heads, mask, position, self.context.causal, dropout)
            mixed = torch.cat([first, mixed[:, :, count:]], dim=2)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _pattern(self, length: int) -> Pattern:
        """Return the pattern for sequences of a length."""
        causal, longest = self.context.causal, max(length, self.max_length)
        # A block beyond every sequence is cut, which changes no result.
        size = min(self.block_size, max(longest, BLOCK_SIZE))
        if self.pattern == "bigbird":
            table = self.random_blocks
            if longest > self.max_length:
                table = self._draw_blocks(longest).to(table.device)
            last = (-(-longest // size) - 1) * size
            return replace(random_pattern(size, table), inner=(size, last))
        if self.pattern == "strided":
            pattern = strided_pattern(size)
        elif self.pattern == "fixed":
            pattern = fixed_pattern(size, min(self.num_summary, size - 1))
        elif self.pattern == "local":
            pattern = local_pattern(size, causal=causal)
        else:
            block = min(-(-self.window_size // 4), max(longest, WINDOW_SIZE // 4))
            pattern = window_pattern(max(16, block), *self._window())
        return replace(pattern, inner=(self.num_global, sys.maxsize), causal=causal)

    def _window(self) -> tuple[int, int]:
        """Return the numbers of positions behind and ahead in the window of longformer."""
        return (self.window_size - 1) // 2, 0 if self.context.causal else self.window_size // 2

    def _draw_blocks(self, length: int) -> Tensor:
        """Draw the random blocks of sequences up to a length, see `draw_blocks`."""
        return draw_blocks(
            heads=self.num_heads,
            blocks=-(-length // self.block_size),
            num_random=self.num_random,
            within=-(-(self.random_within or length) // self.block_size),
            layer=self.context.layer,
        )
