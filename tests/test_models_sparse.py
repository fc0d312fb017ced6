"""Sparse attention against attention over sets of positions that follow the papers' definitions."""

import functools
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from lra.models.base import MixerContext
from lra.models.sparse.mixer import Sparse, draw_blocks
from references import assert_equal_with_gradients, leaf, randomize

MAX_LENGTH = 60
"""Of all mixers here; one of the lengths is above it."""
OPTIONS: dict[str, dict[str, Any]] = {
    "strided": {"pattern": "strided", "block_size": 5},
    "stride of one": {"pattern": "strided", "block_size": 1},
    "fixed": {"pattern": "fixed", "block_size": 7, "num_summary": 2},
    "all but one are summaries": {"pattern": "fixed", "block_size": 4, "num_summary": 3},
    "even window": {"pattern": "longformer", "window_size": 10},
    "odd window": {"pattern": "longformer", "window_size": 25},
    "window of one": {"pattern": "longformer", "window_size": 1},
    "bigbird": {"pattern": "bigbird", "block_size": 4, "num_random": 2},
    "bigbird, random blocks nearby": {
        "pattern": "bigbird", "block_size": 4, "num_random": 3, "random_within": 24
    },
    "bigbird of global blocks": {"pattern": "bigbird", "block_size": 30, "num_random": 2},
    "bigbird without random blocks": {"pattern": "bigbird", "block_size": 4, "num_random": 0},
    "local": {"pattern": "local", "block_size": 6},
}  # fmt: skip
CASES = [
    (name, causal, num_global)
    for name, causal, num_global in product(OPTIONS, (False, True), (0, 3))
    if not (name.startswith("bigbird") and (causal or num_global))
]


def sparse(name: str, *, causal: bool = False, **options: Any) -> Sparse:
    """Build a mixer of 8 channels and two heads in double precision."""
    context = MixerContext(dim=8, max_length=MAX_LENGTH, layer=1, depth=2, causal=causal)
    mixer = Sparse(context, **{"num_heads": 2, **OPTIONS[name], **options}).double()
    return randomize(mixer)


def attended_by_definition(mixer: Sparse, head: int, i: int, length: int) -> set[int]:
    """List the positions that a position attends to, one by one."""
    every, first = range(length), mixer.num_global
    if mixer.pattern == "bigbird":
        return attended_in_bigbird(mixer, head, i, length)
    if i < first:
        found = {*every}
    else:
        size = mixer.block_size
        i -= first
        inner = range(length - first)
        if mixer.pattern == "strided":
            found = {j for j in inner if max(0, i - size) <= j <= i}
            found |= {i - steps * size for steps in range(i // size + 1)}
        elif mixer.pattern == "fixed":
            found = {j for j in inner if j <= i and j // size == i // size}
            # Numbers from l - c to l, modulo l (Child et al., section 4.3).
            places = {n % size for n in range(size - mixer.num_summary, size + 1)}
            found |= {j for j in inner if j <= i and j % size in places}
        elif mixer.pattern == "local":
            found = {j for j in inner if j // size == i // size}
        else:
            ahead = mixer.window_size // 2
            found = {i + lag for lag in range(ahead - mixer.window_size + 1, ahead + 1)} & {*inner}
        found = {*range(min(first, length)), *(j + first for j in found)}
        i += first
    return {j for j in found if j <= i} if mixer.context.causal else found


drawn_once = functools.cache(draw_blocks)


def attended_in_bigbird(mixer: Sparse, head: int, i: int, length: int) -> set[int]:
    size = mixer.block_size
    blocks = -(-max(length, MAX_LENGTH) // size)
    own = i // size
    if own in (0, blocks - 1):
        return {*range(length)}
    within = blocks if mixer.random_within is None else mixer.random_within // size
    drawn = drawn_once(heads=2, blocks=blocks, num_random=mixer.num_random, within=within, layer=1)
    drawn = drawn[head, own - 1]
    chosen = {0, blocks - 1, own - 1, own, own + 1, *(1 + n for n in drawn.tolist() if n >= 0)}
    return {j for j in range(length) if j // size in chosen}


def attention_by_definition(mixer: Sparse, x: Tensor, real: list[int]) -> Tensor:
    """Attend query by query; results at padding are 0."""
    sizes = {"unflatten": (3, 2, 4)}
    query, key, value = mixer.query_key_value(x).unflatten(2, sizes["unflatten"]).unbind(2)
    maps = [(query, key, value)]
    if mixer.pattern == "longformer" and mixer.num_global:
        of_globals = mixer.global_query_key_value(x).unflatten(2, sizes["unflatten"])
        maps.append(tuple(of_globals.unbind(2)))
    rows: list[Tensor] = []
    for row, i in product(range(len(x)), range(x.shape[1])):
        heads: list[Tensor] = []
        for head in range(2):
            seen = sorted(attended_by_definition(mixer, head, i, x.shape[1]) & {*range(real[row])})
            query, key, value = maps[-1 if i < mixer.num_global else 0]
            if i >= real[row]:
                heads.append(x.new_zeros(4))
                continue
            scores = key[row, seen, head] @ query[row, i, head] / 4**0.5
            heads.append(torch.softmax(scores, dim=0) @ value[row, seen, head])
        rows.append(torch.cat(heads))
    return mixer.output(torch.stack(rows).unflatten(0, x.shape[:2]))


@pytest.mark.parametrize(("name", "causal", "num_global"), CASES)
def test_a_sparse_pattern_is_that_of_its_paper(name: str, causal: bool, num_global: int) -> None:
    mixer = sparse(name, causal=causal, num_global=num_global)
    for length, padding in ((17, 0), (41, 9), (67, 0)):
        x = leaf(2, length, 8)
        mask = torch.arange(length) < torch.tensor([[length - padding], [length]])

        def compute(x: Tensor = x, mask: Tensor = mask, padding: int = padding) -> Tensor:
            return mixer(x, mask if padding else None)[mask]

        def by_definition(x: Tensor = x, mask: Tensor = mask) -> Tensor:
            return attention_by_definition(mixer, x, mask.sum(dim=1).tolist())[mask]

        assert_equal_with_gradients(compute, by_definition, [x, *mixer.parameters()])


def test_random_blocks_of_sparse_attention_are_drawn_from_all_that_are_far_away() -> None:
    heads, blocks, drawn = 40, 12, 3
    table = draw_blocks(heads=heads, blocks=blocks, num_random=drawn, within=blocks, layer=0)
    assert table.shape == (heads, blocks - 2, drawn)
    for block in range(blocks - 2):
        far = {n for n in range(blocks - 2) if abs(n - block) > 1}
        assert {*table[:, block].flatten().tolist()} == far
        assert all(len({*row}) == drawn for row in table[:, block].tolist())
    assert not torch.equal(table[0], table[1])
    other = draw_blocks(heads=heads, blocks=blocks, num_random=drawn, within=blocks, layer=1)
    assert not torch.equal(table, other)
    longer = draw_blocks(heads=heads, blocks=5, num_random=drawn, within=5, layer=0)
    assert longer[0].tolist() == [[2, -1, -1], [-1, -1, -1], [0, -1, -1]]
    near = draw_blocks(heads=heads, blocks=blocks, num_random=drawn, within=6, layer=0)
    assert near.max() == 4  # The fifth after the first block; the first one is global.
