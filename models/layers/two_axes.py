"""Modules that mix an image along both of its axes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from models.base import MixerContext
from models.ops.reference import fast_form_of


class GridModule(nn.Module):
    """A module whose sequences are images in raster order.

    Args:
        grid: (height, width).
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid

    def take_grid(self, grid: tuple[int, int]) -> None:
        """Change the size of the grid, for a trained model that is evaluated on other images.

        Args:
            grid: (height, width).
        """
        self.grid = grid

    def on_grid(self, x: Tensor) -> Tensor:
        """Arrange positions on the grid.

        Args:
            x: (batch, height * width, channels) in raster order.
        Returns: (batch, height, width, channels).
        Raises: ValueError for another number of positions.
        """
        self.check_length(x.shape[1])
        return x.unflatten(1, self.grid)

    def check_length(self, length: int) -> None:
        """Check the number of positions.

        Raises: ValueError for another one than the grid has.
        """
        height, width = self.grid
        if length != height * width:
            raise ValueError(f"got {length} positions, expected the {height} x {width} of the grid")


class RowsThenColumns(GridModule):
    """An operator along the rows, then one along the columns, times two.

    TNN's published code for images adds rows-then-columns and columns-then-rows. Both operators are
    linear and act on one axis each, so both orders are the same map: (A x I)(I x B) =
    (I x B)(A x I). Computing one order and doubling it is half the work.

    Args:
        rows: maps (batch, width, channels) to the same shape, linearly.
        columns: maps (batch, height, channels) to the same shape, linearly.
        grid: (height, width).
    """

    def __init__(self, rows: nn.Module, columns: nn.Module, grid: tuple[int, int]) -> None:
        super().__init__(grid)
        self.rows = rows
        self.columns = columns

    def forward_reference(self, x: Tensor) -> Tensor:
        """Compute `forward` as published: both orders, added."""
        x = self.on_grid(x)
        first = self._along_columns(self._along_rows(x))
        return (first + self._along_rows(self._along_columns(x))).flatten(1, 2)

    @fast_form_of(forward_reference)
    def forward(self, x: Tensor) -> Tensor:
        """Mix a grid in raster order: (batch, height * width, channels) -> the same shape.

        Raises: ValueError for another number of positions.
        """
        return 2 * self._along_columns(self._along_rows(self.on_grid(x))).flatten(1, 2)

    def _along_rows(self, x: Tensor) -> Tensor:
        return self.rows(x.flatten(0, 1)).view_as(x)

    def _along_columns(self, x: Tensor) -> Tensor:
        turned = x.transpose(1, 2)
        return self.columns(turned.flatten(0, 1)).view_as(turned).transpose(1, 2)


def along_axes(context: MixerContext, operator: Callable[[int], nn.Module]) -> nn.Module:
    """Build an operator over positions, or one along each axis if the context has a grid.

    Args:
        context: has the longest length and the grid.
        operator: builds a linear operator for sequences of at most a given length.
    """
    if context.grid is None:
        return operator(context.max_length)
    height, width = context.grid
    return RowsThenColumns(operator(width), operator(height), context.grid)
