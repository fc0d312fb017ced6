"""What a sweep shows: the state of every run, the results as mixers by tasks, what to do next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lra.record.run import RunRecord
from lra.report.scores import (
    ACCURACY,
    AT_CHANCE,
    Cell,
    best_baseline,
    cell_of,
    measures_of,
    validation_of,
)
from lra.runtime.plain_table import cut, plain_matrix, plain_table
from lra.runtime.terminal import wrap_words
from lra.sweep.plan import OPEN, RETRIED, Limits, PlannedRun, State

_INDENT = "  "
_MARK = "*"
"""Mark of results at chance."""
_BEST = "<"
"""Mark of the best validation result of a mixer."""
_CHOICE = (
    f"{_BEST} best of its mixer on the validation set: report the test result of this row. A row "
    f"chosen by its test result is no result."
)
_MEAN_WIDTH = len("60.33")
"""Width that means are aligned to."""


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


def varied_settings(runs: Sequence[PlannedRun]) -> list[str]:
    """Write the settings of each run that not all runs have, those of --grid for instance."""
    written = [[change.text for change in run.changes] for run in runs]
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
    for one, settings in zip(states, varied_settings([s.run for s in states]), strict=True):
        row = {"run": one.run.name, "settings": settings, "state": one.state}
        if time_left is None:
            row["test"] = one.record.test_text if one.record else ""
        else:
            row["time left"] = time_left(one.run) if one.state in OPEN else ""
        rows.append(row)
    used = {name for row in rows for name, text in row.items() if text}
    heading, *lines = plain_table(
        [{name: text for name, text in row.items() if name in used} for row in rows], width
    )
    shown = [heading]
    for line, one in zip(lines, states, strict=True):
        with_note = f"{line}{_INDENT}{one.note}".rstrip()
        if len(with_note) <= width:
            shown.append(with_note)
        else:
            shown += [line, _INDENT + cut(one.note, width - len(_INDENT))]
    return shown


def results_table(states: Sequence[RunState], width: int) -> list[str]:
    """Write mean and standard deviation over seeds: a row for each mixer and setting, by tasks.

    Where a mixer has several settings, validation results stand beside those of the test set, and
    the best of them is marked.

    Returns: lines; none if no run has a result.
    """
    cells: dict[str, dict[str, dict[str, list[RunState]]]] = {}
    for one, settings in zip(states, varied_settings([s.run for s in states]), strict=True):
        config = one.run.config
        row = cells.setdefault(config.mixer_component.spec, {}).setdefault(settings, {})
        row.setdefault(config.task_name, []).append(one)
    records = [one.record for one in states if one.record is not None]
    if not records:
        return []
    is_grid = any(len(by_setting) > 1 for by_setting in cells.values())
    columns = {record.task: _columns(record, is_grid=is_grid) for record in records}
    rows: list[dict[str, str]] = []
    for by_setting in cells.values():
        best = _best_settings(by_setting) if is_grid else {}
        for settings, by_task in by_setting.items():
            first = next(iter(by_task.values()))[0].run.config
            row = {"mixer": f"{first.mixer_name} {settings}".rstrip()}
            for task, found in by_task.items():
                *validated, tested = columns.get(task, [task])
                for heading in validated:
                    row[heading] = _validation_text(found, settings == best[task])
                row[tested] = _cell_text(found)
            rows.append(row)
    trivial = {columns[one.task][-1]: _baseline_text(one) for one in records}
    rows.append({"mixer": "best trivial baseline", **trivial})
    lines = [*wrap_words(f"{_caption(states, records, is_grid)}:", width), ""]
    lines += plain_matrix(rows, width)
    if any(_MARK in text for row in rows for name, text in row.items() if name != "mixer"):
        legend = (
            f"{_MARK} {AT_CHANCE}: no better than one constant answer (tested at the 1 % level)"
        )
        lines += ["", *wrap_words(legend, width)]
    return [*lines, *(["", *wrap_words(_CHOICE, width)] if is_grid else [])]


def _caption(states: Sequence[RunState], records: Sequence[RunRecord], is_grid: bool) -> str:
    of_examples = any(record.positions is None for record in records)
    measure = "Test accuracy in percent" if of_examples else "Test results"
    if is_grid:
        measure = "Accuracy in percent" if of_examples else "Results"
    one_seed = len({one.run.seed for one in states}) == 1
    return f"{measure}, {'one seed' if one_seed else 'mean ± standard deviation over seeds'}"


def _columns(record: RunRecord, *, is_grid: bool) -> list[str]:
    """Name the columns of a task, with what is measured where that is no accuracy."""
    (measure, *_), validation = measures_of([record]), validation_of([record])
    if measure is ACCURACY:
        tested, validated = "", "validation"
    else:
        tested, validated = measure.name, validation.name
    if not is_grid:
        return [", ".join(filter(None, [record.task, tested]))]
    if record.selected_on == "test":
        validated += " (on the test set)"
    return [f"{record.task}, {validated}", f"{record.task}, test {tested}".rstrip()]


def _best_settings(by_setting: Mapping[str, Mapping[str, Sequence[RunState]]]) -> dict[str, str]:
    """Return the settings with the best validation result, by task."""
    merits: dict[str, dict[str, float]] = {}
    for settings, by_task in by_setting.items():
        for task, states in by_task.items():
            merits.setdefault(task, {})[settings] = _cell_of(states).merit
    return {task: max(found, key=lambda name: found[name]) for task, found in merits.items()}


def _baseline_text(record: RunRecord) -> str:
    (measure, *_), found = measures_of([record]), best_baseline(record)
    return measure.text(found[1] if found else None).rjust(_MEAN_WIDTH)


def _validation_text(states: Sequence[RunState], is_best: bool) -> str:
    cell = _cell_of(states)
    text = cell.spread_text(validation_of(cell.runs))
    return f"{text} {_BEST}" if is_best and math.isfinite(cell.merit) else text


def _cell_of(states: Sequence[RunState]) -> Cell[RunRecord]:
    return cell_of([one.record for one in states if one.record is not None])


def _cell_text(states: Sequence[RunState]) -> str:
    """Write mean ± deviation of the runs that are done, or the state of most of them."""
    records = [one.record for one in states if one.record is not None]
    if not records:
        ((state, _),) = Counter(one.state for one in states).most_common(1)
        return state
    cell = cell_of(records)
    (measure, *_) = measures_of(records)
    mean, *deviation = cell.spread_text(measure).split()
    remarks: list[str] = []
    if len(records) < len(states):
        remarks.append(f"{len(records)} of {len(states)} runs")
    chance = cell.chance_text(measure)
    mark = [_MARK] if chance == AT_CHANCE else []
    if chance and not mark:
        remarks.append(chance)
    brackets = [f"({', '.join(remarks)})"] if remarks else []
    return " ".join([mean.rjust(_MEAN_WIDTH), *deviation, *mark, *brackets])


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
