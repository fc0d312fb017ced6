"""The exact conversion of causal Toeplitz kernels into state spaces."""

from __future__ import annotations

import pytest
import torch

from models.layers.recurrence import DiagonalStateSpace, diagonal_from_kernel, latest_in_slots
from models.ops.toeplitz import LagKernel
from references import LENGTHS, multiply_by_matrix, run


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("damping", [1.0, 0.999])
def test_converted_kernels_equal_their_toeplitz_matrix(length: int, damping: float) -> None:
    kernel = LagKernel(torch.randn(3, length, dtype=torch.float64), 0)
    x = torch.randn(2, length, 3, dtype=torch.float64)
    model = diagonal_from_kernel(kernel, damping)
    assert model.weights.shape == (3, length // 2 + 1)
    torch.testing.assert_close(run(model, x), multiply_by_matrix(kernel, x), rtol=1e-9, atol=1e-9)


def test_conversions_are_made_in_double_precision() -> None:
    coefficients = torch.randn(1, 16384)
    model = diagonal_from_kernel(LagKernel(coefficients, 0))
    spectrum = torch.fft.rfft(coefficients.double())[0, 1:-1] * 2 / 16384
    assert torch.equal(model.weights[0, 1:-1], spectrum.to(torch.complex64))
    assert model.poles.dtype == torch.complex64
    turns = 2 * torch.pi * torch.arange(8193, dtype=torch.float64) / 16384
    exact = torch.polar(torch.ones_like(turns), turns)
    assert (model.poles[0] - exact).abs().max() < 1e-7


@pytest.mark.parametrize("damping", [1.0, 0.9])
def test_beyond_its_length_the_kernel_repeats_damped(damping: float) -> None:
    coefficients = torch.randn(2, 10, dtype=torch.float64)
    impulse = torch.zeros(1, 20, 2, dtype=torch.float64)
    impulse[:, 0] = 1
    response = run(diagonal_from_kernel(LagKernel(coefficients, 0), damping), impulse)[0].T
    torch.testing.assert_close(response[:, :10], coefficients)
    torch.testing.assert_close(response[:, 10:], damping**10 * coefficients)


@pytest.mark.parametrize("damping", [1.0, 0.9])
@pytest.mark.parametrize("length", [1, 2, 31, 128])
def test_states_after_first_positions_equal_those_of_steps(length: int, damping: float) -> None:
    kernel = LagKernel(torch.randn(3, length, dtype=torch.float64), 0)
    periodic = diagonal_from_kernel(kernel, damping)
    poles = torch.polar(torch.rand(3, 5), torch.randn(3, 5)).to(torch.complex128)
    for model in (periodic, DiagonalStateSpace(poles, torch.randn_like(poles))):
        for count in {1, length // 2 + 1, length}:
            x = torch.randn(2, count, 3, dtype=torch.float64)
            state = model.initial_state(2)
            for position in x.unbind(dim=1):
                _, state = model.step(position, state)
            torch.testing.assert_close(model.state_after(x), state, rtol=1e-9, atol=1e-9)


def test_slots_of_a_ring_hold_the_latest_positions() -> None:
    x = torch.arange(1, 8)[None, :, None]
    assert latest_in_slots(x, 3).flatten().tolist() == [7, 5, 6]
    assert latest_in_slots(x, 7).flatten().tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert latest_in_slots(x, 9).flatten().tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 0]
