"""Runs of a sweep on this machine: one process for each slot, one or more slots a device."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from lra.runtime.cli import HELD
from lra.sweep.live import Live
from lra.sweep.plan import OPEN, Limits, PlannedRun, State, limit_flags, note_failure
from lra.train.stopping import StopRequest
from tasks.files import open_to_append

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_POLLS = 0.2
SECONDS_BETWEEN_TRIES = 2.0
"""Pause before the sweep checks again whether runs of other processes have ended."""


@dataclass
class Slot:
    """A share of a device that carries out one run at a time."""

    device: str
    run: PlannedRun | None = None
    process: subprocess.Popen[bytes] | None = None


def make_slots(device: str, per_device: int) -> list[Slot]:
    """Make the slots of a device.

    Args:
        device: as --device of run_task.py; auto: all GPUs, or the CPU if there is no GPU.
        per_device: number of runs at a time on each device.
    """
    devices = [device]
    if device == "auto":
        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    return [Slot(name) for _ in range(per_device) for name in devices]


class LocalSweep:
    """Carries out runs on this machine; a run that fails does not affect the others.

    Args:
        runs: planned runs, in the order in which they start.
        limits: limits of each run.
        slots: slots for the runs; each carries out one run at a time.
        stop: request to end the sweep early; every run then stops at its next step.
        states: states of the runs to carry out; other runs are left alone.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        limits: Limits,
        slots: list[Slot],
        stop: StopRequest,
        states: Collection[State] = OPEN,
    ) -> None:
        self.states = states
        self.waiting = list(runs)
        self.limits = limits
        self.slots = slots
        self.stop = stop
        self.threads = max(1, torch.get_num_threads() // len(slots))
        self.stopping: str | None = None
        self._next_check = 0.0

    def execute(self) -> str | None:
        """Run all; return what stopped the sweep early, None if nothing did.

        Raises: KeyboardInterrupt on a second Ctrl-C, which kills the runs; they can be resumed
            from their last checkpoints.
        """
        start = time.monotonic()
        live = Live(len(self.waiting), len(self.slots))
        with self.stop:
            try:
                while not self._over():
                    self._collect(live)
                    if self.stopping is None and (
                        reason := self.stop.reason(0, 1, time.monotonic() - start)
                    ):
                        self._ask_to_stop(reason)
                    if self.stopping is None:
                        self._fill(live)
                    live.show([slot.run for slot in self.slots], len(self.waiting))
                    time.sleep(SECONDS_BETWEEN_POLLS)
                return self.stopping
            finally:
                self._kill()
                live.close()

    def _over(self) -> bool:
        return not any(slot.run for slot in self.slots) and (
            self.stopping is not None or not self.waiting
        )

    def _fill(self, live: Live) -> None:
        """Start the next runs in the free slots, except those that run in other processes."""
        for slot in self.slots:
            if slot.run is None and (run := self._next(live)) is not None:
                self._start(slot, run)

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

    def _start(self, slot: Slot, run: PlannedRun) -> None:
        run.folder.path.mkdir(parents=True, exist_ok=True)
        limits = limit_flags(self.limits, run.folder)
        command = [*run.command(slot.device), *limits, "--stop-with", str(os.getpid())]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        with open_to_append(run.log) as log:
            # In a session of its own: Ctrl-C reaches only the sweep, which asks the run to stop.
            slot.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        slot.run = run
        logger.info(f"{run.name}: started on {slot.device}")

    def _collect(self, live: Live) -> None:
        """Clear the slots of runs that ended."""
        for slot in self.slots:
            if slot.run is None or slot.process is None or slot.process.poll() is None:
                continue
            run, code = slot.run, slot.process.returncode
            slot.run = slot.process = None
            if code == HELD:
                self.waiting.append(run)  # another process was first
                continue
            # A run asked to stop before it could listen has nothing to save, and did not fail.
            if not (self.stopping and code == -signal.SIGTERM):
                note_failure(run.folder, run.log, code)
            live.ended(run, *run.state(self.limits))

    def _ask_to_stop(self, reason: str) -> None:
        self.stopping = reason
        for slot in self.slots:
            if slot.process is not None:
                slot.process.terminate()
        if any(slot.run for slot in self.slots):
            logger.info(
                f"{reason}: every run saves and stops at its next step; press Ctrl-C again to kill "
                f"them"
            )

    def _kill(self) -> None:
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is None:
                slot.process.kill()
                slot.process.wait()
