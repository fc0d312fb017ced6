"""Columns of results: numbers of runs, which link to the runs and are ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lra.record.evaluation import EvaluationRecord
from lra.record.run import RunRecord
from lra.report.boards.cells import Cell
from lra.report.boards.measures import Measure
from lra.report.boards.slugs import run_anchor
from lra.report.tables.table import Column, Entry, number_entry

AnyCell = Cell[RunRecord] | Cell[EvaluationRecord]


def result_entry(
    cell: AnyCell | None, measure: Measure, *, shows_spread: bool = True, is_ranked: bool = True
) -> Entry:
    """Say what the runs of one row and column have scored.

    Args:
        cell: the runs; None, or a cell without runs, leaves the entry empty.
        measure: the number that is shown.
        shows_spread: whether the text has the standard deviation over seeds and their number.
        is_ranked: whether the number competes for the best of its column.
    """
    if cell is None or not cell.runs:
        return Entry()
    value = cell.value_of(measure)
    runs = [run for run in cell.runs if isinstance(run, RunRecord)]
    links = [run_anchor(run) for run in sorted(runs, key=lambda run: run.status != "done")]
    return Entry(
        cell.text_of(measure, shows_spread=shows_spread),
        cell.mean_of(measure),
        is_ranked=is_ranked and value is not None,
        deviation=cell.deviation_of(measure),
        remarks=cell.remarks_of(measure),
        unfinished=cell.unfinished,
        seeds=len(cell.numbers(measure)),
        link=links[0] if links else "",
        other_links=links[1:],
        is_own=cell.has_own,
    )


def result_column(
    name: str, measure: Measure, entries: Iterable[Entry], beneath: Sequence[float | None] = ()
) -> Column:
    """Make a column of results, with numbers beneath them that are not ranked.

    Args:
        name: heading of the column.
        measure: the number that is shown.
        entries: an entry for each row of runs.
        beneath: a number for each row beneath, of a trivial baseline or a bound.
    """
    below = [number_entry(value, measure.digits) for value in beneath]
    return Column(name, [*entries, *below], measure.digits, measure.lowest_is_best)
