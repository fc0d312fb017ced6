"""The table of runs: a row for each run, with all that its record says and every setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.strict_yaml import plain
from lra.record.intervals import wilson_interval
from lra.record.merge_results import read_folder
from lra.record.run import RunRecord, folder_of, with_shipped
from lra.record.schema import has_results, is_shipped
from lra.runtime.console import as_typed

if TYPE_CHECKING:
    import pandas as pd

_NOT_COLUMNS = {"settings", "origins", "changed", "by_position"}
"""Fields that are columns of their own, or tables."""


def read_runs(
    folder: Path, flag: str, *, shipped: bool
) -> tuple[list[tuple[Path, RunRecord]], list[str]]:
    """Read records, each with the folder of its run; list the faults of unreadable files.

    Args:
        folder: results folder.
        flag: what gave it, for the error.
        shipped: whether the shipped runs are read, too.
    Raises: UserError if there is no such folder.
    """
    if shipped and has_results(folder):
        return with_shipped(folder)
    found, faults = read_folder(folder, flag)
    return [(folder_of(folder, record), record) for record in found], faults


def to_frame(found: Iterable[tuple[Path, RunRecord]], folder: Path) -> pd.DataFrame:
    """Make a frame with a row for each run and a column for each field and setting.

    Lists are joined by semicolons; settings that are lists are written as `--set` takes them.

    Args:
        found: records, each with the folder of its run.
        folder: the results folder, whose runs are one's own unless they are shipped.
    """
    import pandas as pd

    return pd.DataFrame([_row_of(place, record, folder) for place, record in found])


def _row_of(place: Path, record: RunRecord, folder: Path) -> dict[str, Any]:
    row = dict(_flatten(record.model_dump(mode="json")))
    row["is_own"] = not is_shipped(place, folder)
    row["overrides"] = "; ".join(record.overrides)
    if record.test_accuracy is not None and record.test_examples:
        interval = wilson_interval(record.test_accuracy / 100, record.test_examples)
        row["test_low"], row["test_high"] = interval
    row["path"] = as_typed(str(place))
    return row | {name: _cell(value) for name, value in record.settings.items()}


def _flatten(fields: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _NOT_COLUMNS or (value is None and name in ("positions", "pretraining")):
            continue
        if isinstance(value, dict):
            yield from _flatten(value, f"{start}{name}.")
        else:
            is_list = isinstance(value, list)
            yield f"{start}{name}", "; ".join(map(str, value)) if is_list else value


def _cell(value: Any) -> bool | int | float | str | None:
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else plain(value)
