"""What a sweep shows: the state of every run, their results, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lra.common.progress import duration
from lra.record.run import RunRecord
from lra.record.schema import warn_of_packs
from lra.report.data import Data
from lra.report.screen import summarize
from lra.runtime.tables import MISSING, count_nouns, cut, plain_table
from lra.sweep.plan import OPEN, Limits, PlannedRun, State, varied_settings
from lra.train.stopping import StopRequest
from lra.train.training_time import estimate_time

COLUMNS = ("run", "settings", "state", "validation", "test", "time left")
"""Columns of the table of runs; one without any text is left out."""


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
    known = [number for number in seconds if number is not None]
    text = f"{count_nouns(len(seconds), 'run')} to carry out"
    if known:
        time = duration(sum(known))
        text += f": about {time} of training in all, if they run one after the other"
    if missing := len(seconds) - len(known):
        text += f"; nothing like {missing} of them was timed"
    return f"{text}."


def runs_table(
    states: Sequence[RunState], width: int, time_left: Callable[[PlannedRun], str] | None = None
) -> list[str]:
    """Write a line for each run, with a note beneath, cut to fit.

    Args:
        states: the runs.
        width: of the lines, in characters.
        time_left: describes the time that an unfinished run needs. None: it is not shown.
    """
    rows: list[dict[str, str]] = []
    varied = varied_settings([run_state.run for run_state in states])
    for run_state, settings in zip(states, varied, strict=True):
        row = {"run": run_state.run.name, "settings": settings, "state": run_state.state}
        if run_state.record is not None:
            is_validated = settings and run_state.record.best_step is not None
            row["validation"] = run_state.record.result.validation_text if is_validated else ""
            row["test"] = run_state.record.result.text
        elif time_left and run_state.state in OPEN:
            row["time left"] = time_left(run_state.run)
        rows.append(row)
    used = [name for name in COLUMNS if any(row.get(name) for row in rows)]
    rows = [{name: row.get(name) or MISSING for name in used} for row in rows]
    heading, *lines = plain_table(rows, width)
    shown = [heading]
    for line, run_state in zip(lines, states, strict=True):
        shown += [line, cut(f"  {run_state.note}", width)] if run_state.note else [line]
    return shown


def write_results(states: Sequence[RunState], results_dir: Path) -> str:
    """Write the report's tables of the runs that are done; empty if none is."""
    done = {run_state.record.run_id for run_state in states if run_state.record is not None}
    if not done:
        return ""
    warn_of_packs(results_dir)
    data = Data(results_dir, lambda record: isinstance(record, RunRecord) and record.run_id in done)
    return f"\n{summarize(data)}"


def count_states(states: Sequence[RunState]) -> str:
    """Write how many runs are in each state."""
    counts = Counter(run_state.state for run_state in states)
    total = count_nouns(len(states), "run")
    return f"{total}: {', '.join(f'{count} {state}' for state, count in counts.items())}"
