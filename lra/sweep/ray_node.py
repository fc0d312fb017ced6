"""What a node of a Ray cluster does: it makes a run, and hands its folder back if asked to."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from common.files import write_atomically
from lra.runtime.cli import HELD, STOPPED
from lra.sweep.parcel import Parcel, pack, unpack
from lra.sweep.run_process import start_run, write_command

SECONDS_BETWEEN_POLLS = 0.5
SECONDS_TO_STOP = 60.0
"""Time that a run has to save when the task that watches over it fails."""
ENDS = ("result.json", "failure.json")
"""Files that say how a run ended."""

FileTimes = tuple[int | None, ...]
"""Times at which `ENDS` were written, in nanoseconds; None for a file that does not exist."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One run that a node is to make."""

    arguments: tuple[str, ...]
    """Arguments of run_task.py, with the limits."""
    processes: int
    """Processes of the run, one for each of its GPUs."""
    working_folder: Path
    """Working directory of the sweep, which the paths of a user's own files may refer to."""
    place: Path
    """Folder of the run, relative to the results folder."""
    results_dir: Path
    """Results folder of the sweep."""
    proof: str
    """Name of a file in the results folder, which a node sees if it shares the folder."""
    ends: FileTimes
    """See `file_times`: of the run's folder, when the run was put into the queue."""
    hand_back_minutes: float | None = None
    """Time between two copies of the run's folder; None: the node shares the results folder."""
    parcel: Parcel | None = None
    """The run's folder as it was handed back last."""
    data_dir: Path
    """Data folder of the run."""
    data_from: Path | None = None
    """Folder whose files are copied into the data folder first."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a node says about a run."""

    exit_code: int | None = None
    """Exit code of the run's process; None while it works."""
    parcel: Parcel | None = None
    """The run's folder, if it is handed back."""


def file_times(folder: Path) -> FileTimes:
    """Read when the files that say how a run ended were written."""
    times: list[int | None] = []
    for name in ENDS:
        try:
            times.append((folder / name).stat().st_mtime_ns)
        except FileNotFoundError:
            times.append(None)
    return tuple(times)


def make_run(order: Order, is_stopped: Callable[[], bool]) -> Iterator[Report | str]:
    """Make a run.

    Args:
        is_stopped: whether the sweep asks for its end.
    Yields: an empty report at the start; the run's folder from time to time, if it is handed back;
        and at last how the run ended, or a text that says why this node can make no run.
    """
    yield Report()
    folder = order.results_dir / order.place
    if is_stopped():
        yield Report(exit_code=STOPPED)
    elif (fault := _find_fault(order)) is not None:
        yield f"{platform.node()} {fault}"
    elif order.hand_back_minutes is not None:
        with tempfile.TemporaryDirectory(prefix="lra-", ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch) / order.place
            folder.mkdir(parents=True)
            unpack(order.parcel or {}, folder)
            process = _start(order, folder, "--results-dir", scratch)
            pack_folder = functools.partial(pack, folder)
            yield from _wait(process, is_stopped, pack_folder, 60 * order.hand_back_minutes)
    elif file_times(folder) != order.ends:
        yield Report(exit_code=HELD)  # another sweep has ended it while this one had it in a queue
    else:
        yield from _wait(_start(order, folder), is_stopped, lambda: None, None)


def _start(order: Order, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    """Start the process of a run, which writes to a folder."""
    variables = {}
    if order.processes > 1 and (threads := os.environ.get("OMP_NUM_THREADS")):
        variables["OMP_NUM_THREADS"] = str(max(1, int(threads) // order.processes))
    working_folder = order.working_folder if order.working_folder.is_dir() else None
    command = write_command([*order.arguments, *more], order.processes)
    return start_run(command, folder / "log.txt", variables, working_folder)


def _find_fault(order: Order) -> str | None:
    """Say why this node can make no run of the sweep; None if it can."""
    shared = order.hand_back_minutes is None
    if shared and not (order.results_dir / order.proof).is_file():
        return (
            f"does not share the folder {order.results_dir} with the sweep: mount it there, or "
            f"let runs be handed back with --hand-back 10"
        )
    if order.data_from is not None:
        if not order.data_from.is_dir():
            return f"has no folder {order.data_from} (--data-from)"
        try:
            copy_once(order.data_from, order.data_dir)
        except OSError as error:
            return f"cannot copy {order.data_from} to {order.data_dir}: {error}"
    return None


def copy_once(source: Path, target: Path) -> None:
    """Copy the files of a folder into another, unless an earlier run of this node has done so."""
    if source == target:
        return
    target.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:8]
    done = target / f".copied-{digest}"
    with FileLock(target / f".copied-{digest}.lock"):
        if not done.exists():
            shutil.copytree(source, target, dirs_exist_ok=True)
            write_atomically(done, f"{source}\n".encode())


def _wait(
    process: subprocess.Popen[bytes],
    is_stopped: Callable[[], bool],
    pack_folder: Callable[[], Parcel | None],
    seconds_between_parcels: float | None,
) -> Iterator[Report]:
    """Wait for the end of a process, which also ends if something fails here.

    Yields: as `make_run`.
    """
    last = time.monotonic()
    is_asked = False
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_POLLS)
            if not is_asked and is_stopped():
                is_asked = True
                process.terminate()
            now = time.monotonic()
            if seconds_between_parcels is not None and now - last >= seconds_between_parcels:
                last = now
                yield Report(parcel=pack_folder())
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_STOP)
            process.kill()
            process.wait()
    yield Report(exit_code=process.returncode, parcel=pack_folder())
