"""Runs of a sweep on this machine: a process per slot, some slots per device."""

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

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BETWEEN_TRIES = 2.0
"""At runs that other processes hold."""


@dataclass
class Slot:
    """A place for one run at a time."""

    device: str
    run: PlannedRun | None = None
    process: subprocess.Popen[bytes] | None = None


def make_slots(device: str, per_device: int) -> list[Slot]:
    """Make the slots of a device, or for auto of all GPUs, or without one of the processor.

    Args:
        device: auto, or what --device of run_task.py takes.
    """
    devices = [device]
    if device == "auto":
        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu"]
    return [Slot(name) for _ in range(per_device) for name in devices]


class LocalSweep:
    """Carries runs out; one that fails touches no other.

    Args:
        runs: of the plan.
        states: of runs to work on; others are left alone.
        limits: of each run.
        stop: what ends the sweep before its runs are done, each at a step.
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
        self._look_again_at = 0.0

    def execute(self) -> str | None:
        """Run all; return what stopped the sweep early, None if nothing did.

        Raises: KeyboardInterrupt on a second Ctrl-C: runs are then killed, and go on from their
            last checkpoints.
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
                    time.sleep(SECONDS_BETWEEN_LOOKS)
                return self.stopping
            finally:
                self._kill()
                live.close()

    def _over(self) -> bool:
        return not any(slot.run for slot in self.slots) and (
            self.stopping is not None or not self.waiting
        )

    def _fill(self, live: Live) -> None:
        """Start runs in the free slots, the first of the plan that no other process holds."""
        for slot in self.slots:
            if slot.run is None and (run := self._next(live)) is not None:
                self._start(slot, run)

    def _next(self, live: Live) -> PlannedRun | None:
        """Take the next run from those that wait, dropping what is no longer open."""
        if time.monotonic() < self._look_again_at:
            return None
        held: list[PlannedRun] = []
        found = None
        while self.waiting and found is None:
            run = self.waiting.pop(0)
            state, note = run.state(self.limits)
            if state == "elsewhere":
                held.append(run)
            elif state in self.states:
                found = run
            else:
                live.ended(run, state, note)
        self.waiting = held + self.waiting
        if found is None and held:
            self._look_again_at = time.monotonic() + SECONDS_BETWEEN_TRIES
        return found

    def _start(self, slot: Slot, run: PlannedRun) -> None:
        run.folder.path.mkdir(parents=True, exist_ok=True)
        limits = limit_flags(self.limits, run.folder)
        command = [*run.command(slot.device), *limits, "--stop-with", str(os.getpid())]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
        with run.log.open("ab") as log:
            # In a session of its own: Ctrl-C comes to the sweep alone, which asks it to stop.
            slot.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        slot.run = run
        logger.info(f"{run.name} starts on {slot.device}; log {run.log}")

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
            # Asked to stop before it could listen, it has nothing to save, and did not fail.
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
                f"{reason}: every run stops at its next step and saves; Ctrl-C again kills them"
            )

    def _kill(self) -> None:
        for slot in self.slots:
            if slot.process is not None and slot.process.poll() is None:
                slot.process.kill()
                slot.process.wait()
