"""What a node of a Ray cluster does: it makes a run, and hands its folder back if asked to."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import read_regular
from lra.sweep.run_process import start_run, write_command
from lra.train.checkpoint_files import NAME, newest_first

Parcel = dict[str, bytes]
"""Contents of a run's files by their path in its folder."""

RECORD = "result.json"
_FILES = (
    "config.yaml", "mixer.py", "task.py", "metrics.jsonl", "log.txt", "predictions.csv", RECORD,
)  # fmt: skip
"""Files that travel besides the newest checkpoint; the record, which says that a run has ended, is
the last to be written."""
LARGEST = 64 * 2**30
"""Most bytes of a file."""


def pack(folder: Path) -> Parcel:
    """Read the files of a run, of the checkpoints only the newest, also while the run works.

    A checkpoint is read before the metrics, so that no line that is older than it is missing.

    Raises: DataError naming a link, which may lead to the files of somebody else.
    """
    _refuse_links(folder)
    try:
        names = [f"checkpoints/{path.name}" for path in newest_first(folder / "checkpoints")[:1]]
        names += [name for name in _FILES if (folder / name).is_file()]
        return {name: read_regular(folder / name, largest=LARGEST) for name in names}
    except FileNotFoundError:  # the run has replaced its checkpoint by a newer one meanwhile
        return pack(folder)


def unpack(parcel: Parcel, folder: Path) -> None:
    """Write the files of a run into its folder, and remove older checkpoints.

    Raises: DataError naming what is no file of a run, or a link in the folder.
    """
    _refuse_links(folder)
    checkpoints = [name for name in parcel if NAME.fullmatch(name.removeprefix("checkpoints/"))]
    for name in parcel.keys() - set(_FILES):
        if name not in checkpoints or not name.startswith("checkpoints/"):
            raise DataError(f"{name!r} is no file of a run")
    # A checkpoint comes after the metrics: a run that resumes drops lines that are too new.
    for name in sorted(parcel, key=lambda name: (name == RECORD, name in checkpoints)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, parcel[name])
    for path in newest_first(folder / "checkpoints") if checkpoints else ():
        if f"checkpoints/{path.name}" not in checkpoints:
            path.unlink()


def _refuse_links(folder: Path) -> None:
    for path in (*folder.glob("*"), *folder.glob("checkpoints/*")):
        if path.is_symlink():
            raise DataError(
                f"{path} is a link, which is not followed; put what it leads to in its place"
            )


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
    hand_back: float | None = None
    """Minutes between two copies of the run's folder; None: the results folder is shared."""
    parcel: Parcel | None = None
    """The run's folder as it was handed back last."""


class NodeRun:
    """A run that this node makes."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.process: subprocess.Popen[bytes] | None = None
        self.scratch: tempfile.TemporaryDirectory[str] | None = None
        self.folder = order.results_dir / order.place
        self._last_parcel = time.monotonic()

    def start(self) -> str | None:
        """Start the process of the run; return why this node can make no run, if it cannot."""
        order = self.order
        arguments = [*order.arguments]
        if order.hand_back is not None:
            self.scratch = tempfile.TemporaryDirectory(prefix="lra-", ignore_cleanup_errors=True)
            self.folder = Path(self.scratch.name) / order.place
            self.folder.mkdir(parents=True)
            unpack(order.parcel or {}, self.folder)
            arguments += ["--results-dir", self.scratch.name]
        elif not self.folder.is_dir():  # which the sweep has made
            return (
                f"{platform.node()} does not share the folder {order.results_dir} with the sweep: "
                f"mount it there, or let runs be handed back with --hand-back 10"
            )
        variables = {}
        if order.processes > 1 and (threads := os.environ.get("OMP_NUM_THREADS")):
            variables["OMP_NUM_THREADS"] = str(max(1, int(threads) // order.processes))
        self.process = start_run(
            write_command(arguments, order.processes), self.folder / "log.txt", variables,
            order.working_folder if order.working_folder.is_dir() else None,
        )  # fmt: skip
        return None

    def poll(self) -> tuple[int | None, Parcel | None]:
        """Return the run's exit code, None while it works, and its folder if it is time for it."""
        assert self.process is not None
        code = self.process.poll()
        parcel = None
        if self.order.hand_back is not None:
            now = time.monotonic()
            if code is not None or now - self._last_parcel >= 60 * self.order.hand_back:
                self._last_parcel = now
                parcel = pack(self.folder)
        if code is not None and self.scratch is not None:
            self.scratch.cleanup()
        return code, parcel

    def stop(self) -> None:
        """Ask the run to save and to end at its next step."""
        if self.process is not None:
            self.process.terminate()
