"""Where in their windows, and in which windows, models need more or fewer bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lra.report.boards.board import Board
from lra.report.boards.position_bits import (
    IDEAL,
    Needed,
    Range,
    Windows,
    _losses,
    by_position,
    by_value,
)
from lra.report.boards.slugs import natural_order, slugify
from lra.report.tables.accuracy import RANKS
from lra.report.tables.table import Column, Table, name_column, number_entry

_DIGITS = 3


def position_tables(board: Board, windows: Sequence[Windows], slug: str) -> list[Table]:
    """Tabulate bits by position within the windows."""
    tables: list[Table] = []
    for one in windows:
        rows = {
            method: {_label(place): needed for place, needed in sorted(by_position(runs).items())}
            for method, runs in one.results.items()
        }
        by = f"by position, {one.name}"
        tables += _tables(board, rows, by, slug, "Positions count from 0. ")
    return tables


def metadata_tables(board: Board, windows: Windows, slug: str) -> list[Table]:
    """Tabulate bits by each field of metadata of the windows."""
    tables: list[Table] = []
    parts = [part for runs in windows.results.values() for part in _losses(runs)]
    for field in dict.fromkeys(part.field for part in parts if part.field):
        rows = {
            method: dict(sorted(by_value(runs, field).items(), key=lambda x: natural_order(x[0])))
            for method, runs in windows.results.items()
        }
        tables += _tables(board, rows, f"by {field}", slug)
    return tables


def _label(place: Range) -> str:
    first, last = place
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _tables(
    board: Board, rows: Mapping[str, Mapping[str, Needed]], by: str, slug: str, note: str = ""
) -> list[Table]:
    """Tabulate bits by method and part, in one table or, if there are none, in none.

    Where the ideal predictor's are known for all, models have what they need above these.
    """
    rows = {method: found for method, found in rows.items() if found}
    parts = list(max(rows.values(), key=len, default={}))
    ideal = {part: needed.ideal for found in rows.values() for part, needed in found.items()}
    if not parts:
        return []
    has_ideal = None not in ideal.values()
    columns = [name_column("mixer", [*rows, *([IDEAL] if has_ideal else [])], board.own_rows)]
    for part in parts:
        least = (ideal[part] or 0.0) if has_ideal else 0.0
        bits = [found[part].bits - least if part in found else None for found in rows.values()]
        entries = [number_entry(value, _DIGITS, is_ranked=True) for value in bits]
        beneath = [number_entry(ideal[part], _DIGITS)] if has_ideal else []
        columns.append(Column(part, [*entries, *beneath], _DIGITS, lowest_is_best=True))
    above = f" more than the {IDEAL} needs" if has_ideal else ""
    table = Table(
        slug=slugify("bits", *board.tasks, by, slug),
        title=f"{board.name}: bits {by}",
        caption=f"Bits per token{above}, averaged over seeds. "
        + (f"The last row is what the {IDEAL} needs. " if has_ideal else "")
        + f"{note}{RANKS}",
        columns=columns,
        facts=[
            {"board": board.name, "by": by, "mixer": method, "part": part, "bits": needed.bits,
             "ideal_bits": needed.ideal}
            for method, found in rows.items()
            for part, needed in found.items()
        ],
    )  # fmt: skip
    return [table]
