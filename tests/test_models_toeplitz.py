"""Kernels over lags: the fast product against the written-out matrix, and cuts."""

from __future__ import annotations

import pytest
import torch

from models.ops.toeplitz import LagKernel, fast_fft_length, toeplitz_multiply
from references import LENGTHS, multiply_by_matrix

SUPPORTS = {
    "full": lambda n: (1 - n, n - 1),
    "causal": lambda n: (0, n - 1),
    "window": lambda n: (-min(4, n - 1), min(4, n - 1)),
    "lag 0": lambda _: (0, 0),
    "uneven": lambda n: (-min(2, n - 1), n - 1),
}


def example(length: int, first: int, last: int, dtype: torch.dtype = torch.float64):
    coefficients = torch.randn(3, last - first + 1, dtype=dtype, requires_grad=True)
    x = torch.randn(2, length, 3, dtype=dtype, requires_grad=True)
    return LagKernel(coefficients, first), x


@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_fast_equals_the_matrix_in_values_and_gradients(length: int, support: str) -> None:
    first, last = SUPPORTS[support](length)
    kernel, x = example(length, first, last)
    fast, by_matrix = kernel.multiply(x), multiply_by_matrix(kernel, x)
    torch.testing.assert_close(fast, by_matrix, rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(fast)
    for got, expected in zip(
        torch.autograd.grad(fast, (kernel.coefficients, x), upstream),
        torch.autograd.grad(by_matrix, (kernel.coefficients, x), upstream),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_lag_k_shifts_by_k() -> None:
    x = torch.randn(1, 9, 2, dtype=torch.float64)
    delta = torch.zeros(2, 17, dtype=torch.float64)
    delta[:, 8 + 3] = 1
    shifted = LagKernel(delta, -8).multiply(x)
    torch.testing.assert_close(shifted[:, 3:], x[:, :-3], rtol=0, atol=1e-12)
    torch.testing.assert_close(shifted[:, :3], torch.zeros_like(x[:, :3]), rtol=0, atol=1e-12)


def test_result_does_not_depend_on_the_fft_length() -> None:
    kernel, x = example(31, -30, 30)
    default = kernel.multiply(x)
    for size in (61, 64, 97, 128):
        other = toeplitz_multiply(kernel, x, fft_length=size)
        torch.testing.assert_close(other, default, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="at least 61"):
        toeplitz_multiply(kernel, x, fft_length=60)


@pytest.mark.parametrize(("first", "count"), [(1, 3), (-5, 3), (-10, 19), (0, 11)])
def test_lags_that_do_not_fit_are_refused(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="lags"):
        LagKernel(torch.randn(2, count), first).multiply(torch.randn(1, 10, 2))


def test_half_precision_is_transformed_in_single() -> None:
    kernel, x = example(100, -99, 99, torch.float32)
    exact = multiply_by_matrix(LagKernel(kernel.coefficients.double(), -99), x.double())
    got = kernel.multiply(x.bfloat16())
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), exact, rtol=2e-2, atol=0.3)


@pytest.mark.parametrize("minimum", [1, 2, 3, 63, 127, 255, 4095, 8193])
def test_fast_lengths_have_small_factors(minimum: int) -> None:
    size = fast_fft_length(minimum)
    assert minimum <= size <= 1.25 * minimum + 2
    for factor in (2, 3, 5):
        while size % factor == 0:
            size //= factor
    assert size == 1


def test_kernels_are_cut_to_shorter_lengths() -> None:
    lags = torch.arange(-9, 10)[None]
    for length in (10, 9, 4, 1):
        kernel = LagKernel(lags, -9).cut(length)
        assert (kernel.first_lag, kernel.last_lag) == (1 - length, length - 1)
        assert kernel.coefficients[0].tolist() == list(range(1 - length, length))
    causal = LagKernel(lags[:, 9:], 0).cut(4)
    assert (causal.coefficients[0].tolist(), causal.first_lag) == ([0, 1, 2, 3], 0)
    window = LagKernel(lags[:, 7:12], -2).cut(8)
    assert (window.coefficients[0].tolist(), window.first_lag) == ([-2, -1, 0, 1, 2], -2)
