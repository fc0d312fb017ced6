"""Results that travel: a few files of limited size, from which another machine goes on.

The files of a results folder, without checkpoints, are packed in one `runs.parquet`, which `python
-m lra.record merge` and `ship` read. The last checkpoint of a run, if it is small, is copied as it
is, into a folder TASK.MIXER.RUN.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from common.errors import UserError
from common.files import write_atomically
from common.untrusted import read_regular
from lra.record.merge import write_pack
from lra.record.packed import read_pack
from lra.record.run import load_record
from lra.train.checkpoint import newest_first

LARGEST = 16 * 2**20
"""Most bytes of a copied checkpoint, as lent machines often return small files alone."""
MOST = 3 * LARGEST
"""Most bytes of all copied checkpoints."""
MOST_FILES = 7
"""Most copied checkpoints."""
PARTS = ("runs", "bench", "gpu")
"""Folders that are packed."""
COPIES = "*.*.*/step-*.pt"
"""Checkpoints in a folder of packed results."""


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
    copied: set[Path] = set()
    left_out: list[str] = []
    room = MOST
    for folder in folders:
        newest = newest_first(folder)[0]
        name = folder.parent.relative_to(results_dir / "runs")
        size = newest.stat().st_size
        if size > min(room, LARGEST) or len(copied) == MOST_FILES:
            left_out.append(name.as_posix())
            continue
        room -= size
        place = out / ".".join(name.parts) / newest.name
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, read_regular(newest, largest=LARGEST))
        copied.add(place)
    for stale in {*out.glob(COPIES)} - copied:
        stale.unlink()
    return left_out


def unpack_results(folder: Path, results_dir: Path) -> None:
    """Copy packed results into a results folder, which keeps the files that it has.

    The record of an unfinished run without a checkpoint is left out, so that it starts again.

    Raises: UserError for a pack with other names than `pack_results` writes.
    """
    checkpoints = {
        PurePosixPath("runs", *path.parent.name.split(".", 2), "checkpoints", path.name): path
        for path in sorted(folder.glob(COPIES))
    }
    files = {name: read_regular(path, largest=LARGEST) for name, path in checkpoints.items()}
    files |= {PurePosixPath(name): content for name, content in read_pack(folder).items()}
    for name, content in files.items():
        if name.parts[0] not in PARTS or ".." in name.parts:
            raise UserError(f"{folder}: got a file {name}, expected one in {', '.join(PARTS)}")
        has_state = name.parent in {one.parent.parent for one in checkpoints}
        is_lost = name.name == "result.json" and not has_state
        if is_lost and load_record(folder / name).status == "stopped":
            continue
        if not (results_dir / name).exists():
            (results_dir / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(results_dir / name, content)
