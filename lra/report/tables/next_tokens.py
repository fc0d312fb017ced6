"""The table of a task whose targets are positions: bits and perplexity, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.measures import NEXT_TOKEN, Measure, Result
from lra.report.boards.slugs import slugify
from lra.report.tables.accuracy import OVER_N_SEEDS, RANKS, conditions_of
from lra.report.tables.result_columns import result_column, result_entry
from lra.report.tables.table import Entry, Table, name_column, text_column


def position_table(board: Board, slug: str) -> Table:
    """Tabulate a board of one task, with trivial baselines and bounds beneath."""
    (task,), measures = board.tasks, _measures(board)
    cells = {method: found[task] for method, found in board.rows.items()}
    runs = sorted(board.records, key=lambda run: run.run_id)
    beneath = {measure.name: measure.rows_beneath(runs) for measure in measures}
    below = list(dict.fromkeys(name for numbers in beneath.values() for name in numbers))
    columns = [name_column("mixer", [*cells, *below], board.own_rows)]
    for measure in measures:
        numbers = [beneath[measure.name].get(name) for name in below]
        entries = _entries(list(cells.values()), measure, measures[0])
        columns.append(result_column(measure.name, measure, entries, numbers))
    for name, cost in _COSTS.items():
        columns.append(text_column(name, [*map(cost, cells.values()), *[None] * len(below)]))
    return Table(
        slug=slugify("bits", task, slug),
        title=board.name,
        caption=f"Results on the test set. {OVER_N_SEEDS} Accuracy is that of the next token, and "
        f"minutes are those of training. {RANKS} {conditions_of(board)}",
        columns=columns,
        facts=[
            {
                "board": board.name,
                "mixer": method,
                **{one.name: cell.mean_of(one) for one in measures},
                "seeds_done": len(cell.numbers(measures[0])),
                "not_done": ", ".join([*cell.words, *cell.unfinished]),
                "runs": " ".join(run.run_id for run in cell.runs),
            }
            for method, cell in cells.items()
        ],
    )


def _entries(cells: Sequence[Cell[RunRecord]], measure: Measure, bits: Measure) -> Iterator[Entry]:
    """Write the bits of each row with the number of seeds, and its other numbers without."""
    for cell in cells:
        # The validation loss of a run that is not done has no rank.
        entry = result_entry(cell, measure, is_ranked=bool(cell.numbers(bits)))
        is_short = measure is not bits
        yield (
            replace(entry, text=cell.spread_of(measure), link="", other_links=())
            if is_short
            else entry
        )


def _measures(board: Board) -> list[Measure]:
    """List the columns of numbers: bits first, distances to bounds last."""
    scores = [run.positions for run in board.records if run.positions is not None]
    bounds = dict.fromkeys(name for one in scores for name in one.lowest_bits)
    above = [
        Measure(f"above {name}", partial(_above, name), digits=3, lowest_is_best=True)
        for name in bounds
    ]
    return [*board.measures, NEXT_TOKEN, _VALIDATION, *above]


def _val_loss(result: Result) -> float | None:
    return None if result.positions is None else result.positions.val_loss


_VALIDATION = Measure("validation loss, nats", _val_loss, digits=3, lowest_is_best=True)


def _above(name: str, result: Result) -> float | None:
    """Return how far the bits of a result are above a bound."""
    scores = result.positions
    if scores is None or scores.bits is None or name not in scores.lowest_bits:
        return None
    return scores.bits - scores.lowest_bits[name]


def _parameters(cell: Cell[RunRecord]) -> str:
    return f"{cell.runs[-1].params:,}"


def _steps(cell: Cell[RunRecord]) -> str:
    return f"{statistics.mean(run.steps for run in cell.runs):,.0f}"


def _minutes(cell: Cell[RunRecord]) -> str | None:
    seconds = [run.train_seconds for run in cell.runs if run.train_seconds is not None]
    return f"{statistics.mean(seconds) / 60:.1f}" if seconds else None


_COSTS: Mapping[str, Callable[[Cell[RunRecord]], str | None]] = {
    "parameters": _parameters,
    "steps": _steps,
    "minutes": _minutes,
}
"""Columns of what the runs of a row took, in the mean over seeds."""
