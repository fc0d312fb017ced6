"""Fast forms against the references behind the same functions, in values and gradients."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lra.classifier.block import Block
from lra.classifier.packing import Packing
from lra.config.schema import ModelConfig
from models.fd_tnn import join
from models.ops import circulant, depthwise
from models.ops.circulant import circulant_multiply, spectrum
from models.ops.depthwise import depthwise_convolution
from models.ops.interpolation import InducingGrid, interpolate, spread
from models.ops.linear_pair import linear_pair
from models.ops.local_attention import local_attention
from models.ops.reference import reference_forms, reference_forms_are_used
from models.ops.toeplitz import LagKernel
from references import assert_equal_with_gradients, by_reference, leaf


def assert_equals_reference(compute: Callable[[], Tensor], leaves: list[Tensor]) -> None:
    assert_equal_with_gradients(compute, by_reference(compute), leaves)


def test_reference_forms_are_used_within_their_block_alone() -> None:
    assert not reference_forms_are_used()
    with pytest.raises(KeyError), reference_forms():
        assert reference_forms_are_used()
        raise KeyError
    assert not reference_forms_are_used()


@pytest.mark.parametrize("chunk", [1, 100, 1000, 10**6])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 5), (2, 64, 40), (5, 33, 33)])
def test_products_in_chunks(
    shape: tuple[int, int, int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a chunk holds: rows, channels, remainders of both."""
    monkeypatch.setattr(circulant, "_cache_bytes", lambda: 4 * chunk)
    monkeypatch.setattr(circulant, "FEWEST_CHANNELS", 7)
    monkeypatch.setattr(circulant, "BLOCK_POSITIONS", 10)
    _, length, channels = shape
    x, coefficients = leaf(*shape), leaf(channels, 2 * length - 1)
    kernel = LagKernel(coefficients, 1 - length)
    assert_equals_reference(lambda: kernel.multiply(x), [x, coefficients])
    real, imaginary = leaf(channels, length + 2), leaf(channels, length + 2)
    assert_equals_reference(
        lambda: circulant_multiply(torch.complex(real, imaginary), 2 * length + 2, x),
        [x, real, imaginary],
    )


@pytest.mark.parametrize("order", ["channels first", "response transposed"])
def test_products_of_numbers_in_another_order_in_memory(order: str) -> None:
    x, real = leaf(2, 4, 20), leaf(4, 9)
    if order == "channels first":
        kernel = LagKernel(real, -4)
        assert_equals_reference(lambda: kernel.multiply(x.transpose(1, 2)), [x, real])
    else:
        response = leaf(21, 20)
        assert_equals_reference(
            lambda: circulant_multiply(torch.complex(response, response).T, 40, x), [x, response]
        )


def test_frozen_arguments_get_no_gradient() -> None:
    x, coefficients = leaf(2, 10, 3), torch.randn(3, 19, dtype=torch.float64)
    LagKernel(coefficients, -9).multiply(x).sum().backward()
    assert x.grad is not None
    x, coefficients = x.detach(), coefficients.requires_grad_()
    LagKernel(coefficients, -9).multiply(x).sum().backward()
    assert coefficients.grad is not None
    assert x.grad is None


def test_a_second_derivative_is_refused() -> None:
    x, coefficients = leaf(1, 8, 2), leaf(2, 15)
    y = LagKernel(coefficients, -7).multiply(x).square().sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_a_product_keeps_its_arguments_alone() -> None:
    """What the backward pass holds on to does not grow with the transforms."""
    kept: list[Tensor] = []
    x, coefficients = leaf(2, 100, 3), leaf(3, 199)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        LagKernel(coefficients, -99).multiply(x)
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
    x, taps = leaf(3, length, 6), leaf(6, count)
    assert_equals_reference(lambda: depthwise_convolution(x, taps, first), [x, taps])


@pytest.mark.parametrize(("name", "most"), [("FEW_TAPS", 0), ("CACHED", 20), ("CACHED", 500)])
def test_gradients_of_few_taps(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By products of blocks, as on a GPU, or by sums over a few positions at a time."""
    monkeypatch.setattr(depthwise, name, most)
    for length in (1, 2, 5, 40):
        x, taps = leaf(3, length, 6), leaf(6, 4)
        assert_equals_reference(functools.partial(depthwise_convolution, x, taps, 0), [x, taps])


@pytest.mark.parametrize("degree", [1, 3])
def test_interpolation(degree: int) -> None:
    grid = InducingGrid(7, 50, degree)
    x, z = leaf(2, 50, 3), leaf(2, grid.points_for(50), 3)
    assert_equals_reference(lambda: spread(x, grid), [x])
    assert_equals_reference(lambda: interpolate(z, grid, 50), [z])


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
def test_linear_pairs(shape: tuple[int, ...]) -> None:
    x = leaf(*shape)
    maps = [nn.Linear(7, size).double() for size in (5, 3)]
    leaves = [x, *(p for linear in maps for p in linear.parameters())]
    assert_equals_reference(lambda: torch.cat(linear_pair(x, maps[0], maps[1]), dim=-1), leaves)


def test_linear_pairs_round_as_autocast_does() -> None:
    x = leaf(20, 16, dtype=torch.float32)
    maps = [nn.Linear(16, 8), nn.Linear(16, 8)]
    results = []
    for form in (lambda f: f, by_reference):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            joined = form(lambda: torch.cat(linear_pair(x, maps[0], maps[1]), dim=-1))()
        assert joined.dtype == torch.bfloat16
        gradients = torch.autograd.grad(joined.float().square().sum(), [x, maps[1].weight])
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        results.append((joined.float(), *gradients))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=0.02, atol=0.02 * slow.abs().max().item())


def test_joined_responses() -> None:
    parts = leaf(6, 9)
    assert_equals_reference(lambda: torch.view_as_real(join(parts)), [parts])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_within_a_window(
    causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.ops.local_attention.BLOCK", 8)
    query, key, value = leaf(2, 2, 37, 4), leaf(2, 2, 37, 4), leaf(2, 2, 37, 4)
    mask = torch.arange(37) < torch.tensor([[37], [20]]) if padded else None
    real = torch.ones(2, 37) if mask is None else mask.double()

    def compute() -> Tensor:
        mixed = local_attention(query, key, value, mask, window=5, causal=causal, dropout=0.0)
        return mixed * real[:, None, :, None]

    assert_equals_reference(compute, [query, key, value])


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_checkpointed_pass_is_computed_again_by_the_same_forms(is_reference: bool) -> None:
    """The backward pass runs when the block of `reference_forms` has ended."""
    block = Block(ModelConfig(dim=8, channel_mixer="none"), Noting())
    x, packing = leaf(6, 8, dtype=torch.float32), Packing(torch.tensor([6]), torch.device("cpu"))
    with reference_forms() if is_reference else contextlib.nullcontext():
        y = block.checkpointed(x, packing)
    y.sum().backward()
    assert isinstance(block.mixer, Noting)
    assert block.mixer.forms == [is_reference, is_reference]


class Noting(nn.Module):
    """Notes whether reference forms are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.forms: list[bool] = []

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        self.forms.append(reference_forms_are_used())
        return self.linear(x)
