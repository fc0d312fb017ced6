"""Nyström attention, the token mixer of the Nyströmformer.

Xiong et al., "Nyströmformer: A Nyström-based Algorithm for Approximating Self-Attention", AAAI 2021
(arXiv:2102.03902).

Symbols of the paper and their names here:
    m: num_landmarks
    Q~, K~: query_landmarks, key_landmarks, the means of segments
    A_S: the softmax of scores in Nystrom._attend_by_landmarks
    Z: inverse
    k of DConv: convolution_size
"""

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from lra.models.base import Mixer, MixerContext
from lra.models.layers.basic import LinearMap
from lra.models.layers.heads import channels_of_heads, split_parts
from lra.models.ops.toeplitz import depthwise_convolution

MOST_ITERATIONS = 20
"""Each iteration multiplies rounding errors as well. In single precision, the pseudo-inverse of a
nearly singular matrix gets worse from here on, and then infinite."""


def averaging_matrix(counts: Tensor, length: int, num_segments: int, dtype: torch.dtype) -> Tensor:
    """Return the matrix that averages the real positions within segments of nearly equal size.

    The first segments have counts // num_segments positions each, and the last ones have one more
    position if the division has a remainder.

    Args:
        counts: (batch,), number of real positions, which come first in each row, and are no fewer
            than the segments.
        length: in positions, padding included.
    Returns: (batch, num_segments, length).
    """
    counts = counts[:, None]
    size = (counts // num_segments).clamp(min=1)
    num_short = num_segments * (size + 1) - counts
    position = torch.arange(length, device=counts.device)
    segment = torch.minimum(position // size, (position + num_short) // (size + 1))
    is_within = segment[:, None] == torch.arange(num_segments, device=counts.device)[:, None]
    members = is_within.to(dtype)
    return members / members.sum(dim=-1, keepdim=True)


def iterate_pseudo_inverse(matrix: Tensor, iterations: int) -> Tensor:
    """Approximate the Moore-Penrose inverse by an iteration of order four.

    The first iterate is the transposed matrix, (..., size, size), over the largest sum of a column,
    which is the matrix's own and does not depend on other sequences or heads. The matrix is not
    negative, and its rows sum to 1.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.mT / matrix.sum(dim=-2, keepdim=True).amax(dim=-1, keepdim=True)
    for _ in range(iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = 0.25 * inverse @ (13 * identity - product @ inner)
    return inverse


class Nystrom(Mixer):
    """Softmax attention approximated through a few landmarks, O(length * num_landmarks).

    Landmarks are the means of queries and of keys within segments of the real positions. A sequence
    with at most num_landmarks positions has exact softmax attention.

    Args:
        num_heads: number of attention heads, each with the same number of channels.
        num_landmarks: number of segments.
        iterations: number of iterations of the pseudo-inverse, at most 20.
        convolution_size: number of taps of the convolution of the values that is added to the
            result, an odd number. Each head has one filter. None: no convolution.
    Raises: ValueError if the context is causal, if num_heads does not divide dim, or if
        convolution_size is even.
    """

    name = "nystrom"

    def __init__(
        self,
        context: MixerContext,
        *,
        num_heads: PositiveInt = 4,
        num_landmarks: PositiveInt = 16,
        iterations: Annotated[PositiveInt, Field(le=MOST_ITERATIONS)] = 6,
        convolution_size: Annotated[int, Field(ge=1, lt=2**16)] | None = None,
    ) -> None:
        super().__init__()
        if context.causal:
            raise ValueError("nystrom cannot be causal, as a landmark is a mean of positions")
        dim = channels_of_heads(context, num_heads)
        if convolution_size is not None and convolution_size % 2 == 0:
            raise ValueError(f"convolution_size {convolution_size} is even, expected an odd number")
        self.num_heads = num_heads
        self.num_landmarks = num_landmarks
        self.iterations = iterations
        self.query_key_value = LinearMap(dim, 3 * dim)
        self.output = LinearMap(dim, dim)
        self.taps = None
        if convolution_size is not None:
            bound = convolution_size**-0.5
            taps = torch.empty(num_heads, convolution_size).uniform_(-bound, bound)
            self.taps = nn.Parameter(taps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.without_padding(x, mask)
        projected = self.query_key_value(x)
        # The pseudo-inverse amplifies rounding errors, so it is computed without autocast.
        with torch.autocast(x.device.type, enabled=False):
            projected = projected.to(torch.promote_types(projected.dtype, torch.float32))
            query, key, value = split_parts(projected, 3, self.num_heads)
            mixed = self._attend(query, key, value, mask).transpose(1, 2).flatten(2)
            if self.taps is not None:
                mixed = mixed + self._convolve(projected.chunk(3, dim=2)[2], self.taps, mask)
        return self.output(mixed.to(x.dtype))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend exactly in sequences of at most num_landmarks positions, and else by landmarks."""
        length, few = query.shape[2], self.num_landmarks
        if length <= few:
            return _attend_exactly(query, key, value, mask)
        counts = torch.full((1,), length, device=query.device) if mask is None else mask.sum(dim=1)
        averages = averaging_matrix(counts, length, few, query.dtype)[:, None]
        mixed = self._attend_by_landmarks(query, key, value, averages, mask)
        if mask is None:
            return mixed
        query, key, value = (part[:, :, :few] for part in (query, key, value))
        exact = _attend_exactly(query, key, value, mask[:, :few])
        exact = functional.pad(exact, (0, 0, 0, length - few))
        return torch.where((counts <= few)[:, None, None, None], exact, mixed)

    def _attend_by_landmarks(
        self, query: Tensor, key: Tensor, value: Tensor, averages: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend by way of landmarks, which the averages, (1 or batch, 1, landmarks, length), make.

        Landmarks attend to all positions, and all positions attend to landmarks. The products of
        matrices are taken from the right, so that no matrix of length times landmarks is multiplied
        by one of landmarks times landmarks, and both attentions are torch's own.
        """
        query_landmarks, key_landmarks = averages @ query, averages @ key
        summaries = _attend_exactly(query_landmarks, key, value, mask)
        scores = query.shape[-1] ** -0.5 * query_landmarks @ key_landmarks.mT
        inverse = iterate_pseudo_inverse(scores.softmax(dim=-1), self.iterations)
        return _attend_exactly(query, key_landmarks, inverse @ summaries, None)

    def _convolve(self, value: Tensor, taps: Tensor, mask: Tensor | None) -> Tensor:
        """Convolve the channels of each head with its filter: (batch, length, dim)."""
        value = self.without_padding(value, mask)  # where the bias is
        channels = value.shape[2] // self.num_heads
        taps = taps.to(value.dtype).repeat_interleave(channels, dim=0)
        return depthwise_convolution(value, taps, -(taps.shape[1] // 2))


def _attend_exactly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    allowed = None if mask is None else mask[:, None, None, :]
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
