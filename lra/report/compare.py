"""Two mixers on the same test examples: is the difference more than noise? `report.py --compare`"""

import itertools
from collections.abc import Sequence
from typing import Any

from lra.common.errors import UserError
from lra.report.boards import Board
from lra.report.data import Data
from lra.report.names import complete
from lra.report.scores import Cell
from lra.report.tables.table import Table, text_column
from lra.report.tables.terminal import wrap, write_table
from lra.runtime.tables import rounded
from lra.statistics import RESAMPLES, SIGNIFICANCE, Comparison, compare

_NOISE = (
    "A difference is within noise if its 95 % interval includes 0 or if p is above "
    f"{SIGNIFICANCE:g}. No p is corrected for the number of comparisons."
)
_ONE_SEED = (
    f"The 95 % interval of one seed is from {RESAMPLES:,} bootstrap resamples of the test "
    "examples, and p is from McNemar's exact test or, where an example is more than right or "
    "wrong, from those resamples. Neither covers the spread over seeds: the verdict is about this "
    "pair of runs."
)
_SEVERAL_SEEDS = (
    "The 95 % interval of several seeds covers both the test examples and the spread over seeds: "
    "it is a t-interval whose variance adds that of examples and that of seeds (two-way random "
    "effects, Satterthwaite's degrees of freedom), and p is from the same t-test."
)

NOTES = f"{_NOISE} {_ONE_SEED} {_SEVERAL_SEEDS}"
MOST_ROWS = 40
"""Most rows of a board of which every two are compared: the time grows with their square."""


def compare_pairs(data: Data, board: Board) -> dict[str, dict[str, dict[str, list[Any] | str]]]:
    """Compare every two rows of a board; of more than `MOST_ROWS`, the user's own come first.

    Tasks whose examples are more than right or wrong are left out: a pair takes about a second.

    Returns: by the first row, the second and the task: difference, low, high, seeds, p and whether
        it is noise; else why there is no comparison.
    """
    own, results = board.own_rows, {run.task: run.result for run in board.records}
    names = sorted(board.rows, key=lambda name: name not in own)[:MOST_ROWS]
    quick = {t for t, one in results.items() if one.is_accuracy and one.targets == "examples"}
    pairs: dict[str, dict[str, dict[str, list[Any] | str]]] = {name: {} for name in names}
    for first, second in itertools.combinations(names, 2):
        rows = board.rows[first], board.rows[second]
        for task in (t for t in board.tasks if t in quick & rows[0].keys() & rows[1].keys()):
            found = _compare_cells(data, [row[task] for row in rows])
            if isinstance(found, Comparison):
                points = [float(rounded(x, 2)) for x in (found.difference, found.low, found.high)]
                found = [*points, found.seeds, f"{found.p_value:.2g}", int(found.is_noise)]
            pairs[first].setdefault(second, {})[task] = found
    return pairs


def _compare_cells(data: Data, cells: Sequence[Cell]) -> Comparison | str:
    """Compare two cells over their common seeds; else say why they cannot be compared."""
    first, second = (data.predictions_on_same(cell.runs) for cell in cells)
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return "have no seed in common that is finished and has predictions.csv"
    if not first[seeds[0]].same_examples(second[seeds[0]]):
        return "were tested on different examples"
    return compare([first[seed].merits for seed in seeds], [second[seed].merits for seed in seeds])


def describe_comparisons(data: Data, mixers: Sequence[str]) -> str:
    """Compare the first named mixer with each other one, on every board and task, as text.

    Raises: UserError if a mixer has no runs, fewer than two are named, or nothing can be compared.
    """
    boards = [board for board in data.boards if board.records[0].result.compared]
    known = {row for board in boards for row in board.rows}
    names = [complete(name, known, "mixer among the runs", "--compare") for name in mixers]
    first, *others = dict.fromkeys(names)
    if not others:
        raise UserError(f"--compare {' '.join(mixers)}: expected two different mixers or more")
    tables: dict[str, list[dict[str, str]]] = {}
    left_out: list[str] = []
    counts: set[int] = set()
    for board, other in itertools.product(boards, others):
        rows = [board.rows.get(name, {}) for name in (first, other)]
        for task in (task for task in board.tasks if all(task in row for row in rows)):
            comparison = _compare_cells(data, [row[task] for row in rows])
            if isinstance(comparison, str):
                left_out.append(f"{task} ({board.name}): {first} and {other} {comparison}")
                continue
            counts.add(comparison.seeds)
            better = first if comparison.difference > 0 else other
            what = f"difference of {board.records[0].result.compared} in percentage points"
            title = f"{first} less {other}. {board.name}: {what}"
            tables.setdefault(title, []).append(_write_row(task, better, comparison))
    if not tables:
        reason = "; ".join(left_out) or "they have no runs on the same data"
        raise UserError(f"--compare {' '.join(mixers)}: nothing to compare. {reason}")
    parts = [
        write_table(Table("", title, "", [text_column(n, [r[n] for r in rows]) for n in rows[0]]))
        for title, rows in tables.items()
    ]
    if left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in left_out)]))
    notes = {_NOISE: True, _ONE_SEED: 1 in counts, _SEVERAL_SEEDS: max(counts) > 1}
    shown = " ".join(note for note, holds in notes.items() if holds)
    return "\n\n".join([*parts, wrap(shown)])


def _write_row(task: str, better: str, comparison: Comparison) -> dict[str, str]:
    """Write a comparison by the names of a table's columns."""
    return {
        "task": task,
        "points": rounded(comparison.difference, 2, "+"),
        "95 % interval": f"{rounded(comparison.low, 2, '+')} to {rounded(comparison.high, 2, '+')}",
        "seeds": str(comparison.seeds),
        "p": f"{comparison.p_value:.2g}",
        "verdict": "within noise" if comparison.is_noise else f"{better} is better",
    }
