"""Fast forms of attention on a torus against tables, loops over lags and plain words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from models.ops import toroidal_attention as attention
from models.ops.spectral_attention import spectral_attention
from models.ops.toroidal_attention import toroidal_attention
from models.ops.torus import Torus
from models.ops.torus_reach import Reach
from references import assert_equal_with_gradients, by_reference, close, leaf

WEIGHT = 0.7


@pytest.fixture(params=[1, 6, 7, 64])
def _blocks_of_queries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", request.param)


def mix(
    triple: tuple[Tensor, Tensor, Tensor],
    reach: Reach,
    weight: Tensor | None,
    mask: Tensor | None,
    real: Tensor | int,
) -> Tensor:
    return toroidal_attention(*triple, reach, weight=weight, mask=mask) * real


@pytest.mark.usefixtures("_blocks_of_queries")
@pytest.mark.parametrize("window", [None, 1, 3, 40])
@pytest.mark.parametrize("torus", [
    Torus((30,), 2), Torus((23,), 3, wrap=False), Torus((4, 5), 2), Torus((5, 4), 1, wrap=False),
])  # fmt: skip
def test_blocks_of_queries_equal_a_table_of_all_pairs(torus: Torus, window: int | None) -> None:
    length = torch.Size(torus.sizes).numel()
    query, key, value = (leaf(2, 2, length, torus.num_platters, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    ragged = torch.arange(length) < torch.tensor([[length], [length - 7]])
    for causal, mask, some in product((False, True), (None, ragged), (weight, None)):
        reach = Reach(torus, causal=causal, window=window)
        real = 1 if mask is None else mask[:, None, :, None, None]
        compute = partial(mix, (query, key, value), reach, some, mask, real)
        leaves = [query, key, value, *([] if some is None else [some])]
        assert_equal_with_gradients(compute, by_reference(compute), leaves)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("torus", [Torus((30,), 2), Torus((6, 5), 2), Torus((23,), 1, wrap=False)])
def test_blocks_as_on_a_gpu_equal_a_table_of_all_pairs(
    torus: Torus, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_is_gpu", lambda _: True)
    monkeypatch.setattr(attention, "SCORES", 4 * 700)  # of two sequences and heads
    attention._spans.cache_clear()
    length = torch.Size(torus.sizes).numel()
    query, key, value = (leaf(2, 2, length, torus.num_platters, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(length) < torch.tensor([[length], [length - 7]])
    real = mask[:, None, :, None, None]
    compute = partial(mix, (query, key, value), Reach(torus, window=window), weight, mask, real)
    # The tables that are kept are in single precision.
    leaves = [query, key, value, weight]
    for _ in range(2):
        assert_equal_with_gradients(compute, by_reference(compute), leaves, tolerance=1e-6)
    attention._spans.cache_clear()


def test_blocks_of_a_gpu_have_about_as_many_scores_as_allowed() -> None:
    for torus, window in (
        (Torus((4000,), 2), None),
        (Torus((4000,), 2), 100),
        (Torus((64, 64), 2), 5),
    ):
        reach = Reach(torus, window=window)
        length = torch.Size(torus.sizes).numel()
        most = reach.most_queries(length, 2**22)
        sizes = [len(here) * len(near) * 4 for here, near in reach.blocks(length, most)]
        assert 2**21 < max(sizes) < 2**23


def test_blocks_equal_the_table_where_sequences_have_circles_of_their_own() -> None:
    query, key, value = (leaf(2, 2, 20, 2, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    periods = torch.tensor([[20], [13]])
    mask = torch.arange(20) < periods

    def compute() -> Tensor:
        reach = Reach(Torus((64,), 2))
        mixed = toroidal_attention(
            query, key, value, reach, weight=weight, mask=mask, periods=periods
        )
        return mixed * mask[:, None, :, None, None]

    assert_equal_with_gradients(compute, by_reference(compute), [query, key, value, weight])


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("window", [3, 20])
def test_blocks_may_be_longer_than_the_torus(window: int, wrap: bool) -> None:
    query, key, value = (torch.randn(1, 1, 80, 1, 4, dtype=torch.float64) for _ in range(3))
    reach = Reach(Torus((32,), 1, wrap=wrap), window=window)
    found = toroidal_attention(query, key, value, reach)
    close(found, by_reference(lambda: toroidal_attention(query, key, value, reach))())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["attention", "spectral"])
def test_half_precision_is_computed_in_single(mode: str, dtype: torch.dtype) -> None:
    parts = [torch.randn(2, 2, 12, 2, 4).to(dtype).requires_grad_() for _ in range(3)]
    weight = torch.rand(2).to(dtype).requires_grad_()

    def mix(parts: list[Tensor], weight: Tensor) -> Tensor:
        query, key, value = parts
        if mode == "spectral":
            return spectral_attention(query, key, value, Torus((12,), 2), weight=weight)
        return toroidal_attention(
            query, key, value, Reach(Torus((12,), 2), window=4), weight=weight
        )

    found = mix(parts, weight)
    assert found.dtype == dtype
    exact = mix([part.detach().float() for part in parts], weight.detach().float())
    torch.testing.assert_close(found.float(), exact, atol=1e-2, rtol=1e-2)
    found.sum().backward()
    assert all(part.grad is not None and part.grad.dtype == dtype for part in [*parts, weight])


def by_definition(parts: Sequence[Tensor], torus: Torus, window: int | None) -> Tensor:
    """Compute spectral attention of one head from what its words say, cell by cell."""
    query, key, value = parts
    axes: list[tuple[int, bool]] = [
        *((size, torus.wrap) for size in torus.sizes),
        (torus.num_platters, torus.depth_wrap),
    ]
    places = torus.coordinates(torch.arange(len(query))).tolist()
    cells: dict[tuple[int, ...], tuple[int, int]] = {
        (*place, platter): (position, platter)
        for position, place in enumerate(places)
        for platter in range(torus.num_platters)
    }

    def before(cell: tuple[int, ...], lag: tuple[int, ...]) -> tuple[int, ...]:
        apart = zip(cell, lag, axes, strict=True)
        return tuple((at - by) % size if wrap else at - by for at, by, (size, wrap) in apart)

    scores: dict[tuple[int, ...], Tensor] = {}
    for lag in itertools.product(
        *(range(size) if wrap else range(1 - size, size) for size, wrap in axes)
    ):
        steps = [
            min(abs(by), size - abs(by)) if wrap else abs(by)
            for by, (size, wrap) in zip(lag, axes, strict=True)
        ]
        if window is not None and max(steps[:-1]) >= window:
            continue
        total = sum(
            query[at] @ key[cells[before(cell, lag)]]
            for cell, at in cells.items() if before(cell, lag) in cells
        ) / (len(cells) * query.shape[-1] ** 0.5)  # fmt: skip
        distance = sum(step / size for step, (size, _) in zip(steps, axes, strict=True))
        scores[lag] = torch.as_tensor(total - WEIGHT * distance, dtype=query.dtype)
    weights = torch.stack(list(scores.values())).softmax(dim=0)
    mixed = torch.zeros_like(value)
    for lag, share in zip(scores, weights, strict=True):
        for cell, at in cells.items():
            if before(cell, lag) in cells:
                mixed[at] += share * value[cells[before(cell, lag)]]
    return mixed


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize(("torus", "length"), [
    (Torus((7,), 2), 7), (Torus((8,), 2), 5), (Torus((6,), 3, depth_wrap=True), 6),
    (Torus((6,), 2, wrap=False), 6), (Torus((6,), 2, wrap=False, depth_wrap=True), 4),
    (Torus((3, 4), 2), 12), (Torus((3, 2), 1, wrap=False), 6),
])  # fmt: skip
def test_spectral_attention_is_what_its_words_say(
    torus: Torus, length: int, window: int | None
) -> None:
    parts = torch.randn(3, length, torus.num_platters, 4, dtype=torch.float64)
    query, key, value = parts[:, None, None]
    weight = torch.tensor([WEIGHT], dtype=torch.float64)
    found = spectral_attention(query, key, value, torus, weight=weight, window=window)
    close(found[0, 0], by_definition(list(parts), torus, window))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("torus", [
    Torus((12,), 2), Torus((7,), 3, wrap=False), Torus((3, 4), 2, depth_wrap=True),
])  # fmt: skip
def test_transforms_equal_sums_over_lags(torus: Torus, window: int | None, masked: bool) -> None:
    length = torch.Size(torus.sizes).numel()
    query, key, value = (leaf(2, 2, length, torus.num_platters, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(length) < torch.tensor([[length], [length - 4]]) if masked else None

    def compute() -> Tensor:
        return spectral_attention(query, key, value, torus, weight=weight, window=window, mask=mask)

    assert_equal_with_gradients(compute, by_reference(compute), [query, key, value, weight])
