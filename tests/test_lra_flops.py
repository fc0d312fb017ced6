"""The arithmetic counted is what the formulas say, and counting changes nothing."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from conftest import EVERY_MIXER, build_mixer
from lra.runtime.flops import FlopCounter, _flops


def counted(compute) -> int:
    with FlopCounter() as counter:
        compute()
    return counter.total


def test_products_their_gradients_and_attention() -> None:
    a, b = torch.randn(10, 20, requires_grad=True), torch.randn(20, 30, requires_grad=True)
    assert counted(lambda: a @ b) == 2 * 10 * 20 * 30
    assert counted(lambda: (a @ b).square().sum().backward()) == 3 * 2 * 10 * 20 * 30
    assert counted(lambda: a.to(torch.complex64) @ b.to(torch.complex64)) == 8 * 10 * 20 * 30
    q = torch.randn(2, 4, 64, 16)
    forward = counted(lambda: functional.scaled_dot_product_attention(q, q, q))
    assert forward == 2 * 2 * (2 * 4 * 64 * 64 * 16)


def test_recurrent_networks_count_their_products() -> None:
    """Each position is multiplied by both matrices, in whichever operators torch computes it."""
    x, lstm, gru = torch.randn(3, 11, 7), nn.LSTM(7, 5), nn.GRU(7, 5)
    products = 2 * (3 * 11) * 5 * (7 + 5)
    assert counted(lambda: lstm(x)) == 4 * products
    assert counted(lambda: lstm(x.requires_grad_())[0].sum().backward()) == 3 * 4 * products
    assert counted(lambda: gru(x)) == 3 * products
    on_gpu = torch.ops.aten._cudnn_rnn_backward, (x, list(lstm.parameters()))
    assert _flops(*on_gpu, {}, None) == 2 * 4 * products


def test_transforms_count_by_the_convention() -> None:
    x = torch.randn(3, 1024)
    real = 3 * 2.5 * 2048 * math.log2(2048)
    assert counted(lambda: torch.fft.rfft(x, n=2048)) == real
    assert counted(lambda: torch.fft.irfft(torch.fft.rfft(x, n=2048), n=2048)) == 2 * real
    z = torch.randn(3, 1024, dtype=torch.complex64)
    assert counted(lambda: torch.fft.fft(z)) == 3 * 5 * 1024 * math.log2(1024)


def test_counting_changes_no_number() -> None:
    for name in EVERY_MIXER:
        mixer, x = build_mixer(name).eval(), torch.randn(2, 40, 8, requires_grad=True)

        def compute(mixer: nn.Module = mixer, x: Tensor = x) -> list[Tensor]:
            y = mixer(x)
            leaves = [x, *mixer.parameters()]
            return [y, *torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)]

        plain = compute()
        with FlopCounter():
            watched = compute()
        assert all(a is b or torch.equal(a, b) for a, b in zip(plain, watched, strict=True)), name
