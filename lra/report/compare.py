"""Two mixers on the same test examples: is the difference more than noise? `report.py --compare`"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.errors import UserError
from lra.report.data import Data
from lra.report.names import complete
from lra.report.scores import Cell
from lra.report.tables.table import Table, text_column
from lra.report.tables.terminal import wrap, write_table
from lra.runtime.tables import rounded

RESAMPLES = 10_000
SIGNIFICANCE = 0.05
"""P-value above which a difference is within noise."""
_DIFFERENCE = "difference of test accuracy in percentage points"
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

    seeds: int
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


def compare(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Comparison:
    """Compare two mixers whose runs are paired by seed.

    The 95 % interval of one seed resamples the test examples: it says how far another test set
    from the same distribution might move the difference, and knows nothing of other seeds. That of
    several seeds is for another test set and other seeds at once, see `_interval_over_seeds`.

    Args:
        first, second: for each seed (examples,) whether a mixer is right, in the same order.
    """
    differences = np.array(first, dtype=np.int64) - np.array(second, dtype=np.int64)
    compare_one = _interval_over_examples if len(differences) == 1 else _interval_over_seeds
    return Comparison(len(differences), 100 * float(differences.mean()), *compare_one(differences))


def _interval_over_examples(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the ends of a bootstrap interval over test examples, in points, and the p-value of
    McNemar's exact test.

    Args:
        differences: (1, examples) 1, 0 or -1.
    """
    from scipy.stats import binomtest

    # There are few different values, so it suffices to draw how often each of them occurs.
    values, counts = np.unique(differences, return_counts=True)
    examples = differences.size
    draws = np.random.default_rng(0).multinomial(examples, counts / examples, size=RESAMPLES)
    low, high = np.percentile(100 * draws @ values / examples, [2.5, 97.5])
    only_first, discordant = int((differences == 1).sum()), int((differences != 0).sum())
    p_value = float(binomtest(only_first, discordant).pvalue) if discordant else 1.0
    return float(low), float(high), p_value


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
    over_seeds = differences.mean(axis=1, keepdims=True) - mean
    over_examples = differences.mean(axis=0, keepdims=True) - mean
    rest = differences - mean - over_seeds - over_examples
    # Of examples, seeds and the rest: degrees of freedom, and mean squares.
    free = np.array([max(1, examples - 1), seeds - 1, max(1, examples - 1) * (seeds - 1)])
    sums = [seeds * np.square(over_examples).sum(), examples * np.square(over_seeds).sum()]
    squares = np.array([*sums, np.square(rest).sum()]) / free
    total = squares[0] + max(0.0, squares[1] - squares[2])
    if total == 0:
        return 100 * float(mean), 100 * float(mean), float(mean == 0)
    # The difference of squares may leave fewer degrees of freedom than the seeds alone have.
    degrees = max(total**2 / (squares**2 / free).sum(), seeds - 1)
    error = math.sqrt(total / differences.size)
    reach = float(t.ppf(0.975, degrees)) * error
    p_value = 2 * float(t.sf(abs(mean) / error, degrees))
    return 100 * float(mean - reach), 100 * float(mean + reach), p_value


def _compare_cells(data: Data, first: Cell, second: Cell) -> Comparison | str:
    """Compare two cells over their common seeds; else say why they cannot be compared."""
    one, other = (data.predictions_on_same(cell.runs) for cell in (first, second))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return "have no seed in common that is finished and has predictions.csv"
    if not one[seeds[0]].same_examples(other[seeds[0]]):
        return "were tested on different examples"
    right = [[found[seed].right == 1 for seed in seeds] for found in (one, other)]
    return compare(right[0], right[1])


def describe_comparisons(data: Data, given: Sequence[str]) -> str:
    """Compare the first named mixer with each other one, on every board and task, as text.

    Raises: UserError if a mixer has no runs, fewer than two are named, or nothing can be compared.
    """
    boards = [board for board in data.boards if not board.of_positions]
    known = {row for board in boards for row in board.rows}
    names = [complete(name, known, "mixer among the runs", "--compare") for name in given]
    first, *others = dict.fromkeys(names)
    if not others:
        raise UserError(f"--compare {' '.join(given)}: expected two different mixers or more")
    tables: dict[str, list[tuple[str, str, Comparison]]] = {}
    left_out: list[str] = []
    for board, other in itertools.product(boards, others):
        one, two = board.rows.get(first, {}), board.rows.get(other, {})
        for task in (task for task in board.tasks if task in one and task in two):
            found = _compare_cells(data, one[task], two[task])
            if isinstance(found, str):
                left_out.append(f"{task} ({board.name}): {first} and {other} {found}")
            else:
                better = first if found.difference > 0 else other
                title = f"{first} less {other}. {board.name}: {_DIFFERENCE}"
                tables.setdefault(title, []).append((task, better, found))
    if not tables:
        reason = "; ".join(left_out) or "they have no runs on the same data"
        raise UserError(f"--compare {' '.join(given)}: nothing to compare. {reason}")
    parts = [write_table(_tabulate(title, found)) for title, found in tables.items()]
    if left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in left_out)]))
    counts = {found.seeds for rows in tables.values() for _, _, found in rows}
    kinds = [_ONE_SEED] * (1 in counts) + [_SEVERAL_SEEDS] * (max(counts) > 1)
    return "\n\n".join([*parts, wrap(" ".join([_NOISE, *kinds]))])


def _tabulate(title: str, rows: Sequence[tuple[str, str, Comparison]]) -> Table:
    texts = {
        "task": [task for task, _, _ in rows],
        "points": [rounded(found.difference, 2, "+") for _, _, found in rows],
        "95 % interval": [
            f"{rounded(found.low, 2, '+')} to {rounded(found.high, 2, '+')}" for _, _, found in rows
        ],
        "seeds": [str(found.seeds) for _, _, found in rows],
        "p": [f"{found.p_value:.2g}" for _, _, found in rows],
        "verdict": [
            "within noise" if found.is_noise else f"{better} is better" for _, better, found in rows
        ],
    }
    return Table("", title, "", [text_column(name, found) for name, found in texts.items()])
