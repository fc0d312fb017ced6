"""Copying the records of other results folders into one's own: whole runs or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from common.errors import DataError
from common.files import write_atomically
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.packed import has_file, read_file, read_pack, write_pack
from lra.record.run import LARGEST_METRICS, folder_of
from lra.record.schema import Record
from lra.record.table import read_runs
from lra.runtime.errors import UserError

COPIED = ("config.yaml", "metrics.jsonl", "mixer.py", "predictions.csv", "task.py")
"""Files of a run that are copied with its record; checkpoints stay where they are."""
PARTIAL = ".merge-"
"""Start of the names of folders that runs are copied into before they get their own."""

Found = dict[Path, tuple[Path, Record]]
"""Records by the relative path of their file, each with its results folder."""


def merge_results(
    target: Path, folders: Sequence[Path], runs: Collection[str] = (), *, packed: bool = False
) -> tuple[int, int, list[str]]:
    """Copy the records of other results folders into one, or nothing if any of them conflicts.

    Runs, measurements and evaluations that the target has with the same record are left alone.
    What leads out of the folder that it is in, by a symbolic link, is left out and named.

    Args:
        target: results folder to copy into.
        folders: results folders to copy from.
        runs: the only runs to copy, each as TASK/MIXER/RUN; empty: everything.
        packed: whether the files are added to the packed files of the target.
    Returns: how many were copied, how many were already there, and the faults of unreadable files.
    Raises: UserError listing what the target has with another record, and for an unknown run.
    """
    new, present, faults = _choose(target, folders, runs, packed=packed)
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".merge.lock"):
        if packed:
            files = read_pack(target)
            for place, (root, record) in new.items():
                files |= {p.as_posix(): c for p, c in _read_files(root, place, record).items()}
            write_pack(target, files)
        else:
            for killed in target.glob(f"runs/*/*/{PARTIAL}*"):
                shutil.rmtree(killed, ignore_errors=True)
            for place, (root, record) in new.items():
                _write_files(target, place, _read_files(root, place, record))
    return len(new), present, faults


def _choose(
    target: Path, folders: Sequence[Path], runs: Collection[str], *, packed: bool
) -> tuple[Found, int, list[str]]:
    """Return what is new; how many records were already there; and the faults of files."""
    new: Found = {}
    conflicts: list[str] = []
    present = 0
    here, faults = _read_records(target, None)
    for folder in folders:
        found, more = _read_records(folder, "merge", runs)
        faults += more
        for place, (_, record) in found.items():
            if outside := _find_outside(folder, place):
                faults.append(f"{outside} is a link that leads out of {folder}")
                continue
            root, other = new.get(place) or here.get(place) or (target, None)
            is_run = place.name == "result.json"
            is_begun = is_run and not packed and (target / place).parent.is_dir()
            if other is None and not is_begun:
                new[place] = folder, record
            elif record == other:
                present += 1
            else:
                own = place.parent if is_run else place
                conflicts.append(f"{folder / own} and {root / own}")
    if conflicts:
        raise UserError(
            f"nothing was merged, as these have the same name and different records: "
            f"{'; '.join(conflicts)}; keep one of each"
        )
    return new, present, faults


def _read_records(
    folder: Path, flag: str | None, runs: Collection[str] = ()
) -> tuple[Found, list[str]]:
    """Read the records of all kinds in a results folder, or those of some runs."""
    every, faults = read_runs(folder, flag)
    named = {f"{one.task}/{one.mixer}/{one.run_id}": one for _, one in every}
    if missing := [name for name in runs if name not in named]:
        raise UserError(f"there is no run {folder / 'runs' / missing[0]}, or it has no result")
    found: Found = {}
    for record in map(named.__getitem__, runs or named):
        place = folder_of(Path(), record)
        found[place / "result.json"] = folder, record
        evaluated, more = evaluations_of(folder / place)
        found |= {place / one.path: (folder, one) for one in evaluated}
        faults += more
    if not runs:
        measured, more = all_bench_records(folder)
        found |= {one.path(Path()): (folder, one) for one in measured}
        faults += more
    return found, faults


def _list_beside(place: Path) -> list[Path]:
    """List the files that are copied together with a record, where they are there."""
    return [place.with_name(name) for name in COPIED] if place.name == "result.json" else []


def _find_outside(root: Path, place: Path) -> Path | None:
    """Find the first file of a record that a link leads out of its results folder, or nowhere."""
    base = os.path.realpath(root)
    for file in [root / one for one in (place.parent, place, *_list_beside(place))]:
        is_inside = Path(os.path.realpath(file)).is_relative_to(base)
        if not is_inside or (file.is_symlink() and not file.exists()):
            return file
    return None


def _read_files(root: Path, place: Path, record: Record) -> dict[Path, bytes]:
    """Read the files of a record that lies in a folder of somebody else."""
    if outside := _find_outside(root, place):
        raise DataError(f"{outside} is a link that leads out of {root}")
    beside = [file for file in _list_beside(place) if has_file(root / file)]
    contents = {file: read_file(root / file, largest=LARGEST_METRICS) for file in beside}
    return {**contents, place: record.content}


def _write_files(target: Path, place: Path, files: Mapping[Path, bytes]) -> None:
    """Write the files of a record; the folder of a run appears complete or not at all."""
    folder = target / place.parent
    if place.name != "result.json":
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(target / place, files[place])
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder.parent))
    try:
        for file, content in files.items():
            write_atomically(temporary / file.name, content)
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
