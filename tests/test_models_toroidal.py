"""Toroidal attention: what is claimed of it, as far as it holds, proven in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from models.base import MixerContext
from models.layers.platter_fusion import build_fusion
from models.ops.spectral_attention import spectral_attention
from models.ops.toroidal_attention import toroidal_attention
from models.ops.torus import Torus
from models.ops.torus_reach import Reach
from models.toroidal import Toroidal
from models.transformer import Transformer
from references import LargestTensor, close


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


# 1. The encoding is periodic, and 4. the distance: test_models_torus.py.


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
    torus, here = mixer.positions.torus, torch.device("cpu")
    query, key, _ = mixer.heads(
        torch.zeros(1, 12, 32).double(), mixer.positions.angles_of_all(12, here)
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


# 7. Fusion.


def test_fusion_by_attention_is_what_its_formula_says() -> None:
    fusion = build_fusion("attention", 3).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    query, key, value = torch.einsum("skl,blc->sbkc", fusion.query_key_value, x)
    weights = torch.einsum("bkc,blc->bkl", query, key).div(5**0.5).softmax(dim=2)
    close(fusion(x), torch.einsum("bkl,blc->bkc", weights, value))


# 8. Padding, and circles of the sequences' own. (The contract has padding for all mixers.)


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
    changed: list[dict[str, Any]] = [
        {}, {"distance_weight": 0.0}, {"mode": "spectral"}, {"circle": "real_length"},
    ]  # fmt: skip
    for options in changed:
        y = build(**options)(x, mask)
        (gradient,) = torch.autograd.grad(y[mask].sum(), x)
        assert y.isfinite().all()
        assert gradient.isfinite().all()


# 9. Causal prefixes.


# 10. Streaming.


# 11. Neighbours matter.


# Fast forms: test_models_toroidal_forms.py. Memory, and what cannot be.


@pytest.mark.parametrize(("window", "causal"), [(None, False), (None, True), (8, False)])
def test_no_table_of_all_pairs_is_made(window: int | None, causal: bool) -> None:
    """The largest tensor of twice as many positions is twice as large."""
    largest = []
    for length in (512, 1024):
        mixer = build(length, window=window, causal=causal, dim=8).float()
        with LargestTensor() as made:
            mixer(torch.randn(1, length, 8)).sum().backward()
        largest.append(made.numel)
    assert largest[1] <= 2.1 * largest[0]


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
