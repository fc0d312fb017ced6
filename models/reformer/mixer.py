"""Attention between positions with similar hashes, the token mixer of Reformer.

Kitaev, Kaiser and Levskaya, "Reformer: The Efficient Transformer", ICLR 2020 (arXiv:2001.04451),
section 2. The paper's reversible layers and its chunks of the feed-forward layer save memory
without a change of results; they belong to the model around the mixer and are left out.

Symbols of the paper and their names here:
    Q = K: query_key, the same vectors (section 2, "Shared-QK attention")
    V: value
    n_rounds: num_rounds
    n_buckets: num_buckets
    m: chunk_length
    R: rotations, for each head its own
`lra.models.reformer.hashed_attention` lists the other symbols, and the differences from the
released code.
"""

import math
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_heads
from lra.models.reformer.hashed_attention import (
    Chunks,
    count_directions,
    hash_vectors,
    hashed_attention,
)


class Reformer(Mixer):
    """Attention by locality-sensitive hashing, O(num_rounds * length * chunk_length).

    If `context.max_length` fits into one chunk and num_buckets is None, each position sees all
    others. In a causal model, a position sees only earlier positions of its own bucket. Each bucket
    then has chunks of its own, which makes a round three to four times as large with the default
    num_buckets.

    Args:
        num_heads: number of attention heads.
        num_rounds: number of rounds of hashing. Positions with similar queries are more likely to
            meet in one of several rounds.
        chunk_length: in positions. A position sees its chunk and the one before. A chunk longer
            than every sequence counts as one of that length.
        num_buckets: number of buckets in a round, which one hash chooses. None: at least twice the
            number of chunks in `context.max_length`, or 1 if there is one chunk. If there are more
            chunks than positions in a chunk, two hashes choose the bucket together, as in the
            released code. One hash would compare each position with as many random directions as
            there are chunks.
        look_ahead: whether a position also sees the next chunk, unless the mixer is causal.
        redraw_rotations: whether each training step draws new random rotations for the hashes (in
            `lra.models.base.begin_step`). Otherwise the first ones are kept. Evaluation uses those
            of the last training step.
    Raises: ValueError if num_heads does not divide the channels.
    """

    name = "reformer"
    rotations: Tensor

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        num_rounds: PositiveInt = 4,
        chunk_length: PositiveInt = 16,
        num_buckets: Annotated[int, Field(ge=1, le=2**12)] | None = None,
        look_ahead: bool = True,
        redraw_rotations: bool = False,
    ) -> None:
        super().__init__()
        dim = channels_of_heads(context, num_heads)
        factors = [num_buckets] if num_buckets else factor_buckets(context.max_length, chunk_length)
        self.num_heads = num_heads
        self.chunk_length = chunk_length
        self.max_length = context.max_length
        self.bucket_factors = factors
        self.look_ahead = look_ahead
        self.redraw_rotations = redraw_rotations
        self.causal = context.causal
        self.query_key = LinearMap(dim, dim, bias=False)
        self.value = LinearMap(dim, dim, bias=False)
        self.output = LinearMap(dim, dim, bias=False)
        directions = count_directions(factors)
        rotations = torch.randn(num_heads, dim // num_heads, num_rounds, directions)
        self.register_buffer("rotations", rotations)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        # A rounded query may fall into another bucket, so queries are computed without autocast.
        with torch.autocast(x.device.type, enabled=False):
            query = split_heads(self.query_key(x.to(self.query_key.weight.dtype)), self.num_heads)
            buckets = hash_vectors(query, self.rotations, self.bucket_factors)
        mixed = hashed_attention(
            query,
            split_heads(self.value(x), self.num_heads),
            buckets,
            mask,
            Chunks(
                num_buckets=math.prod(self.bucket_factors),
                length=min(self.chunk_length, max(x.shape[1], self.max_length)),
                look_ahead=self.look_ahead and not self.causal,
                causal=self.causal,
            ),
        )
        return self.output(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def begin_step(self) -> bool:
        """Draw new rotations if `redraw_rotations` is set; see `Mixer.begin_step`."""
        if self.redraw_rotations:
            self.rotations.normal_()
        return self.redraw_rotations


def factor_buckets(max_length: int, chunk_length: int) -> list[int]:
    """Return how many values each hash has: one hash, or two if there are many chunks.

    Many are more chunks than positions in a chunk. The product of the numbers is at least twice the
    number of chunks.
    """
    chunks = -(-max_length // chunk_length)
    if chunks == 1:
        return [1]
    if chunks <= chunk_length:
        return [2 * chunks]
    # Even, because each random direction stands for two values: itself and its negative.
    first = 2 * math.ceil(math.sqrt(chunks / 2))
    return [first, 2 * math.ceil(chunks / first)]
