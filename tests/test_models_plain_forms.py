"""Fast forms against the plain ones behind the same functions, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import _circulant, _shared_kernels
from models.layers.kernel_cache import cut, kernel_for, made_once, multiply_shared, shared_kernels
from models.ops.circulant import circulant_multiply, spectrum
from models.ops.depthwise import depthwise_convolution
from models.ops.interpolation import InducingGrid, interpolate, spread
from models.ops.linear_pair import linear_pair
from models.ops.reference import plain_forms, plain_forms_are_used
from models.ops.toeplitz import toeplitz_multiply
from references import assert_equal_with_gradients


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def plain(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def computed() -> Tensor:
        with plain_forms():
            return compute()

    return computed


def assert_plain_is_equal(compute: Callable[[], Tensor], leaves: list[Tensor]) -> None:
    assert_equal_with_gradients(compute, plain(compute), leaves)


def test_plain_forms_are_used_within_their_block_alone() -> None:
    assert not plain_forms_are_used()
    with pytest.raises(KeyError), plain_forms():
        assert plain_forms_are_used()
        raise KeyError
    assert not plain_forms_are_used()


@pytest.mark.parametrize("chunk", [1, 100, 1000, 10**6])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 5), (2, 64, 40), (5, 33, 33)])
def test_products_in_chunks(
    shape: tuple[int, int, int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a chunk holds: rows, channels, remainders of both."""
    monkeypatch.setitem(_circulant.CHUNK_NUMBERS, "cpu", chunk)
    monkeypatch.setattr(_circulant, "FEWEST_CHANNELS", 7)
    monkeypatch.setattr(_circulant, "BLOCK_POSITIONS", 10)
    _, length, channels = shape
    x, coefficients = leaf(*shape), leaf(2 * length - 1, channels)
    assert_plain_is_equal(lambda: toeplitz_multiply(coefficients, 1 - length, x), [x, coefficients])
    real, imaginary = leaf(channels, length + 2), leaf(channels, length + 2)
    assert_plain_is_equal(
        lambda: circulant_multiply(torch.complex(real, imaginary), 2 * length + 2, x),
        [x, real, imaginary],
    )


@pytest.mark.parametrize("layout", ["channels first", "response turned"])
def test_products_of_numbers_in_another_order_in_memory(layout: str) -> None:
    x, real = leaf(2, 4, 20), leaf(9, 4)
    if layout == "channels first":
        assert_plain_is_equal(lambda: toeplitz_multiply(real, -4, x.transpose(1, 2)), [x, real])
    else:
        response = leaf(21, 20)
        assert_plain_is_equal(
            lambda: circulant_multiply(torch.complex(response, response).T, 40, x), [x, response]
        )


def test_frozen_arguments_get_no_gradient() -> None:
    x, coefficients = leaf(2, 10, 3), torch.randn(19, 3, dtype=torch.float64)
    toeplitz_multiply(coefficients, -9, x).sum().backward()
    assert x.grad is not None
    x, coefficients = x.detach(), coefficients.requires_grad_()
    toeplitz_multiply(coefficients, -9, x).sum().backward()
    assert coefficients.grad is not None
    assert x.grad is None


def test_a_second_derivative_is_refused() -> None:
    x, coefficients = leaf(1, 8, 2), leaf(15, 2)
    y = toeplitz_multiply(coefficients, -7, x).square().sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_a_product_keeps_its_arguments_alone() -> None:
    """What the backward pass holds on to does not grow with the transforms."""
    kept: list[Tensor] = []
    x, coefficients = leaf(2, 100, 3), leaf(199, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        toeplitz_multiply(coefficients, -99, x)
    assert sorted(t.numel() for t in kept) == [3 * 101, 2 * 100 * 3]


@pytest.mark.parametrize("size", [2, 4, 6, 30, 64])
def test_spectrum_equals_rfft(size: int) -> None:
    circulant = leaf(3, size)
    assert_equal_with_gradients(
        lambda: torch.view_as_real(spectrum(circulant)),
        lambda: torch.view_as_real(torch.fft.rfft(circulant)),
        [circulant],
    )


@pytest.mark.parametrize("length", [1, 2, 5, 40, 100])
@pytest.mark.parametrize(("first", "count"), [(0, 1), (-1, 2), (0, 4), (-3, 4), (-8, 17), (-2, 33)])
def test_short_convolutions(length: int, first: int, count: int) -> None:
    x, taps = leaf(3, length, 6), leaf(count, 6)
    assert_plain_is_equal(lambda: depthwise_convolution(x, taps, first), [x, taps])


@pytest.mark.parametrize("degree", [1, 3])
def test_interpolation(degree: int) -> None:
    grid = InducingGrid(7, 50, degree)
    x, z = leaf(2, 50, 3), leaf(2, grid.points_for(50), 3)
    assert_plain_is_equal(lambda: spread(x, grid), [x])
    assert_plain_is_equal(lambda: interpolate(z, grid, 50), [z])


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_linear_pairs(shape: tuple[int, ...]) -> None:
    x = leaf(*shape)
    maps = [nn.Linear(7, size).double() for size in (5, 3)]
    leaves = [x, *(p for linear in maps for p in linear.parameters())]
    assert_plain_is_equal(lambda: torch.cat(linear_pair(x, maps[0], maps[1]), dim=-1), leaves)


def test_linear_pairs_round_as_autocast_does() -> None:
    x = leaf(20, 16, dtype=torch.float32)
    maps = [nn.Linear(16, 8), nn.Linear(16, 8)]
    results = []
    for form in (lambda f: f, plain):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            joined = form(lambda: torch.cat(linear_pair(x, maps[0], maps[1]), dim=-1))()
        assert joined.dtype == torch.bfloat16
        gradients = torch.autograd.grad(joined.float().square().sum(), [x, maps[1].weight])
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        results.append((joined.float(), *gradients))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=0.02, atol=0.02 * slow.abs().max().item())


def test_kernels_are_cut_to_shorter_lengths() -> None:
    lags = torch.arange(-9, 10)[:, None]
    for length in (10, 9, 4, 1):
        coefficients, first = cut(lags, -9, length)
        assert first == 1 - length
        assert coefficients[:, 0].tolist() == list(range(1 - length, length))
    causal, first = cut(lags[9:], 0, 4)
    assert (causal[:, 0].tolist(), first) == ([0, 1, 2, 3], 0)
    window, first = cut(lags[7:12], -2, 8)
    assert (window[:, 0].tolist(), first) == ([-2, -1, 0, 1, 2], -2)


def test_kernels_are_made_once_where_they_are_shared() -> None:
    made: list[int] = []

    def generate(length: int) -> tuple[Tensor, int]:
        made.append(length)
        return torch.arange(length)[:, None], 0

    def lengths() -> list[int]:
        return [len(kernel_for("key", n, generate)[0]) for n in (8, 4, 8, 9, 2)]

    assert lengths() == [8, 4, 8, 9, 2]
    assert made == [8, 4, 8, 9, 2]
    made.clear()
    with shared_kernels(), shared_kernels():
        assert lengths() == [8, 4, 8, 9, 2]
        assert made == [8, 9]
        with plain_forms():
            kernel_for("key", 8, generate)
        assert made == [8, 9, 8]
        counts = [made_once("other", lambda: len(made)) for _ in range(2)]
        assert counts == [3, 3]
    kernel_for("key", 8, generate)
    assert len(made) == 4
    assert all(a >= b for a, b in pairwise(sorted(made, reverse=True)))


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_transforms_of_kernels_are_shared_where_that_is_cheaper(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = leaf(127, 3)
    sizes: list[int] = []
    transform = _shared_kernels.circulant_response

    def noted(*arguments: Any) -> Tensor:
        sizes.append(arguments[2])
        return transform(*arguments)

    monkeypatch.setattr(_shared_kernels, "circulant_response", noted)
    groups = [leaf(rows, length, 3) for length in (64, 52, 40, 9)]

    def compute() -> Tensor:
        with shared_kernels():
            products = [multiply_shared("k", lambda n: cut(kernel, -63, n), x) for x in groups]
        return torch.cat([product.flatten() for product in products])

    assert_plain_is_equal(compute, [kernel, *groups])
    assert sizes[0] == 128
    assert len(sizes) == {1: 2, 4: 3, 100: 4}[rows]


def test_what_was_made_for_shorter_sequences_is_not_taken_for_longer_ones() -> None:
    kernel, groups = leaf(127, 3), [leaf(1, length, 3) for length in (50, 64)]

    def compute() -> Tensor:
        with shared_kernels():
            products = [multiply_shared("k", lambda n: cut(kernel, -63, n), x) for x in groups]
        return torch.cat([product.flatten() for product in products])

    assert_plain_is_equal(compute, [kernel, *groups])


def test_few_transforms_of_a_kernel_are_kept() -> None:
    kernel, kept = leaf(127, 1), []
    with shared_kernels(), torch.no_grad():
        for length in range(64, 2, -4):
            multiply_shared("k", lambda n: cut(kernel, -63, n), leaf(100, length, 1))
        kept = [made for key, made in (_shared_kernels._MADE.get() or {}).items()]
    assert [len(responses) for responses in kept] == [4]
