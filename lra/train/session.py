"""What a run is made on, from which commits, for how long: in this session and those before."""

from __future__ import annotations

import time
from typing import Any

import torch

from lra.config.schema import RunConfig
from lra.runtime.distributed import ProcessGroup
from lra.runtime.environment import device_name, peak_memory_mib, reset_peak_memory, versions
from lra.runtime.repository import code_digest, git_state
from lra.train.state import RunState
from models.fast.public_kernels import installed_packages


class Session:
    """The time, memory and commits of a run from when a session begins to work on it.

    Args:
        device: that this process computes on.
        group: the processes that train together.
    """

    def __init__(self, device: torch.device, group: ProcessGroup) -> None:
        reset_peak_memory(device)
        self.device = device
        self.group = group
        self.git = git_state()
        self.start = time.monotonic()
        self._seconds_before = 0.0
        self._peak_before = 0.0
        self._earlier_commits: list[str] = []

    def go_on(self, state: RunState) -> bool:
        """Go on from a state; return whether that was captured on the same hardware."""
        self._seconds_before = state["wall_seconds"]
        self._earlier_commits = state["commits"]
        is_same = state["device"] == self.hardware()
        if is_same:
            self._peak_before = state["peak_memory_mib"]
        return is_same

    def hardware(self) -> str:
        """Name what the run is made on, as records show it."""
        name = device_name(self.device)
        return name if self.group.world_size == 1 else f"{self.group.world_size} x {name}"

    def commits(self) -> list[str]:
        """List the commits that the run's steps were made at, in order."""
        return list(dict.fromkeys([*self._earlier_commits, str(self.git["commit"])]))

    def wall_seconds(self) -> float:
        """Return the time of all sessions, preparation of data apart."""
        return self._seconds_before + self.own_seconds()

    def own_seconds(self) -> float:
        """Return the time of this session alone."""
        return time.monotonic() - self.start

    def peak_memory(self) -> float:
        """Return the most memory that a process took so far, in MiB; all must take part."""
        return max(self._peak_before, self.group.all_reduce_max(peak_memory_mib(self.device)))


def common_facts(config: RunConfig, seed: int, device: torch.device) -> dict[str, Any]:
    """List what all processes that train one model must have in common, by name.

    Their data comes later. Settings of `log` count too: they say when processes exchange something.
    """
    names = {key: value for key, value in config.values().items() if isinstance(value, str)}
    settings = {
        f"{section}.{key}": value
        for section in config.sections
        for key, value in getattr(config, section).model_dump().items()
    }
    packages = versions() | (installed_packages() if config.train.kernels == "auto" else {})
    return {
        "seed": seed,
        **names,
        **settings,
        "the device": device.type,
        **{f"the version of {name}": number for name, number in packages.items()},
        "the code of lra": code_digest(),
    }
