"""What a sweep shows: the state of every run, the results as mixers by tasks, what to do next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.progress import duration
from lra.record.run import RunRecord
from lra.report.scores import ACCURACY, cell_of, measures_of, validation_of
from lra.runtime.cli import command_words
from lra.runtime.console import cut, plain_matrix, plain_table, wrap_words
from lra.sweep.plan import OPEN, RETRIED, Limits, PlannedRun, State
from lra.train.stopping import StopRequest
from lra.train.training_time import TrainingTime

_BEST = "<"
"""Mark of the best validation result of a mixer."""
_CHOICE = (
    f"{_BEST} best of its mixer on the validation set: report the test result of this row. A row "
    f"chosen by its test result is no result."
)


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
    time = TrainingTime(run.config, device, StopRequest(minutes, limits.max_steps))
    return time.seconds(record.steps, record.train_seconds or 0.0) if record else time.seconds()


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

    Where settings vary, validation results stand beside those of the test set, and the best of each
    mixer is marked.

    Returns: lines; none if no run has a result.
    """
    cells: dict[tuple[str, str, str], list[RunRecord]] = {}
    for one, settings in zip(states, varied_settings(states), strict=True):
        if one.record is not None:
            place = one.run.config.mixer_name, settings, one.run.config.task_name
            cells.setdefault(place, []).append(one.record)
    is_grid = any(settings for _, settings, _ in cells)
    rows: dict[str, dict[str, str]] = {}
    baselines = {"mixer": "best trivial baseline"}
    for (mixer, settings, task), records in cells.items():
        cell, measure = cell_of(records), measures_of(records)[0]
        name = f"{mixer} {settings}".rstrip()
        row = rows.setdefault(name, {"mixer": name})
        if is_grid:
            rivals = [cell_of(cells[one]) for one in cells if (one[0], one[2]) == (mixer, task)]
            mark = f" {_BEST}" * (cell.merit == max(rival.merit for rival in rivals))
            split = "validation" if records[0].selected_on == "val" else "validation on test"
            row[f"{task}, {split}"] = cell.spread_text(validation_of(records)) + mark
        heading = f"{task}, test" if is_grid else task
        heading += "" if measure is ACCURACY else f", {measure.name}"
        row[heading] = cell.text(measure, shows_spread=len(records) > 1)
        if found := records[0].best_baseline:
            baselines[heading] = measure.text(found[1])
    if not rows:
        return []
    title = "Results on the test set (accuracy in percent), mean ± standard deviation over n seeds:"
    lines = [title, "", *plain_matrix([*rows.values(), baselines], width)]
    return [*lines, *(["", *wrap_words(_CHOICE, width)] if is_grid else [])]


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
