"""Which results may stand in one table: boards of rows and columns that compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lra.record.changes import select_sections, write_changes
from lra.record.run import RunRecord
from lra.report.boards.averages import FIVE
from lra.report.boards.cells import Cell, IsOwn, cell_of, none_own
from lra.report.boards.measures import Measure, measures_of
from lra.report.boards.row_names import RowNames
from lra.report.boards.slugs import slugify
from tasks.base import BENCHMARK

_SOURCES = ("official", "generated", "generated, clean law", "unofficial")
"""Kinds of data, in the order in which main tables prefer them."""
_FIRST = ("paper", "s4")
"""The preset and the protocol whose boards come first."""


@dataclass(frozen=True)
class Board:
    """A table of results; its fields say what all of them, or all of a column, have in common."""

    preset: str
    protocol: str
    rows: Mapping[str, Mapping[str, Cell[RunRecord]]]
    """Cells, by method and then by task."""
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


def boards(
    records: Sequence[RunRecord],
    names: RowNames | None = None,
    is_own: IsOwn[RunRecord] = none_own,
) -> list[Board]:
    """Sort records whose targets are examples into boards, the main one of each setting first.

    Each column of a board is on a single data set. Of a task's data sets, the main board takes the
    official one, else the one with most runs; runs on the others go to other boards.

    Args:
        records: runs.
        names: names of their rows. None: as nothing else is shown beside them.
        is_own: says which runs are the user's own.
    """
    of_examples = [r for r in records if r.positions is None]
    return _boards_of(of_examples, names or RowNames(records), is_own)


def position_boards(
    records: Sequence[RunRecord],
    names: RowNames | None = None,
    is_own: IsOwn[RunRecord] = none_own,
) -> list[Board]:
    """Sort records whose targets are positions into boards of one task each; see `boards`."""
    of_positions = [r for r in records if r.positions is not None]
    names = names or RowNames(records)
    return [
        replace(board, of_positions=True)
        for task in sorted({r.task for r in of_positions})
        for board in _boards_of([r for r in of_positions if r.task == task], names, is_own)
    ]


def _boards_of(
    records: Sequence[RunRecord], names: RowNames, is_own: IsOwn[RunRecord]
) -> list[Board]:
    found: list[Board] = []
    settings = {(r.preset, r.protocol) for r in records}
    for preset, protocol in sorted(settings, key=_setting_order):
        chosen = [r for r in records if (r.preset, r.protocol) == (preset, protocol)]
        by_reason: dict[str, list[RunRecord]] = {}
        for task in sorted({r.task for r in chosen}):
            for reason, group in _by_condition([r for r in chosen if r.task == task]):
                by_reason.setdefault(reason, []).extend(group)
        for reason in sorted(by_reason):
            group = by_reason[reason]
            conditions = {
                task: _describe([r for r in group if r.task == task])
                for task in sorted({r.task for r in group})
            }
            rows = _rows(group, names, is_own)
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
        changes = len(_task_changes(group))
        return rank, rule != "val", changes, -len(group), source, fingerprint

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


PRESETS = ("paper", "budget", "quick")
"""Presets whose boards may lead, the preferred one first."""


def leading_board(boards: Sequence[Board]) -> Board | None:
    """Choose the main board that has the fullest row, of several the first preset's.

    Path-X does not count, nor do results at chance.
    """
    main = [board for board in boards if board.is_main and board.preset in PRESETS]
    main.sort(key=lambda board: PRESETS.index(board.preset))
    fullest = [max((len(done & {*FIVE}) for done in _done(board)), default=0) for board in main]
    return main[fullest.index(max(fullest))] if main else None


def _done(board: Board) -> list[set[str]]:
    """Return the tasks that each row has results on which are better than chance."""
    return [
        {task for task, cell in cells.items() if cell.accuracies and not cell.is_at_chance}
        for cells in board.rows.values()
    ]
