"""A run's folder as bytes, which travels between machines that share no folder."""

from __future__ import annotations

from pathlib import Path

from common.errors import DataError
from common.files import write_atomically
from common.untrusted import read_regular
from lra.train.checkpoint_files import NAME, newest_first

Parcel = dict[str, bytes]
"""Contents of files by their path in the run's folder."""

CHECKPOINTS = "checkpoints"
"""Folder of a run's checkpoints, in the run's folder."""
_FILES = (
    "config.yaml", "mixer.py", "task.py", "metrics.jsonl", "log.txt", "predictions.csv",
    "result.json",
)  # fmt: skip
"""All other files that travel."""
RECORD = "result.json"
"""The last file to be written, because it says that the run has ended."""
LARGEST = 64 * 2**30
"""Most bytes of a file."""


def pack(folder: Path) -> Parcel:
    """Read the files of a run, of the checkpoints only the newest, also while the run works.

    A checkpoint is read before the metrics, so that no line that is older than it is missing.

    Raises: DataError naming a link, which is not followed.
    """
    _refuse_links(folder)
    parcel: Parcel = {}
    try:
        for path in newest_first(folder / CHECKPOINTS)[:1]:
            parcel[f"{CHECKPOINTS}/{path.name}"] = read_regular(path, largest=LARGEST)
    except FileNotFoundError:  # the run has replaced it by a newer one meanwhile
        return pack(folder)
    for name in _FILES:
        if (folder / name).is_file():
            parcel[name] = read_regular(folder / name, largest=LARGEST)
    return parcel


def unpack(parcel: Parcel, folder: Path) -> None:
    """Write the files of a run into its folder, and remove older checkpoints.

    Raises: DataError naming what is no file of a run, or a link in the folder.
    """
    _refuse_links(folder)
    checkpoints = {name for name in parcel if _is_checkpoint(name)}
    for name in parcel.keys() - checkpoints - set(_FILES):
        raise DataError(f"{name!r} is no file of a run")
    # A checkpoint comes after the metrics: a run that resumes drops lines that are too new.
    for name in sorted(parcel, key=lambda name: (name == RECORD, name in checkpoints)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, parcel[name])
    for path in newest_first(folder / CHECKPOINTS) if checkpoints else ():
        if f"{CHECKPOINTS}/{path.name}" not in checkpoints:
            path.unlink()


def _refuse_links(folder: Path) -> None:
    """Refuse a run's folder with a link in it, which may lead to the files of somebody else.

    Raises: DataError naming the link.
    """
    for path in (*folder.glob("*"), *folder.glob(f"{CHECKPOINTS}/*")):
        if path.is_symlink():
            raise DataError(
                f"{path} is a link, which is not followed; put what it leads to in its place"
            )


def _is_checkpoint(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder == CHECKPOINTS and NAME.fullmatch(file) is not None
