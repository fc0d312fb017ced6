"""The work of a sweep: runs are started where there is room, and their ends are noted."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from subprocess import Popen

from common.errors import DataError, describe_os_error
from common.progress import progress
from lra.runtime.cli import HELD
from lra.sweep.plan import PlannedRun, State, SweepOptions, note_failure, write_failure
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_POLLS = 0.05
SECONDS_BETWEEN_TRIES = 2.0
"""Pause before the sweep checks again whether runs of other processes have ended."""


class Work:
    """Carries out runs in their order; a run that fails does not affect the others.

    Args:
        runs: planned runs.
        start: starts the process of a run; it raises OSError or DataError if the run's folder
            cannot be read or written.
        capacity: how many runs may be started at a time.
        options: limits of the runs, and states of those to carry out.
        stop: request to end the sweep early; every run then stops at its next step.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        start: Callable[[PlannedRun], Popen[bytes]],
        capacity: int,
        options: SweepOptions,
        stop: StopRequest | None = None,
    ) -> None:
        self.waiting = list(runs)
        self.start, self.capacity = start, capacity
        self.limits, self.states = options.limits, options.states
        self.stop = stop or StopRequest(options.total_minutes, time_flag="--total-minutes")
        self.working: list[tuple[PlannedRun, Popen[bytes]]] = []
        self.stopping: str | None = None
        self._next_check = 0.0
        self._bar = progress("sweep", total=len(runs), unit="run")

    def execute(self) -> str | None:
        """Carry out all; return what stopped the sweep early, None if nothing did.

        Raises: KeyboardInterrupt on a second Ctrl-C, which kills the runs; they can be resumed from
            their last checkpoints.
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
                for _, process in self.working:
                    process.kill()
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
        """Note the ends of runs."""
        for run, process in self.working.copy():
            if (code := process.poll()) is None:
                continue
            self.working.remove((run, process))
            try:
                self._note_end(run, code)
            except (OSError, DataError) as error:
                self._end_with_fault(run, error)

    def _note_end(self, run: PlannedRun, code: int) -> None:
        """Note the end of a run, or let it wait if another process is at work on it.

        Raises: OSError or DataError if its folder cannot be read or written.
        """
        if code == HELD or run.folder.is_held():
            self.waiting.append(run)
            return
        # A run asked to stop before it could listen has nothing to save, and did not fail.
        if not self.stopping:
            note_failure(run.folder, code)
        self._end(run, *run.state(self.limits))

    def _ask_to_stop(self, reason: str) -> None:
        if self.stopping is not None:
            return
        self.stopping = reason
        for _, process in self.working:
            process.terminate()
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
