"""The geometry of a torus of positions: encoding, distance and reach; properties 1 and 4."""

from __future__ import annotations

import math

import pytest
import torch

from models.ops.torus import Torus
from models.ops.torus_reach import Reach
from references import close


@pytest.mark.parametrize("sizes", [(32,), (30,), (6, 10)])
def test_the_encoding_is_periodic_with_integer_harmonics_alone(sizes: tuple[int, ...]) -> None:
    torus = Torus(sizes, 4, depth_wrap=True)
    places = torus.coordinates(torch.arange(min(sizes)))[None]
    here = torus.angles(places, 16, "integer")
    for axis, size in enumerate(sizes):
        turned = places.clone()
        turned[..., axis] += size
        there = torus.angles(turned, 16, "integer")
        close(there.cos(), here.cos())
        close(there.sin(), here.sin())
        described = torus.angles(turned, 16, "rope") - torus.angles(places, 16, "rope")
        assert (described.cos() - 1).abs().max() > 0.1


@pytest.mark.parametrize("torus", [
    Torus((32,), 3), Torus((32,), 3, wrap=False), Torus((6, 10), 2), Torus((6, 10), 2, wrap=False),
])  # fmt: skip
def test_the_described_angles_are_those_of_the_description(torus: Torus) -> None:
    count = torch.Size(torus.sizes).numel()
    channels, scale = 8, max(2 * torus.num_platters, 3)
    angles = torus.angles(torus.coordinates(torch.arange(count)), channels, "rope")
    assert angles.dtype == torch.float64
    for position, place in enumerate(torus.coordinates(torch.arange(count)).tolist()):
        for platter in range(torus.num_platters):
            for pair in range(channels // 2):
                axis = pair % len(torus.sizes)
                unit = 2 * math.pi / torus.sizes[axis] if torus.wrap else 1
                across = place[axis] * unit * 10000 ** (-2 * pair / channels)
                beneath = 2 * math.pi * platter / torus.num_platters
                beneath *= 10000 ** (-2 * pair / (channels * scale))
                found = angles[position, platter, pair].item()
                assert found == pytest.approx(across + beneath, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("depth_wrap", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("sizes", [(9,), (3, 4)])
def test_the_distance_is_a_metric(sizes: tuple[int, ...], wrap: bool, depth_wrap: bool) -> None:
    torus = Torus(sizes, 3, wrap=wrap, depth_wrap=depth_wrap)
    places = torus.coordinates(torch.arange(torch.Size(sizes).numel()))
    across = torus.distance(torus.count_steps(places, places))
    beneath = torus.platter_distance(torch.device("cpu"))
    delta = (across[:, None, :, None] + beneath[:, None, :]).flatten(2).flatten(0, 1)
    close(delta, delta.T)
    assert (delta == 0).equal(torch.eye(len(delta)).bool())
    assert (delta[:, :, None] + delta[None] - delta[:, None] >= -1e-12).all()


def test_the_ends_of_a_circle_are_neighbours_and_of_a_line_are_not() -> None:
    for wrap, expected in [(True, 1 / 32), (False, 31 / 32)]:
        torus = Torus((32,), 4, wrap=wrap)
        places = torus.coordinates(torch.arange(32))
        distance = torus.distance(torus.count_steps(places, places))
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
    places = torus.coordinates(position).tolist()
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
