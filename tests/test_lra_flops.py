"""The arithmetic counted is what the formulas say, and counting changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from conftest import EVERY_MIXER, build_mixer
from lra.runtime.flops import FlopCounter


def counted(compute) -> int:
    with FlopCounter() as counter:
        compute()
    return counter.total


def test_products_and_their_gradients() -> None:
    a, b = torch.randn(10, 20, requires_grad=True), torch.randn(20, 30, requires_grad=True)
    assert counted(lambda: a @ b) == 2 * 10 * 20 * 30
    assert counted(lambda: (a @ b).square().sum().backward()) == 3 * 2 * 10 * 20 * 30
    assert counted(lambda: a.to(torch.complex64) @ b.to(torch.complex64)) == 8 * 10 * 20 * 30


def test_attention() -> None:
    q = torch.randn(2, 4, 64, 16)
    forward = counted(lambda: functional.scaled_dot_product_attention(q, q, q))
    assert forward == 2 * 2 * (2 * 4 * 64 * 64 * 16)


def test_transforms_count_by_the_convention() -> None:
    x = torch.randn(3, 1024)
    real = 3 * 2.5 * 2048 * math.log2(2048)
    assert counted(lambda: torch.fft.rfft(x, n=2048)) == real
    assert counted(lambda: torch.fft.irfft(torch.fft.rfft(x, n=2048), n=2048)) == 2 * real
    z = torch.randn(3, 1024, dtype=torch.complex64)
    assert counted(lambda: torch.fft.fft(z)) == 3 * 5 * 1024 * math.log2(1024)


@pytest.mark.parametrize("name", EVERY_MIXER)
def test_counting_changes_no_number(name: str) -> None:
    mixer = build_mixer(name).eval()
    x = torch.randn(2, 40, 8)

    def gradients() -> list[torch.Tensor]:
        mixer.zero_grad()
        y = mixer(x)
        y.square().sum().backward()
        return [y.detach(), *(p.grad.clone() for p in mixer.parameters() if p.grad is not None)]

    if not list(mixer.parameters()):
        pytest.skip("nothing to train")
    plain = gradients()
    with FlopCounter():
        watched = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
