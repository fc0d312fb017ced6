"""Which results may stand in one table: boards of rows and columns that compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lra.config.request import DEFAULT_PROTOCOL, PAPER
from lra.goals.measure import Measure
from lra.record.contribution import Contribution
from lra.record.run import RunRecord
from lra.record.schema import select_sections, write_changes
from lra.report.names import RowNames, slugify, without_training
from lra.report.scores import FIVE, Cell, IsOwn, cell_of, group_by, measures_of, merit_of
from lra.tasks.base import BENCHMARK, PROBES

PRESETS = (PAPER, "budget", "quick")
"""Presets whose boards may lead, the preferred one first."""
_SOURCES = ("official", "generated", "generated, clean law", "unofficial")
"""Kinds of data, in the order in which main tables prefer them."""

Cells = Mapping[str, Cell]
"""The cells of a row, by task."""


@dataclass(frozen=True)
class Board:
    """A table of results; its fields say what all of them, or all of a column, have in common."""

    preset: str
    protocol: str
    rows: Mapping[str, Cells]
    conditions: Mapping[str, str]
    """By task, the data that its column was measured on and the split for model selection."""
    reason: str = ""
    """Why these runs are not in the main table of their preset and protocol; empty if they are."""
    is_of_accuracy: bool = True
    """Whether results are accuracies; a board of other measures is of one task."""

    @property
    def is_main(self) -> bool:
        """Whether this is the table of its preset and protocol."""
        return not self.reason

    @property
    def tasks(self) -> list[str]:
        """The columns: in a main table every task of the benchmark, then the user's own tasks."""
        is_whole = self.is_main and self.is_of_accuracy
        listed = [task for task in BENCHMARK if is_whole or task in self.conditions]
        return listed + sorted(self.conditions.keys() - {*BENCHMARK})

    @property
    def records(self) -> list[RunRecord]:
        """Every counted run, by its id."""
        cells = [cell for row in self.rows.values() for cell in row.values()]
        return sorted((run for cell in cells for run in cell.runs), key=lambda run: run.run_id)

    @property
    def own_rows(self) -> list[str]:
        """The rows in which any run is the user's own, rather than a shipped one."""
        return [name for name, cells in self.rows.items() if any(c.has_own for c in cells.values())]

    @property
    def measures(self) -> Sequence[Measure]:
        """What the board's results are measured by, the first above all."""
        return measures_of(self.records)

    @property
    def name(self) -> str:
        """Preset and protocol, and what distinguishes the board from the main one."""
        title = f"Preset {self.preset}, protocol {self.protocol}"
        if not self.is_of_accuracy:
            title += f", {self.records[0].result.of_what} {', '.join(self.tasks)}"
        return f"{title} ({self.reason})" if self.reason else title

    @property
    def slug(self) -> str:
        """The name of the board in files and links."""
        tasks = [] if self.is_of_accuracy else self.tasks
        return slugify(*tasks, self.preset, self.protocol, self.reason)

    def trivial_baselines(self) -> dict[str, dict[str, float]]:
        """Return accuracies of trivial baselines in percent, by name and then by task."""
        scores: dict[str, dict[str, float]] = {}
        for record in self.records:
            for name, accuracy in record.result.trivial_scores.items():
                scores.setdefault(name, {})[record.task] = accuracy
        return dict(sorted(scores.items(), key=lambda item: (-len(item[1]), item[0])))

    def best_trivial_baseline(self) -> dict[str, dict[str, float]]:
        """Return the best trivial accuracy of each task, as one row; no row without any."""
        best: dict[str, float] = {}
        for by_task in self.trivial_baselines().values():
            best |= {task: max(value, best.get(task, value)) for task, value in by_task.items()}
        return {"best trivial baseline": best} if best else {}

    def with_rows(self, rows: Mapping[str, Cells]) -> Board:
        """Return the board of these rows, whose tasks it keeps."""
        tasks = {task for cells in rows.values() for task in cells}
        kept = {task: text for task, text in self.conditions.items() if task in tasks}
        return replace(self, rows=rows, conditions=kept)

    def sorted_by(self, task: str) -> Board:
        """Return the board with the rows that are best on a task first, unranked ones last."""
        measure = self.measures[0]
        sign = 1 if measure.lowest_is_best else -1

        def order(name: str) -> tuple[bool, bool, float]:
            entry = self.rows[name].get(task, Cell()).entry(measure)
            return not entry.is_ranked, entry.value is None, sign * (entry.value or 0.0)

        return replace(self, rows={name: self.rows[name] for name in sorted(self.rows, key=order)})


def arrange(
    runs: Iterable[RunRecord],
    row_of: Callable[[RunRecord], str],
    column_of: Callable[[RunRecord], str],
    is_own: IsOwn,
) -> dict[str, Cells]:
    """Make a cell of the runs of each row and column."""
    return {
        row: {column: cell_of(cell, is_own) for column, cell in group_by(same, column_of).items()}
        for row, same in sorted(group_by(runs, row_of).items())
    }


def boards(
    records: Sequence[RunRecord], names: RowNames | None = None, is_own: IsOwn = lambda _: False
) -> list[Board]:
    """Sort records into boards, the main one of each preset and protocol first.

    Each column of a board is on a single data set. Of a task's data sets, the main board takes the
    official one, else the one with most runs; runs on the others go to other boards. Tasks whose
    results are no accuracies have boards of one task each, at the end.
    """
    names = names or RowNames(records)
    records = sorted(records, key=lambda r: r.run_id)

    def setting(r: RunRecord) -> tuple[str, bool, str, bool, str]:
        task = "" if r.result.is_accuracy else r.task
        preset = names.of_preset(r)
        return task, r.preset != PAPER, preset, r.protocol != DEFAULT_PROTOCOL, r.protocol

    reasons: dict[int, str] = {}
    for same in group_by(records, lambda r: (setting(r), r.task)).values():
        for reason, group in _divide(same).items():
            reasons |= {id(run): reason for run in group}
    groups = group_by(records, lambda r: (*setting(r), reasons[id(r)]))
    board_list: list[Board] = []
    for (single_task, _, preset, _, protocol, reason), runs in sorted(groups.items()):
        rows = arrange(runs, names.of, lambda r: r.task, is_own)
        by_task = sorted(group_by(runs, lambda r: r.task).items())
        conditions = {task: ", ".join(_describe(same)) for task, same in by_task}
        board_list.append(Board(preset, protocol, rows, conditions, reason, not single_task))
    return board_list


def _divide(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Divide the runs of one task by their data and by what selected their checkpoints.

    Returns: the runs of the main board under no reason, and others under how they differ.
    """
    rules = {
        (r.data.source, r.data.fingerprint): r.selected_on
        for r in sorted(records, key=lambda r: r.selected_on or "")
    }

    def condition(r: RunRecord) -> tuple[str, str, str]:
        data = r.data.source, r.data.fingerprint
        # A run that ended before its first validation goes with others on its data.
        return *data, r.selected_on or rules[data] or "val"

    def order(key: tuple[str, str, str]) -> tuple[object, ...]:
        source, fingerprint, rule = key
        rank = _SOURCES.index(source) if source in _SOURCES else len(_SOURCES)
        group = groups[key]
        return rank, rule != "val", len(_describe(group)), -len(group), source, fingerprint

    groups = group_by(records, condition)
    first, *others = sorted(groups, key=order)
    by_reason = {"": groups[first]}
    for key in others:
        parts = [part for part in _describe(groups[key]) if part not in _describe(groups[first])]
        if ", ".join(parts) in by_reason:
            parts.append(f"data {key[1][:8]}")
        by_reason[", ".join(parts)] = groups[key]
    return by_reason


def _describe(records: Sequence[RunRecord]) -> list[str]:
    """Describe the data of runs, what selected their checkpoints, and the options of the task that
    all of them change.
    """
    rule = next((r.selected_on for r in records if r.selected_on is not None), "val")
    changes = [{*write_changes(select_sections(r.changes, "task"))} for r in records]
    common = sorted(set.intersection(*changes))
    return [f"{records[0].data.source} data", f"selected on {rule}", *common]


def leading_board(boards: Sequence[Board]) -> Board | None:
    """Choose the main board that has the fullest row, of several the first preset's.

    Path-X does not count, nor do results at chance and contributions.
    """

    def order(board: Board) -> tuple[int, int]:
        ranked = [
            [t for t in FIVE if t in c and c[t].entry().is_ranked]
            for c in board.rows.values()
            if contribution_of(c) is None
        ]
        return max(map(len, ranked), default=0), -PRESETS.index(board.preset)

    main = [board for board in boards if board.is_main and board.preset in PRESETS]
    return max(main, key=order, default=None)


def is_at_preset(cells: Cells) -> bool:
    """Whether the runs of a row have the settings of their preset."""
    return not any(run.row_changes for cell in cells.values() for run in cell.runs)


def contribution_of(cells: Cells) -> Contribution | None:
    """Return the contribution that a row came with."""
    return next((cell.runs[0].contribution for cell in cells.values()), None)


def rows_at_preset(board: Board) -> dict[str, Cells]:
    """Choose contributed rows, and those without a label at the settings of the preset."""
    return {
        name: cells
        for name, cells in board.rows.items()
        if contribution_of(cells)
        or (is_at_preset(cells) and all(c.runs[0].label is None for c in cells.values()))
    }


def is_probe(run: RunRecord) -> bool:
    """Whether a run's accuracy is tabulated with those of probes."""
    return run.task in PROBES and run.result.is_accuracy


def choose_from_grids(board: Board) -> Board:
    """Join the user's own rows that differ in settings of training alone.

    On each task the joined row has the cell with the best validation result.
    """
    rows = dict(board.rows)
    runs = {
        name: without_training(next(iter(rows[name].values())).runs[0]) for name in board.own_rows
    }
    names = RowNames([*runs.values()])
    for name, members in group_by(runs, lambda row: names.of(runs[row])).items():
        if len(members) > 1:
            joined = [rows.pop(member) for member in members]
            best = f"best of {len(members)} by validation"
            shown = f"{name[:-1]}, {best})" if name.endswith(")") else f"{name} ({best})"
            rows[shown] = {
                task: max((c[task] for c in joined if task in c), key=lambda c: merit_of(c.runs))
                for task in sorted({task for cells in joined for task in cells})
            }
    return replace(board, rows=dict(sorted(rows.items())))
