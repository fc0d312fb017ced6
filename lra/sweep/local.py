"""Runs on this machine: a process for each, one or more at a time on every device."""

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from subprocess import Popen

import torch

from lra.common.errors import DataError, UserError, describe_os_error
from lra.common.progress import progress
from lra.runtime.cli import HELD
from lra.runtime.environment import choose_device
from lra.sweep.data import SweepData
from lra.sweep.plan import PlannedRun, State, SweepOptions, note_failure, start_run, write_failure
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_POLLS = 0.05
SECONDS_BETWEEN_TRIES = 2.0
"""Pause before the sweep checks again whether runs of other processes have ended."""


@dataclass(eq=False)
class Slot:
    """A share of a device, or several GPUs, that one run at a time uses."""

    device: str
    """As --device of run_task.py."""
    gpus: str | None = None
    """CUDA_VISIBLE_DEVICES of its processes. None: the same as of the sweep."""


def make_slots(device: str, per_device: int, gpus_per_run: int = 1) -> list[Slot]:
    """Make the slots of a device, or of all GPUs, or on the CPU those of all processes.

    Raises: UserError if there is no such device, or if there are not as many GPUs.
    """
    choose_device(device)
    count = torch.cuda.device_count()
    if gpus_per_run > 1 and device != "cpu":
        if device != "auto" or count < gpus_per_run:
            raise UserError(
                f"--gpus-per-run {gpus_per_run}: this machine has {count} GPUs; give --device auto "
                f"and at most as many as there are, or --device cpu for as many processes without "
                f"a GPU"
            )
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        names = visible.split(",")
        firsts = range(0, count - gpus_per_run + 1, gpus_per_run)
        groups = [",".join(names[i : i + gpus_per_run]) for i in firsts]
        return [Slot("auto", gpus) for _ in range(per_device) for gpus in groups]
    devices = [device]
    if device == "auto":
        devices = [f"cuda:{i}" for i in range(count)] or ["cpu"]
    return [Slot(name) for _ in range(per_device) for name in devices]


class LocalLauncher:
    """Carries out runs in their order; a run that fails does not affect the others."""

    def __init__(self, options: SweepOptions) -> None:
        self.options = options
        self.slots = make_slots(options.device, options.per_device, options.gpus_per_run)
        self.stop = StopRequest(options.total_minutes, time_flag="--total-minutes")
        """Request to end the sweep early; every run then stops at its next step."""
        self.working: list[tuple[PlannedRun, Slot, Popen[bytes]]] = []
        self.stopping: str | None = None
        self._next_check = 0.0

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Prepare the data, and carry out runs; return what stopped the sweep early."""
        data.prepare()
        logger.info(
            f"each run writes to log.txt in its folder under {self.options.results_dir / 'runs'}"
        )
        return self.execute(data.ready(runs))

    def start(self, run: PlannedRun, slot: Slot) -> Popen[bytes]:
        """Start a run in a slot.

        Raises: OSError or DataError if its folder cannot be read or written.
        """
        count = self.options.gpus_per_run
        command = run.command(slot.device, count, self.options.limits)
        threads = max(1, torch.get_num_threads() // (len(self.slots) * count))
        variables = {"OMP_NUM_THREADS": str(threads)}
        if slot.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = slot.gpus
        logger.info(f"{run.name}: started on {slot.gpus or slot.device}")
        return start_run(command, run.log, variables)

    def execute(self, runs: Sequence[PlannedRun]) -> str | None:
        """Carry out all; return what stopped the sweep early, None if nothing did.

        Raises: KeyboardInterrupt on a second Ctrl-C, which kills the runs; they can be resumed from
            their last checkpoints.
        """
        start = time.monotonic()
        self.waiting = list(runs)
        self._bar = progress("sweep", total=len(runs), unit="run")
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
                for *_, process in self.working:
                    process.kill()
                self._bar.close()

    def _fill(self) -> None:
        """Start the next runs where there is room."""
        while len(self.working) < len(self.slots) and (run := self._next()) is not None:
            used = [slot for _, slot, _ in self.working]
            slot = next(slot for slot in self.slots if slot not in used)
            try:
                run.folder.path.mkdir(parents=True, exist_ok=True)
                self.working.append((run, slot, self.start(run, slot)))
            except (OSError, DataError) as error:
                self._end_with_fault(run, error)

    def _next(self) -> PlannedRun | None:
        """Take the next run that no other process works on, and drop those in other states."""
        if time.monotonic() < self._next_check:
            return None
        for run in self.waiting.copy():
            state, note = run.state(self.options.limits)
            if state == "running":
                continue
            self.waiting.remove(run)
            if state in self.options.states:
                return run
            self._end(run, state, note)
        self._next_check = time.monotonic() + SECONDS_BETWEEN_TRIES
        return None

    def _collect(self) -> None:
        """Note the ends of runs."""
        for run, slot, process in self.working.copy():
            if (code := process.poll()) is None:
                continue
            self.working.remove((run, slot, process))
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
        self._end(run, *run.state(self.options.limits))

    def _ask_to_stop(self, reason: str) -> None:
        if self.stopping is not None:
            return
        self.stopping = reason
        for *_, process in self.working:
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
