"""What range a task needs: accuracy over the receptive fields of mixers that see few positions.

If a mixer sees k positions, an output of the last block depends on R = 1 + blocks * (k - 1). R90 is
the smallest R with 90 % of the gain of another mixer over the best trivial baseline, by a monotone
fit of accuracy, which is linear in log R in between.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from lra.report.boards import rows_at_preset
from lra.report.data import Data
from lra.report.scores import Cell, Entry
from lra.report.tables.table import Column, Table
from lra.runtime.tables import rounded
from lra.statistics import bootstrap_interval

TASKS: Sequence[str] = ("listops", "text", "image")
FAMILIES = {"conv": ("mixer.width", "long-conv"), "sparse": ("mixer.window_size", "transformer")}
"""Mixers that see few positions, with the setting of their number, and one that sees all."""
BASELINE = "best trivial baseline"
SHARE = 0.9
NON_LOCAL = 16
"""Positions from which on a range that a task needs is not called local."""
RESAMPLES = 500
NOT_MEASURED = "not measured"
R90 = ("R90 for that without a bound", "R90 for the best mixer")


@functools.lru_cache(maxsize=1)
def need_table(data: Data) -> Table:
    """Tabulate accuracies over receptive fields, and the range that each task needs.

    There is a row for each mixer with two receptive fields or more on the leaderboard.
    """
    rows: list[list[Entry]] = []
    board = data.leading_board
    for task in TASKS if board else ():
        assert board is not None
        every = {row: cells[task] for row, cells in board.rows.items() if task in cells}
        whole = {row: every[row] for row in rows_at_preset(board) if row in every}
        for mixer, (setting, unbounded) in FAMILIES.items():
            cells = [cell for cell in every.values() if cell.runs[0].mixer == mixer]
            fields = {field: cell for cell in cells if (field := _receptive_field(cell, setting))}
            if len(fields) < 2 or unbounded not in whole:  # noqa: PLR2004
                continue
            fields = dict(sorted(fields.items()))
            best = max(whole, key=lambda row: whole[row].number or 0.0)
            baseline = board.best_trivial_baseline().get(BASELINE, {}).get(task, 0.0)
            by_field = (f"{field:,}: {_write_mean(cell)}" for field, cell in fields.items())
            texts = [task, mixer, ", ".join(by_field)]
            texts += [f"{name}: {_write_mean(whole[name])}" for name in (unbounded, best)]
            texts += [rounded(baseline, 2)]
            r90s = [_find_r90(data, fields, whole[name], baseline) for name in (unbounded, best)]
            rows.append([*map(Entry, texts), *r90s])
    headings = ("task", "mixer", "accuracy by R", "without a bound", "best mixer", BASELINE, *R90)
    return Table(
        "range-needed",
        "Range needed",
        "Test accuracy in percent, the mean over seeds. R: positions that an output of the last "
        "block depends on. R90: the smallest R that has 90 % of the gain over the best trivial "
        "baseline, with the 95 % interval for other seeds and test examples.",
        [Column(name, [row[i] for row in rows]) for i, name in enumerate(headings)],
    )


def range_needed(data: Data) -> dict[str, str]:
    """Return both R90 of the convolution by task, for README's table of tasks."""
    needed = dict.fromkeys(TASKS, NOT_MEASURED)
    for task, mixer, *_, unbounded, best in need_table(data).rows:
        if mixer == "conv":
            needed[task] = f"{unbounded}; {best}"
    return needed


def _write_mean(cell: Cell) -> str | None:
    return cell.entry(shows_spread=False).text


def find_local(data: Data) -> list[str]:
    """List the tasks on which a convolution with R < 16 has 90 % of the best mixer's gain."""
    tasks, mixers, *_, needed = (column.entries for column in need_table(data).columns)
    return [
        str(task.text)
        for task, mixer, r in zip(tasks, mixers, needed, strict=True)
        if mixer.text == "conv" and r.value is not None and r.value < NON_LOCAL
    ]


def _receptive_field(cell: Cell, setting: str) -> int:
    """Return the positions that an output depends on; 0 if all, or if more than options of the
    mixer differ from the preset.
    """
    run = cell.runs[0]
    width = not run.settings.get("mixer.num_global") and run.settings.get(setting)
    is_other = run.label or not all(change.startswith("mixer.") for change in run.row_changes)
    return 1 + run.settings["model.depth"] * (width - 1) if width and not is_other else 0


def r90(fields: Sequence[int], accuracies: Sequence[float], accuracy: float) -> float:
    """Return where a monotone fit of accuracies over receptive fields reaches another accuracy.

    It is the first of `fields` if that is enough, and more than the last one if none is. Fields
    beyond the best one count like it, because a wider filter can do all that a narrower one can.
    """
    from sklearn.isotonic import isotonic_regression

    best = int(np.argmax(accuracies))
    fit = isotonic_regression([*accuracies[:best], *[accuracies[best]] * (len(fields) - best)])
    reached = int(np.searchsorted(fit, accuracy - 1e-9))
    if reached in (0, len(fit)):
        return fields[0] if reached == 0 else fields[-1] + 1
    pair = slice(reached - 1, reached + 1)
    return float(np.exp(np.interp(accuracy, fit[pair], np.log(fields[pair]))))


def _find_r90(data: Data, cells: Mapping[int, Cell], other: Cell, baseline: float) -> Entry:
    """Write R90 with its interval for other seeds and test examples, by bootstrap."""
    first = next(filter(None, map(data.predictions, other.runs)), None)
    merits = [
        [100 * seed.merits for seed in data.predictions_on_same(cell.runs, first).values()]
        for cell in (*cells.values(), other)
    ]
    if first is None or not all(merits):
        return Entry(NOT_MEASURED)
    fields, draw = [*cells], np.random.default_rng(0)
    every, starts = np.concatenate(merits), np.cumsum([len(seeds) for seeds in merits])[:-1]

    def find(accuracies: Sequence[float]) -> float:
        *bounded, reference = accuracies
        return r90(fields, bounded, baseline + SHARE * (reference - baseline))

    def resample(examples: np.ndarray) -> float:
        accuracies = every @ np.bincount(examples, minlength=every.shape[1]) / every.shape[1]
        drawn = (draw.choice(seeds, len(seeds)) for seeds in np.split(accuracies, starts))
        return find([*map(np.mean, drawn)])

    def write(field: float) -> str:
        if field > fields[-1]:
            return f"more than {fields[-1]:,}"
        return f"{field:,.0f}" if field > fields[0] else f"at most {fields[0]:,}"

    means = [float(np.mean(seeds)) for seeds in merits]
    if means[-1] <= baseline:
        return Entry("no gain")
    low, high = map(write, bootstrap_interval(resample, len(first.labels), RESAMPLES))
    point = write(value := find(means))
    text = point if point == low == high else f"{point} ({low} to {high})"
    return Entry(text, value if value <= fields[-1] else None)
