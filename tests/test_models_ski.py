"""SKI-TNN against its matrix, and its approximation against theory."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from models.ops.interpolation import InducingGrid
from models.ski_tnn import SparsePlusLowRank, WarpedPiecewiseLinear

GRIDS = [InducingGrid(r, n, d) for r, n in ((9, 64), (64, 1000), (128, 128)) for d in (1, 3)]


def test_a_is_the_kernel_between_inducing_points() -> None:
    """At their distances in positions, which are no whole numbers."""
    grid = InducingGrid(8, 100, 1)
    operator = SparsePlusLowRank(3, num_taps=1, grid=grid, warp=0.99).double()
    points = torch.linspace(0, 99, 8, dtype=torch.float64)
    a = operator.encoder((points[:, None] - points).flatten()).view(3, 8, 8)
    torch.testing.assert_close(operator.between_points(8).matrix(8), a)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_weights_reproduce_polynomials_of_their_degree(grid: InducingGrid) -> None:
    length = 2 * grid.max_length
    w = grid.matrix(length)
    points = torch.arange(w.shape[1], dtype=torch.float64) * grid.spacing / length
    positions = torch.arange(length, dtype=torch.float64) / length
    for power in range(grid.degree + 1):
        torch.testing.assert_close(w @ points**power, positions**power, rtol=0, atol=1e-12)
    assert (w != 0).sum(dim=1).max() <= grid.degree + 1
    higher = grid.degree + 1
    if grid.spacing > 1:
        assert (w @ points**higher - positions**higher).abs().max() > 1e-12


@pytest.mark.parametrize(("degree", "order"), [(1, 2), (3, 4)])
def test_the_error_falls_as_theorem_1_says(degree: int, order: int) -> None:
    """|psi_N| / (N + 1)! is h^2 / 8 for linear interpolation, h^4 for cubic."""
    length = 1025
    lags = torch.arange(1 - length, length, dtype=torch.float64)

    def smooth(lag: torch.Tensor) -> torch.Tensor:
        return torch.exp(-((lag / length - 0.2) ** 2)) * torch.cos(2 * lag / length)

    index = torch.arange(length)[:, None] - torch.arange(length) + length - 1
    exact = smooth(lags)[index]
    errors = []
    for intervals in (16, 32, 64):
        grid = InducingGrid(intervals + (degree + 1) // 2, length, degree)
        points = torch.arange(grid.points_for(length), dtype=torch.float64) * grid.spacing
        a = smooth(points[:, None] - points)
        w = grid.matrix(length)
        errors.append(torch.linalg.matrix_norm(w @ a @ w.T - exact, 2).item())
    measured = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert measured == pytest.approx([order, order], abs=0.3)


def test_the_kernel_is_piecewise_linear_in_the_warped_lag() -> None:
    kernel = WarpedPiecewiseLinear(2, num_knots=4, warp=0.5, scale=1.0).double()
    with torch.no_grad():
        kernel.positive.normal_()
        kernel.negative.normal_()
    lags = torch.tensor([0.0, 1.0, 2.0, -1.0, -2.0, 1e-9, 1e9], dtype=torch.float64)
    negative, positive = kernel.negative, kernel.positive
    expected = [
        torch.zeros(2), positive[1], positive[0], negative[2], negative[3], positive[3],
        torch.zeros(2),
    ]  # fmt: skip
    torch.testing.assert_close(kernel(lags), torch.stack([e.double() for e in expected], dim=1))
