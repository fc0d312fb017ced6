"""The exact conversion of causal Toeplitz kernels into state spaces."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conftest import build_mixer
from models.base import RecurrentMixer
from models.layers.recurrence import diagonal_from_kernel
from models.ops.toeplitz import toeplitz_multiply_dense
from references import LENGTHS, run


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("damping", [1.0, 0.999])
def test_converted_kernels_equal_their_toeplitz_matrix(length: int, damping: float) -> None:
    coefficients = torch.randn(length, 3, dtype=torch.float64)
    x = torch.randn(2, length, 3, dtype=torch.float64)
    model = diagonal_from_kernel(coefficients, damping)
    assert model.weights.shape == (3, length // 2 + 1)
    torch.testing.assert_close(
        run(model, x), toeplitz_multiply_dense(coefficients, 0, x), rtol=1e-9, atol=1e-9
    )


def test_conversions_are_made_in_double_precision() -> None:
    coefficients = torch.randn(16384, 1)
    model = diagonal_from_kernel(coefficients)
    spectrum = torch.fft.rfft(coefficients.double().T)[0, 1:-1] * 2 / 16384
    assert torch.equal(model.weights[0, 1:-1], spectrum.to(torch.complex64))
    assert model.poles.dtype == torch.complex64
    turns = 2 * torch.pi * torch.arange(8193, dtype=torch.float64) / 16384
    exact = torch.polar(torch.ones_like(turns), turns)
    assert (model.poles[0] - exact).abs().max() < 1e-7


@pytest.mark.parametrize("damping", [1.0, 0.9])
def test_beyond_its_length_the_kernel_repeats_damped(damping: float) -> None:
    coefficients = torch.randn(10, 2, dtype=torch.float64)
    impulse = torch.zeros(1, 20, 2, dtype=torch.float64)
    impulse[:, 0] = 1
    response = run(diagonal_from_kernel(coefficients, damping), impulse)[0]
    torch.testing.assert_close(response[:10], coefficients)
    torch.testing.assert_close(response[10:], damping**10 * coefficients)


@pytest.mark.parametrize("damping", [0.0, 1.5, -1.0])
def test_dampings_outside_the_circle_are_refused(damping: float) -> None:
    with pytest.raises(ValueError, match="expected a number in"):
        diagonal_from_kernel(torch.ones(3, 1), damping)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("tnn", {}),
    ("tnn", {"window": 5, "inner_norm": "layer"}),
    ("tnn", {"num_heads": 2, "decay": None}),
    ("fd-tnn", {}),
    ("fd-tnn", {"rpe_input": "cosine", "rpe_activation": "gelu"}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("length", [1, 2, 31, 100, 128])
def test_steps_equal_the_mixer(name: str, options: dict[str, Any], length: int) -> None:
    mixer = build_mixer(name, causal=True, **options).double().eval()
    assert isinstance(mixer, RecurrentMixer)
    x = torch.randn(2, length, 8, dtype=torch.float64)
    torch.testing.assert_close(run(mixer.recurrence(length), x), mixer(x), rtol=1e-9, atol=1e-9)


def test_steps_in_single_precision_stay_close() -> None:
    mixer = build_mixer("tnn", causal=True).eval()
    assert isinstance(mixer, RecurrentMixer)
    x = torch.randn(1, 500, 8)
    expected = mixer(x)
    assert (run(mixer.recurrence(500), x) - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("name", ["tnn", "fd-tnn"])
def test_bidirectional_mixers_have_no_recurrence(name: str) -> None:
    mixer = build_mixer(name)
    assert isinstance(mixer, RecurrentMixer)
    with pytest.raises(ValueError, match="only a causal mixer"):
        mixer.recurrence(10)
