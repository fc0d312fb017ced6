"""The table of a task whose targets are positions: bits and perplexity, and what they cost."""

from __future__ import annotations

import statistics
from functools import partial

from lra.record.run import RunRecord
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.measures import NEXT_TOKEN, Measure, Result
from lra.report.boards.slugs import run_anchor, slugify
from lra.report.tables.accuracy import conditions_of
from lra.report.tables.table import Table
from lra.runtime.console import MISSING

_COSTS = ("parameters", "steps", "minutes")


def position_table(board: Board, slug: str) -> Table:
    """Tabulate a board of one task, with trivial baselines and bounds beneath."""
    (task,), measures = board.tasks, _measures(board)
    bits, *others = measures
    cells = {method: found[task] for method, found in board.rows.items()}
    # The validation loss of a run that is not done has no rank.
    ranked = [cell if cell.numbers(bits) else Cell[RunRecord]() for cell in cells.values()]
    return Table(
        slug=slugify("bits", task, slug),
        title=board.name,
        caption="Of the test set, in mean ± standard deviation over n seeds; accuracy is of the "
        "next token, minutes are of training. The best of a column in bold, the second "
        f"underlined. {conditions_of(board)}",
        columns=["mixer", *(measure.name for measure in measures), *_COSTS],
        rows=[
            *(
                [name, cell.text_of(bits), *(cell.spread_of(one) for one in others), *_costs(cell)]
                for name, cell in cells.items()
            ),
            *_rows_beneath(board, measures),
        ],
        marks={
            (i, j): mark
            for j, one in enumerate(measures, start=1)
            for i, mark in one.ranks([cell.value_of(one) for cell in ranked]).items()
        },
        links={
            (i, 1): run_anchor(min(cell.runs, key=lambda run: run.status != "done"))
            for i, cell in enumerate(cells.values())
        },
        facts=[
            {
                "board": board.name,
                "mixer": method,
                **{one.name: cell.mean_of(one) for one in measures},
                "seeds_done": len(cell.numbers(bits)),
                "not_done": ", ".join([*cell.words, *cell.unfinished]),
                "runs": " ".join(run.run_id for run in cell.runs),
            }
            for method, cell in cells.items()
        ],
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


def _costs(cell: Cell[RunRecord]) -> list[str]:
    """Write what _COSTS names, in the mean over seeds."""
    seconds = [run.train_seconds for run in cell.runs if run.train_seconds is not None]
    return [
        f"{cell.runs[-1].params:,}",
        f"{statistics.mean(run.steps for run in cell.runs):,.0f}",
        f"{statistics.mean(seconds) / 60:.1f}" if seconds else MISSING,
    ]


def _rows_beneath(board: Board, measures: list[Measure]) -> list[list[str]]:
    runs = sorted(board.records, key=lambda run: run.run_id)
    found = [(one, one.rows_beneath(runs)) for one in measures]
    return [
        [name, *(one.text(values.get(name)) for one, values in found), *[MISSING] * len(_COSTS)]
        for name in dict.fromkeys(name for _, values in found for name in values)
    ]
