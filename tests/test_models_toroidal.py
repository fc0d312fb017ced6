"""Toroidal attention: what is claimed of it, as far as it holds, proven in double precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base import MixerContext
from models.layers.platter_fusion import LowRankFusion, MeanFusion, build_fusion
from models.ops import toroidal_attention as attention
from models.ops.spectral_attention import spectral_attention
from models.ops.toroidal_attention import toroidal_attention
from models.ops.torus import Torus, integer_harmonics
from models.ops.torus_reach import Reach
from models.toroidal import Toroidal
from models.transformer import Transformer
from references import LargestTensor, assert_equal_with_gradients, run
from test_models_reference_forms import by_reference, leaf

WEIGHT = 0.7


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def build(
    length: int = 32, *, causal: bool = False, grid: tuple[int, int] | None = None,
    dim: int = 16, **options: Any,
) -> Toroidal:  # fmt: skip
    """Build one in double precision whose parameters are of a size at which all of it matters."""
    torch.manual_seed(0)
    context = MixerContext.of(dim=dim, length=length, causal=causal, grid=grid)
    mixer = Toroidal(context, **options).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return mixer


# 1. The encoding is periodic.


@pytest.mark.parametrize("sizes", [(32,), (30,), (6, 10)])
def test_the_encoding_is_periodic_with_integer_harmonics_alone(sizes: tuple[int, ...]) -> None:
    torus = Torus(sizes, 4, depth_wrap=True)
    places = torus.places(torch.arange(min(sizes)))[None]
    here = torus.angles(places, 16, "integer")
    for axis, size in enumerate(sizes):
        turned = places.clone()
        turned[..., axis] += size
        there = torus.angles(turned, 16, "integer")
        close(there.cos(), here.cos())
        close(there.sin(), here.sin())
        described = torus.angles(turned, 16, "rope") - torus.angles(places, 16, "rope")
        assert (described.cos() - 1).abs().max() > 0.1


def test_integer_harmonics_reach_from_one_turn_to_half_of_the_period() -> None:
    found = integer_harmonics(5, torch.tensor([512, 32, 1]))
    assert found.tolist() == [[1, 4, 16, 64, 256], [1, 2, 4, 8, 16], [1] * 5]
    assert integer_harmonics(1, torch.tensor([512])).tolist() == [[1]]


@pytest.mark.parametrize("torus", [
    Torus((32,), 3), Torus((32,), 3, wrap=False), Torus((6, 10), 2), Torus((6, 10), 2, wrap=False),
])  # fmt: skip
def test_the_described_angles_are_those_of_the_description(torus: Torus) -> None:
    count = torch.Size(torus.sizes).numel()
    channels, scale = 8, max(2 * torus.num_platters, 3)
    angles = torus.angles(torus.places(torch.arange(count)), channels, "rope")
    assert angles.dtype == torch.float64
    for position, place in enumerate(torus.places(torch.arange(count)).tolist()):
        for platter in range(torus.num_platters):
            for pair in range(channels // 2):
                axis = pair % len(torus.sizes)
                unit = 2 * math.pi / torus.sizes[axis] if torus.wrap else 1
                across = place[axis] * unit * 10000 ** (-2 * pair / channels)
                beneath = 2 * math.pi * platter / torus.num_platters
                beneath *= 10000 ** (-2 * pair / (channels * scale))
                found = angles[position, platter, pair].item()
                assert found == pytest.approx(across + beneath, rel=1e-12, abs=1e-12)


def test_no_two_places_of_a_line_are_encoded_alike() -> None:
    torus = Torus((16,), 3, wrap=False)
    angles = torus.angles(torus.places(torch.arange(16))[None], 8, "integer").flatten(0, 2)
    points = torch.cat([angles.cos(), angles.sin()], dim=-1)
    assert torch.nn.functional.pdist(points).min() > 0.1


# 2. Equivariance to every cyclic shift.


@pytest.mark.parametrize("window", [None, 1, 3, 9])
@pytest.mark.parametrize("mode", ["attention", "spectral"])
def test_a_shifted_sequence_gives_a_shifted_result(mode: str, window: int | None) -> None:
    mixer = build(mode=mode, window=window)
    x = torch.randn(2, 32, 16, dtype=torch.float64)
    for shift in range(1, 32):
        close(mixer(x.roll(shift, 1)), mixer(x).roll(shift, 1))


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("mode", ["attention", "spectral"])
def test_a_shifted_grid_gives_a_shifted_result(mode: str, window: int | None) -> None:
    mixer = build(grid=(4, 6), mode=mode, window=window, num_heads=2)
    x = torch.randn(2, 24, 16, dtype=torch.float64)

    def shifted(y: Tensor, shift: tuple[int, int]) -> Tensor:
        return y.unflatten(1, (4, 6)).roll(shift, (1, 2)).flatten(1, 2)

    for shift in [(1, 0), (0, 1), (2, 5), (3, 3)]:
        close(mixer(shifted(x, shift)), shifted(mixer(x), shift))


@pytest.mark.parametrize("form", ["attention", "spectral"])
def test_platters_on_a_circle_can_be_shifted(form: str) -> None:
    torus = Torus((12,), 4, depth_wrap=True)
    parts = [torch.randn(2, 3, 12, 4, 8, dtype=torch.float64) for _ in range(3)]
    weight = torch.rand(3, dtype=torch.float64)
    # The encoding of a platter is a part of queries and keys: it is shifted with them.

    def mix(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if form == "spectral":
            return spectral_attention(query, key, value, torus, weight=weight)
        return toroidal_attention(query, key, value, Reach(torus), weight=weight)

    for shift in (1, 2, 3):
        close(mix(*(part.roll(shift, 3) for part in parts)), mix(*parts).roll(shift, 3))


@pytest.mark.parametrize("options", [{"harmonics": "rope"}, {"wrap": False}])
@pytest.mark.parametrize("shift", [1, 4, 8, 16])
def test_the_described_frequencies_and_a_line_break_the_symmetry(
    options: dict[str, Any], shift: int
) -> None:
    mixer = build(**options)
    x = torch.randn(2, 32, 16, dtype=torch.float64)
    broken = (mixer(x.roll(shift, 1)) - mixer(x).roll(shift, 1)).abs().max()
    assert broken > 0.01 * mixer(x).std()


# 3. The score matrix for equal content.


@pytest.mark.parametrize("depth_wrap", [False, True])
def test_scores_of_equal_content_are_block_circulant(depth_wrap: bool) -> None:
    mixer = build(12, num_platters=4, dim=32, depth_wrap=depth_wrap)
    mixer.query_key_value.weight.data.zero_()
    # of all platters the same content, too
    bias = mixer.query_key_value.bias.data.view(3, 4, -1)
    bias.copy_(bias[:, :1].expand_as(bias).clone())
    torus = mixer.positions.torus
    query, key, _ = mixer.heads(
        torch.zeros(1, 12, 32).double(), torus.places(torch.arange(12))[None]
    )
    position = torch.arange(12)
    weight = mixer.positions.distance_weight
    table = Reach(torus).pairs(position, position).bias(weight, torch.float64)
    assert table is not None
    scores = query.flatten(2, 3) @ key.flatten(2, 3).transpose(2, 3) + table
    by_place = scores.unflatten(3, (12, 4)).unflatten(2, (12, 4))
    for i in range(12):
        close(by_place[:, :, i].roll(-i, 3), by_place[:, :, 0])
    for k in range(1, 4):
        if depth_wrap:
            close(by_place[:, :, :, k].roll(-k, 4), by_place[:, :, :, 0])
        else:
            close(by_place[:, :, :, k, :, k:], by_place[:, :, :, 0, :, :-k])


# 4. The distance.


@pytest.mark.parametrize("depth_wrap", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("sizes", [(9,), (3, 4)])
def test_the_distance_is_a_metric(sizes: tuple[int, ...], wrap: bool, depth_wrap: bool) -> None:
    torus = Torus(sizes, 3, wrap=wrap, depth_wrap=depth_wrap)
    places = torus.places(torch.arange(torch.Size(sizes).numel()))
    across = torus.distance(torus.apart(places, places))
    beneath = torus.platter_distance(torch.device("cpu"))
    delta = (across[:, None, :, None] + beneath[:, None, :]).flatten(2).flatten(0, 1)
    close(delta, delta.T)
    assert (delta == 0).equal(torch.eye(len(delta)).bool())
    assert (delta[:, :, None] + delta[None] - delta[:, None] >= -1e-12).all()


def test_the_ends_of_a_circle_are_neighbours_and_of_a_line_are_not() -> None:
    for wrap, expected in [(True, 1 / 32), (False, 31 / 32)]:
        torus = Torus((32,), 4, wrap=wrap)
        places = torus.places(torch.arange(32))
        distance = torus.distance(torus.apart(places, places))
        assert distance[0, 31].item() == pytest.approx(expected)
        assert distance.max() == (0.5 if wrap else 31 / 32)
    assert Torus((32,), 4).platter_distance(torch.device("cpu"))[0].tolist() == [0, 0.25, 0.5, 0.75]
    wrapped = Torus((32,), 4, depth_wrap=True).platter_distance(torch.device("cpu"))
    assert wrapped[0].tolist() == [0, 0.25, 0.5, 0.25]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(("sizes", "length"), [((9,), 9), ((8,), 20), ((3, 5), 15), ((4, 2), 8)])
def test_who_attends_to_whom_and_how_far_apart_pair_by_pair(
    sizes: tuple[int, ...], length: int, wrap: bool, causal: bool
) -> None:
    """Also where sequences are longer than the torus, which a circle goes around and a line not."""
    torus = Torus(sizes, 2, wrap=wrap)
    position = torch.arange(length)
    places = torus.places(position).tolist()
    beneath = torch.tensor([[0, 0.5], [0.5, 0]], dtype=torch.float64)
    for window in (None, 1, 2, 3):
        pairs = Reach(torus, causal=causal, window=window).pairs(position, position)
        apart = pairs.distance[0].unflatten(1, (length, 2)).unflatten(0, (length, 2))
        allowed = torch.ones_like(apart) > 0
        if pairs.allowed is not None:
            allowed = pairs.allowed[0].unflatten(1, (length, 2)).unflatten(0, (length, 2))
        for i in range(length):
            for j in range(length):
                steps = [abs(a - b) for a, b in zip(places[i], places[j], strict=True)]
                if wrap:
                    around = [s % n for s, n in zip(steps, sizes, strict=True)]
                    steps = [min(s, n - s) for s, n in zip(around, sizes, strict=True)]
                across = sum(s / n for s, n in zip(steps, sizes, strict=True))
                close(apart[i, :, j], across + beneath)
                seen = [i - j] if causal and len(sizes) == 1 else steps
                is_near = window is None or max(seen) < window
                assert (allowed[i, :, j] == (is_near and (j <= i or not causal))).all()


# 5. What is left is the Transformer.


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 5])
def test_one_platter_on_a_line_without_distance_is_rotary_attention(
    window: int | None, causal: bool
) -> None:
    ours = build(
        causal=causal, num_platters=1, num_heads=4, wrap=False, distance_weight=0.0,
        harmonics="rope", fusion="none", window=window,
    )  # fmt: skip
    context = MixerContext.of(dim=16, length=32, causal=causal)
    theirs = Transformer(context, num_heads=4, rotary=True, window=window).double().eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 32, 16, dtype=torch.float64)
    mask = torch.arange(32) < torch.tensor([[32], [20]])
    for real in (None, mask):
        keep = torch.ones_like(mask) if real is None else real
        close(ours(x, real)[keep], theirs(x, real)[keep])


# 6. Windows and weights.


def test_a_window_beyond_half_of_the_circle_is_none() -> None:
    x = torch.randn(2, 32, 16, dtype=torch.float64)
    for mode in ("attention", "spectral"):
        close(build(window=17, mode=mode)(x), build(mode=mode)(x))
        assert (build(window=16, mode=mode)(x) - build(mode=mode)(x)).abs().max() > 1e-3


@pytest.mark.parametrize("sizes", [(12,), (3, 4)])
def test_a_great_weight_leaves_the_nearest_alone(sizes: tuple[int, ...]) -> None:
    torus = Torus(sizes, 2)
    query, key, value = (torch.randn(1, 3, 12, 2, 4, dtype=torch.float64) for _ in range(3))
    weight = torch.full((3,), 1e5, dtype=torch.float64)
    close(toroidal_attention(query, key, value, Reach(torus), weight=weight), value)
    close(spectral_attention(query, key, value, torus, weight=weight), value)


def test_the_weight_starts_as_asked_for() -> None:
    for weight in (1e-3, 0.1, 5.0):
        mixer = Toroidal(MixerContext.of(dim=16, length=32), distance_weight=weight)
        assert mixer.positions.distance_weight is not None
        torch.testing.assert_close(mixer.positions.distance_weight, torch.full((2,), weight))


# 7. Fusion.


def test_fusion_mean_makes_platters_equal() -> None:
    fused = MeanFusion()(torch.randn(2, 5, 4, 3))
    assert (fused == fused[..., :1, :]).all()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_low_rank_fusion_adds_a_matrix_of_that_rank(rank: int) -> None:
    fusion = LowRankFusion(6, rank).double()
    matrix = fusion(torch.eye(6, dtype=torch.float64)) - torch.eye(6)
    assert torch.linalg.matrix_rank(matrix, atol=1e-9) == rank


def test_the_rank_is_a_quarter_of_the_platters_unless_asked_for() -> None:
    assert [build_fusion("low_rank", n).left.shape[1] for n in (1, 2, 8, 12)] == [1, 1, 2, 3]
    assert build_fusion("low_rank", 8, 5).left.shape == (8, 5)


def test_the_mixer_fuses_its_platters() -> None:
    mixer = build(fusion="mean", num_platters=4)
    mixer.output = torch.nn.Identity()
    y = mixer(torch.randn(2, 32, 16, dtype=torch.float64)).unflatten(2, (4, 4))
    close(y, y[:, :, :1].expand_as(y))


def test_fusion_by_attention_is_what_its_formula_says() -> None:
    fusion = build_fusion("attention", 3).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    query, key, value = torch.einsum("skl,blc->sbkc", fusion.query_key_value, x)
    weights = torch.einsum("bkc,blc->bkl", query, key).div(5**0.5).softmax(dim=2)
    close(fusion(x), torch.einsum("bkl,blc->bkc", weights, value))


# 8. Padding, and circles of the sequences' own. (The contract has padding for all mixers.)


@pytest.mark.parametrize("mode", ["attention", "spectral"])
@pytest.mark.parametrize("window", [None, 4])
def test_padding_changes_nothing(mode: str, window: int | None) -> None:
    mixer = build(64, mode=mode, window=window)
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    longer = torch.cat([x, torch.full((2, 30, 16), torch.nan).double()], dim=1)
    mask = torch.arange(50) < torch.tensor([[20], [13]])
    close(mixer(longer, mask)[0, :20], mixer(x[:1])[0])
    close(mixer(longer, mask)[1, :13], mixer(x[1:, :13])[0])


def test_a_circle_of_ones_own_is_that_of_a_mixer_of_the_length() -> None:
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    mask = torch.arange(20) < torch.tensor([[20], [14]])
    together = build(64, circle="real_length")(x, mask)
    for row, length in enumerate((20, 14)):
        close(together[row, :length], build(length)(x[row : row + 1, :length])[0])
    assert (build(64)(x, mask) - together).abs().max() > 1e-3


def test_a_sequence_without_real_positions_gives_numbers() -> None:
    x = torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True], [False]]).expand(2, 8)
    for options in ({}, {"distance_weight": 0.0}, {"mode": "spectral"}, {"circle": "real_length"}):
        y = build(**options)(x, mask)
        (gradient,) = torch.autograd.grad(y[mask].sum(), x)
        assert y.isfinite().all()
        assert gradient.isfinite().all()


# 9. Causal prefixes.


@pytest.mark.parametrize("options", [{}, {"window": 5}, {"num_platters": 4}, {"wrap": False}])
@pytest.mark.parametrize("length", [32, 80])
def test_what_comes_later_changes_nothing(length: int, options: dict[str, Any]) -> None:
    """Also of sequences that go around the circle more than once."""
    mixer = build(causal=True, **options)
    x = torch.randn(2, length, 16, dtype=torch.float64)
    whole = mixer(x)
    for cut in (1, 4, 17, length - 1):
        close(mixer(x[:, :cut]), whole[:, :cut])


# 10. Streaming.


@pytest.mark.parametrize("platters", [1, 2, 4])
@pytest.mark.parametrize(
    "options", [{"window": 1}, {"window": 5}, {}, {"window": 5, "wrap": False}, {"window": 50}]
)
def test_the_ring_buffer_equals_forward(options: dict[str, Any], platters: int) -> None:
    mixer = build(causal=True, num_platters=platters, **options)
    x = torch.randn(2, 80, 16, dtype=torch.float64)
    recurrence = mixer.recurrence(80)
    close(run(recurrence, x), mixer(x))
    kept = min(options.get("window", 80), 80)
    assert recurrence.state_size == 2 * kept * 16 + 1


# 11. Neighbours matter.


def test_equal_content_among_other_neighbours_gives_another_result() -> None:
    mixer = build()
    x = torch.randn(1, 32, 16, dtype=torch.float64)
    x[0, 20] = x[0, 7]
    y = mixer(x)
    assert (y[0, 20] - y[0, 7]).abs().max() > 1e-3


# Fast forms, and what cannot be.


@pytest.fixture(params=[1, 6, 7, 64, 256])
def _blocks_of_queries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", request.param)


@pytest.mark.usefixtures("_blocks_of_queries")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3, 40])
@pytest.mark.parametrize("torus", [
    Torus((30,), 2), Torus((23,), 3, wrap=False), Torus((4, 5), 2), Torus((5, 4), 1, wrap=False),
])  # fmt: skip
def test_blocks_of_queries_equal_a_table_of_all_pairs(
    torus: Torus, window: int | None, causal: bool, masked: bool
) -> None:
    length = torch.Size(torus.sizes).numel()
    query, key, value = (leaf(2, 2, length, torus.num_platters, 4) for _ in range(3))
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(length) < torch.tensor([[length], [length - 7]]) if masked else None
    real = 1 if mask is None else mask[:, None, :, None, None]
    reach = Reach(torus, causal=causal, window=window)
    for some in (weight, None):

        def compute(some: Tensor | None = some) -> Tensor:
            return toroidal_attention(query, key, value, reach, weight=some, mask=mask) * real

        leaves = [query, key, value, *([] if some is None else [some])]
        assert_equal_with_gradients(compute, by_reference(compute), leaves)


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(4096,), (64, 64)])
def test_blocks_see_what_is_in_reach_and_little_more(sizes: tuple[int, ...], causal: bool) -> None:
    reach = Reach(Torus(sizes, 2), causal=causal, window=8)
    row = 1 if len(sizes) == 1 else sizes[1]
    for queries, keys in reach.blocks(4096, 256):
        assert len(queries) <= 128
        assert len(keys) <= len(queries) + 2 * 7 * row
        if causal:
            assert keys.max() <= queries.max()


@pytest.mark.parametrize(("window", "causal"), [(None, False), (None, True), (8, False)])
def test_no_table_of_all_pairs_is_made(window: int | None, causal: bool) -> None:
    """Of twice as many positions the largest tensor is twice as large."""
    largest = []
    for length in (512, 1024):
        mixer = build(length, window=window, causal=causal, dim=8).float()
        with LargestTensor() as made:
            mixer(torch.randn(1, length, 8)).sum().backward()
        largest.append(made.numel)
    assert largest[1] <= 2.1 * largest[0]


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
    places = torus.places(torch.arange(len(query))).tolist()
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


@pytest.mark.parametrize(("options", "message"), [
    ({"num_heads": 3}, "num_heads 3 times num_platters 2 does not divide model.dim 16"),
    ({"num_heads": 8}, "leave each head 1 of model.dim 16, expected a multiple of 2"),
    ({"num_heads": 4, "grid": (4, 8)}, "each head 2 of model.dim 16, expected a multiple of 4"),
    ({"mode": "spectral", "causal": True}, "it cannot be causal"),
    ({"depth_wrap": True, "num_platters": 1}, "depth_wrap has no effect: num_platters is 1"),
    ({"depth_wrap": True, "harmonics": "rope"}, "depth_wrap has no effect: .* two platters"),
    (
        {"depth_wrap": True, "harmonics": "rope", "num_platters": 4, "distance_weight": 0.0},
        "depth_wrap has no effect: .* distance_weight is 0",
    ),
    ({"fusion": "mean", "num_platters": 1}, "fusion mean has no effect: num_platters is 1"),
    ({"fusion": "attention", "num_platters": 1}, "fusion attention has no effect"),
    ({"fusion_rank": 3}, "fusion_rank 3 exceeds num_platters 2"),
    ({"fusion": "mean", "fusion_rank": 2}, "fusion_rank 2 has no effect: fusion is mean"),
    ({"circle": "real_length", "wrap": False}, "circle real_length: wrap is false"),
    ({"circle": "real_length", "causal": True}, "circle real_length: a causal mixer"),
    ({"circle": "real_length", "window": 3}, "circle real_length: a window"),
    ({"circle": "real_length", "grid": (4, 8)}, "circle real_length: a grid"),
    ({"circle": "real_length", "mode": "spectral"}, "circle real_length: mode spectral"),
])  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_a_grid_refuses_another_number_of_positions() -> None:
    with pytest.raises(ValueError, match="got 15 positions, expected the 4 x 4 of the grid"):
        build(grid=(4, 4))(torch.zeros(1, 15, 16).double())


def test_a_trained_mixer_may_take_another_grid() -> None:
    mixer = build(grid=(4, 4))
    assert mixer.positions.grid is not None
    mixer.positions.grid.take_grid((3, 8))
    x = torch.randn(1, 24, 16, dtype=torch.float64)
    close(mixer(x), build(grid=(3, 8))(x))


def test_a_grid_has_no_recurrence() -> None:
    for mixer in (build(grid=(4, 8), causal=True), build()):
        with pytest.raises(ValueError, match="only a causal mixer of sequences"):
            mixer.recurrence(32)


def test_a_longer_sequence_has_a_spectral_circle_of_its_own_length() -> None:
    query, key, value = (torch.randn(1, 2, 20, 2, 4, dtype=torch.float64) for _ in range(3))
    found = spectral_attention(query, key, value, Torus((16,), 2))
    close(found, spectral_attention(query, key, value, Torus((20,), 2)))
    assert build(mode="spectral")(torch.zeros(1, 50, 16).double()).shape == (1, 50, 16)


def test_weights_of_the_distance_do_not_decay() -> None:
    mixer = build()
    assert mixer.learning_rates() == {mixer.positions.distance_logit: None}
    assert build(distance_weight=0.0).learning_rates() == {}
