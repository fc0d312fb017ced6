"""Results that travel: a few files of limited size, from which another machine goes on.

The files of a results folder, without checkpoints, are packed in one `runs.parquet`, which `python
-m lra.record merge` and `ship` read. The last checkpoint of a run, if it is small, is packed in a
folder of its own.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from common.errors import UserError
from common.files import write_atomically
from common.untrusted import read_regular
from lra.record.merge import write_pack
from lra.record.packed import PACK, read_pack
from lra.record.run import load_record
from lra.train.checkpoint import newest_first

LARGEST = 16 * 2**20
"""Most bytes of a packed checkpoint, as lent machines often return small files alone."""
MOST = 3 * LARGEST
"""Most bytes of all packed checkpoints."""
MOST_FILES = 7
"""Most packed checkpoints."""
PARTS = ("runs", "bench", "gpu")
"""Folders that are packed."""
CHECKPOINTS = "/checkpoints/"


def pack_results(results_dir: Path, out: Path) -> list[str]:
    """Pack a results folder; return the runs whose checkpoint is too large or one too many.

    Unfinished runs come first.
    """
    files = {
        path.relative_to(results_dir).as_posix(): path
        for part in PARTS
        for path in sorted((results_dir / part).rglob("*"))
        if path.is_file() and path.name != "lock" and path.suffix not in (".pt", ".tmp")
    }
    contents = {name: read_regular(path, largest=LARGEST) for name, path in files.items()}
    out.mkdir(parents=True, exist_ok=True)
    write_pack(out, contents)
    folders = [path for path in results_dir.glob("runs/*/*/*/checkpoints") if newest_first(path)]
    folders.sort(key=lambda folder: ((folder.parent / "predictions.csv").exists(), folder))
    left_out: list[str] = []
    room, count = MOST, 0
    for folder in folders:
        newest = newest_first(folder)[0]
        size = newest.stat().st_size
        if size > min(room, LARGEST) or count == MOST_FILES:
            left_out.append(folder.parent.relative_to(results_dir / "runs").as_posix())
            continue
        room, count = room - size, count + 1
        place = out / f"checkpoint-{count}"
        place.mkdir(exist_ok=True)
        name = newest.relative_to(results_dir).as_posix()
        write_pack(place, {name: read_regular(newest, largest=LARGEST)})
    for stale in range(count + 1, MOST_FILES + 1):
        (out / f"checkpoint-{stale}" / PACK).unlink(missing_ok=True)
    return left_out


def unpack_results(folder: Path, results_dir: Path) -> None:
    """Copy packed results into a results folder, which keeps the files that it has.

    The record of an unfinished run without a checkpoint is left out, so that it starts again.

    Raises: UserError for a pack with other names than `pack_results` writes.
    """
    packs = [folder, *sorted(folder.glob("checkpoint-*"))]
    files = {name: content for pack in packs for name, content in read_pack(pack).items()}
    resumable = {name.partition(CHECKPOINTS)[0] for name in files if CHECKPOINTS in name}
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.parts[0] not in PARTS or ".." in path.parts:
            raise UserError(f"{folder}: got a file {name!r}, expected one in {', '.join(PARTS)}")
        is_lost = path.name == "result.json" and path.parent.as_posix() not in resumable
        if is_lost and load_record(folder / name).status == "stopped":
            continue
        if not (results_dir / name).exists():
            (results_dir / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(results_dir / name, content)
