"""CSV files that people open: no text in them is a formula to a spreadsheet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Cell = TypeVar("Cell")

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def guard(cell: Cell) -> Cell | str:
    """Put ' before a text that begins as a formula does and is no number."""
    if isinstance(cell, str) and _FORMULA.match(cell):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


def unguard(cell: Cell) -> Cell | str:
    """Undo `guard`."""
    if isinstance(cell, str) and cell.startswith("'") and _FORMULA.match(cell):
        return cell[1:]
    return cell


def write_csv(frame: pd.DataFrame) -> str:
    """Write a frame without its index, its texts and names of columns guarded."""
    return frame.rename(columns=guard).map(guard).to_csv(index=False)
