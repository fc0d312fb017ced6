"""The work of a sweep: runs are started where there is room, and their ends are noted."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Sequence

from common.errors import DataError
from lra.runtime.cli import HELD, USER_ERROR
from lra.runtime.errors import HeldError, UserError, describe_os_error
from lra.sweep.launcher import AGAIN, Attempt, Workers
from lra.sweep.live import Live
from lra.sweep.plan import OPEN, Failure, Limits, PlannedRun, State, note_failure
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_POLLS = 0.05
SECONDS_BETWEEN_TRIES = 2.0
"""Pause before the sweep checks again whether runs of other processes have ended."""
MOST_LOSSES = 3
"""Times in a row that a run may be interrupted without having saved anything new."""


class Work:
    """Carries out runs; a run that fails does not affect the others.

    Args:
        runs: planned runs, in the order in which they start.
        limits: limits of each run.
        workers: where they are carried out.
        stop: request to end the sweep early; every run then stops at its next step.
        states: states of the runs to carry out; other runs are left alone.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        limits: Limits,
        workers: Workers,
        stop: StopRequest,
        states: Collection[State] = OPEN,
    ) -> None:
        self.waiting = list(runs)
        self.limits = limits
        self.workers = workers
        self.stop = stop
        self.states = states
        self.working: list[tuple[PlannedRun, Attempt]] = []
        self.stopping: str | None = None
        self._fault: UserError | None = None
        self._losses: dict[str, list[str]] = {}
        self._next_check = 0.0

    def execute(self) -> str | None:
        """Carry out all; return what stopped the sweep early, None if nothing did.

        Raises:
            KeyboardInterrupt: on a second Ctrl-C, which kills the runs; they can be resumed from
                their last checkpoints.
            UserError: if a worker cannot carry out any run; the others save theirs before.
        """
        start = time.monotonic()
        live = Live(len(self.waiting), self.workers.capacity)
        with self.stop:
            try:
                while self.working or (self.waiting and self.stopping is None):
                    self._collect(live)
                    if self.stopping is None and (
                        reason := self.stop.reason(0, 1, time.monotonic() - start)
                    ):
                        self._ask_to_stop(reason)
                    if self.stopping is None:
                        self._fill(live)
                    live.show([run for run, _ in self.working], len(self.waiting))
                    time.sleep(SECONDS_BETWEEN_POLLS)
                if self._fault is not None:
                    raise self._fault
                return self.stopping
            finally:
                for _, attempt in self.working:
                    attempt.kill()
                live.close()

    def _fill(self, live: Live) -> None:
        """Start the next runs where there is room, except those that run in other processes."""
        while len(self.working) < self.workers.capacity and (run := self._next(live)) is not None:
            try:
                run.folder.path.mkdir(parents=True, exist_ok=True)
                self.working.append((run, self.workers.start(run)))
            except HeldError:
                self.waiting.append(run)
            except (OSError, DataError) as error:
                live.ended(run, *_note_fault(run, error))

    def _next(self, live: Live) -> PlannedRun | None:
        """Take the next run from those that wait, and drop those in other states."""
        if time.monotonic() < self._next_check:
            return None
        held: list[PlannedRun] = []
        found = None
        while self.waiting and found is None:
            run = self.waiting.pop(0)
            state, note = run.state(self.limits)
            if state == "running":
                held.append(run)
            elif state in self.states:
                found = run
            else:
                live.ended(run, state, note)
        self.waiting = held + self.waiting
        if found is None and held:
            self._next_check = time.monotonic() + SECONDS_BETWEEN_TRIES
        return found

    def _collect(self, live: Live) -> None:
        """Note the ends of runs, and let those wait again that are to go on."""
        for run, attempt in self.working.copy():
            try:
                code = attempt.poll()
            except UserError as fault:
                code, self._fault = AGAIN, fault
            except (OSError, DataError) as error:
                self.working.remove((run, attempt))
                live.ended(run, *_note_fault(run, error))
                continue
            if code is None:
                continue
            self.working.remove((run, attempt))
            if self._fault is not None:
                self._ask_to_stop(str(self._fault))
            try:
                self._note_end(run, code, live)
            except (OSError, DataError) as error:
                live.ended(run, *_note_fault(run, error))

    def _note_end(self, run: PlannedRun, code: int, live: Live) -> None:
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
            note_failure(run.folder, run.log, code)
        state, note = run.state(self.limits)
        # The record of a run that was out of memory is left while it is tried again.
        is_open = state in OPEN or (state == "out of memory" and state in self.states)
        if code == AGAIN and is_open and not self.stopping:
            logger.info(f"{run.name}: interrupted; it will resume from its last checkpoint")
            self.waiting.insert(0, run)
        else:
            live.ended(run, state, note)

    def _note_loss(self, run: PlannedRun) -> None:
        """Count an interruption; several in a row without a new checkpoint are a failure."""
        saved = sorted(path.name for path in run.folder.checkpoints.glob("step-*.pt"))
        losses = self._losses.setdefault(run.name, [])
        losses.append(" ".join(saved))
        if losses[-MOST_LOSSES:] == [losses[-1]] * MOST_LOSSES:
            message = (
                f"interrupted {MOST_LOSSES} times in a row without a new checkpoint; see {run.log}"
            )
            Failure(exit_code=AGAIN, message=message).save(run.folder.path)

    def _ask_to_stop(self, reason: str) -> None:
        if self.stopping is not None:
            return
        self.stopping = reason
        for _, attempt in self.working:
            attempt.stop()
        if self.working:
            logger.info(
                f"{reason}: every run saves and stops at its next step; press Ctrl-C again to kill "
                f"them"
            )


def _note_fault(run: PlannedRun, error: OSError | DataError) -> tuple[State, str]:
    """Note that a run's folder cannot be read or written, of a full disk for one.

    Returns: the state of the run, and a note that explains it.
    """
    message = describe_os_error(error) if isinstance(error, OSError) else str(error)
    with contextlib.suppress(OSError):  # then the run counts as unfinished
        Failure(exit_code=USER_ERROR, message=message).save(run.folder.path)
    return "failed", message
