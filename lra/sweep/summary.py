"""What a sweep shows: the state of every run, the results as mixers by tasks, what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.report.scores import (
    ACCURACY,
    AT_CHANCE,
    cell_of,
    measures_of,
    validation_of,
)
from lra.runtime.terminal import cut, plain_matrix, plain_table, wrap_words
from lra.sweep.plan import OPEN, RETRIED, Limits, PlannedRun, State

_BEST = "<"
"""Mark of the best validation result of a mixer."""
_CHOICE = (
    f"{_BEST} best of its mixer on the validation set: report the test result of this row. A row "
    f"chosen by its test result is no result."
)
_LEGEND = f"* {AT_CHANCE}: no better than one constant answer (tested at the 1 % level)"


@dataclass(frozen=True)
class RunState:
    """A planned run, and how far it is."""

    run: PlannedRun
    state: State
    note: str
    record: RunRecord | None
    """The record of a run that is done."""

    @classmethod
    def read(cls, run: PlannedRun, limits: Limits) -> RunState:
        """Find out how far a run is."""
        state, note = run.state(limits)
        return cls(run, state, note, run.folder.record() if state == "done" else None)


def varied_settings(states: Sequence[RunState]) -> list[str]:
    """Write the settings of each run that not all runs have, those of --grid for instance."""
    written = [[change.text for change in one.run.changes] for one in states]
    common = set.intersection(*map(set, written))
    return [" ".join(text for text in texts if text not in common) for texts in written]


def runs_table(
    states: Sequence[RunState], width: int, time_left: Callable[[PlannedRun], str] | None = None
) -> list[str]:
    """Write a line for each run; a note that does not fit behind it follows beneath, cut to fit.

    Args:
        states: the runs.
        width: of the lines, in characters.
        time_left: describes the time that an unfinished run needs. None: test results are shown.
    """
    rows: list[dict[str, str]] = []
    for one, settings in zip(states, varied_settings(states), strict=True):
        row = {"run": one.run.name, "settings": settings, "state": one.state}
        if time_left is None:
            row["test"] = one.record.test_text if one.record else ""
        else:
            row["time left"] = time_left(one.run) if one.state in OPEN else ""
        rows.append(row)
    used = {name for row in rows for name, text in row.items() if text}
    heading, *lines = plain_table(
        [{n: t for n, t in row.items() if n in used} for row in rows], width
    )
    shown = [heading]
    for line, one in zip(lines, states, strict=True):
        is_short = len(f"{line}  {one.note}") <= width
        shown += (
            [f"{line}  {one.note}".rstrip()] if is_short else [line, cut(f"  {one.note}", width)]
        )
    return shown


def results_table(states: Sequence[RunState], width: int) -> list[str]:
    """Write mean and standard deviation over seeds: a row for each mixer and setting, by tasks.

    Where a mixer has several settings, validation results stand beside those of the test set, and
    the best of them is marked.

    Returns: lines; none if no run has a result.
    """
    groups: dict[tuple[str, str], dict[str, list[RunState]]] = {}
    for one, settings in zip(states, varied_settings(states), strict=True):
        row = groups.setdefault((one.run.config.mixer_name, settings), {})
        row.setdefault(one.run.config.task_name, []).append(one)
    records = {one.record.task: one.record for one in states if one.record is not None}
    if not records:
        return []
    is_grid = len({mixer for mixer, _ in groups}) < len(groups)
    best: dict[tuple[str, str], float] = {}
    for (mixer, _), by_task in groups.items():
        for task, found in by_task.items():
            if done := _records(found):
                best[mixer, task] = max(cell_of(done).merit, best.get((mixer, task), -float("inf")))
    rows: list[dict[str, str]] = []
    for (mixer, settings), by_task in groups.items():
        rows.append({"mixer": f"{mixer} {settings}".rstrip()})
        for task, found in by_task.items():
            done = _records(found)
            if is_grid and done:
                cell = cell_of(done)
                mark = f" {_BEST}" if cell.merit == best[mixer, task] else ""
                text = cell.spread_text(validation_of(cell.runs))
                rows[-1][f"{task}, {_validation_name(records[task])}"] = f"{text}{mark}"
            rows[-1][_heading(task, records.get(task), is_grid)] = _cell_text(found)
    trivial = {
        _heading(task, record, is_grid): measures_of([record])[0].text(found[1])
        for task, record in records.items()
        if (found := record.best_baseline)
    }
    rows.append({"mixer": "best trivial baseline", **trivial})
    is_mean = any(len(found) > 1 for by_task in groups.values() for found in by_task.values())
    spread = "mean ± standard deviation over seeds" if is_mean else "one seed"
    lines = [f"Results on the test set (accuracy in percent), {spread}:", ""]
    lines += plain_matrix(rows, width)
    if any(text.endswith(" *") for row in rows for text in row.values()):
        lines += ["", *wrap_words(_LEGEND, width)]
    return [*lines, *(["", *wrap_words(_CHOICE, width)] if is_grid else [])]


def _records(states: Sequence[RunState]) -> list[RunRecord]:
    return [one.record for one in states if one.record is not None]


def _heading(task: str, record: RunRecord | None, is_grid: bool) -> str:
    """Name the column of a task's test results, with their measure where it is no accuracy."""
    measure = ACCURACY if record is None else measures_of([record])[0]
    name = "" if measure is ACCURACY else measure.name
    return ", ".join(filter(None, [task, f"test {name}".rstrip() if is_grid else name]))


def _validation_name(record: RunRecord) -> str:
    where = " (on the test set)" if record.selected_on == "test" else ""
    return f"validation{where}"


def _cell_text(states: Sequence[RunState]) -> str:
    """Write mean ± deviation of the runs that are done, or the state of most of them."""
    records = _records(states)
    if not records:
        ((state, _),) = Counter(one.state for one in states).most_common(1)
        return state
    cell, (measure, *_) = cell_of(records), measures_of(records)
    chance = cell.chance_text(measure)
    missing = f"{len(records)} of {len(states)} runs" if len(records) < len(states) else ""
    remarks = ", ".join(filter(None, [missing, "" if chance == AT_CHANCE else chance]))
    mark = " *" if chance == AT_CHANCE else ""
    return f"{cell.spread_text(measure)}{f' ({remarks})' if remarks else ''}{mark}"


def count_states(states: Sequence[RunState]) -> str:
    """Write how many runs are in each state."""
    counts = Counter(one.state for one in states)
    total = f"{len(states)} run{'s' * (len(states) != 1)}"
    return f"{total}: {', '.join(f'{count} {state}' for state, count in counts.items())}"


def next_step(states: Sequence[RunState]) -> str | None:
    """Say the one thing to do next about the runs; None if nothing is left to do."""
    found = {one.state for one in states}
    if found & {*OPEN, "running"}:
        return "the same command continues with the unfinished runs"
    if found & {*RETRIED}:
        return "the same command with --retry-failed tries the failed runs again"
    return None
