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
from dataclasses import dataclass, replace
from pathlib import Path

from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.comparison import find_method
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.results import Results
from lra.report.boards.row_names import Names
from lra.report.boards.slugs import slugify
from lra.report.boards.speeds import SpeedBoard, speed_boards
from lra.report.figures.breakdown import breakdown_figures
from lra.report.figures.bubbles import bubble_figures
from lra.report.figures.curves import curve_figures
from lra.report.figures.drawing import Looks, ReportFigure
from lra.report.figures.kernels import kernel_figures
from lra.report.figures.layers import layer_figures
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.figures.scaling import scaling_figures
from lra.report.page.page import TITLE, Chapter, files_of, summary, write_page
from lra.report.page.position_chapter import position_chapter
from lra.report.published.rows import choose_published
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.benchmarks import against_reference, benchmark_tables
from lra.report.tables.comparison import comparison_table
from lra.report.tables.leaderboard import leaderboard
from lra.report.tables.markdown import escape
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.published import perplexity_table, published_table
from lra.report.tables.speed import tables_of
from lra.runtime.errors import UserError
from lra.runtime.progress import SECONDS_BETWEEN_LINES
from tasks.cores import core_count
from tasks.files import write_atomically
from tasks.progress import is_live, progress
from tasks.untrusted import read_regular

logger = logging.getLogger(__name__)

FORMATS = ("markdown", "latex", "csv", "html")
CONTENTS = ".lra-report"
"""File that lists the files of a report, so that the next report can remove those it lacks."""
_OWN = re.compile(
    r"index\.html|report\.md|paper\.tex|tables/[\w.-]+\.(tex|csv)|figures/[\w.-]+\.(png|svg|pdf)"
)
BENCHMARKS = "Benchmarks"
"""Heading under which the page folds the chapters of measurements."""
PUBLISHED = "published-results"
"""Slug of the chapter of published results."""
DEFAULT_RELATIVE_TO = "tnn"
MOST_WORKERS = 8
FIGURES_A_WORKER = 10
"""Fewest figures for which it is worth starting a process."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a report is to show, and in which formats."""

    relative_to: str | None = None
    """Mixer that speeds are relative to; None: tnn, if it has run."""
    compare: Sequence[str] = ()
    published: str | None = None
    formats: Sequence[str] = FORMATS


def chapters(results: Results, options: ReportOptions) -> list[Chapter]:
    """Make all tables and figures; figures are still to be drawn.

    Raises: UserError for a mixer or a method that is not there.
    """
    names = Names(results.records, results.bench)
    found = boards(results.records, names)
    of_positions = position_boards(results.records, names)
    trained = speed_boards(results.records, names)
    measured = bench_boards(results.bench, names)
    speeds = [*trained, *measured]
    shown = [*found, *of_positions, *speeds]
    relative_to = DEFAULT_RELATIVE_TO
    if options.relative_to is not None:
        relative_to = find_method(shown, options.relative_to, "--relative-to")
    looks = Looks(method for board in shown for method in board.rows)
    made = []
    if options.compare:
        table = comparison_table(results, found, options.compare, "compare")
        made.append(Chapter("comparison", "Comparison", [table], []))
    for board in found:
        slug = slugify(board.preset, board.protocol, board.reason)
        made.append(
            Chapter(
                slug,
                board.name,
                [
                    accuracy_table(board, f"accuracy-{slug}"),
                    *evaluation_tables(results, board, slug),
                ],
                _board_figures(results, board, relative_to, looks, slug),
            )
        )
    made += [position_chapter(results, board, relative_to, looks) for board in of_positions]
    if trained:
        tables = [table for board in trained for table in tables_of(board, relative_to)]
        figures = [figure for board in trained for figure in scaling_figures(board, looks)]
        made.append(Chapter("speed", "Speed and memory", tables, figures))
    made += _bench_chapters(results, measured, relative_to, looks, names)
    published = choose_published(options.published)
    if published:
        tables = [published_table(published)]
        perplexities = perplexity_table({task for board in of_positions for task in board.tasks})
        if perplexities is not None and options.published is None:
            tables.append(perplexities)
        made.append(Chapter(PUBLISHED, "Published", tables, []))
    return _with_own_slugs(made)


def _with_own_slugs(made: Sequence[Chapter]) -> list[Chapter]:
    """Number the slugs that several chapters, tables or figures share: files and links need one."""
    own = _Slugs().own
    return [
        replace(
            chapter,
            slug=own(chapter.slug),
            tables=[replace(table, slug=own(table.slug)) for table in chapter.tables],
            figures=[replace(figure, slug=own(figure.slug)) for figure in chapter.figures],
        )
        for chapter in made
    ]


class _Slugs:
    """Slugs that are taken; a folder may not tell upper from lower case."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def own(self, slug: str) -> str:
        """Take a slug, with a number behind it if it is taken already."""
        found, number = slug, 1
        while found.casefold() in self.taken:
            number += 1
            found = f"{slug}-{number}"
        self.taken.add(found.casefold())
        return found


def _board_figures(
    results: Results, board: Board, relative_to: str, looks: Looks, slug: str
) -> list[ReportFigure]:
    return [
        *bubble_figures(board, relative_to, looks, slug),
        *curve_figures(results, board, looks, slug),
        *breakdown_figures(results, board, looks, slug),
        *(p for t in evaluation_boards(results, board) for p in evaluation_figures(t, looks, slug)),
        *kernel_figures(results, board, slug),
    ]


def _bench_chapters(
    results: Results, boards: Sequence[SpeedBoard], relative_to: str, looks: Looks, names: Names
) -> list[Chapter]:
    """Make a chapter for each board of measurements, folded: there are many."""
    compared = against_reference(results.bench, "against-reference", names)
    made = [Chapter("benchmarks", compared.title, [compared], [], BENCHMARKS)] if compared else []
    over_layers = layer_figures(results.bench, names, looks)
    if over_layers:
        made.append(Chapter("pretraining", "Speed of pretraining", [], over_layers, BENCHMARKS))
    return made + [
        Chapter(
            board.slug,
            f"{board.title}, {board.device}",
            benchmark_tables(board, relative_to),
            scaling_figures(board, looks),
            BENCHMARKS,
        )
        for board in boards
    ]


def write_report(results: Results, options: ReportOptions, out: Path) -> list[Chapter]:
    """Write a report into a folder; files of an earlier one that it no longer has are removed.

    Raises: UserError where `chapters` does, and if `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    made = chapters(results, options)
    files: dict[str, bytes] = {}
    images: dict[str, bytes] = {}
    drawn = [figure for chapter in made for figure in chapter.figures]
    for figure, made_files in zip(drawn, _draw_all(drawn), strict=True):
        for name, content in made_files.items():
            files[f"figures/{name}"] = content
        images[figure.slug] = files[f"figures/{figure.slug}.svg"]
    for table in (table for chapter in made for table in chapter.tables):
        if "latex" in options.formats:
            files[f"tables/{table.slug}.tex"] = table.latex().encode()
        if "csv" in options.formats:
            files[f"tables/{table.slug}.csv"] = table.csv().encode()
    if "markdown" in options.formats:
        files["report.md"] = _markdown(results, made, files).encode()
    if "html" in options.formats:
        files["index.html"] = write_page(results, made, images, files, out).encode()
    write_files(files, out)
    return made


def summarize(results: Results, made: Sequence[Chapter], options: ReportOptions, out: Path) -> str:
    """Write the leaderboard, the comparison if one was asked for, and where the report is."""
    leading = leading_board(boards(results.records))
    tables = [leaderboard(leading, with_changes=True)] if leading else []
    by_task: dict[str, list[Board]] = {}
    for board in position_boards(results.records):
        by_task.setdefault(board.tasks[0], []).append(board)
    first = [leading_board(found) for found in by_task.values()]
    tables += [position_table(board, "summary") for board in first if board is not None]
    if options.compare:
        tables += made[0].tables
    parts = [f"{table.title}\n\n{table.caption}\n\n{table.markdown()}" for table in tables]
    counts = [
        f"{len(results.records):,} runs",
        f"{sum(len(chapter.tables) for chapter in made):,} tables",
        f"{sum(len(chapter.figures) for chapter in made):,} figures",
    ]
    place = out / "index.html" if "html" in options.formats else out
    return "\n".join([*parts, f"{', '.join(counts)}: {place}\n"])


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
