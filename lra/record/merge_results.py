"""Copying the records of other results folders into one's own: whole runs or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from common.errors import DataError
from common.files import remove_leftovers, write_atomically
from common.untrusted import read_regular
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import FILES as EVALUATIONS
from lra.record.run import RunRecord, all_records, folder_of
from lra.runtime.errors import UserError

COPIED = (
    "config.yaml", "metrics.jsonl", "mixer.py", "predictions.csv", "result.json", "task.py",
)  # fmt: skip
"""Files of a run that a report reads; checkpoints stay where they are."""

LARGEST = 2**30
"""Most bytes of a file that is copied."""

_PARTIAL = ".merge-"
"""Start of the names of folders that runs are copied into before they get their own."""


def read_folder(folder: Path, flag: str) -> tuple[list[RunRecord], list[str]]:
    """Read the records of a results folder.

    Raises: UserError if there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"{flag}: there is no folder {folder}")
    return all_records(folder)


def merge_results(target: Path, folders: Sequence[Path]) -> tuple[int, int, list[str]]:
    """Copy the records of other results folders into one, or nothing if any of them conflicts.

    Runs, measurements and evaluations that the target has with the same record are left alone.
    What leads out of the folder that it is in, by a symbolic link, is left out and named.

    Returns: how many were copied, how many were already there, and the faults of unreadable files.
    Raises: UserError listing what the target has with another record.
    """
    _, faults = all_records(target)
    _choose(target, folders)  # so that a mistake makes no folder
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".merge.lock"):
        # Another merge may have copied meanwhile.
        taken, present, more = _choose(target, folders)
        _remove_leftovers(target)
        for place, (root, new) in taken.items():
            if new.is_dir():
                _copy_run(root, new, place)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(place, _read_inside(root, new))
    return len(taken), present, faults + more


def _choose(
    target: Path, folders: Sequence[Path]
) -> tuple[dict[Path, tuple[Path, Path]], int, list[str]]:
    """Choose what is to be copied.

    Returns: by its new place, the source and the file or folder; how many were already there; and
        the faults of files.
    """
    taken: dict[Path, tuple[Path, Path]] = {}
    conflicts: list[str] = []
    faults: list[str] = []
    present = 0
    for folder in folders:
        records, more = read_folder(folder, "merge")
        measured, others = all_bench_records(folder)
        faults += more + others
        found = [(folder_of(target, r), folder_of(folder, r)) for r in records]
        found += [(r.path(target), r.path(folder)) for r in measured]
        found += [
            (folder_of(target, r) / path.name, path)
            for r in records
            for path in folder_of(folder, r).glob(EVALUATIONS)
        ]
        for place, new in found:
            if (outside := _outside(folder, new)) is not None:
                faults.append(outside)
                continue
            _, old = taken.get(place, (target, place))
            if old == place and not place.exists():
                taken[place] = folder, new
            elif _record_in(new) == _record_in(old):
                present += 1
            else:
                conflicts.append(f"{new} and {old}")
    if conflicts:
        raise UserError(
            f"nothing was merged, as these have the same name and different records: "
            f"{'; '.join(conflicts)}; keep one of each"
        )
    return taken, present, faults


def _outside(root: Path, path: Path) -> str | None:
    """Name the first of the files of a run, or the file itself, that leads out of its folder."""
    files = [path / name for name in COPIED] if path.is_dir() else [path]
    for file in [path, *files]:
        try:
            file.resolve()
        except (OSError, RuntimeError):  # as older versions of Python say it
            return f"{file} is a loop of symbolic links"
        if not file.resolve().is_relative_to(root.resolve()):
            return f"{file} leads to {file.resolve()}, outside {root}"
    return None


def _read_inside(root: Path, path: Path) -> bytes:
    """Read a file that lies in a folder of somebody else."""
    if (outside := _outside(root, path)) is not None:
        raise DataError(outside)
    return read_regular(path, largest=LARGEST)


def _record_in(path: Path) -> bytes | None:
    """Read the record of a run's folder, or of a measurement or evaluation; None without one."""
    file = path / "result.json" if path.is_dir() else path
    return read_regular(file, largest=LARGEST) if file.is_file() else None


def _copy_run(root: Path, folder: Path, place: Path) -> None:
    """Copy a run so that its folder appears complete or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=place.parent))
    try:
        for name in COPIED:
            if (folder / name).exists():
                write_atomically(temporary / name, _read_inside(root, folder / name))
        temporary.chmod(0o755)
        temporary.rename(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove what merges that were killed had copied so far; one merge is at work at a time."""
    for folder in target.glob(f"runs/*/*/{_PARTIAL}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in {path.parent for path in target.glob("bench/*/.*.tmp")}:
        remove_leftovers(folder)
