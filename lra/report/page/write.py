"""The whole report: which tables and figures there are, and their files."""

from __future__ import annotations

import logging
import multiprocessing
import re
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from common.cores import core_count
from common.files import write_atomically
from common.progress import is_live, progress
from common.untrusted import read_regular
from lra.report.boards.results import Results
from lra.report.chapters import Chapter, ReportData, make_chapters
from lra.report.contents import CHAPTERS
from lra.report.figures.drawing import ReportFigure
from lra.report.page.page import TITLE, files_of, summary, write_page
from lra.report.tables.markdown import escape
from lra.runtime.errors import UserError
from lra.runtime.progress import SECONDS_BETWEEN_LINES

logger = logging.getLogger(__name__)

FORMATS = ("markdown", "latex", "csv", "html")
CONTENTS = ".lra-report"
"""File that lists the files of a report, so that the next report can remove those it lacks."""
_OWN = re.compile(
    r"index\.html|report\.md|paper\.tex|tables/[\w.-]+\.(tex|csv)|figures/[\w.-]+\.(png|svg|pdf)"
)
MOST_WORKERS = 8
FIGURES_A_WORKER = 10
"""Fewest figures for which it is worth starting a process."""


def write_report(data: ReportData, formats: Collection[str], out: Path) -> list[Chapter]:
    """Write a report into a folder; files of an earlier one that it no longer has are removed.

    Raises: UserError if `out` is a file, and for a mixer of --compare that is not there.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    made = make_chapters(CHAPTERS, data)
    files: dict[str, bytes] = {}
    images: dict[str, bytes] = {}
    drawn = [figure for chapter in made for figure in chapter.figures]
    for figure, made_files in zip(drawn, _draw_all(drawn), strict=True):
        for name, content in made_files.items():
            files[f"figures/{name}"] = content
        images[figure.slug] = files[f"figures/{figure.slug}.svg"]
    for table in (table for chapter in made for table in chapter.tables):
        if "latex" in formats:
            files[f"tables/{table.slug}.tex"] = table.latex().encode()
        if "csv" in formats:
            files[f"tables/{table.slug}.csv"] = table.csv().encode()
    if "markdown" in formats:
        files["report.md"] = _markdown(data.results, made, files).encode()
    if "html" in formats:
        files["index.html"] = write_page(data, made, images, files, out).encode()
    write_files(files, out)
    return made


def _draw_all(figures: Sequence[ReportFigure]) -> list[dict[str, bytes]]:
    """Draw figures, many of them on several cores."""
    workers = min(core_count(), MOST_WORKERS, len(figures) // FIGURES_A_WORKER)
    if workers < 2:  # noqa: PLR2004
        return _show_progress(map(ReportFigure.files, figures), len(figures))
    # Fresh processes: a fork of one that has threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    try:
        with _interrupts_ignored():  # by the workers, which inherit it: this process ends them
            drawn = pool.map(ReportFigure.files, figures)
        return _show_progress(drawn, len(figures))
    finally:
        pool.shutdown(cancel_futures=True)


def _show_progress(drawn: Iterable[dict[str, bytes]], total: int) -> list[dict[str, bytes]]:
    """Collect figures as they are drawn; show a bar, or a line now and then where none can be."""
    made: list[dict[str, bytes]] = []
    live, last_line = is_live(), time.monotonic()
    for files in progress("drawing", drawn, total=total, unit="figures"):
        made.append(files)
        if not live and time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            logger.info(f"drawing: {len(made):,} of {total:,} figures")
    return made


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _markdown(results: Results, made: Sequence[Chapter], files: Collection[str]) -> str:
    parts = [f"# {TITLE}\n\n{escape(summary(results.records))}\n", _index(made, files)]
    for chapter in made:
        parts.append(f"## {escape(chapter.title)}\n")
        for table in chapter.tables:
            title, caption = escape(table.title), escape(table.caption)
            parts.append(f"### {title}\n\n{caption}\n\n{table.markdown()}")
        for figure in chapter.figures:
            title, caption = escape(figure.title), escape(figure.caption)
            image = f"![{title}](figures/{figure.slug}.png)"
            parts.append(f"{image}\n\n{title}. {caption}\n")
    return "\n".join(parts)


def _index(made: Sequence[Chapter], files: Collection[str]) -> str:
    """List what there is, with the files of each table and figure."""
    lines = ["## Contents\n"]
    for chapter in made:
        lines.append(f"- {escape(chapter.title)}")
        for one in [*chapter.tables, *chapter.figures]:
            links = ", ".join(f"[{name}]({name})" for name in files_of(one, files))
            lines.append(f"  - {escape(one.title)}" + f": {links}" * bool(links))
    return "\n".join([*lines, ""])


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
