"""The interface of launchers, and their options."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lra.sweep.data import SweepData
from lra.sweep.plan import Limits, PlannedRun, State

AGAIN = -1000
"""In place of an exit code: the run was interrupted, and must resume from its last checkpoint."""

LAUNCHERS = {
    "local": "lra.sweep.local",
    "slurm": "lra.sweep.slurm",
    "ray": "lra.sweep.ray_cluster",
}
"""The module of each launcher; its `make_launcher` is imported only when the launcher is used."""


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """What the command line says about where and how runs are carried out."""

    device: str
    """As --device of run_task.py; auto: all GPUs, or the CPU if there is no GPU."""
    per_device: int = 1
    """Number of runs at a time on each device."""
    gpus_per_run: int = 1
    """Number of GPUs of one machine that a run is divided between."""
    parameters: Sequence[str] = ()
    """What a run asks of a cluster, each as "name=value"."""
    address: str | None = None
    """Address of a Ray cluster; None: one is started on this machine."""
    hand_back_minutes: float | None = None
    """Time between two copies of a run's folder, where nodes do not share the results folder."""
    data_from: Path | None = None
    """Folder whose files each node copies into its data folder first."""
    results_dir: Path
    limits: Limits
    total_minutes: float | None = None
    """Limit of the whole sweep."""
    states: Sequence[State]
    """States of the runs to carry out; other runs are left alone."""


class Launcher(Protocol):
    """Carries out the runs of a sweep somewhere.

    The module of a launcher has a function `make_launcher`, which takes `LaunchOptions`. It raises
    a UserError if these are wrong, and starts nothing.
    """

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Carry out runs, in this order as far as there is room.

        Args:
            data: the data that they need; runs whose data cannot be prepared are left out.
        Returns: what stopped the sweep early; None if nothing did, or if the runs are in a queue.
        """
        ...


class Attempt(Protocol):
    """A process, here or elsewhere, that works on a run."""

    def poll(self) -> int | None:
        """Return its exit code, or `AGAIN`; None while it works.

        Raises: UserError if no run can work there; OSError or DataError if the folder of this one
            cannot be read or written.
        """
        ...

    def stop(self) -> None:
        """Ask the run to save and to end at its next step."""
        ...

    def kill(self) -> None:
        """End the run now; it goes on from its last checkpoint."""
        ...


class Workers(Protocol):
    """Places that each work on one run at a time."""

    @property
    def capacity(self) -> int:
        """How many runs may be started at a time now."""
        ...

    def start(self, run: PlannedRun) -> Attempt:
        """Start a run.

        Raises: HeldError if another process is at work on it; OSError or DataError if its folder
            cannot be read or written.
        """
        ...


def make_launcher(name: str, options: LaunchOptions) -> Launcher:
    """Make a launcher of `LAUNCHERS`.

    Raises: UserError if a package is missing that it needs, or an option is wrong.
    """
    return importlib.import_module(LAUNCHERS[name]).make_launcher(options)
