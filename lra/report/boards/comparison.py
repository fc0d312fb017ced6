"""Two mixers on the same test examples: is the difference more than luck?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.results import Results
from lra.report.boards.row_names import complete
from lra.report.boards.speeds import SpeedBoard

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
