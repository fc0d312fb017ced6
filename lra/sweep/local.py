"""Runs on this machine: a process for each, one or more at a time on every device."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lra.runtime.errors import UserError
from lra.sweep.data import SweepData
from lra.sweep.launcher import LaunchOptions
from lra.sweep.plan import Limits, PlannedRun, limit_flags
from lra.sweep.run_process import start_run, write_command
from lra.sweep.work import Work
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Slot:
    """A share of a device, or several GPUs, that one run at a time uses."""

    device: str
    """As --device of run_task.py."""
    gpus: str | None = None
    """CUDA_VISIBLE_DEVICES of its processes. None: the same as of the sweep."""
    is_free: bool = True


def make_slots(device: str, per_device: int, gpus_per_run: int = 1) -> list[Slot]:
    """Make the slots of a device.

    Args:
        device: as --device of run_task.py; auto: all GPUs, or the CPU if there is no GPU.
        per_device: number of runs at a time on each device, or on each group of GPUs.
        gpus_per_run: number of GPUs that a run uses; on the CPU the number of its processes.
    Raises: UserError if there are not as many GPUs.
    """
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


class LocalAttempt:
    """A process of this machine that works on a run.

    Args:
        process: the process.
        slot: the slot that it occupies until it has ended.
    """

    def __init__(self, process: subprocess.Popen[bytes], slot: Slot) -> None:
        self.process = process
        self.slot = slot
        slot.is_free = False

    def poll(self) -> int | None:
        """Return its exit code; None while it works."""
        code = self.process.poll()
        self.slot.is_free = code is not None
        return code

    def stop(self) -> None:
        """Ask the run to save and to end at its next step."""
        self.process.terminate()

    def kill(self) -> None:
        """End the run now."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class LocalWorkers:
    """The slots of this machine.

    Args:
        slots: see `make_slots`.
        limits: limits of each run.
        processes: processes of each run.
    """

    def __init__(self, slots: Sequence[Slot], limits: Limits, processes: int = 1) -> None:
        self.slots = slots
        self.limits = limits
        self.processes = processes
        self.threads = max(1, torch.get_num_threads() // (len(slots) * processes))

    @property
    def capacity(self) -> int:
        """How many runs work at a time."""
        return len(self.slots)

    def start(self, run: PlannedRun) -> LocalAttempt:
        """Start a run in a free slot."""
        slot = next(slot for slot in self.slots if slot.is_free)
        arguments = [*run.arguments(), "--device", slot.device]
        command = write_command([*arguments, *limit_flags(self.limits, run.folder)], self.processes)
        variables = {"OMP_NUM_THREADS": str(self.threads)}
        if slot.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = slot.gpus
        logger.info(f"{run.name}: started on {slot.gpus or slot.device}")
        return LocalAttempt(start_run(command, run.log, variables), slot)


class LocalLauncher:
    """Carries out runs on this machine."""

    def __init__(self, options: LaunchOptions) -> None:
        self.options = options
        self.slots = make_slots(options.device, options.per_device, options.gpus_per_run)

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Prepare the data, and carry out runs; see `Launcher`."""
        options = self.options
        data.prepare()
        logger.info(
            f"each run writes to log.txt in its folder under {options.results_dir / 'runs'}"
        )
        workers = LocalWorkers(self.slots, options.limits, options.gpus_per_run)
        stop = StopRequest(options.total_minutes, time_flag="--total-minutes")
        return Work(data.ready(runs), options.limits, workers, stop, options.states).execute()


def make_launcher(options: LaunchOptions) -> LocalLauncher:
    """Make the launcher.

    Raises: UserError if this machine has no such devices.
    """
    return LocalLauncher(options)
