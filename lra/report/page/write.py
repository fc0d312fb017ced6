"""The files of a report: the page, and a table of numbers for each question."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from common.files import write_atomically
from common.untrusted import read_regular
from lra.record.table import to_frame
from lra.report.boards.grids import choose_from_grids
from lra.report.data import ReportData
from lra.report.page.page import write_page
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.probes import probe_table
from lra.report.tables.published import published_table
from lra.report.tables.speed import speed_and_memory_tables
from lra.report.tables.table import Table
from lra.runtime.console import csv_table

if TYPE_CHECKING:
    import pandas as pd

CONTENTS = ".lra-report"
"""File that lists the files of a report, so that the next report can remove those it lacks."""
_OWN = re.compile(
    r"index\.html|report\.md|paper\.tex|[\w-]+\.csv|tables/[\w.-]+\.(tex|csv)"
    r"|figures/[\w.-]+\.(png|svg|pdf)"
)


def write_report(data: ReportData, formats: Collection[str], out: Path) -> list[str]:
    """Write a report into a folder; files of an earlier one that it no longer has are removed.

    Args:
        data: the records.
        formats: html for the page, csv for the tables of numbers.
        out: the folder.
    Returns: the names of the files.
    """
    files: dict[str, bytes] = {}
    if "html" in formats:
        files["index.html"] = write_page(data, out).encode()
    if "csv" in formats:
        frames = _frames(data).items()
        files |= {f"{name}.csv": csv_table(frame).encode() for name, frame in frames if len(frame)}
    write_files(files, out)
    return [*files]


def _frames(data: ReportData) -> dict[str, pd.DataFrame]:
    """Make a table of unrounded numbers for each question."""
    results = data.results
    measured = [*data.speed_boards, *data.bench_boards]
    return {
        "runs": to_frame(((results.path(run), run) for run in results.records), results.folder),
        "accuracy": _join(accuracy_table(choose_from_grids(board), "") for board in data.boards),
        "bits": _join(
            position_table(choose_from_grids(board), "") for board in data.position_boards
        ),
        "evaluations": _join(
            table
            for board in [*data.boards, *data.position_boards]
            for table in evaluation_tables(results, board, "")
        ),
        "probes": _join(map(probe_table, data.probes)),
        "speed": _join(
            table
            for board in measured
            for table in speed_and_memory_tables(board, data.relative_to)
        ),
        "published": _join([published_table(data.published)]),
    }


def _join(tables: Iterable[Table]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([fact for table in tables for fact in table.facts])


def files_before(contents: Path) -> list[str]:
    """List the files that an earlier report wrote, by its table of contents."""
    if not contents.is_file():
        return []
    return read_regular(contents).decode(errors="replace").splitlines()


def write_files(files: Mapping[str, bytes], out: Path, contents: str = CONTENTS) -> None:
    """Write files into a folder, and remove those that an earlier report had besides.

    Args:
        files: contents by path below the folder.
        out: the folder.
        contents: name of the file there that lists all of them.
    """
    for name in files_before(out / contents):
        if _OWN.fullmatch(name) and name not in files:
            (out / name).unlink(missing_ok=True)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out / name, content)
    write_atomically(out / contents, "".join(f"{name}\n" for name in sorted(files)).encode())
