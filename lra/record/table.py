"""The table of runs: a row for each run, with all that its record says and every setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.strict_yaml import plain
from lra.record.intervals import wilson_interval
from lra.record.packed import list_files
from lra.record.run import RUNS, RunRecord, folder_of
from lra.record.schema import has_results, is_shipped, read_all, shipped_dir
from lra.runtime.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_NOT_COLUMNS = {"settings", "origins", "changed", "by_position"}
"""Fields that are columns of their own, or tables."""


Runs = list[tuple[Path, RunRecord]]
"""Records, each with the folder of its run; a packed run has the folder that it would have."""


def read_runs(
    results_dir: Path,
    flag: str | None = None,
    *,
    shipped: bool = False,
    task: str = "*",
    mixer: str = "*",
) -> tuple[Runs, list[str]]:
    """Read the records of runs; list the faults of unreadable files.

    A run of one's own replaces the shipped one of the same name; one without a result stands beside
    a shipped one that has one.

    Args:
        results_dir: results folder.
        flag: what gave it, for the error; None: a missing folder has no runs.
        shipped: whether the runs that come with the suite are read, too.
        task: the only task, or * for all of them.
        mixer: the only mixer, or * for all of them.
    Raises: UserError if there is no such folder.
    """
    if flag is not None and not (has_results(results_dir) if shipped else results_dir.is_dir()):
        raise UserError(f"{flag}: there is no folder {results_dir}")
    own, faults = _read_folder(results_dir, task, mixer)
    if not shipped:
        return own, faults
    others, more = _read_folder(shipped_dir(results_dir), task, mixer)
    done = {_name(record): record.status == "done" for _, record in own}
    kept = [
        (folder, record)
        for folder, record in others
        if _name(record) not in done or (record.status == "done" and not done[_name(record)])
    ]
    return [*kept, *own], more + faults


def _read_folder(results_dir: Path, task: str, mixer: str) -> tuple[Runs, list[str]]:
    records, faults = read_all(
        RunRecord,
        list_files(results_dir, f"{RUNS}/{task}/{mixer}/*/result.json"),
        lambda record: folder_of(results_dir, record) / "result.json",
    )
    return [(folder_of(results_dir, record), record) for record in records], faults


def _name(record: RunRecord) -> tuple[str, str, str]:
    return record.task, record.mixer, record.run_id


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
    row["path"] = str(place)
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
