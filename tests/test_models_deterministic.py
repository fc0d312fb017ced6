"""Forms for GPUs without deterministic kernels: equal to torch's in values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.ops import deterministic
from models.ops.deterministic import cumulative_sum, stretch


def values_and_gradients(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = function(x)
    generator = torch.Generator().manual_seed(1)
    pull = torch.randn(y.shape, dtype=y.dtype, generator=generator)
    (gradient,) = torch.autograd.grad((y * pull).sum(), x)
    return [y.detach(), gradient]


def assert_form_is_equal(
    function: Callable[[Tensor], Tensor], x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = values_and_gradients(function, x)
    monkeypatch.setattr(deterministic, "must_be_deterministic", lambda _: True)
    found = values_and_gradients(function, x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("dim", [-1, 1])
def test_cumulative_sums(length: int, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, length, length, dtype=torch.float64)
    assert_form_is_equal(lambda x: cumulative_sum(x, dim), x, monkeypatch)
    sums = cumulative_sum(x.float(), dim, torch.float64)
    assert sums.dtype == torch.float64


def test_what_is_infinite_does_not_spread_back(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([1.0, 2.0, -torch.inf, 3.0])
    monkeypatch.setattr(deterministic, "must_be_deterministic", lambda _: True)
    assert cumulative_sum(x, 0).tolist() == [1, 3, -torch.inf, -torch.inf]


@pytest.mark.parametrize("factor", [1, 2, 4, 32])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_stretching(factor: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, length, dtype=torch.float64)
    assert stretch(x, factor).shape == (2, 3, factor * length)
    assert_form_is_equal(lambda x: stretch(x, factor), x, monkeypatch)
