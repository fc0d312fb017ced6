"""Runs on this machine: a process for each, one or more at a time on every device."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from common.errors import UserError
from lra.runtime.environment import choose_device
from lra.sweep.data import SweepData
from lra.sweep.plan import PlannedRun, SweepOptions
from lra.sweep.run_process import start_run, write_command
from lra.sweep.work import Work

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Slot:
    """A share of a device, or several GPUs, that one run at a time uses."""

    device: str
    """As --device of run_task.py."""
    gpus: str | None = None
    """CUDA_VISIBLE_DEVICES of its processes. None: the same as of the sweep."""
    process: subprocess.Popen[bytes] | None = None
    """The process of the run that works in it."""

    @property
    def is_free(self) -> bool:
        """Whether no run works in it."""
        return self.process is None or self.process.poll() is not None


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
    """Carries out runs on this machine."""

    def __init__(self, options: SweepOptions) -> None:
        self.options = options
        self.slots = make_slots(options.device, options.per_device, options.gpus_per_run)

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Prepare the data, and carry out runs; return what stopped the sweep early."""
        data.prepare()
        logger.info(
            f"each run writes to log.txt in its folder under {self.options.results_dir / 'runs'}"
        )
        return Work(data.ready(runs), self.start, len(self.slots), self.options).execute()

    def start(self, run: PlannedRun) -> subprocess.Popen[bytes]:
        """Start a run in a free slot."""
        count = self.options.gpus_per_run
        slot = next(slot for slot in self.slots if slot.is_free)
        command = write_command(run.arguments(slot.device, self.options.limits), count)
        threads = max(1, torch.get_num_threads() // (len(self.slots) * count))
        variables = {"OMP_NUM_THREADS": str(threads)}
        if slot.gpus is not None:
            variables["CUDA_VISIBLE_DEVICES"] = slot.gpus
        logger.info(f"{run.name}: started on {slot.gpus or slot.device}")
        slot.process = start_run(command, run.log, variables)
        return slot.process
