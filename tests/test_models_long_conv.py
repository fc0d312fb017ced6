"""Long convolutions with free and multiscale kernels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from models.base import MixerContext
from models.long_conv import FreeConvolution, LongConv, MultiscaleConvolution
from references import close


def build(length: int = 40, *, causal: bool = False, dim: int = 3, **options: Any) -> LongConv:
    torch.manual_seed(0)
    return LongConv(MixerContext.of(dim=dim, length=length, causal=causal), **options).double()


def test_free_kernels_are_smoothed_then_squashed() -> None:
    mixer = build(causal=True, smoothing=5, threshold=0.3)
    convolution = mixer.convolution
    assert isinstance(convolution, FreeConvolution)
    convolution.kernels.data.normal_()
    kernels = functional.pad(convolution.kernels.detach()[0], (2, 2))
    mean = torch.stack([kernels[:, n : n + 5].mean(dim=1) for n in range(40)], dim=1)
    expected = mean.sign() * (mean.abs() - 0.3).clamp(min=0)
    close(convolution.kernel(40).coefficients, expected)
    for length in (1, 7, 39):
        close(convolution.kernel(length).coefficients, expected[:, :length])


def test_free_kernels_that_decay_do_so_faster_from_channel_to_channel() -> None:
    torch.manual_seed(0)
    convolution = FreeConvolution(
        dim=8, copies=2, directions=1, max_length=100, start="exponential",
        threshold=0.0, smoothing=1, kernel_dropout=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    drawn = torch.randn(1, 16, 100)
    for channel in range(16):
        rate = 4 ** (channel % 8 / 8)
        expected = 0.02 * drawn[0, channel] * torch.exp(-rate * torch.arange(100) / 100)
        torch.testing.assert_close(convolution.kernels[0, channel], expected)


def test_dropout_of_kernels_is_for_training_alone() -> None:
    mixer = build(kernel_dropout=0.5)
    x = torch.randn(2, 40, 3, dtype=torch.float64)
    assert not mixer(x).equal(mixer(x))
    dropped = mixer.convolution.kernel(40).coefficients == 0
    assert 0.3 < dropped.double().mean() < 0.7
    mixer.eval()
    assert mixer(x).equal(mixer(x))


@pytest.mark.parametrize("length", [10, 64, 65, 1000, 1024])
def test_multiscale_kernels_have_parameters_in_the_logarithm_of_the_length(length: int) -> None:
    convolution = build(length, kernel="multiscale", causal=True).convolution
    assert isinstance(convolution, MultiscaleConvolution)
    scales = max(1, 1 + math.ceil(math.log2(length / 64)))
    assert convolution.scales.shape == (scales, 1, 3, 64)
    coefficients = convolution.kernel(length).coefficients
    assert coefficients.shape == (3, length)
    longest = 64 * 2 ** (scales - 1)
    whole = build(longest, kernel="multiscale", causal=True).convolution.kernel(longest)
    torch.testing.assert_close(
        whole.coefficients.norm(dim=-1), torch.ones(3).double(), rtol=0, atol=1e-6
    )
    close(coefficients, whole.cut(length).coefficients)


def test_each_scale_is_stretched_and_half_as_strong() -> None:
    convolution = build(256, kernel="multiscale", causal=True).convolution
    assert isinstance(convolution, MultiscaleConvolution)
    kernel = convolution.kernel(256).coefficients * convolution.norm[0]
    close(kernel[:, :64], 4 * convolution.scales[0, 0])
    close(kernel[:, 64:128], 2 * convolution.scales[1, 0])
    # the third is interpolated to 128 lags: a quarter of the way between neighbours
    third = convolution.scales[2, 0]
    close(kernel[:, 129:254:2], 0.75 * third[:, :-1] + 0.25 * third[:, 1:])
    close(kernel[:, 130:255:2], 0.25 * third[:, :-1] + 0.75 * third[:, 1:])


def test_copies_are_joined_by_the_projection() -> None:
    mixer = build(copies=2, output="linear")
    x = torch.randn(2, 40, 3, dtype=torch.float64)
    twice = x.repeat(1, 1, 2)
    y = torch.einsum("cij,bjc->bic", mixer.convolution.matrix(40), twice) + mixer.direct * twice
    close(mixer(x), mixer.output(functional.gelu(y)))
    assert mixer.output.in_features == 6


@pytest.mark.parametrize(("options", "message"), [
    ({"smoothing": 4}, "smoothing 4 is even"),
    ({"kernel": "multiscale", "threshold": 0.1}, "threshold concerns free kernels"),
    ({"kernel": "multiscale", "kernel_dropout": 0.1}, "kernel_dropout concerns free kernels"),
    ({"kernel": "multiscale", "smoothing": 3}, "smoothing concerns free kernels"),
    ({"kernel": "multiscale", "start": "exponential"}, "start concerns free kernels"),
])  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**options)


def test_kernels_end_at_the_longest_length() -> None:
    for kernel in ("free", "multiscale"):
        torch.manual_seed(0)
        convolution = build(65, kernel=kernel).convolution
        found = convolution.kernel(200)
        lags = torch.arange(found.first_lag, found.last_lag + 1)
        is_used = found.coefficients.ne(0).any(dim=0)
        assert (lags[is_used].min(), lags[is_used].max()) == (-65, 64)
