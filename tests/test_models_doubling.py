"""Recurrences by doubling, the form for GPUs, run here on the CPU against one step at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.ops import diagonal_recurrence, scan
from models.ops.diagonal_recurrence import recur_both_ways
from models.ops.doubling import recur_by_doubling
from models.ops.matrix_recurrence import matrix_recurrence
from models.ops.scan import scan_both_ways
from references import assert_equal_with_gradients, by_reference

LENGTHS = [1, 2, 3, 31, 64, 100, 1000]


@pytest.fixture(autouse=True)
def by_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let CPU tensors take the form of GPUs."""
    for module in (scan, diagonal_recurrence):
        monkeypatch.setattr(module, "is_by_doubling", lambda x: True)


def decays(*shape: int, dtype: torch.dtype) -> Tensor:
    """Draw decays: near 1, near 0, exactly 0 or 1, and any, channel by channel."""
    generator = torch.Generator().manual_seed(len(shape))
    size = torch.rand(*shape, 4, dtype=torch.float64, generator=generator)
    size[..., 0] = 1 - 1e-9
    size[..., 1] *= 1e-30
    size[..., 2] = torch.where(size[..., 2] < 0.5, 0.0, 1.0)
    if dtype.is_complex:
        size = torch.polar(
            size, 6 * torch.rand(*shape, 4, dtype=torch.float64, generator=generator)
        )
    return size.to(dtype).requires_grad_()


def as_real(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def computed() -> Tensor:
        y = compute()
        return torch.view_as_real(y) if y.is_complex() else y

    return computed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64])
@pytest.mark.parametrize("is_fixed", [False, True])
def test_doubling_equals_one_position_at_a_time(
    *, is_fixed: bool, dtype: torch.dtype, length: int, reverse: bool
) -> None:
    x = torch.randn(2, length, 4, dtype=dtype, requires_grad=True)
    if is_fixed:
        poles = decays(2, dtype=dtype)[0].detach().requires_grad_()
        leaves = [poles, x]
        run = functools.partial(diagonal_recurrence.diagonal_recurrence, poles, x, reverse=reverse)
    else:
        decay = decays(2, length, dtype=dtype)
        leaves = [decay, x]
        run = functools.partial(scan.scan, decay, x, reverse=reverse)
    compute = as_real(run)
    assert_equal_with_gradients(compute, by_reference(compute), leaves)


@pytest.mark.parametrize("length", [1, 2, 5, 31, 64, 100])
def test_matrices_equal_one_at_a_time(length: int) -> None:
    maps = torch.linalg.qr(torch.randn(2, length, 3, 3, dtype=torch.float64))[0]
    maps[:, ::7] = 0
    x = torch.randn(2, length, 3, 5, dtype=torch.float64, requires_grad=True)
    maps.requires_grad_()

    def compute() -> Tensor:
        return matrix_recurrence(maps, x)

    assert_equal_with_gradients(compute, by_reference(compute), [maps, x])


@pytest.mark.parametrize("length", [1, 31, 64])
def test_both_ways_equal_each_way(length: int) -> None:
    dtype = torch.complex128
    x = torch.randn(2, length, 4, dtype=dtype, requires_grad=True)
    each, poles = decays(2, 2, length, dtype=dtype), decays(2, dtype=dtype)[0].detach()
    poles.requires_grad_()

    def joined(run: Callable[..., tuple[Tensor, Tensor]], factors: Tensor) -> Callable[[], Tensor]:
        return as_real(lambda: torch.stack(run(factors, x)))

    def separate(run: Callable[..., Tensor], factors: list[Tensor]) -> Callable[[], Tensor]:
        return as_real(lambda: torch.stack([run(factors[0], x), run(factors[-1], x, reverse=True)]))

    assert_equal_with_gradients(
        joined(scan_both_ways, each), separate(scan.scan_reference, [*each]), [each, x]
    )
    assert_equal_with_gradients(
        joined(recur_both_ways, poles),
        separate(diagonal_recurrence.diagonal_recurrence_reference, [poles]),
        [poles, x],
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_doubling_in_single_precision(reverse: bool) -> None:
    for shape in [(2, 2048), (2,)]:
        x = torch.randn(2, 2048, 4, dtype=torch.complex128)
        decay = decays(*shape, dtype=torch.complex128).detach()
        decay = decay if len(shape) > 1 else decay[0]
        expected = recur_by_doubling(decay, x, reverse=reverse)
        found = recur_by_doubling(decay.to(torch.complex64), x.to(torch.complex64), reverse=reverse)
        assert (found - expected).norm() <= 1e-4 * expected.norm()
