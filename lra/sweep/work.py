"""The work of a sweep: runs are started where there is room, and their ends are noted."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from common.errors import DataError, describe_os_error
from common.progress import progress
from lra.runtime.cli import HELD
from lra.sweep.plan import OPEN, PlannedRun, State, SweepOptions, note_failure, write_failure
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)

AGAIN = -1000
"""In place of an exit code: the run was interrupted, and must resume from its last checkpoint."""
SECONDS_BETWEEN_POLLS = 0.05
SECONDS_BETWEEN_TRIES = 2.0
"""Pause before the sweep checks again whether runs of other processes have ended."""
MOST_LOSSES = 3
"""Times in a row that a run may be interrupted without having saved anything new."""


class Attempt(Protocol):
    """A process, here or elsewhere, that works on a run."""

    def poll(self) -> int | None:
        """Return its exit code, or `AGAIN`; None while it works.

        Raises: UserError if no run can work there; OSError or DataError if the folder of this one
            cannot be read or written.
        """
        ...

    def terminate(self) -> None:
        """Ask the run to save and to end at its next step."""
        ...

    def kill(self) -> None:
        """End the run now; it goes on from its last checkpoint."""
        ...


class Work:
    """Carries out runs in their order; a run that fails does not affect the others.

    Args:
        runs: planned runs.
        start: starts a run; it raises OSError or DataError if the run's folder cannot be read or
            written.
        capacity: how many runs may be started at a time.
        options: limits of the runs, and states of those to carry out.
        stop: request to end the sweep early; every run then stops at its next step.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        start: Callable[[PlannedRun], Attempt],
        capacity: int,
        options: SweepOptions,
        stop: StopRequest | None = None,
    ) -> None:
        self.waiting = list(runs)
        self.start, self.capacity = start, capacity
        self.limits, self.states = options.limits, options.states
        self.stop = stop or StopRequest(options.total_minutes, time_flag="--total-minutes")
        self.working: list[tuple[PlannedRun, Attempt]] = []
        self.stopping: str | None = None
        self._losses: dict[str, list[str]] = {}
        self._next_check = 0.0
        self._bar = progress("sweep", total=len(runs), unit="run")

    def execute(self) -> str | None:
        """Carry out all; return what stopped the sweep early, None if nothing did.

        Raises:
            KeyboardInterrupt: on a second Ctrl-C, which kills the runs; they can be resumed from
                their last checkpoints.
            UserError: if a worker cannot carry out any run; those at work are killed, too.
        """
        start = time.monotonic()
        with self.stop:
            try:
                while self.working or (self.waiting and self.stopping is None):
                    self._collect()
                    if reason := self.stop.reason(0, 1, time.monotonic() - start):
                        self._ask_to_stop(reason)
                    if self.stopping is None:
                        self._fill()
                    self._bar.refresh()
                    time.sleep(SECONDS_BETWEEN_POLLS)
                return self.stopping
            finally:
                for _, attempt in self.working:
                    attempt.kill()
                self._bar.close()

    def _fill(self) -> None:
        """Start the next runs where there is room."""
        while len(self.working) < self.capacity and (run := self._next()) is not None:
            try:
                run.folder.path.mkdir(parents=True, exist_ok=True)
                self.working.append((run, self.start(run)))
            except (OSError, DataError) as error:
                self._end_with_fault(run, error)

    def _next(self) -> PlannedRun | None:
        """Take the next run that no other process works on, and drop those in other states."""
        if time.monotonic() < self._next_check:
            return None
        for run in self.waiting.copy():
            state, note = run.state(self.limits)
            if state == "running":
                continue
            self.waiting.remove(run)
            if state in self.states:
                return run
            self._end(run, state, note)
        self._next_check = time.monotonic() + SECONDS_BETWEEN_TRIES
        return None

    def _collect(self) -> None:
        """Note the ends of runs, and let those wait again that are to go on."""
        for run, attempt in self.working.copy():
            try:
                code = attempt.poll()
                if code is not None:
                    self.working.remove((run, attempt))
                    self._note_end(run, code)
            except (OSError, DataError) as error:
                self.working = [pair for pair in self.working if pair[1] is not attempt]
                self._end_with_fault(run, error)

    def _note_end(self, run: PlannedRun, code: int) -> None:
        """Note the end of a run, or let it wait again.

        Raises: OSError or DataError if its folder cannot be read or written.
        """
        if code == AGAIN and not self.stopping:
            self._note_loss(run)
        if code == HELD or run.folder.is_held():
            self.waiting.append(run)  # another process is at work on it
            return
        # A run asked to stop before it could listen has nothing to save, and did not fail.
        if code != AGAIN and not self.stopping:
            note_failure(run.folder, code)
        state, note = run.state(self.limits)
        # The record of a run that was out of memory is left while it is tried again.
        is_open = state in OPEN or (state == "out of memory" and state in self.states)
        if code == AGAIN and is_open and not self.stopping:
            logger.info(f"{run.name}: interrupted; it will resume from its last checkpoint")
            self.waiting.insert(0, run)
        else:
            self._end(run, state, note)

    def _note_loss(self, run: PlannedRun) -> None:
        """Count an interruption; several in a row without a new checkpoint are a failure."""
        saved = sorted(path.name for path in run.folder.checkpoints.glob("step-*.pt"))
        losses = self._losses.setdefault(run.name, [])
        losses.append(" ".join(saved))
        if losses[-MOST_LOSSES:] == [losses[-1]] * MOST_LOSSES:
            message = (
                f"interrupted {MOST_LOSSES} times in a row without a new checkpoint; see {run.log}"
            )
            write_failure(run.folder.path, message)

    def _ask_to_stop(self, reason: str) -> None:
        if self.stopping is not None:
            return
        self.stopping = reason
        for _, attempt in self.working:
            attempt.terminate()
        if self.working:
            logger.info(
                f"{reason}: every run saves and stops at its next step; press Ctrl-C again to kill "
                f"them"
            )

    def _end_with_fault(self, run: PlannedRun, error: OSError | DataError) -> None:
        """Note that a run's folder cannot be read or written, of a full disk for one."""
        message = describe_os_error(error) if isinstance(error, OSError) else str(error)
        with contextlib.suppress(OSError):  # then the run counts as unfinished
            write_failure(run.folder.path, message)
        self._end(run, "failed", message)

    def _end(self, run: PlannedRun, state: State, note: str) -> None:
        """Report the state in which a run has ended, and the result of one that is done."""
        record = run.folder.record() if state == "done" else None
        result = f", test {record.result.text}" if record else ""
        logger.info(f"{run.name}: {state}{result}{f' ({note})' if note else ''}")
        self._bar.update()
