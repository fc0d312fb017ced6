"""How many threads a command computes with and how they wait, chosen before torch is loaded.

Threads that are done with their share of an operation wait for the others at a barrier, and spin
there for a while before they sleep. GNU's OpenMP spins for longer than a time slice of the system:
beside a process that keeps all cores busy a step then takes ten times as long, as threads spin
while those they wait for have no core. Asleep at once, threads take a third longer on an idle
machine. A short spin costs neither.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from common.cores import core_count, cpu_quota, visible_cores

Waiting = Literal["short spin", "passive", "as set", "unknown"]
"""How threads wait: for a short while spinning, asleep at once, as the user's environment has it,
or, in a program that is no command of this suite, not known."""

SHORT_SPIN: Final = "10000"
"""Rounds of spinning, some 0.2 ms: longer than what threads differ by in one operation."""
SECONDS_WATCHED: Final = 0.15
"""For how long other processes are watched as a command starts."""
BUSY: Final = 1.25
"""Times the cores that this process and others may want together before the machine is busy."""
MOST_THREADS: Final = 1024
_WAITING_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_SHORT = {"GOMP_SPINCOUNT": SHORT_SPIN, "KMP_BLOCKTIME": "1"}
"""By GNU's OpenMP, and in milliseconds by LLVM's and Intel's, which otherwise spin for 200."""
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class Threads:
    """How a command computes.

    Args:
        waiting: how its threads wait for each other.
        cores: how many it may use, see `common.cores`.
        load: how many of these other processes used as it started. None: not known.
    """

    waiting: Waiting
    cores: int
    load: float | None

    def is_busy(self, count: int) -> bool:
        """Say whether the machine has too few cores for so many threads and the other processes."""
        return self.load is not None and count + self.load > BUSY * self.cores

    def describe_load(self, count: int) -> str | None:
        """Describe a machine that is too busy for so many threads in a line; None if it is not."""
        if not self.is_busy(count):
            return None
        threads = "thread" if count == 1 else f"{count} threads"
        return (
            f"other processes keep {self.load:.1f} of {self.cores} cores busy, so this command's "
            f"{threads} will be slower; records mark such speeds"
        )


class _Chosen:
    """What this process computes with; a command sets it as it starts."""

    threads: Threads | None = None
    variables: tuple[str, ...] = ()


def threads() -> Threads:
    """Return how this process computes."""
    return _Chosen.threads or Threads("unknown", core_count(), None)


def chosen_variables() -> tuple[str, ...]:
    """Name the variables of the environment that say how threads wait, and that we have set."""
    return _Chosen.variables


def choose_threads(arguments: Sequence[str]) -> None:
    """Choose the threads of a command, and how they wait; torch must not be loaded yet.

    What the user's environment says of waiting holds.

    Args:
        arguments: of the command; --threads is looked for, and checked later.
    """
    count = _asked_for(arguments)
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)
    load = measure_other_load(SECONDS_WATCHED)
    cores = core_count()
    has_quota = cores < len(visible_cores())
    if has_quota and "OMP_NUM_THREADS" not in os.environ:  # torch knows nothing of quotas
        os.environ["OMP_NUM_THREADS"] = str(_physical_cores(cores))
    if any(name in os.environ for name in _WAITING_VARIABLES) or _torch_is_loaded():
        _Chosen.threads = Threads("as set", cores, load)
        return
    wanted = _count(os.environ.get("OMP_NUM_THREADS", "")) or _physical_cores(cores)
    is_busy = Threads("passive", cores, load).is_busy(wanted)
    variables = _PASSIVE if is_busy else _SHORT
    os.environ.update(variables)
    _Chosen.threads = Threads("passive" if is_busy else "short spin", cores, load)
    _Chosen.variables = tuple(variables)


def _asked_for(arguments: Sequence[str]) -> int | None:
    """Return what --threads says, if it is a number of threads."""
    found = None
    for i, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--threads":
            found = value or (arguments[i + 1] if i + 1 < len(arguments) else None)
    return None if found is None else _count(found)


def _count(text: str) -> int | None:
    """Read a number of threads; None if it is none."""
    is_short = text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_THREADS))
    return int(text) if is_short and 0 < int(text) <= MOST_THREADS else None


def _physical_cores(cores: int) -> int:
    """Return as how many threads torch takes, of the cores that this process may run on."""
    import psutil

    return min(cores, psutil.cpu_count(logical=False) or cores)


def _torch_is_loaded() -> bool:
    return "torch" in sys.modules


def measure_other_load(seconds: float) -> float | None:
    """Watch what other processes use of the cores that this process may use.

    Under a quota, these are processes of the same control group, and those of the whole machine as
    far as they leave fewer cores than the quota.

    Returns: how many cores they use; None if the system does not say.
    """
    cores, quota = visible_cores(), cpu_quota()
    before, own, start = _busy_seconds(cores), time.process_time(), time.monotonic()
    group_before = quota.used_seconds() if quota else None
    if before is None:
        return None
    time.sleep(seconds)
    after = _busy_seconds(cores)
    group_after = quota.used_seconds() if quota else None
    if after is None:
        return None
    passed, own = time.monotonic() - start, time.process_time() - own
    load = max(0.0, after - before - own) / passed
    if quota is not None and quota.cores < len(cores):
        load = max(0.0, load - (len(cores) - quota.cores))
        if group_before is not None and group_after is not None:
            load = max(load, (group_after - group_before - own) / passed)
    return round(load, 2)


def _busy_seconds(cores: Sequence[int]) -> float | None:
    """Add up the time that cores were not idle; None if the system does not say of each of them."""
    import psutil

    try:
        times = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, psutil.Error):
        return None
    if any(core >= len(times) for core in cores):
        return None
    idle = {"idle", "iowait", "guest", "guest_nice"}  # a guest's time is within the user's
    return sum(
        sum(value for name, value in times[core]._asdict().items() if name not in idle)
        for core in cores
    )
