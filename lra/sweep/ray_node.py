"""What a node of a Ray cluster does: it makes a run, and hands its folder back if asked to."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from lra.runtime.cli import HELD, STOPPED
from lra.runtime.errors import HeldError
from lra.runtime.repository import code_digest
from lra.sweep.parcel import Parcel, pack, unpack
from lra.sweep.run_process import start_run, write_command
from tasks.files import is_locked, write_atomically

SECONDS_BETWEEN_POLLS = 0.5


@dataclass(frozen=True, kw_only=True)
class Order:
    """One run that a node is to make."""

    arguments: tuple[str, ...]
    """Arguments of run_task.py, with the limits."""
    processes: int
    place: Path
    """Folder of the run, relative to the results folder."""
    results_dir: Path
    """Results folder of the sweep."""
    proof: str
    """Name of a file in the results folder, which a node sees if it shares the folder."""
    code: str
    """Digest of the suite's code that the sweep has."""
    hand_back_minutes: float | None = None
    """Time between two copies of the run's folder; None: the node shares the results folder."""
    parcel: Parcel | None = None
    """The run's folder as it was handed back last."""
    data_dir: Path
    data_from: Path | None = None
    """Folder whose files are copied into the data folder first."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a node says about a run."""

    exit_code: int | None = None
    """Exit code of the run's process; None while it works."""
    parcel: Parcel | None = None
    """The run's folder, if it is handed back."""


def make_run(order: Order, is_stopped: Callable[[], bool]) -> Iterator[Report | str]:
    """Make a run.

    Args:
        is_stopped: whether the sweep asks for its end.
    Yields: the run's folder from time to time, if it is handed back, and at last how it ended; or
        a text that says why this node can make no run of the sweep.
    """
    if (fault := _find_fault(order)) is not None:
        yield f"{platform.node()} {fault}"
    elif is_stopped():
        yield Report(exit_code=STOPPED)
    elif order.hand_back_minutes is None:
        process = start_run(
            write_command(order.arguments, order.processes),
            order.results_dir / order.place / "log.txt",
        )
        yield from _wait(process, is_stopped, lambda: None, None)
    else:
        try:
            with _scratch_folder(order) as (results_dir, folder):
                arguments = [*order.arguments, "--results-dir", str(results_dir)]
                process = start_run(write_command(arguments, order.processes), folder / "log.txt")
                pack_folder = functools.partial(pack, folder)
                yield from _wait(process, is_stopped, pack_folder, 60 * order.hand_back_minutes)
        except HeldError:
            yield Report(exit_code=HELD)


def _find_fault(order: Order) -> str | None:
    """Say why this node can make no run of the sweep; None if it can."""
    if (found := code_digest()) != order.code:
        return f"has another state of the suite's code ({found}) than the sweep ({order.code})"
    shared = order.hand_back_minutes is None
    if shared and not (order.results_dir / order.proof).is_file():
        return (
            f"does not share the folder {order.results_dir} with the sweep: mount it there, or "
            f"let runs be handed back with --hand-back 10"
        )
    if order.data_from is not None:
        if not order.data_from.is_dir():
            return f"has no folder {order.data_from} (--data-from)"
        copy_once(order.data_from, order.data_dir)
    return None


def copy_once(source: Path, target: Path) -> None:
    """Copy the files of a folder into another, unless an earlier run of this node has done so."""
    target.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:8]
    done = target / f".copied-{digest}"
    with FileLock(target / f".copied-{digest}.lock"):
        if not done.exists():
            shutil.copytree(source, target, dirs_exist_ok=True)
            write_atomically(done, f"{source}\n".encode())


@contextlib.contextmanager
def _scratch_folder(order: Order) -> Iterator[tuple[Path, Path]]:
    """Make a results folder of this node's own with the run's folder as it was handed back.

    Raises: HeldError if a run of an earlier sweep, which has been killed, is still ending there.
    """
    digest = hashlib.sha256(f"{order.results_dir}\0{order.place}".encode()).hexdigest()[:16]
    results_dir = Path(tempfile.gettempdir()) / f"lra-sweep-{digest}"
    folder = results_dir / order.place
    if is_locked(folder / "lock"):
        raise HeldError(f"{folder} is held")
    shutil.rmtree(results_dir, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        unpack(order.parcel or {}, folder)
        yield results_dir, folder
    finally:
        shutil.rmtree(results_dir, ignore_errors=True)


def _wait(
    process: subprocess.Popen[bytes],
    is_stopped: Callable[[], bool],
    pack_folder: Callable[[], Parcel | None],
    seconds_between_parcels: float | None,
) -> Iterator[Report]:
    """Wait for the end of a process.

    Yields: as `make_run`.
    """
    last = time.monotonic()
    is_asked = False
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_BETWEEN_POLLS)
            break
        if not is_asked and is_stopped():
            is_asked = True
            process.terminate()
        now = time.monotonic()
        if seconds_between_parcels is not None and now - last >= seconds_between_parcels:
            last = now
            yield Report(parcel=pack_folder())
    yield Report(exit_code=process.returncode, parcel=pack_folder())
