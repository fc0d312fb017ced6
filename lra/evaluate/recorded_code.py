"""The code of plug-ins that a run was made with, and whether it is what is there now."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path

from lra.config.registry import digest
from lra.record.run import RunRecord
from lra.runtime.errors import UserError
from lra.train.run_folder import CODE_FILES


def refuse_changed_code(folder: Path, record: RunRecord) -> None:
    """Refuse to run code that a record names unless it is that of the run.

    Args:
        folder: the run's folder.
        record: the run's record.
    Raises: UserError naming both files, and how to go on.
    """
    for kind, spec, file in _changed(record):
        if file is None:
            raise UserError(
                f"{folder}: its {kind} is {spec}, and there is no such code here (seen from "
                f"{Path.cwd()})"
            )
        raise UserError(
            f"{folder}: {file} is not the code that the run was made with (that is in "
            f"{folder / CODE_FILES[kind]}); --trust-code runs it as it is now, and marks the result"
        )


def is_changed(record: RunRecord) -> bool:
    """Whether code that a record names is not there as it was in the run."""
    return any(True for _ in _changed(record))


def _changed(record: RunRecord) -> Iterator[tuple[str, str, Path | None]]:
    """List plug-ins that are not there as they were: kind, name, and the file if there is one."""
    for kind, spec, code in (
        ("task", record.task_from, record.task_code),
        ("mixer", record.mixer_from, record.mixer_code),
    ):
        if spec is None:
            continue
        file = _find_file(spec.rpartition(":")[0])
        if file is None or not file.is_file():
            yield kind, spec, None
        elif code is None or digest([str(file)]) != code:
            yield kind, spec, file


def _find_file(target: str) -> Path | None:
    """Find the file that a path or a dotted name stands for, without running any code."""
    if target.endswith(".py"):
        return Path(target)
    places: list[str] | None = [*sys.path, str(Path.cwd())]
    origin = None
    for name in target.split("."):
        spec = importlib.machinery.PathFinder.find_spec(name, places)
        if spec is None:
            return None
        origin, places = spec.origin, list(spec.submodule_search_locations or [])
    return None if origin is None else Path(origin)
