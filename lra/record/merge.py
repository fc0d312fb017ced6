"""Copying the records of other results folders into one's own."""

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from filelock import FileLock

from lra.common.errors import UserError
from lra.common.files import is_locked, remove_leftovers, write_atomically
from lra.common.untrusted import most_unpacked
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.packed import PACK, file_on_disk, has_file, pack_faults, read_file, read_pack
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
)
"""Files of a run that are copied before its record, as a run without one is no run."""


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
    records: dict[Path, tuple[Path, bytes]] = {}
    conflicts: list[str] = []
    faults: list[str] = []
    count = 0
    for folder in folders:
        paths, more = _list_records(folder, runs)
        faults += more
        for path in paths:
            if (content := _read_within(folder, path, faults)) is not None:
                root, other = records.setdefault(path, (folder, content))
                if other != content:
                    conflicts.append(f"{folder / path} and {root / path}")
                count += 1
    _refuse(conflicts)
    target.mkdir(parents=True, exist_ok=True)
    with FileLock(target / ".merge.lock"):
        remove_leftovers(target, age=0)
        faults += pack_faults(target)
        new = {}
        for path, (root, content) in records.items():
            is_there = has_file(target / path)
            if not is_there and (packed or not _is_taken(target / path)):
                new[path] = root, content
            elif not is_there or read_file(target / path) != content:
                conflicts.append(f"{root / path} and {target / path}")
        _refuse(conflicts)
        files = _read_files(new, faults)
        if not packed:
            for file, content in files:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers((target / file).parent, age=0)
                write_atomically(target / file, content)
        elif new:
            old = read_pack(target)
            added = {file.as_posix(): content for file, content in files}
            _refuse([name for name, content in added.items() if old.get(name, content) != content])
            write_pack(target, {**old, **added})
    return len(new), count - len(new), [*dict.fromkeys(faults)]


def _refuse(conflicts: Sequence[str]) -> None:
    if conflicts:
        raise UserError(
            f"nothing was merged, as these have the same name and different records: "
            f"{'; '.join(conflicts)}; keep one of each"
        )


def _read_within(root: Path, path: Path, faults: list[str]) -> bytes | None:
    """Read a file of a results folder; None, and a fault, for one that a link has elsewhere."""
    file = file_on_disk(root / path)
    if not file.resolve().is_relative_to(root.resolve()):
        faults.append(f"{file} is a link out of {root}, or in a folder that is one")
        return None
    return read_file(root / path, largest=LARGEST_METRICS)


def _read_files(
    records: Mapping[Path, tuple[Path, bytes]], faults: list[str]
) -> Iterator[tuple[Path, bytes]]:
    """Read the files to copy with records, by their places in a results folder."""
    for path, (root, record) in records.items():
        for file in map(path.with_name, COPIED if path.name == RECORD else ()):
            content = _read_within(root, file, faults) if has_file(root / file) else None
            if content is not None:
                yield file, content
        yield path, record


def _list_records(folder: Path, runs: Collection[str]) -> tuple[list[Path], list[str]]:
    """List the records of all kinds in a results folder, or those of some runs, and the faults."""
    every, faults = read_runs(folder, "merge")
    names = [run.name for _, run in every]
    if missing := [name for name in runs if name not in names]:
        raise UserError(f"there is no run {folder / RUNS / missing[0]}, or it has no result")
    paths: list[Path] = []
    for name in runs or names:
        run_folder = Path(RUNS, name)
        if is_locked(folder / run_folder / "lock"):
            faults.append(f"{folder / run_folder}: another process is at work on it")
            continue
        evaluated, more = evaluations_of(folder / run_folder)
        paths += [run_folder / RECORD, *(run_folder / evaluation.path for evaluation in evaluated)]
        faults += more
    if not runs:
        measured, more = all_bench_records(folder)
        paths += [record.path(Path()) for record in measured]
        faults += more
    return paths, faults


def _is_taken(record: Path) -> bool:
    """Whether there is a damaged record, or a run that has begun, where one is to be copied."""
    return record.exists() or (record.name == RECORD and (record.parent / "lock").exists())


def write_pack(results_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write contents by relative path as a pack. The same files give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted((PurePosixPath(path) for path in files), key=lambda path: (path.name, path))
    columns = {
        "folder": [path.parent.as_posix() for path in paths],
        "name": [path.name for path in paths],
        "content": [files[path.as_posix()] for path in paths],
    }
    table, buffer = pa.table(columns), io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=19, use_dictionary=False)
    if 2 * table.nbytes > most_unpacked(buffer.tell()):  # nobody would read it
        pq.write_table(table, buffer := io.BytesIO(), compression="none", use_dictionary=False)
    write_atomically(results_dir / PACK, buffer.getvalue())
