"""Moving runs out of the results, into a folder from which they can be brought back."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from common.files import is_locked
from lra.record.run import RUNS, results_dir_of
from lra.record.schema import shipped_dir
from lra.runtime.errors import HeldError, UserError
from lra.runtime.launch import command_words

REMOVED = "removed"
"""Folder, in a results folder, of runs that were removed: a folder of results for each command."""


def remove_runs(results_dir: Path, names: Sequence[str]) -> list[tuple[Path, Path]]:
    """Move runs into the folder removed/ of their results folder, or none if one cannot be moved.

    Args:
        results_dir: results folder of the runs that are given by name.
        names: runs as TASK/MIXER/RUN, or their folders.
    Returns: the old and the new folder of each.
    Raises: UserError for what is no run, and for a shipped run that is given by name; HeldError if
        a process is at work on a run.
    """
    folders = list(dict.fromkeys(_find(results_dir, name) for name in names))
    for folder in folders:
        if is_locked(folder / "lock"):
            raise HeldError(f"a process is at work on {folder}; stop it first")
    moment = time.strftime("%Y-%m-%d-%H%M%S")
    moved: list[tuple[Path, Path]] = []
    try:
        for folder in folders:
            root = folder.parents[3]
            place = root / REMOVED / moment / folder.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            moved.append((folder, folder.rename(place)))
    except OSError:
        for folder, place in moved:
            place.rename(folder)
        raise
    return moved


def _find(results_dir: Path, name: str) -> Path:
    """Return the folder of a run.

    Raises: UserError if there is none, or a shipped run is given by name.
    """
    within = results_dir / RUNS / name
    for folder in (within, name):
        if _is_run(found := Path(os.path.abspath(folder))):  # noqa: PTH100 (links stay)
            return found
    if _is_run(shipped := shipped_dir(results_dir) / RUNS / name):
        raise UserError(f"{name} came with the repository; to remove it, give its folder {shipped}")
    command = shlex.join(command_words("record", "list", results_dir=results_dir))
    raise UserError(
        f"there is no run {within}; expected TASK/MIXER/RUN, as {command} prints it, or the folder "
        f"of a run"
    )


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, by its place and by its files."""
    files = ("lock", "log.txt", "result.json")
    return results_dir_of(folder) is not None and any((folder / name).is_file() for name in files)
