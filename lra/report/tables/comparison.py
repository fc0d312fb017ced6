"""Two mixers on the same test examples: is the difference more than luck?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lra.report.boards.board import Board
from lra.report.boards.comparison import RESAMPLES, Comparison, compare_cells
from lra.report.boards.results import Results
from lra.report.boards.row_names import complete, matching_names
from lra.report.boards.slugs import run_anchor
from lra.report.tables.table import Table, text_columns
from lra.runtime.console import MISSING
from lra.runtime.errors import UserError, unknown


def comparison_table(
    results: Results, boards: Sequence[Board], given: Sequence[str], slug: str
) -> Table:
    """Compare the first named mixer with each other one, on every board and task.

    A name stands for the row, among those that have runs of a task, that it is or alone begins.

    Raises: UserError if a mixer has no runs, or fewer than two are named.
    """
    if len(set(given)) < 2:  # noqa: PLR2004
        raise UserError(f"--compare {' '.join(given)}: expected two different mixers or more")
    known = {method for board in boards for method in board.rows}
    for name in given:
        if not matching_names(name, known):
            raise unknown("mixer among the runs", name, known, "--compare")
    rows: list[list[str | None]] = []
    links: list[str] = []
    facts: list[dict[str, object]] = []
    for board, task, names in _compared(boards, given):
        first, *others = names
        for other in others:
            found = compare_cells(results, board.rows[first][task], board.rows[other][task])
            if found is None:
                continue
            links.append(run_anchor(board.rows[first][task].runs[0]))
            rows.append([f"{first} less {other}", board.name, task, *_texts(found)])
            named = {"first": first, "second": other, "board": board.name, "task": task}
            facts.append({**named, **vars(found)})
    if not rows:
        raise UserError(
            f"--compare {' '.join(given)}: no seed of both has predictions.csv on the same test set"
        )
    columns = text_columns(
        ["difference of", "where", "task", "points", "95 % interval", "over seeds",
         "only first right", "only second right", "p (McNemar)"], rows,
    )  # fmt: skip
    points = [
        replace(entry, link=link) for entry, link in zip(columns[3].entries, links, strict=True)
    ]
    columns[3] = replace(columns[3], entries=points)
    return Table(
        slug=slug,
        title=f"{given[0]} against {', '.join(given[1:])}",
        caption=f"Test accuracy in points, over the seeds that both have; 95 % interval from "
        f"{RESAMPLES:,} resamples of the test examples, standard deviation over seeds, examples "
        f"that one alone gets right (all seeds), and McNemar's exact test where it is one seed.",
        columns=columns,
        facts=facts,
    )


def _compared(
    boards: Sequence[Board], given: Sequence[str]
) -> Iterator[tuple[Board, str, list[str]]]:
    """List the tasks on which all names have a row, with these rows.

    Raises: UserError if a name stands for several rows and so nowhere for one, or if all stand for
        the same one.
    """
    unclear: UserError | None = None
    count = 0
    for board in boards:
        for task in board.tasks:
            rows = [method for method, cells in board.rows.items() if task in cells]
            if not all(matching_names(name, rows) for name in given):
                continue
            try:
                names = [complete(name, rows, "mixer", "--compare") for name in given]
            except UserError as error:
                unclear = error
                continue
            if len(set(names)) < len(names):
                raise UserError(
                    f"--compare {' '.join(given)}: expected two different mixers or more"
                )
            count += 1
            yield board, task, names
    if unclear is not None and not count:
        raise unclear


def _texts(found: Comparison) -> list[str | None]:
    deviation = MISSING if found.seed_deviation is None else f"± {found.seed_deviation:.2f}"
    return [
        f"{found.difference:+.2f}",
        f"{found.low:+.2f} to {found.high:+.2f}",
        f"{deviation} (n={len(found.seeds)})",
        f"{found.only_first:,}",
        f"{found.only_second:,}",
        None if found.p_value is None else f"{found.p_value:.2g}",
    ]
