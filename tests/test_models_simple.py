"""The simple mixers: a short convolution, Fourier transforms, and nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conftest import build_mixer
from models.conv import Convolution
from models.fnet import transform_each, transform_each_reference
from models.ops.depthwise import depthwise_convolution
from models.ops.toeplitz import LagKernel
from references import LENGTHS, assert_equal_with_gradients, multiply_by_matrix


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("first", "num_taps"),
    [(-2, 5), (0, 4), (0, 1), (-1, 4), (-16, 33), (-3, 200), (0, 300), (-500, 1001), (-300, 303)],
)
def test_convolution_equals_its_toeplitz_matrix(length: int, first: int, num_taps: int) -> None:
    taps = torch.randn(3, num_taps, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    low, high = max(first, 1 - length), min(first + num_taps - 1, length - 1)
    assert_equal_with_gradients(
        lambda: depthwise_convolution(x, taps, first),
        lambda: multiply_by_matrix(LagKernel(taps[:, low - first : high - first + 1], low), x),
        [taps, x],
    )


@pytest.mark.parametrize(
    ("name", "option", "others"),
    [
        ("conv", "width", {}),
        ("nystrom", "convolution_size", {}),
        ("ski-tnn", "num_taps", {}),
        ("reformer", "chunk_length", {}),
        ("sinkhorn", "block_size", {}),
        ("sparse", "window_size", {}),
        *(
            ("sparse", "block_size", {"pattern": p})
            for p in ("strided", "fixed", "bigbird", "local")
        ),
    ],
)
def test_widths_beyond_the_sequence_cost_nothing(
    name: str, option: str, others: dict[str, Any]
) -> None:
    """Their square would be 16 GiB for each channel, in single precision."""
    options: dict[str, Any] = {**others, option: 2**16 - 1}
    mixer = build_mixer(name, **options)
    x = torch.randn(1, 40, 8, requires_grad=True)
    mixer(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_even_widths_lean_to_no_side() -> None:
    with pytest.raises(ValueError, match="width 4 is even"):
        build_mixer("conv", width=4)
    mixer = build_mixer("conv", causal=True, width=4)
    assert isinstance(mixer, Convolution)
    assert mixer.taps.shape == (4, 8)


@pytest.mark.parametrize("lengths", [[1], [2, 1], [31, 30, 7], [100, 64, 3, 1]])
def test_rows_are_transformed_over_their_own_lengths(lengths: list[int]) -> None:
    longest = max(lengths)
    x = torch.randn(len(lengths), longest, 3, dtype=torch.complex128, requires_grad=True)
    real = (torch.arange(longest) < torch.tensor(lengths)[:, None])[..., None]
    assert_equal_with_gradients(
        lambda: torch.view_as_real(transform_each(x, torch.tensor(lengths)) * real),
        lambda: torch.view_as_real(transform_each_reference(x, torch.tensor(lengths))),
        [x],
    )


def test_long_transforms_stay_exact_in_single_precision() -> None:
    x = torch.randn(1, 16384, 1, dtype=torch.complex64)
    expected = torch.fft.fft(x.to(torch.complex128), dim=1)
    error = (transform_each(x, torch.tensor([16384])) - expected).norm()
    assert error < 1e-5 * expected.norm()


def test_fnet_is_the_real_part_of_a_transform_over_both() -> None:
    x = torch.randn(2, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(build_mixer("fnet")(x), torch.fft.fft2(x).real)


def test_mean_changes_nothing() -> None:
    x = torch.randn(2, 9, 8)
    assert torch.equal(build_mixer("mean")(x), x)
