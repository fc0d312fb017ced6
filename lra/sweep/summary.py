"""What a sweep shows: the state of every run, the results as mixers by tasks, what to do next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.progress import duration
from lra.record.run import RunRecord
from lra.report.scores import (
    ACCURACY,
    AT_CHANCE,
    cell_of,
    measures_of,
    validation_of,
)
from lra.runtime.cli import command_words
from lra.runtime.console import cut, plain_matrix, plain_table, wrap_words
from lra.sweep.plan import OPEN, RETRIED, Limits, PlannedRun, State
from lra.train.stopping import StopRequest
from lra.train.training_time import estimate_time

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


def seconds_left(run: PlannedRun, limits: Limits, device: str) -> float | None:
    """Estimate the seconds of training that a run has left; None if they are not known."""
    record = run.folder.record()
    minutes = limits.minutes
    if minutes is not None and record is not None:
        minutes = max(0.0, minutes - record.wall_seconds / 60)
    stop = StopRequest(minutes, limits.max_steps)
    steps, seconds = (record.steps, record.train_seconds or 0.0) if record else (0, 0.0)
    return estimate_time(run.config, device, stop, steps, seconds)[0]


def describe_time(seconds: Sequence[float | None]) -> str:
    """Describe the estimated training time of several runs together."""
    known = [one for one in seconds if one is not None]
    text = f"{len(seconds)} run{'s' * (len(seconds) != 1)} to carry out"
    if known:
        time = duration(sum(known))
        text += f": about {time} of training in all, if they run one after the other"
    if missing := len(seconds) - len(known):
        bench = shlex.join(command_words("bench", "step"))
        text += f"; nothing like {missing} of them was timed (time it with {bench})"
    return f"{text}."


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
        whole = f"{line}  {one.note}".rstrip()
        shown += [whole] if len(whole) <= width else [line, cut(f"  {one.note}", width)]
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
    rows = [{"mixer": f"{mixer} {settings}".rstrip()} for mixer, settings in groups]
    for row, ((mixer, _), by_task) in zip(rows, groups.items(), strict=True):
        for task, found in by_task.items():
            done = [one.record for one in found if one.record is not None]
            if is_grid and done:
                rivals = [
                    other.get(task, ()) for (name, _), other in groups.items() if name == mixer
                ]
                row[_heading(task, records[task], "validation")] = _describe_choice(done, rivals)
            row[_heading(task, records.get(task), "test" * is_grid)] = _describe_cell(found)
    rows.append({"mixer": "best trivial baseline"})
    for task, record in records.items():
        if found := record.best_baseline:
            text = measures_of([record])[0].text(found[1])
            rows[-1][_heading(task, record, "test" * is_grid)] = text
    is_mean = any(len(found) > 1 for by_task in groups.values() for found in by_task.values())
    spread = "mean ± standard deviation over seeds" if is_mean else "one seed"
    lines = [f"Results on the test set (accuracy in percent), {spread}:", ""]
    lines += plain_matrix(rows, width)
    if any(text.endswith(" *") for row in rows for text in row.values()):
        lines += ["", *wrap_words(_LEGEND, width)]
    return [*lines, *(["", *wrap_words(_CHOICE, width)] if is_grid else [])]


def _heading(task: str, record: RunRecord | None, split: str) -> str:
    """Name a column: the task, the split of the results, and their measure if it is no accuracy."""
    if split == "validation":
        is_test = record is not None and record.selected_on == "test"
        return f"{task}, {split}{' (on the test set)' if is_test else ''}"
    measure = ACCURACY if record is None else measures_of([record])[0]
    name = "" if measure is ACCURACY else measure.name
    return ", ".join(filter(None, [task, f"{split} {name}".strip()]))


def _describe_choice(done: Sequence[RunRecord], rivals: Sequence[Sequence[RunState]]) -> str:
    """Write the validation result of a setting, with a mark if no other of its mixer is better."""
    others = [[one.record for one in found if one.record is not None] for found in rivals]
    best = max(cell_of(records).merit for records in others if records)
    cell = cell_of(done)
    mark = f" {_BEST}" if cell.merit == best else ""
    return f"{cell.spread_text(validation_of(cell.runs))}{mark}"


def _describe_cell(states: Sequence[RunState]) -> str:
    """Write mean ± deviation of the runs that are done, or the state of most of them."""
    records = [one.record for one in states if one.record is not None]
    if not records:
        return Counter(one.state for one in states).most_common(1)[0][0]
    cell, measure = cell_of(records), measures_of(records)[0]
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
