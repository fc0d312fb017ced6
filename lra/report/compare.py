"""Two mixers on the same test examples: is the difference more than noise? `report.py --compare`"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from common.errors import UserError
from lra.report.data import Data
from lra.report.names import complete
from lra.report.scores import Cell
from lra.report.tables.table import Table, text_column
from lra.report.tables.terminal import wrap, write_table
from lra.runtime.tables import rounded
from lra.statistics import RESAMPLES, SIGNIFICANCE, Comparison, compare

_NOISE = (
    "A difference is within noise if its 95 % interval includes 0 or if p is above "
    f"{SIGNIFICANCE:g}."
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


def _compare_cells(data: Data, first: Cell, second: Cell) -> Comparison | str:
    """Compare two cells over their common seeds; else say why they cannot be compared."""
    one, other = (data.predictions_on_same(cell.runs) for cell in (first, second))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return "have no seed in common that is finished and has predictions.csv"
    if not one[seeds[0]].same_examples(other[seeds[0]]):
        return "were tested on different examples"
    merits = [[found[seed].merits for seed in seeds] for found in (one, other)]
    return compare(merits[0], merits[1])


def describe_comparisons(data: Data, given: Sequence[str]) -> str:
    """Compare the first named mixer with each other one, on every board and task, as text.

    Raises: UserError if a mixer has no runs, fewer than two are named, or nothing can be compared.
    """
    boards = [board for board in data.boards if board.records[0].result.compared]
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
                what = f"difference of {board.records[0].result.compared} in percentage points"
                title = f"{first} less {other}. {board.name}: {what}"
                tables.setdefault(title, []).append((task, better, found))
    if not tables:
        reason = "; ".join(left_out) or "they have no runs on the same data"
        raise UserError(f"--compare {' '.join(given)}: nothing to compare. {reason}")
    parts = [write_table(_tabulate(title, found)) for title, found in tables.items()]
    if left_out:
        parts.append("\n".join(["Not compared:", *(wrap(f"  {t}", "    ") for t in left_out)]))
    counts = {found.seeds for rows in tables.values() for _, _, found in rows}
    notes = {_NOISE: True, _ONE_SEED: 1 in counts, _SEVERAL_SEEDS: max(counts) > 1}
    shown = " ".join(note for note, holds in notes.items() if holds)
    return "\n\n".join([*parts, wrap(shown)])


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
