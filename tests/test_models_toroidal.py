"""Toroidal attention: what is claimed of it, as far as it holds, proven in double precision.

The contract has its fast forms, padding, causality and recurrences.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lra.models.base import MixerContext
from lra.models.toroidal.mixer import Toroidal
from lra.models.toroidal.platter_fusion import AttentionFusion
from lra.models.toroidal.torus import Reach, Torus
from lra.models.transformer import Transformer
from references import close, randomize


def build(
    length: int = 32, *, causal: bool = False, grid: tuple[int, int] | None = None,
    dim: int = 16, **options: Any,
) -> Toroidal:  # fmt: skip
    """Build one in double precision whose parameters are of a size at which all of it matters."""
    torch.manual_seed(0)
    context = MixerContext.of(dim=dim, length=length, causal=causal, grid=grid)
    mixer = Toroidal(context, **options).double().eval()
    return randomize(mixer)


def places_of(torus: Torus, length: int) -> list[list[int]]:
    return torch.stack(torus.coordinates(torch.arange(length)), dim=-1).tolist()


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


def test_a_window_beyond_half_of_the_circle_is_none() -> None:
    x = torch.randn(2, 32, 16, dtype=torch.float64)
    for mode in ("attention", "spectral"):
        close(build(window=17, mode=mode)(x), build(mode=mode)(x))
        assert (build(window=16, mode=mode)(x) - build(mode=mode)(x)).abs().max() > 1e-3


def test_fusion_by_attention_is_what_its_formula_says() -> None:
    fusion = AttentionFusion(3).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    query, key, value = torch.einsum("skl,blc->sbkc", fusion.query_key_value, x)
    weights = torch.einsum("bkc,blc->bkl", query, key).div(5**0.5).softmax(dim=2)
    close(fusion(x), torch.einsum("bkl,blc->bkc", weights, value))


def test_a_circle_of_ones_own_is_that_of_a_mixer_of_the_length() -> None:
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    mask = torch.arange(20) < torch.tensor([[20], [14]])
    together = build(64, circle="real_length")(x, mask)
    for row, length in enumerate((20, 14)):
        close(together[row, :length], build(length)(x[row : row + 1, :length])[0])
    assert (build(64)(x, mask) - together).abs().max() > 1e-3


@pytest.mark.parametrize("torus", [
    Torus((32,), 3), Torus((32,), 3, wrap=False), Torus((6, 10), 2), Torus((6, 10), 2, wrap=False),
])  # fmt: skip
def test_the_described_angles_are_those_of_the_description(torus: Torus) -> None:
    count = torch.Size(torus.sizes).numel()
    channels, scale = 8, max(2 * torus.num_platters, 3)
    angles = torus.angles(torch.arange(count), channels, "rope")
    assert angles.dtype == torch.float64
    for position, place in enumerate(places_of(torus, count)):
        for platter in range(torus.num_platters):
            for pair in range(channels // 2):
                axis = pair % len(torus.sizes)
                unit = 2 * math.pi / torus.sizes[axis] if torus.wrap else 1
                across = place[axis] * unit * 10000 ** (-2 * pair / channels)
                beneath = 2 * math.pi * platter / torus.num_platters
                beneath *= 10000 ** (-2 * pair / (channels * scale))
                found = angles[position, platter, pair].item()
                assert found == pytest.approx(across + beneath, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(("sizes", "length"), [((9,), 9), ((8,), 20), ((3, 5), 15), ((4, 2), 8)])
def test_who_attends_to_whom_and_how_far_apart_pair_by_pair(
    sizes: tuple[int, ...], length: int, wrap: bool, causal: bool
) -> None:
    """Also where sequences are longer than the torus, which a circle goes around and a line not."""
    torus = Torus(sizes, 2, wrap=wrap)
    position = torch.arange(length)
    places = places_of(torus, length)
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
