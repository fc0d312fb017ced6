"""Runs as a data frame: all that their records say, every setting, and their folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lra.record.run as runs
from common.errors import DataError
from common.strict_yaml import LARGEST, parse_yaml, plain
from common.untrusted import read_text
from lra.config.settings_files import parse_sections
from lra.record.merge_results import read_folder
from lra.record.run import RunRecord
from lra.record.schema import has_results
from lra.runtime.console import as_typed
from lra.runtime.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from pydantic.main import IncEx

_NO_CELLS: IncEx = {"positions": {"by_position"}}
"""Fields of a record that are tables of their own."""

MOST_SETTINGS = 1000
"""Most settings of a run; a file with more is taken as damaged."""


def read_runs(
    folder: Path, flag: str, *, with_shipped: bool
) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Read records, each with the folder of its run; list the faults of unreadable files.

    Args:
        folder: results folder.
        flag: what gave it, for the error.
        with_shipped: whether the shipped runs are read, too.
    Raises: UserError if there is no such folder.
    """
    if with_shipped and has_results(folder):
        return runs.with_shipped(folder)
    found, faults = read_folder(folder, flag)
    return [(runs.folder_of(folder, record), record) for record in found], faults


def to_frame(found: Iterable[tuple[Path, RunRecord]]) -> tuple[pd.DataFrame, list[str]]:
    """Make a frame with a row for each run and a column for each field and setting.

    Lists of a record are joined by semicolons; settings that are lists are written as `--set` takes
    them.

    Returns: the frame; and the faults of runs whose settings cannot be read, and are left empty.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    for folder, record in found:
        row = {**record.model_dump(mode="json", exclude=_NO_CELLS), "path": as_typed(str(folder))}
        for name in ("positions", "pretraining"):
            if row[name] is None:  # else its fields are columns
                del row[name]
        try:
            row |= settings_of(folder)
        except (DataError, UserError, OSError) as error:
            faults.append(f"settings of {folder}: {error}")
        rows.append(row)
    frame = pd.json_normalize(rows)
    frame = frame.map(lambda cell: "; ".join(map(str, cell)) if isinstance(cell, list) else cell)
    return frame, faults


def settings_of(folder: Path) -> dict[str, bool | int | float | str | None]:
    """Read every setting of a run, by names such as config.train.lr.

    Raises: UserError, DataError or OSError saying why they cannot be read.
    """
    path = folder / "config.yaml"
    body = parse_yaml(read_text(path, largest=LARGEST), str(path))
    values = parse_sections(body, str(path))
    is_sane = 0 < len(values) <= MOST_SETTINGS and all(key.isidentifier() for _, key in values)
    if not is_sane:
        raise UserError(f"{path}: these are not the settings of a run")
    return {f"config.{section}.{key}": _cell(value) for (section, key), value in values.items()}


def _cell(value: Any) -> bool | int | float | str | None:
    is_plain = value is None or isinstance(value, (bool, int, float))
    is_text = isinstance(value, str) and value.isprintable()
    return value if is_plain or is_text else plain(value)
