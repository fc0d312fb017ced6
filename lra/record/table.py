"""The table of runs: a row for each run, with all that its record says and every setting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.strict_yaml import plain
from lra.record.intervals import wilson_interval
from lra.record.packed import list_files
from lra.record.run import RUNS, RunRecord, folder_of
from lra.record.schema import is_shipped, read_all, shipped_dir

if TYPE_CHECKING:
    import pandas as pd

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
        flag: what gave it, for the error; None: a missing folder has no runs.
        shipped: whether the runs that come with the suite are read, too.
        task, mixer: the only ones, or * for all of them.
    Raises: UserError if there is no such folder, except for ./results, which the first run makes.
    """
    if flag is not None and not results_dir.is_dir():
        is_default = shipped and results_dir.absolute() == Path("results").absolute()
        if not (is_default and shipped_dir(results_dir).is_dir()):
            raise UserError(f"{flag}: there is no folder {results_dir}")
    runs: Runs = []
    faults: list[str] = []
    for folder in [shipped_dir(results_dir), results_dir] if shipped else [results_dir]:
        records, more = read_all(
            RunRecord,
            list_files(folder, f"{RUNS}/{task}/{mixer}/*/result.json"),
            lambda record, folder=folder: folder_of(folder, record) / "result.json",
        )
        replaced = {folder_of(Path(), one): one.status for one in records}
        runs = [
            (place, one)
            for place, one in runs
            if replaced.get(folder_of(Path(), one)) not in ("done", one.status)
        ]
        runs += [(folder_of(folder, record), record) for record in records]
        faults += more
    return runs, faults


def to_frame(found: Iterable[tuple[Path, RunRecord]], folder: Path) -> pd.DataFrame:
    """Make a frame with a row for each run of a results folder, or shown with it.

    It has a column for each field and setting. Lists are joined by semicolons; settings that are
    lists are written as `--set` takes them.
    """
    import pandas as pd

    rows = [_row_of(place, record, folder) for place, record in found]
    frame = pd.json_normalize(rows).drop(columns=["positions", "pretraining"], errors="ignore")
    return frame.map(lambda value: "; ".join(map(str, value)) if isinstance(value, list) else value)


def _row_of(place: Path, record: RunRecord, folder: Path) -> dict[str, Any]:
    hidden = {"settings": True, "origins": True, "changed": True, "positions": {"by_position"}}
    row = record.model_dump(mode="json", exclude=hidden)
    row["is_own"] = not is_shipped(place, folder)
    row["overrides"] = "; ".join(record.overrides)
    if record.test_accuracy is not None and record.test_examples:
        interval = wilson_interval(record.test_accuracy / 100, record.test_examples)
        row["test_low"], row["test_high"] = interval
    row["path"] = str(place)
    is_plain = (bool, int, float, str, type(None))
    settings = record.settings.items()
    return row | {name: v if isinstance(v, is_plain) else plain(v) for name, v in settings}
