"""Two mixers on the same test examples: is the difference more than luck?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lra.report.accuracy import anchor
from lra.report.boards import Board
from lra.report.cells import Cell
from lra.report.names import complete, meant
from lra.report.results import Results
from lra.report.speed import SpeedBoard
from lra.report.table import Table
from lra.runtime.console import MISSING
from lra.runtime.errors import UserError, unknown

RESAMPLES = 10_000


@dataclass(frozen=True)
class Comparison:
    """A mixer against another on one task, over the seeds that both have finished."""

    seeds: list[int]
    difference: float
    """Test accuracy of the first mixer less that of the second, in percentage points, mean over
    seeds."""
    low: float
    high: float
    """Upper end of the 95 % bootstrap interval over test examples that starts at `low`."""
    seed_deviation: float | None
    """Standard deviation of the difference over seeds; None for one."""
    only_first: int
    """Examples that only the first mixer gets right, summed over seeds."""
    only_second: int
    p_value: float | None
    """P-value of McNemar's exact test, two-sided; None for several seeds, as their examples are the
    same."""


def compare(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], seeds: list[int]
) -> Comparison:
    """Compare two mixers whose runs are paired by seed.

    The interval resamples examples, with all seeds of one together: it tells how far another
    test set from the same distribution might move the difference, and the deviation how far
    another seed might.

    Args:
        first: for each seed (examples,) whether the first mixer is right.
        second: for each seed (examples,) whether the second mixer is right.
        seeds: the seeds, in the same order.
    """
    from scipy.stats import binomtest

    a, b = np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
    only_first, only_second = int(((a - b) == 1).sum()), int(((a - b) == -1).sum())
    by_example = (a - b).mean(axis=0)
    # There are few different values, so it suffices to draw how often each of them occurs.
    values, counts = np.unique(by_example, return_counts=True)
    draws = np.random.default_rng(0).multinomial(
        len(by_example), counts / len(by_example), size=RESAMPLES
    )
    low, high = np.percentile(100 * draws @ values / len(by_example), [2.5, 97.5])
    by_seed = 100 * (a - b).mean(axis=1)
    discordant = only_first + only_second
    p_value = None
    if len(seeds) == 1:
        p_value = float(binomtest(only_first, discordant).pvalue) if discordant else 1.0
    return Comparison(
        seeds=seeds,
        difference=100 * float(by_example.mean()),
        low=float(low),
        high=float(high),
        seed_deviation=statistics.stdev(by_seed.tolist()) if len(seeds) > 1 else None,
        only_first=only_first,
        only_second=only_second,
        p_value=p_value,
    )


def compare_cells(results: Results, first: Cell, second: Cell) -> Comparison | None:
    """Compare two cells over their common seeds; None if no seed has the predictions of both."""
    found = [results.predictions_on_same(cell.runs) for cell in (first, second)]
    seeds = sorted(found[0].keys() & found[1].keys())
    if not seeds or not found[0][seeds[0]].same_examples(found[1][seeds[0]]):
        return None
    right = [[one[seed].labels == one[seed].predictions for seed in seeds] for one in found]
    return compare(right[0], right[1], seeds)


def find_method(boards: Sequence[Board | SpeedBoard], given: str, flag: str) -> str:
    """Find the row that a flag names: by its name, or by how that alone begins, in any case.

    Raises: UserError if there is none, or if several begin so.
    """
    known = {method for board in boards for method in board.rows}
    return complete(given, known, "mixer among the runs", flag)


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
        if not meant(name, known):
            raise unknown("mixer among the runs", name, known, "--compare")
    rows: list[list[str]] = []
    facts: list[dict[str, object]] = []
    links: dict[tuple[int, int], str] = {}
    for board, task, names in _compared(boards, given):
        first, *others = names
        for other in others:
            found = compare_cells(results, board.rows[first][task], board.rows[other][task])
            if found is None:
                continue
            links[len(rows), 3] = anchor(board.rows[first][task].runs[0])
            rows.append([f"{first} less {other}", board.name, task, *_texts(found)])
            named = {"first": first, "second": other, "board": board.name, "task": task}
            facts.append({**named, **vars(found)})
    if not rows:
        raise UserError(
            f"--compare {' '.join(given)}: no seed of both has predictions.csv on the same test set"
        )
    return Table(
        slug=slug,
        title=f"{given[0]} against {', '.join(given[1:])}",
        caption=f"Test accuracy in points, over the seeds that both have; 95 % interval from "
        f"{RESAMPLES:,} resamples of the test examples, standard deviation over seeds, examples "
        f"that one alone gets right (all seeds), and McNemar's exact test where it is one seed.",
        columns=[
            "difference of", "where", "task", "points", "95 % interval", "over seeds",
            "only first right", "only second right", "p (McNemar)",
        ],
        rows=rows,
        links=links,
        facts=facts,
    )  # fmt: skip


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
            if not all(meant(name, rows) for name in given):
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


def _texts(found: Comparison) -> list[str]:
    deviation = MISSING if found.seed_deviation is None else f"± {found.seed_deviation:.2f}"
    return [
        f"{found.difference:+.2f}",
        f"{found.low:+.2f} to {found.high:+.2f}",
        f"{deviation} (n={len(found.seeds)})",
        f"{found.only_first:,}",
        f"{found.only_second:,}",
        MISSING if found.p_value is None else f"{found.p_value:.2g}",
    ]
