"""Which results may stand in one table: boards of rows and columns that compare."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lra.record.changes import select_sections, write_changes
from lra.record.run import RunRecord
from lra.report.names import RowNames, changes_of, slugify
from lra.report.scores import FIVE, Cell, IsOwn, Measure, cell_of, measures_of, none_own, sort_rows
from tasks.base import BENCHMARK

PRESETS = ("paper", "budget", "quick")
"""Presets whose boards may lead, the preferred one first."""
FEWEST_STEPS = 200
"""Runs whose flags ask for fewer optimizer steps are trials."""
TRIALS, OWN_TASKS = f"trials of fewer than {FEWEST_STEPS} steps", "other tasks than the benchmark's"
_SOURCES = ("official", "generated", "generated, clean law", "unofficial")
"""Kinds of data, in the order in which main tables prefer them."""
_FIRST = ("paper", "s4")
"""The preset and the protocol whose boards come first."""
_LENGTHS = {"train.steps", "train.epochs", "train.minutes"}
"""Settings that say how long training takes."""

Cells = Mapping[str, Cell[RunRecord]]
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
    of_positions: bool = False
    """Whether targets are positions; a board is then of one task."""

    @property
    def is_main(self) -> bool:
        """Whether this is the table of its preset and protocol."""
        return not self.reason

    @property
    def tasks(self) -> list[str]:
        """The columns: in a main table every task of the benchmark, then the user's own tasks."""
        present = self.conditions.keys()
        is_whole = self.is_main and not self.of_positions
        listed = [task for task in BENCHMARK if is_whole or task in present]
        return listed + sorted(present - set(BENCHMARK))

    @property
    def records(self) -> list[RunRecord]:
        """Every counted run."""
        return [run for cells in self.rows.values() for cell in cells.values() for run in cell.runs]

    @property
    def own_rows(self) -> list[str]:
        """The rows in which any run is the user's own, rather than a shipped one."""
        return [name for name, cells in self.rows.items() if any(c.has_own for c in cells.values())]

    @property
    def measures(self) -> list[Measure]:
        """What the board's results are measured by, the first above all."""
        return measures_of(self.records)

    @property
    def name(self) -> str:
        """Preset and protocol, and what distinguishes the board from the main one."""
        title = f"Preset {self.preset}, protocol {self.protocol}"
        if self.of_positions:
            title += f", next tokens of {', '.join(self.tasks)}"
        return f"{title} ({self.reason})" if self.reason else title

    @property
    def slug(self) -> str:
        """The name of the board in files and links."""
        return slugify(self.preset, self.protocol, self.reason)

    def trivial_baselines(self) -> dict[str, dict[str, float]]:
        """Return accuracies of trivial baselines in percent, by name and then by task."""
        found: dict[str, dict[str, float]] = {}
        for record in sorted(self.records, key=lambda r: r.run_id):
            for name, accuracy in record.baselines.items():
                found.setdefault(name, {})[record.task] = accuracy
        return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))

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
        """Return the board with the rows that are best on a task first."""
        cells = {name: found.get(task, Cell()) for name, found in self.rows.items()}
        order = sort_rows(cells, self.measures[0])
        return replace(self, rows={name: self.rows[name] for name in order})


def boards(
    records: Sequence[RunRecord],
    names: RowNames | None = None,
    is_own: IsOwn[RunRecord] = none_own,
) -> list[Board]:
    """Sort records into boards, the main one of each preset and protocol first.

    Each column of a board is on a single data set. Of a task's data sets, the main board takes the
    official one, else the one with most runs; runs on the others go to other boards. Tasks whose
    targets are positions have boards of one task each, at the end.

    Args:
        records: runs.
        names: names of their rows. None: as nothing else is shown beside them.
        is_own: says which runs are the user's own.
    """
    names = names or RowNames(records)
    made = _boards_of([r for r in records if r.positions is None], names, is_own)
    of_positions = [r for r in records if r.positions is not None]
    for task in sorted({r.task for r in of_positions}):
        found = _boards_of([r for r in of_positions if r.task == task], names, is_own)
        made += [replace(board, of_positions=True) for board in found]
    return made


def _boards_of(
    records: Sequence[RunRecord], names: RowNames, is_own: IsOwn[RunRecord]
) -> list[Board]:
    found: list[Board] = []
    settings = {(r.preset, r.protocol) for r in records}
    for preset, protocol in sorted(settings, key=_setting_order):
        chosen = [r for r in records if (r.preset, r.protocol) == (preset, protocol)]
        by_reason: dict[str, dict[str, list[RunRecord]]] = {}
        for task in sorted({r.task for r in chosen}):
            for reason, group in _by_condition([r for r in chosen if r.task == task]):
                by_reason.setdefault(reason, {})[task] = group
        for reason, by_task in sorted(by_reason.items()):
            conditions = {task: _describe(group) for task, group in by_task.items()}
            rows = _rows([r for group in by_task.values() for r in group], names, is_own)
            found.append(Board(preset, protocol, rows, conditions, reason))
    return found


def _setting_order(setting: tuple[str, str]) -> tuple[object, ...]:
    return tuple((part != first, part) for part, first in zip(setting, _FIRST, strict=True))


def _by_condition(records: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """Divide the runs of one task by their data, with the reasons; the first group has none."""
    rules: dict[tuple[str, str], set[str]] = {}
    for r in records:
        known = rules.setdefault((r.data.source, r.data.fingerprint), set())
        known |= {r.selected_on} if r.selected_on else set()
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for r in records:
        data = (r.data.source, r.data.fingerprint)
        # A run that ended before its first validation goes with others on its data.
        rule = r.selected_on or max(rules[data], default="val")
        groups.setdefault((*data, rule), []).append(r)

    def order(item: tuple[tuple[str, str, str], list[RunRecord]]) -> tuple[object, ...]:
        (source, fingerprint, rule), group = item
        rank = _SOURCES.index(source) if source in _SOURCES else len(_SOURCES)
        return rank, rule != "val", len(_task_changes(group)), -len(group), source, fingerprint

    (_, first), *others = sorted(groups.items(), key=order)
    divided = {"": first}
    for (_, fingerprint, _), group in others:
        reason = ", ".join(_differences(first, group))
        if reason in divided:
            reason += f" (data {fingerprint[:8]})"
        divided[reason] = group
    return list(divided.items())


def _differences(main: Sequence[RunRecord], other: Sequence[RunRecord]) -> list[str]:
    reasons = []
    if other[0].data.source != main[0].data.source:
        reasons.append(f"{other[0].data.source} data instead of {main[0].data.source}")
    if _selected_on(other) != _selected_on(main):
        reasons.append(f"selected on {_selected_on(other)} instead of {_selected_on(main)}")
    reasons += sorted(_task_changes(other) - _task_changes(main))
    if not reasons:
        prints = [runs[0].data.fingerprint[:8] for runs in (other, main)]
        reasons.append(f"other data of the same description ({prints[0]} instead of {prints[1]})")
    return reasons


def _selected_on(records: Iterable[RunRecord]) -> str:
    return next((r.selected_on for r in records if r.selected_on is not None), "val")


def _task_changes(records: Sequence[RunRecord]) -> set[str]:
    """Return the changes of the task's options that all of these runs have in common."""
    changes = [set(write_changes(select_sections(r.changes, "task"))) for r in records]
    return set.intersection(*changes)


def _describe(records: Sequence[RunRecord]) -> str:
    parts = [f"{records[0].data.source} data", f"selected on {_selected_on(records)}"]
    return ", ".join([*parts, *sorted(_task_changes(records))])


def _rows(
    records: Sequence[RunRecord], names: RowNames, is_own: IsOwn[RunRecord]
) -> dict[str, dict[str, Cell[RunRecord]]]:
    """Group runs into cells, by name and task."""
    groups: dict[str, dict[str, list[RunRecord]]] = {}
    for record in sorted(records, key=lambda r: (names.of(r), r.task, r.run_id)):
        groups.setdefault(names.of(record), {}).setdefault(record.task, []).append(record)
    return {
        name: {task: cell_of(runs, is_own) for task, runs in by_task.items()}
        for name, by_task in groups.items()
    }


def leading_board(boards: Sequence[Board]) -> Board | None:
    """Choose the main board that has the fullest row, of several the first preset's.

    Path-X does not count, nor do results at chance.
    """
    main = [board for board in boards if board.is_main and board.preset in PRESETS]
    main.sort(key=lambda board: PRESETS.index(board.preset))

    def fullest(board: Board) -> int:
        counts = (
            sum(bool(c.numbers()) and not c.is_at_chance for t, c in cells.items() if t in FIVE)
            for cells in board.rows.values()
        )
        return max(counts, default=0)

    return max(main, key=fullest, default=None)  # of equals the first


def is_at_preset(cells: Cells) -> bool:
    """Whether the runs of a row have the settings of their preset."""
    return not any(changes_of(run) for cell in cells.values() for run in cell.runs)


def rows_at_preset(board: Board) -> dict[str, Cells]:
    """Choose the rows of the preset's settings; of a mixer those without a label, if it has any."""
    plain = {
        method: [run for cell in cells.values() for run in cell.runs]
        for method, cells in board.rows.items()
        if is_at_preset(cells)
    }
    unlabelled = {run.mixer for found in plain.values() for run in found if run.label is None}
    return {
        method: board.rows[method]
        for method, found in plain.items()
        if all(run.label is None or run.mixer not in unlabelled for run in found)
    }


def is_trial(run: RunRecord) -> bool:
    """Whether flags asked for so few steps that the run is a trial."""
    return bool(_LENGTHS & {*run.changed}) and run.total_steps < FEWEST_STEPS


def split_board(board: Board) -> list[Board]:
    """Divide a board into the benchmark's tasks, other tasks, and trials of few steps."""
    parts: dict[str, dict[str, dict[str, Cell[RunRecord]]]] = {}
    for row, cells in board.rows.items():
        for task, cell in cells.items():
            kind = "" if task in BENCHMARK or board.of_positions else OWN_TASKS
            kind = TRIALS if all(map(is_trial, cell.runs)) else kind
            parts.setdefault(kind, {}).setdefault(row, {})[task] = cell
    return [
        replace(board.with_rows(rows), reason=", ".join(filter(None, [board.reason, kind])))
        for kind, rows in sorted(parts.items())
    ]


def choose_from_grids(board: Board) -> Board:
    """Join the user's own rows of each grid of settings into one.

    Rows of a mixer are a grid if they differ in settings of training, or in the values of the same
    other settings. On each task the joined row has the cell with the best validation result.
    """
    grids: dict[Hashable, list[str]] = {}
    for name in board.own_rows:
        run = next(iter(board.rows[name].values())).runs[0]
        changed = frozenset(select_sections(run.changes, "mixer", "model", "pretrain"))
        grids.setdefault((run.mixer, run.mixer_code, run.label, changed), []).append(name)
    rows = dict(board.rows)
    for names in grids.values():
        if len(names) > 1:
            joined = [rows.pop(name) for name in names]
            rows[_name_grid(names)] = {
                task: max((c[task] for c in joined if task in c), key=lambda cell: cell.merit)
                for task in sorted({task for cells in joined for task in cells})
            }
    return replace(board, rows=dict(sorted(rows.items())))


def _name_grid(names: Sequence[str]) -> str:
    """Name a grid: "tnn (best of 3 by validation)", with the details that all names have."""
    start, *_ = names[0].partition(" (")
    details = [name.partition(" (")[2].removesuffix(")").split(", ") for name in names]
    common = [text for text in details[0] if text and all(text in texts for texts in details)]
    return f"{start} ({', '.join([*common, f'best of {len(names)} by validation'])})"
