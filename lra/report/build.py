"""The whole report: which tables and figures there are, and their files."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lra.report.accuracy import accuracy_table
from lra.report.benchmarks import against_reference, bench_boards, benchmark_tables
from lra.report.boards import Board, boards
from lra.report.breakdown import breakdown_pictures
from lra.report.bubbles import bubble_pictures
from lra.report.compare import check_methods, comparison_table
from lra.report.curves import curve_pictures
from lra.report.drawing import Looks, Picture
from lra.report.kernels import kernel_pictures
from lra.report.out_of_distribution import transfer_pictures, transfer_table, tried_elsewhere
from lra.report.page import TITLE, Section, summary, write_page
from lra.report.published import choose_published, published_table
from lra.report.results import Results
from lra.report.scaling import scaling_pictures
from lra.report.speed import SpeedBoard, speed_boards
from lra.report.table import Table
from lra.runtime.errors import UserError
from lra.runtime.files import write_atomically
from tasks.progress import progress

FORMATS = ("markdown", "latex", "csv", "html")
CONTENTS = ".lra-report"
"""Lists the files of a report, so that the next one can take away what it no longer has."""
_OWN = re.compile(r"index\.html|report\.md|tables/[\w.-]+\.(tex|csv)|figures/[\w.-]+\.(png|svg)")
PUBLISHED = "published-results"
"""Slug of the section of published results."""
DEFAULT_BASELINE = "tnn"
MOST_WORKERS = 8
PICTURES_A_WORKER = 10
"""Fewer are not worth the start of a process."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a report is asked for."""

    baseline: str | None = None
    """Mixer that speeds are relative to; None: tnn, where it has run."""
    compare: Sequence[str] = ()
    published: str | None = None
    formats: Sequence[str] = FORMATS


def sections(results: Results, wanted: Wanted) -> list[Section]:
    """Make all tables and figures, the latter still to be drawn.

    Raises: UserError for a mixer or a method that is not there.
    """
    found = boards(results.records)
    speeds = [*speed_boards(results.records), *bench_boards(results.bench)]
    baseline = wanted.baseline or DEFAULT_BASELINE
    if wanted.baseline is not None:
        check_methods([*found, *speeds], [baseline], "--baseline")
    looks = Looks(method for board in [*found, *speeds] for method in board.rows)
    made = []
    if wanted.compare:
        table = comparison_table(results, found, wanted.compare, "compare")
        made.append(Section("comparison", "Comparison", [table], []))
    for k, board in enumerate(found):
        slug = f"{board.preset}-{board.protocol}" + ("" if board.is_main else f"-apart{k}")
        made.append(
            Section(
                slug,
                board.name,
                [
                    accuracy_table(board, f"accuracy-{slug}"),
                    *(transfer_table(tried, slug) for tried in tried_elsewhere(results, board)),
                ],
                _pictures(results, board, baseline, looks, slug),
            )
        )
    if speeds:
        made.append(_speed_section(results, speeds, baseline, looks))
    published = choose_published(wanted.published)
    if published:
        made.append(Section(PUBLISHED, "Published", [published_table(published)], []))
    return made


def _pictures(
    results: Results, board: Board, baseline: str, looks: Looks, slug: str
) -> list[Picture]:
    return [
        *bubble_pictures(board, baseline, looks, slug),
        *curve_pictures(results, board, looks, slug),
        *breakdown_pictures(results, board, looks, slug),
        *(p for t in tried_elsewhere(results, board) for p in transfer_pictures(t, looks, slug)),
        *kernel_pictures(results, board, slug),
    ]


def _speed_section(
    results: Results, boards: Sequence[SpeedBoard], baseline: str, looks: Looks
) -> Section:
    compared = against_reference(results.bench, "against-reference")
    tables: list[Table] = [compared] if compared else []
    pictures: list[Picture] = []
    for k, board in enumerate(boards):
        tables += benchmark_tables(board, baseline, str(k))
        pictures += scaling_pictures(board, looks, f"speed-{k}")
    return Section("speed", "Speed and memory", tables, pictures)


def write_report(results: Results, wanted: Wanted, out: Path) -> list[Section]:
    """Write a report into a folder; files of an earlier one that it no longer has are removed.

    Raises: UserError as `sections`, and if `out` is a file.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    made = sections(results, wanted)
    files: dict[str, bytes] = {}
    images: dict[str, bytes] = {}
    drawn = [picture for section in made for picture in section.pictures]
    assert len({picture.slug for picture in drawn}) == len(drawn), "one figure, one file"
    for picture, made_files in zip(drawn, _draw_all(drawn), strict=True):
        for name, content in made_files.items():
            files[f"figures/{name}"] = content
        images[picture.slug] = files[f"figures/{picture.slug}.svg"]
    for table in (table for section in made for table in section.tables):
        if "latex" in wanted.formats:
            files[f"tables/{table.slug}.tex"] = table.latex().encode()
        if "csv" in wanted.formats:
            files[f"tables/{table.slug}.csv"] = table.csv().encode()
    if "markdown" in wanted.formats:
        files["report.md"] = _markdown(results, made).encode()
    if "html" in wanted.formats:
        files["index.html"] = write_page(results, made, images, out).encode()
    _write(files, out)
    return made


def _draw_all(pictures: Sequence[Picture]) -> list[dict[str, bytes]]:
    """Draw, many figures on several cores."""
    workers = min(os.cpu_count() or 1, MOST_WORKERS, len(pictures) // PICTURES_A_WORKER)
    if workers < 2:  # noqa: PLR2004
        return [picture.files() for picture in progress("drawing", pictures, unit="figures")]
    # Fresh processes: a fork of one that has threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        drawn = pool.map(Picture.files, pictures)
        return list(progress("drawing", drawn, total=len(pictures), unit="figures"))


def _markdown(results: Results, made: Sequence[Section]) -> str:
    parts = [f"# {TITLE}\n\n{summary(results.records)}\n"]
    for section in made:
        parts.append(f"## {section.title}\n")
        for table in section.tables:
            parts.append(f"### {table.title}\n\n{table.caption}\n\n{table.markdown()}")
        for picture in section.pictures:
            image = f"![{picture.title}](figures/{picture.slug}.png)"
            parts.append(f"{image}\n\n{picture.title}. {picture.caption}\n")
    return "\n".join(parts)


def _write(files: dict[str, bytes], out: Path) -> None:
    contents = out / CONTENTS
    old = contents.read_text(errors="replace").splitlines() if contents.is_file() else []
    for name in old:
        if _OWN.fullmatch(name) and name not in files:
            (out / name).unlink(missing_ok=True)
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out / name, content)
    write_atomically(contents, "".join(f"{name}\n" for name in sorted(files)).encode())
