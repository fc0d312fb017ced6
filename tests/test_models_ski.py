"""SKI-TNN against its matrix."""

import pytest
import torch

from lra.models.ski_tnn.interpolation import InducingGrid
from lra.models.ski_tnn.mixer import SparsePlusLowRank, WarpedPiecewiseLinear

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
