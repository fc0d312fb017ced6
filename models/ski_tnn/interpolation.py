"""Interpolation between inducing points on a regular grid, and its transpose, linear in length.

W, (length, points), holds in each row the weights of the 2 (linear) or 4 (cubic) points next to
a position (Wilson and Nickisch, KISS-GP, 2015; SKI-TNN, section 3.2.1). It is never written out:
positions are grouped by the cell of the grid that they lie in. Those of a cell have the same
points, so that products with W and with its transpose are small products per cell.
"""

import functools
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from lra.common.tensors import copy_together
from lra.models.ops.reference import fast_form_of


@dataclass(frozen=True)
class InducingGrid:
    """Evenly spaced inducing points, the first of them at position 0.

    Spacing and weights depend on the grid only, never on the length of a sequence. Padding
    therefore changes nothing, and longer sequences have more points at the same distance.

    Raises: ValueError for more points than positions, or too few for the degree.
    """

    num_points: int
    """Number of inducing points for sequences of `max_length` positions."""
    max_length: int
    degree: int
    """Degree of the interpolating polynomial, 1 or 3."""

    def __post_init__(self) -> None:
        if self.num_points <= self.degree:
            raise ValueError(
                f"num_inducing_points {self.num_points}: interpolation of degree {self.degree} "
                f"takes at least {self.degree + 1}"
            )
        if self.spacing < 1 and self.max_length > 1:
            raise ValueError(
                f"num_inducing_points {self.num_points} for sequences of {self.max_length} exceeds "
                f"the number of positions; use --set mixer.num_inducing_points={self.max_length}"
            )

    @property
    def _intervals(self) -> int:
        # The cubic's last cell has one more point on its right.
        return self.num_points - (self.degree + 1) // 2

    @property
    def _span(self) -> int:
        return max(self.max_length - 1, 1)

    @property
    def spacing(self) -> float:
        """Distance between two inducing points, in positions."""
        return self._span / self._intervals

    @property
    def is_every_position(self) -> bool:
        """Whether every position is an inducing point, so that W is the identity."""
        return self._intervals == self._span

    def points_for(self, length: int) -> int:
        """Return how many inducing points sequences of a length have."""
        return int(self.cells(torch.tensor([length - 1]))) + 1 + self.degree

    def cells(self, positions: Tensor) -> Tensor:
        """Return the cell of each position, (count,), the number of its first inducing point.

        A position on an inducing point belongs to the cell on its left. The arithmetic is of
        integers: a rounded quotient could put a position on the wrong side of a point.
        """
        on_left = (positions * self._intervals - 1).div(self._span, rounding_mode="floor")
        return (on_left - (self.degree - 1) // 2).clamp(min=0)

    def weights(self, positions: Tensor) -> Tensor:
        """Return the Lagrange weights of each position's points: (count, degree + 1) float64."""
        offset = positions.double() * self._intervals / self._span - self.cells(positions)
        columns = []
        for i in range(self.degree + 1):
            others = [j for j in range(self.degree + 1) if j != i]
            factors = [(offset - j) / (i - j) for j in others]
            columns.append(functools.reduce(torch.mul, factors))
        return torch.stack(columns, dim=-1)

    def matrix(self, length: int) -> Tensor:
        """Write W out for sequences of a length: (length, points) float64."""
        positions = torch.arange(length)
        matrix = torch.zeros(length, self.points_for(length), dtype=torch.float64)
        first = self.cells(positions)
        for tap, column in enumerate(self.weights(positions).unbind(dim=-1)):
            matrix[positions, first + tap] += column
        return matrix


@dataclass(frozen=True)
class _Cells:
    """Positions sorted into slots by cell; every cell has as many slots as the fullest needs."""

    gather: Tensor
    """(cells * slots,) position in each slot; an empty slot has any position."""
    scatter: Tensor
    """(length,) slot of each position."""
    weights: Tensor
    """(cells, slots, taps), zero in empty slots."""


@functools.lru_cache(maxsize=128)
def _by_cell(grid: InducingGrid, length: int, dtype: torch.dtype, device: torch.device) -> _Cells:
    # The cache keeps the result, so no inference tensors: no backward pass could use them.
    with torch.inference_mode(False), torch.no_grad():
        positions = torch.arange(length)
        cells = grid.cells(positions)
        counts = torch.bincount(cells)
        slots = int(counts.max())
        slot = cells * slots + positions - (torch.cumsum(counts, 0) - counts)[cells]
        gather = torch.zeros(len(counts) * slots, dtype=torch.int64)
        gather[slot] = positions
        weights = torch.zeros(len(counts) * slots, grid.degree + 1, dtype=torch.float64)
        weights[slot] = grid.weights(positions)
        weights = weights.view(len(counts), slots, -1).to(dtype)
        return _Cells(*copy_together([gather, slot, weights], device))


def _multiply(x: Tensor, grid: InducingGrid, length: int | None) -> Tensor:
    """Multiply by W for sequences of a length, or by the transpose of W if that is None."""
    cells = _by_cell(grid, x.shape[1] if length is None else length, x.dtype, x.device)
    count, slots, taps = cells.weights.shape
    if length is not None:
        around = torch.stack([x[:, tap : tap + count] for tap in range(taps)], dim=2)
        return torch.matmul(cells.weights, around).flatten(1, 2).index_select(1, cells.scatter)
    by_cell = x.index_select(1, cells.gather).unflatten(1, (count, slots))
    sums = torch.matmul(cells.weights.transpose(1, 2), by_cell)
    result = x.new_zeros(x.shape[0], count + taps - 1, x.shape[2])
    for tap in range(taps):
        result[:, tap : tap + count] += sums[:, :, tap]
    return result


class _Product(Function):
    """See `_multiply`; the gradient is the product with the transposed matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: InducingGrid, length: int | None) -> Tensor:
        ctx.grid, ctx.length = grid, x.shape[1] if length is None else None
        return _multiply(x, grid, length)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _multiply(gradients[0], ctx.grid, ctx.length), None, None


def spread_reference(x: Tensor, grid: InducingGrid) -> Tensor:
    """Compute `spread` by the transpose of W written out."""
    return torch.einsum("np,bnc->bpc", grid.matrix(x.shape[1]).to(x), x)


def interpolate_reference(z: Tensor, grid: InducingGrid, length: int) -> Tensor:
    """Compute `interpolate` by W written out."""
    return torch.einsum("np,bpc->bnc", grid.matrix(length).to(z), z)


@fast_form_of(spread_reference)
def spread(x: Tensor, grid: InducingGrid) -> Tensor:
    """Multiply by the transpose of W: (batch, length, channels) -> (batch, points, channels)."""
    return cast("Tensor", _Product.apply(x, grid, None))


@fast_form_of(interpolate_reference)
def interpolate(z: Tensor, grid: InducingGrid, length: int) -> Tensor:
    """Multiply by W: (batch, points, channels) -> (batch, length, channels)."""
    return cast("Tensor", _Product.apply(z, grid, length))
