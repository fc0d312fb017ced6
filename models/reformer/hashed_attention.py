"""Softmax attention between positions with similar hashes, in several rounds of hashing.

Kitaev, Kaiser and Levskaya, "Reformer: The Efficient Transformer", ICLR 2020 (arXiv:2001.04451),
section 2. Queries are also the keys, divided by their length.

Symbols of the paper and their names here:
    h(x): hash_vectors
    R: rotations
    b: num_buckets, the product of factors
    m: chunk_length
    s_i: place
    P_i: positions that are not in hidden
    z(i, P_i): log_sum
    r: a round

Two things differ from the released code:
- Here no chunk comes before the first one. In the released code, the last chunk of all rounds
  comes before it, so that a result would depend on the padded length.
- In a causal model, each bucket starts a new chunk here, and a position sees its own bucket only.
  In the released code, a later position in an earlier bucket shifts all positions that are sorted
  after it, so that an earlier result depends on it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from lra.models.ops.reference import fast_form_of

OWN_SCORE = -1e5
"""Score of a position's own key: too low to matter unless the position sees no other key."""
SMALLEST_SQUARE = 1e-6
"""Added to the mean square of a key before the division by its root, as in the released code."""


class Arrangement(NamedTuple):
    """The order of positions in each round: sorted by bucket, in chunks of equal length.

    A place is the number of a chunk times the chunk length, plus a number within the chunk. Places
    may be empty.
    """

    position: Tensor
    """(batch, heads, rounds, places): the position at each place, the length at an empty one."""
    place: Tensor
    """(batch, heads, rounds, length): the place of each position."""
    group: Tensor
    """(batch, heads, rounds, places): positions of different groups do not see each other."""


class Chunks(NamedTuple):
    """How positions are divided, and which chunks a position sees."""

    num_buckets: int
    length: int
    """Positions of a chunk."""
    look_ahead: bool = False
    """Whether a position also sees the next chunk."""
    causal: bool = False
    """Whether a position sees earlier positions only, without the next chunk. Each bucket then has
    chunks of its own, and a position sees its own bucket only."""


def hash_vectors(x: Tensor, rotations: Tensor, factors: Sequence[int]) -> Tensor:
    """Hash vectors so that those of similar directions probably fall into the same bucket.

    A hash is the index of the largest product with a random direction or its negative (section 2,
    "Locality sensitive hashing"). If a hash has an odd number of values, the last negative is not
    used. With several factors, a bucket combines one hash per factor, as in the released code: the
    number of buckets is the product of the factors, that of random directions half of their sum.

    Rotations are (heads, channels, rounds, `count_directions(factors)`).

    Returns: (batch, heads, rounds, length), whole numbers from 0. They have no gradient.
    """
    directions = [count_directions([factor]) for factor in factors]
    products = torch.einsum("bhlc,hcrd->bhrld", x.detach(), rotations).split(directions, dim=-1)
    bucket = torch.zeros((), dtype=torch.long, device=x.device)
    for part, factor in zip(products, factors, strict=True):
        value = torch.cat([part, -part], dim=-1)[..., :factor].argmax(dim=-1)
        bucket = bucket * factor + value
    return bucket


def count_directions(factors: Sequence[int]) -> int:
    """Return the number of random directions for the hashes of `hash_vectors`."""
    return sum(-(-factor // 2) for factor in factors)


def hashed_attention_reference(
    query: Tensor, value: Tensor, buckets: Tensor, mask: Tensor | None, chunks: Chunks
) -> Tensor:
    """Compute `hashed_attention` with a table of all pairs, O(rounds * length^2).

    The paper's sum over rounds (appendix A) is one softmax, in which each key counts as often as
    there are rounds in which the query sees it.
    """
    length = query.shape[2]
    position = torch.arange(length, device=query.device)
    is_real = torch.ones_like(position, dtype=torch.bool) if mask is None else mask[:, None, None]
    is_sorted_before = _compare(buckets * length + position) < 0
    is_possible = is_real[..., None, :].expand_as(is_sorted_before)
    if chunks.causal:
        is_possible = is_possible & (_compare(buckets) == 0)
    chunk = (is_sorted_before & is_possible).sum(dim=-1) // chunks.length
    lag = _compare(chunk)
    visible = is_possible & (lag >= -1) & (lag <= chunks.look_ahead)
    if chunks.causal:
        visible = visible & (_compare(position) < 0)
    is_own = _compare(position) == 0
    rounds = visible.sum(dim=2).masked_fill(is_own, 0)
    rounds = rounds + (is_own & (rounds.sum(dim=-1, keepdim=True) == 0))
    scores = query @ _normalized(query).mT * query.shape[-1] ** -0.5
    return (scores + rounds.to(scores.dtype).log()).softmax(dim=-1) @ value


def _compare(x: Tensor) -> Tensor:
    """Subtract all pairs, (..., length) -> (..., length, length): below 0 if j is less than i."""
    return x[..., None, :] - x[..., None]


@fast_form_of(hashed_attention_reference)
def hashed_attention(
    query: Tensor, value: Tensor, buckets: Tensor, mask: Tensor | None, chunks: Chunks
) -> Tensor:
    """Attend to real positions in the same and adjacent chunks, O(rounds * length * chunk_length).

    In each round, positions are sorted by bucket and then by position, with padding last. A
    position sees the positions in its chunk and in the one before. Its own key counts only if it
    sees no other key in any round. Rounds are weighed by their sums of exponentials (appendix A);
    a pair that meets in several rounds counts several times, as in the released code.

    Args:
        query: (batch, heads, length, channels). Keys are queries divided by their root mean square.
        value: (batch, heads, length, channels).
        buckets: (batch, heads, rounds, length), whole numbers below the number of buckets.
        mask: (batch, length) bool, True at real positions, which come first. None: all are real.
            Queries and values have to be finite at padded positions, too.
        chunks: how positions are divided.
    Returns: (batch, heads, length, channels).
    """
    arranged = arrange(buckets, mask, chunks)
    query, value = (
        _to_places(x[:, :, None], arranged).unflatten(3, (-1, chunks.length))
        for x in (query, value)
    )
    key, value = (_join_chunks(x, 0, chunks) for x in (_normalized(query), value))
    hidden = _hidden_pairs(arranged, mask, chunks)
    mixed, log_sum = (
        _to_positions(x.flatten(3, 4), arranged) for x in _attend(query, key, value, hidden)
    )
    return (log_sum.softmax(dim=2) * mixed).sum(dim=2).to(value.dtype)


def _attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Attend to the keys around each chunk of queries, (..., chunk_length, channels).

    A query's own key comes chunk_length keys after its number. Hidden keys are not seen.

    Returns: (..., chunk_length, channels), and the logarithms of sums of exponentials,
        (..., chunk_length, 1), in single precision at least.
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.mT
    scores = scores.to(torch.promote_types(torch.float32, scores.dtype))
    with torch.no_grad():  # weights of 0 have no gradient, nor has the weight of a single key
        scores.add_(hidden.logical_not().to(scores.dtype).log())  # faster than masked_fill_
        scores.diagonal(query.shape[-2], -2, -1).fill_(OWN_SCORE)
        largest = scores.amax(dim=-1, keepdim=True)
    # In place, so that the backward pass keeps this tensor alone of those with all pairs.
    weights = scores.sub_(largest).exp_()
    total = weights.sum(dim=-1, keepdim=True)
    return weights.to(value.dtype) @ value / total, largest + total.log()


def arrange(buckets: Tensor, mask: Tensor | None, chunks: Chunks) -> Arrangement:
    """Sort positions by bucket; see `hashed_attention` for the arguments.

    If causal, each bucket is a group, and each group starts a new chunk. The number of places is
    that of the worst case, so that nothing waits for a GPU.
    """
    length = buckets.shape[-1]
    index = torch.arange(length, device=buckets.device)
    if mask is not None:
        buckets = buckets.masked_fill(~mask[:, None, None], chunks.num_buckets)
    order = (buckets * length + index).argsort(dim=-1)
    group = buckets.gather(-1, order) if chunks.causal else torch.zeros_like(order)
    rank = index - torch.searchsorted(group, group)
    within = rank % chunks.length
    place = ((within == 0).cumsum(dim=-1) - 1) * chunks.length + within
    count = -(-length // chunks.length)
    if chunks.causal:
        count = length // chunks.length + min(chunks.num_buckets + 1, length)
    empty = order.new_full((*order.shape[:-1], count * chunks.length), length)
    return Arrangement(
        position=empty.scatter(-1, place, order),
        place=torch.empty_like(order).scatter(-1, order, place),
        group=empty.scatter(-1, place, group),
    )


def _hidden_pairs(arranged: Arrangement, mask: Tensor | None, chunks: Chunks) -> Tensor:
    """Return which keys queries do not see: bool, (batch, heads, rounds, chunks, queries, keys)."""
    length = arranged.place.shape[-1]
    position, group = (
        x.unflatten(3, (-1, chunks.length)) for x in (arranged.position, arranged.group)
    )
    key_position = _join_chunks(position, length, chunks)
    if not chunks.causal:
        # Real positions come first, so padding is what comes after as many positions.
        count = length if mask is None else mask.sum(dim=-1)[:, None, None, None, None, None]
        return key_position[..., None, :] >= count
    key_group = _join_chunks(group, length, chunks)
    is_later = key_position[..., None, :] >= position[..., None]
    return is_later | (key_group[..., None, :] != group[..., None])


def _join_chunks(x: Tensor, fill: int, chunks: Chunks) -> Tensor:
    """Put the chunk before in front of each chunk, and the next one after it, `fill` at the ends.

    Chunks, (batch, heads, rounds, chunks, chunk_length, ...), become two or three times as long.
    """
    edge = torch.full_like(x[:, :, :, :1], fill)
    parts = [torch.cat([edge, x[:, :, :, :-1]], dim=3), x]
    if chunks.look_ahead:
        parts.append(torch.cat([x[:, :, :, 1:], edge], dim=3))
    return torch.cat(parts, dim=4)


def _normalized(query: Tensor) -> Tensor:
    return functional.rms_norm(query, query.shape[-1:], eps=SMALLEST_SQUARE)


class _Rearrange(Function):
    """Rows in another order. The gradient takes rows as well, which needs no atomic additions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, is_used: Tensor) -> Tensor:
        ctx.save_for_backward(inverse, is_used)
        ctx.shape = x.shape
        return _take(x, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inverse, is_used = ctx.saved_tensors
        gradient = _take(gradients[0], inverse) * is_used[..., None]
        return gradient.sum_to_size(ctx.shape), None, None, None


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Take rows of x (..., rows, channels), whose leading sizes broadcast to those of the index."""
    starts = torch.arange(x.shape[:-2].numel(), device=x.device) * x.shape[-2]
    return functional.embedding(starts.view(*x.shape[:-2], 1) + index, x.flatten(0, -2))


def _to_places(x: Tensor, arranged: Arrangement) -> Any:
    """Sort rows in all rounds; empty places get any row.

    x is (batch, heads, 1, length, channels), the result (batch, heads, rounds, places, channels).
    """
    position, place = arranged.position.clamp(max=x.shape[-2] - 1), arranged.place
    return _Rearrange.apply(x, position, place, torch.ones_like(place, dtype=torch.bool))


def _to_positions(x: Tensor, arranged: Arrangement) -> Any:
    """Undo the sorting of rows, (..., places, channels) -> (..., length, channels)."""
    place, last = arranged.place, arranged.place.shape[-1] - 1
    position = arranged.position
    return _Rearrange.apply(x, place, position.clamp(max=last), position <= last)
