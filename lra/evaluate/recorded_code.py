"""The code of plug-ins that a run was made with, and whether it is what is there now."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

from lra.config.plugin_code import digest, file_of
from lra.record.run import RunRecord
from lra.runtime.errors import UserError
from lra.train.run_folder import CODE_FILES
from tasks.errors import DataError
from tasks.untrusted import read_text


def refuse_changed_code(folder: Path, record: RunRecord) -> None:
    """Refuse to run code that a record names unless it is that of the run.

    Args:
        folder: the run's folder.
        record: the run's record.
    Raises: UserError naming the file, what has changed in it, and how to go on.
    """
    for kind, spec, file in _changed(record):
        if file is None:
            raise UserError(
                f"{folder}: its {kind} is {spec}, and there is no such code here (seen from "
                f"{Path.cwd()})"
            )
        raise UserError(
            f"{folder}: {file} is not the code that the run was made with"
            f"{_change(file, folder / CODE_FILES[kind])}; --trust-code runs it as it is now, "
            f"and marks the result"
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
        file = file_of(spec.rpartition(":")[0])
        if file is None or not file.is_file():
            yield kind, spec, None
        elif code is None or digest([str(file)]) != code:
            yield kind, spec, file


def _change(file: Path, saved: Path) -> str:
    """Say in which lines a file differs from what a run has kept of it, if it has."""
    try:
        now, then = (read_text(path) for path in (file, saved))
    except (DataError, OSError):
        return ", or takes its class from another file"
    changed = [
        (low + 1, high)
        for tag, _, _, low, high in difflib.SequenceMatcher(
            None, then.splitlines(), now.splitlines(), autojunk=False
        ).get_opcodes()
        if tag != "equal"
    ]
    if not changed:
        return ", or takes its class from another file"
    first, last = changed[0]
    lines = f"line {first}" if last <= first else f"lines {first} to {last}"
    more = f" and {len(changed) - 1} other places" if len(changed) > 1 else ""
    what = "comments or blanks alone" if _same_program(now, then) else "its program"
    return f": {lines}{more} changed {what} (that of the run: {saved})"


def _same_program(first: str, second: str) -> bool:
    """Whether two files differ in comments and blanks alone."""
    try:
        return ast.dump(ast.parse(first)) == ast.dump(ast.parse(second))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
