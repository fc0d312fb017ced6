"""Attention by hashes: sorted chunks against tables of pairs, and against the paper's words."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from conftest import build_mixer
from lra.models.base import MixerContext, begin_step
from lra.models.reformer.hashed_attention import Chunks, hash_vectors, hashed_attention
from lra.models.reformer.mixer import Reformer
from references import close

HASHED: dict[str, Any] = {"num_rounds": 2, "chunk_length": 4, "num_buckets": 6}
"""Options of a mixer for which hashes matter from a few positions on."""


@pytest.fixture(params=[False, True], ids=["bidirectional", "causal"])
def causal(request: pytest.FixtureRequest) -> bool:
    return request.param


def padding_mask(length: int) -> Tensor:
    """Make a mask of two rows, (2, length), whose first row is real in its first half."""
    return torch.arange(length) < torch.tensor([[(length + 1) // 2], [length]])


def chunks_of(buckets: list[int], *, chunk_length: int, causal: bool) -> list[list[int]]:
    """Sort positions by bucket and cut them into chunks; if causal, each bucket by itself."""
    order = sorted(range(len(buckets)), key=lambda i: (buckets[i], i))
    runs = [order]
    if causal:
        runs = [list(run) for _, run in itertools.groupby(order, key=lambda i: buckets[i])]
    return [
        run[start : start + chunk_length]
        for run in runs
        for start in range(0, len(run), chunk_length)
    ]


def seen_by(
    i: int, buckets: list[int], *, chunk_length: int, look_ahead: bool, causal: bool
) -> Iterator[int]:
    """List the other positions that position i sees in one round."""
    chunks = chunks_of(buckets, chunk_length=chunk_length, causal=causal)
    (own,) = [c for c, chunk in enumerate(chunks) if i in chunk]
    for c in (own - 1, own, own + 1) if look_ahead and not causal else (own - 1, own):
        for j in chunks[c] if 0 <= c < len(chunks) else []:
            if j != i and not (causal and (j > i or buckets[i] != buckets[j])):
                yield j


@pytest.mark.parametrize("look_ahead", [False, True])
def test_rounds_are_combined_as_in_the_paper(causal: bool, look_ahead: bool) -> None:
    """Section 2 and appendix A written out, position by position and round by round."""
    length, count, rounds, channels = 23, 19, 3, 4
    query, value = (torch.randn(length, channels, dtype=torch.float64) for _ in range(2))
    buckets = torch.randint(5, (rounds, length))
    # Padding has buckets like any other position.
    options: dict[str, Any] = {"chunk_length": 4, "look_ahead": look_ahead, "causal": causal}
    found = hashed_attention(
        query[None, None], value[None, None], buckets[None, None],
        torch.arange(length)[None] < count, Chunks(5, 4, look_ahead and not causal, causal),
    )[0, 0]  # fmt: skip
    key = query / query.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()
    for i in range(count):
        outputs, log_sums = [], []
        for of_round in buckets[:, :count].tolist():
            seen = list(seen_by(i, of_round, **options))
            if seen:
                scores = key[seen] @ query[i] / math.sqrt(channels)
                outputs.append(scores.softmax(dim=0) @ value[seen])
                log_sums.append(scores.logsumexp(dim=0))
        expected = value[i]  # of its own key alone
        if outputs:
            weights = torch.stack(log_sums).softmax(dim=0)
            expected = (weights[:, None] * torch.stack(outputs)).sum(dim=0)
        close(found[i], expected)


def test_one_chunk_is_full_attention_with_shared_queries_and_keys(causal: bool) -> None:
    context = MixerContext(dim=8, max_length=12, layer=0, depth=1, causal=causal)
    mixer = Reformer(context, num_heads=2, num_rounds=3, chunk_length=12).double()
    x = torch.randn(2, 12, 8, dtype=torch.float64)

    def heads(weight: Tensor) -> Tensor:
        return (x @ weight.T).unflatten(-1, (2, 4)).transpose(1, 2)

    query, value = heads(mixer.query_key.weight), heads(mixer.value.weight)
    key = query / query.square().mean(dim=-1, keepdim=True).add(1e-6).sqrt()
    others = ~torch.eye(12, dtype=torch.bool)
    if causal:
        others = others.tril()
        others[0, 0] = True  # it sees no other
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=others)
    expected = mixed.transpose(1, 2).flatten(2) @ mixer.output.weight.T
    close(mixer(x), expected)


def test_buckets_are_the_nearest_of_random_directions() -> None:
    x = torch.randn(2, 3, 50, 4, dtype=torch.float64)
    rotations = torch.randn(3, 4, 5, 3, dtype=torch.float64)
    found = hash_vectors(x, rotations, [6])
    for b, h, r, i in itertools.product(range(2), range(3), range(5), range(0, 50, 7)):
        products = [float(rotations[h, :, r, d] @ x[b, h, i]) for d in range(3)]
        products += [-product for product in products]
        assert found[b, h, r, i] == products.index(max(products))
    assert torch.equal(hash_vectors(7 * x, rotations, [6]), found)
    assert torch.equal(hash_vectors(-x, rotations, [6]), (found + 3) % 6)
    assert set(hash_vectors(x, rotations, [5]).unique().tolist()) == {0, 1, 2, 3, 4}
    assert not hash_vectors(x, rotations[..., :1], [1]).any()


def test_rotations_are_drawn_once_a_step_if_set() -> None:
    x = torch.randn(2, 60, 8)
    fixed = build_mixer("reformer", **HASHED)
    drawn = build_mixer("reformer", redraw_rotations=True, **HASHED)
    before = [mixer.state_dict()["rotations"].clone() for mixer in (fixed, drawn)]
    outputs = [mixer(x) for mixer in (fixed, drawn)]
    assert not begin_step(fixed)
    assert begin_step(drawn)
    assert torch.equal(fixed.state_dict()["rotations"], before[0])
    assert not torch.equal(drawn.state_dict()["rotations"], before[1])
    assert torch.equal(fixed(x), outputs[0])
    assert not torch.allclose(drawn(x), outputs[1])
    assert torch.equal(drawn(x), drawn.eval()(x))  # a call draws nothing
