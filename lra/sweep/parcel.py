"""A run's folder as bytes, which travels between machines that share no folder."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.files import write_atomically
from tasks.untrusted import read_regular

Parcel = dict[str, bytes]
"""Contents of files by their path in the run's folder, in the order in which they are written."""

_CHECKPOINT = re.compile(r"checkpoints/step-\d+-[0-9a-f]+\.pt")
_FILES = (
    "config.yaml", "mixer.py", "task.py", "metrics.jsonl", "log.txt", "predictions.csv",
    "result.json",
)  # fmt: skip
"""All other files that travel. The record comes last, because it says that the run has ended."""
LARGEST = 2**33
"""Most bytes of a file."""


def pack(folder: Path) -> Parcel:
    """Read the files of a run, of the checkpoints only the newest, also while the run works.

    A checkpoint is read before the metrics, so that no line that is older than it is missing.
    """
    parcel: Parcel = {}
    for path in sorted(folder.glob("checkpoints/step-*.pt"), reverse=True):
        try:
            parcel[f"checkpoints/{path.name}"] = read_regular(path, largest=LARGEST)
        except FileNotFoundError:  # the run has replaced it by a newer one meanwhile
            return pack(folder)
        break
    for name in _FILES:
        if (folder / name).is_file():
            parcel[name] = read_regular(folder / name, largest=LARGEST)
    return parcel


def unpack(parcel: Parcel, folder: Path) -> None:
    """Write the files of a run into its folder, and remove older checkpoints.

    Raises: ValueError naming what is no file of a run.
    """
    for name in parcel:
        if name not in _FILES and not _CHECKPOINT.fullmatch(name):
            raise ValueError(f"{name!r} is no file of a run")
    for name, content in parcel.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    checkpoints = {Path(name).name for name in parcel if _CHECKPOINT.fullmatch(name)}
    for path in folder.glob("checkpoints/step-*.pt") if checkpoints else ():
        if path.name not in checkpoints:
            path.unlink()
