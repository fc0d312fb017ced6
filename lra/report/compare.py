"""Two mixers on the same test examples: is the difference more than noise? `report.py --compare`"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lra.record.run import RunRecord
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import matching_names
from lra.report.scores import Cell
from lra.report.tables.table import Table, text_column
from lra.report.tables.terminal import fit_table, wrap
from lra.runtime.errors import UnknownName, UserError

RESAMPLES = 10_000
SIGNIFICANCE = 0.05
"""P-value above which a difference is within noise."""
_NOISE = (
    "A difference is within noise if its 95 % interval includes 0 or if p is above "
    f"{SIGNIFICANCE:g}."
)
_ONE_SEED = (
    f"The 95 % interval of one seed is from {RESAMPLES:,} bootstrap resamples of the test "
    "examples, and p is from McNemar's exact test. Neither covers the spread over seeds: the "
    "verdict is about this pair of runs."
)
_SEVERAL_SEEDS = (
    "The 95 % interval of several seeds covers both the test examples and the spread over seeds: "
    "it is a t-interval whose variance adds that of examples and that of seeds (two-way random "
    "effects, Satterthwaite's degrees of freedom), and p is from the same t-test."
)


@dataclass(frozen=True)
class Comparison:
    """A mixer against another on one task, over the seeds that both have finished."""

    seeds: list[int]
    difference: float
    """Test accuracy of the first mixer less that of the second, in percentage points, mean over
    seeds."""
    low: float
    high: float
    """Upper end of the 95 % interval that starts at `low`, see `compare`."""
    p_value: float
    """Two-sided p-value: of McNemar's exact test for one seed, of a t-test for several."""

    @property
    def is_noise(self) -> bool:
        """Whether noise may explain the difference: if the interval includes 0, or p is high."""
        return self.low <= 0 <= self.high or self.p_value > SIGNIFICANCE


def compare(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], seeds: list[int]
) -> Comparison:
    """Compare two mixers whose runs are paired by seed.

    The 95 % interval of one seed resamples the test examples: it says how far another test set
    from the same distribution might move the difference, and knows nothing of other seeds. That of
    several seeds is for another test set and other seeds at once, see `_interval_over_seeds`.

    Args:
        first: for each seed (examples,) whether the first mixer is right.
        second: for each seed (examples,) whether the second mixer is right.
        seeds: the seeds, in the same order.
    """
    differences = np.array(first, dtype=np.int64) - np.array(second, dtype=np.int64)
    only_first, only_second = int((differences == 1).sum()), int((differences == -1).sum())
    if len(seeds) == 1:
        low, high = _interval_over_examples(differences[0])
        p_value = _mcnemar(only_first, only_second)
    else:
        low, high, p_value = _interval_over_seeds(differences)
    return Comparison(
        seeds=seeds,
        difference=100 * float(differences.mean(axis=0).mean()),
        low=low,
        high=high,
        p_value=p_value,
    )


def _interval_over_examples(differences: np.ndarray) -> tuple[float, float]:
    """Return the ends of a bootstrap interval over test examples, in percentage points.

    Args:
        differences: (examples,) 1, 0 or -1.
    """
    # There are few different values, so it suffices to draw how often each of them occurs.
    values, counts = np.unique(differences, return_counts=True)
    draws = np.random.default_rng(0).multinomial(
        len(differences), counts / len(differences), size=RESAMPLES
    )
    low, high = np.percentile(100 * draws @ values / len(differences), [2.5, 97.5])
    return float(low), float(high)


def _mcnemar(only_first: int, only_second: int) -> float:
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def _interval_over_seeds(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the ends of a t-interval over seeds and examples, in points, and its p-value.

    Both are drawn at random: the variance of the mean is that of a two-way layout with random
    effects, MS_examples + MS_seeds - MS_rest over the number of differences, with Satterthwaite's
    degrees of freedom (Satterthwaite, 1946, Biometrics Bulletin 2(6)). Seeds that vary less than
    their examples explain add nothing.

    Args:
        differences: (seeds, examples) 1, 0 or -1, of two seeds or more.
    """
    from scipy.stats import t

    seeds, examples = differences.shape
    mean = differences.mean()
    over_seeds = differences.mean(axis=1) - mean
    over_examples = differences.mean(axis=0) - mean
    rest = differences - mean - over_seeds[:, None] - over_examples
    freedom = {"examples": max(1, examples - 1), "seeds": seeds - 1}
    freedom["rest"] = freedom["examples"] * freedom["seeds"]
    squares = {
        "examples": seeds * np.square(over_examples).sum() / freedom["examples"],
        "seeds": examples * np.square(over_seeds).sum() / freedom["seeds"],
        "rest": np.square(rest).sum() / freedom["rest"],
    }
    total = squares["examples"] + max(0.0, squares["seeds"] - squares["rest"])
    if total == 0:
        return 100 * float(mean), 100 * float(mean), float(mean == 0)
    parts = sum(square**2 / freedom[name] for name, square in squares.items())
    # The difference of squares may leave fewer degrees of freedom than the seeds alone have.
    degrees = max(total**2 / parts, seeds - 1)
    error = math.sqrt(total / differences.size)
    reach = float(t.ppf(0.975, degrees)) * error
    p_value = 2 * float(t.sf(abs(mean) / error, degrees))
    return 100 * float(mean - reach), 100 * float(mean + reach), p_value


def compare_cells(data: Data, first: Cell[RunRecord], second: Cell[RunRecord]) -> Comparison | str:
    """Compare two cells over their common seeds.

    Returns: the comparison, or words that say why the two cannot be compared.
    """
    one, other = (data.predictions_on_same(cell.runs) for cell in (first, second))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        every = [", ".join(map(str, sorted(found))) or "none" for found in (one, other)]
        return (
            f"have no seed in common that is finished and has predictions.csv (seeds: {every[0]}; "
            f"{every[1]})"
        )
    if not one[seeds[0]].same_examples(other[seeds[0]]):
        return "were tested on different examples"
    right = [[found[seed].right == 1 for seed in seeds] for found in (one, other)]
    return compare(right[0], right[1], seeds)


def describe_comparisons(data: Data, given: Sequence[str]) -> str:
    """Compare the first named mixer with each other one, on every board and task, as text.

    A name stands for the row, among those that have runs of a task, that it is or alone begins.

    Raises: UserError if a mixer has no runs, fewer than two are named, or nothing can be compared.
    """
    if len({name.casefold() for name in given}) < 2:  # noqa: PLR2004
        raise UserError(f"--compare {' '.join(given)}: expected two different mixers or more")
    boards = [board for board in data.boards if not board.of_positions]
    known = {method for board in boards for method in board.rows}
    for name in given:
        if not matching_names(name, known):
            raise UnknownName("mixer among the runs", name, known, "--compare")
    tables: dict[str, list[tuple[str, Comparison, str]]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for board in boards:
        for task in board.tasks:
            names, reason = _rows_on(board, task, given)
            for other in names[1:]:
                cells = board.rows[names[0]][task], board.rows[other][task]
                found = compare_cells(data, *cells)
                if isinstance(found, Comparison):
                    better = names[0] if found.difference > 0 else other
                    verdict = "within noise" if found.is_noise else f"{better} is better"
                    title = f"{names[0]} less {other}. {board.name}"
                    tables.setdefault(title, []).append((task, found, verdict))
                else:
                    words = f"{names[0]} and {other} {found}"
                    reasons.setdefault((board.name, words), []).append(task)
            if not names and reason:
                reasons.setdefault((board.name, reason), []).append(task)
    left_out = [
        f"{', '.join(tasks)} ({name}): {reason}" for (name, reason), tasks in reasons.items()
    ]
    if not tables:
        raise UserError(f"--compare {' '.join(given)}: nothing to compare. {'; '.join(left_out)}")
    return _write(tables, left_out)


def _rows_on(board: Board, task: str, given: Sequence[str]) -> tuple[list[str], str]:
    """Find the row that each name stands for on one task.

    Returns: the rows, none if a name stands for no row or for several; and the reason for that,
        empty where none of the names has runs.
    """
    known = [method for method, cells in board.rows.items() if task in cells]
    matching = {name: matching_names(name, known) for name in given}
    if not any(matching.values()):
        return [], ""
    for name, found in matching.items():
        if len(found) > 1:
            rows = "; ".join(sorted(found))
            return [], f"{name} begins {len(found):,} rows: {rows}; write more of the name"
    if missing := [name for name, found in matching.items() if not found]:
        return [], f"no runs of {' and '.join(missing)}"
    names = [name for (name,) in matching.values()]
    if len(set(names)) < len(names):
        return [], f"{' and '.join(given)} are the same row"
    return names, ""


def _write(tables: dict[str, list[tuple[str, Comparison, str]]], left_out: Sequence[str]) -> str:
    """Write the comparisons for the terminal: a table for each board, and what was left out."""
    parts: list[str] = []
    for title, rows in tables.items():
        columns = {
            "task": [task for task, _, _ in rows],
            "points": [f"{found.difference:+.2f}" for _, found, _ in rows],
            "95 % interval": [f"{found.low:+.2f} to {found.high:+.2f}" for _, found, _ in rows],
            "seeds": [str(len(found.seeds)) for _, found, _ in rows],
            "p": [f"{found.p_value:.2g}" for _, found, _ in rows],
            "verdict": [verdict for _, _, verdict in rows],
        }
        table = Table("", "", "", [text_column(name, texts) for name, texts in columns.items()])
        parts += [
            wrap(f"{title}: difference of test accuracy in percentage points"),
            fit_table(table).text,
        ]
    if left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in left_out)]))
    counts = [len(found.seeds) for rows in tables.values() for _, found, _ in rows]
    kinds = [_ONE_SEED] * (1 in counts) + [_SEVERAL_SEEDS] * (max(counts) > 1)
    return "\n\n".join([*parts, wrap(" ".join([_NOISE, *kinds]))])
