"""Copying the records of other results folders into one's own."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from filelock import FileLock

from common.errors import UserError
from common.files import write_atomically
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.packed import PACK, has_file, read_file, read_pack
from lra.record.run import RUNS, read_runs
from lra.record.run_files import LARGEST_METRICS

RECORD = "result.json"
COPIED = (
    "config.yaml",
    "mixer.py",
    "task.py",
    "metrics.jsonl",
    "internals.jsonl",
    "predictions.csv",
    RECORD,
)
"""Files of a run that are copied; the record comes last, as a run without one is no run."""


def merge_results(
    target: Path, folders: Sequence[Path], runs: Collection[str] = (), *, packed: bool = False
) -> tuple[int, int, list[str]]:
    """Copy the records of other results folders into one, or nothing if any of them conflicts.

    Runs, measurements and evaluations that the target has with the same record are left alone.

    Args:
        target: results folder to copy into.
        folders: results folders to copy from.
        runs: the only runs to copy, each as TASK/MIXER/RUN; empty: everything.
        packed: whether the files are added to the packed files of the target.
    Returns: how many were copied, how many were already there, and the faults of unreadable files.
    Raises: UserError listing what the target has with another record, and for an unknown run.
    """
    places, faults = _list_records(target, None)
    roots = dict.fromkeys(places, target)
    conflicts: list[str] = []
    present = 0
    for folder in folders:
        found, more = _list_records(folder, "merge", runs)
        faults += more
        for place in found:
            is_taken = place not in roots and not packed and _is_taken(target / place)
            root = roots.setdefault(place, target if is_taken else folder)
            if root == folder:
                continue
            if is_taken or read_file(root / place) != read_file(folder / place):
                conflicts.append(f"{folder / place} and {root / place}")
            present += 1
    if conflicts:
        raise UserError(
            f"nothing was merged, as these have the same name and different records: "
            f"{'; '.join(conflicts)}; keep one of each"
        )
    new = {place: root for place, root in roots.items() if root != target}
    contents = (
        (place.with_name(name), read_file(root / place.with_name(name), largest=LARGEST_METRICS))
        for place, root in new.items()
        for name in (COPIED if place.name == RECORD else [place.name])
        if has_file(root / place.with_name(name))
    )
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".merge.lock"):
        if packed:
            added = {file.as_posix(): content for file, content in contents}
            write_pack(target, {**read_pack(target), **added})
        else:
            for file, content in contents:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(target / file, content)
    return len(new), present, faults


def _list_records(
    folder: Path, flag: str | None, runs: Collection[str] = ()
) -> tuple[list[Path], list[str]]:
    """List the records of all kinds in a results folder, or those of some runs, and the faults."""
    every, faults = read_runs(folder, flag)
    names = [f"{one.task}/{one.mixer}/{one.run_id}" for _, one in every]
    if missing := [name for name in runs if name not in names]:
        raise UserError(f"there is no run {folder / RUNS / missing[0]}, or it has no result")
    places: list[Path] = []
    for name in runs or names:
        place = Path(RUNS, name)
        evaluated, more = evaluations_of(folder / place)
        places += [place / RECORD, *(place / one.path for one in evaluated)]
        faults += more
    if not runs:
        measured, more = all_bench_records(folder)
        places += [one.path(Path()) for one in measured]
        faults += more
    return places, faults


def _is_taken(record: Path) -> bool:
    """Whether there is a damaged record, or a run that has begun, where one is to be copied."""
    return record.exists() or (record.name == RECORD and (record.parent / "lock").exists())


def write_pack(results_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write contents by relative path as a pack. The same files give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = sorted((PurePosixPath(path) for path in files), key=lambda path: (path.name, path))
    columns = {
        "folder": [path.parent.as_posix() for path in places],
        "name": [path.name for path in places],
        "content": [files[path.as_posix()] for path in places],
    }
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(columns), buffer, compression="zstd", compression_level=19, use_dictionary=False
    )
    write_atomically(results_dir / PACK, buffer.getvalue())
