"""Which rows a figure draws: all of them, or the best ones where there are too many to read."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lra.report.boards.board import Board

MOST_ROWS = 30
"""Most rows that a figure draws. Nobody can read the labels of more rows, and they take minutes."""

MOST_NAMED = 10
"""Most rows left out that a caption names; it counts the others."""

Row = TypeVar("Row", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Ranking(Generic[Row]):
    """The rows of a table in the order in which figures prefer them."""

    best_first: Sequence[Row]
    rule: str
    """What the order follows, for a caption."""


def rank(
    values: Mapping[Row, Any | None], rule: str, *, lowest_is_best: bool = False
) -> Ranking[Row]:
    """Rank rows by a value of each; rows whose value is None come last."""
    known = {row: value for row, value in values.items() if value is not None}
    best_first = sorted(known, key=known.__getitem__, reverse=not lowest_is_best)
    return Ranking([*best_first, *(row for row in values if row not in known)], rule)


def rank_by_result(board: Board, task: str) -> Ranking[str]:
    """Rank the rows of a board by their results on one task."""
    measure = board.measures[0]
    values = {
        method: cells[task].value_of(measure)
        for method, cells in board.rows.items()
        if task in cells
    }
    return rank(values, measure.name, lowest_is_best=measure.lowest_is_best)


def rank_in_turn(rankings: Iterable[Ranking[str]], rule: str) -> Ranking[str]:
    """Join several rankings: the best row of each, then the second best of each, and so on."""
    found: dict[str, None] = {}
    for rows in itertools.zip_longest(*(ranking.best_first for ranking in rankings)):
        found |= dict.fromkeys(row for row in rows if row is not None)
    return Ranking(list(found), rule)


def choose_rows(rows: Mapping[Row, Value], ranking: Ranking[Row]) -> tuple[dict[Row, Value], str]:
    """Choose the rows that a figure draws.

    Args:
        rows: what could be drawn, by row.
        ranking: all of these rows, the preferred ones first.
    Returns: the chosen rows in their given order, and a sentence for the caption that counts the
        rows left out and names the best of them; the sentence is empty if the figure draws all.
    """
    if len(rows) <= MOST_ROWS:
        return dict(rows), ""
    ordered = [row for row in ranking.best_first if row in rows]
    best, left_out = set(ordered[:MOST_ROWS]), ordered[MOST_ROWS:]
    named = "; ".join(map(str, left_out[:MOST_NAMED]))
    more = f"; and {len(left_out) - MOST_NAMED:,} more" if len(left_out) > MOST_NAMED else ""
    note = (
        f" Of {len(rows):,} rows, figures draw the {MOST_ROWS} best by {ranking.rule}, and leave "
        f"out the other {len(left_out):,}: {named}{more}."
    )
    return {row: value for row, value in rows.items() if row in best}, note
