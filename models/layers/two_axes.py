"""Mixing a grid along both of its axes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from models.base import MixerContext


class RowsThenColumns(nn.Module):
    """Twice an operator along the rows, followed by one along the columns.

    The two-dimensional TNN adds rows-then-columns and columns-then-rows. Either operator is
    linear and acts on one axis alone, so the orders are the same map, (A x I)(I x B) =
    (I x B)(A x I): one of them, doubled, is half the work (`both_orders` is the reference).

    Args:
        rows: maps (batch, width, channels) to the same shape, linearly.
        columns: maps (batch, height, channels) to the same shape, linearly.
        grid: (height, width).
    """

    def __init__(self, rows: nn.Module, columns: nn.Module, grid: tuple[int, int]) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        """Mix a grid in raster order: (batch, height * width, channels) -> the same shape.

        Raises: ValueError for another number of positions.
        """
        return 2 * self._along_columns(self._along_rows(self._on_grid(x))).flatten(1, 2)

    def both_orders(self, x: Tensor) -> Tensor:
        """Compute `forward` as published, each order in turn: the reference."""
        x = self._on_grid(x)
        first = self._along_columns(self._along_rows(x))
        return (first + self._along_rows(self._along_columns(x))).flatten(1, 2)

    def _on_grid(self, x: Tensor) -> Tensor:
        height, width = self.grid
        if x.shape[1] != height * width:
            raise ValueError(
                f"got {x.shape[1]} positions, expected the {height} x {width} of the grid"
            )
        return x.unflatten(1, self.grid)

    def _along_rows(self, x: Tensor) -> Tensor:
        return self.rows(x.flatten(0, 1)).view_as(x)

    def _along_columns(self, x: Tensor) -> Tensor:
        turned = x.transpose(1, 2)
        return self.columns(turned.flatten(0, 1)).view_as(turned).transpose(1, 2)


def along_axes(context: MixerContext, operator: Callable[[int], nn.Module]) -> nn.Module:
    """Build an operator over positions, or one along each axis where the context has a grid.

    Args:
        operator: builds a linear operator for sequences of at most a given length.
    """
    if context.grid is None:
        return operator(context.max_length)
    height, width = context.grid
    return RowsThenColumns(operator(width), operator(height), context.grid)
