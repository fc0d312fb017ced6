"""The blocks of README files that are made from records.

A block NAME stands between the lines `<!-- made by report.py: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lra.config.registry import MIXERS
from lra.report.boards.benchmarks import bench_boards
from lra.report.boards.board import Board, boards, leading_board, position_boards
from lra.report.boards.evaluations import evaluation_boards
from lra.report.boards.position_bits import windows_of
from lra.report.boards.results import Results
from lra.report.boards.speeds import SpeedBoard, speed_boards
from lra.report.figures.bubbles import bubbles_by_device
from lra.report.figures.drawing import Looks, ReportFigure
from lra.report.figures.next_tokens import by_position_figures, perplexity_figures
from lra.report.figures.out_of_distribution import evaluation_figures
from lra.report.figures.scaling import scaling_figures
from lra.report.page.write import DEFAULT_RELATIVE_TO
from lra.report.published.audit import names, read_published
from lra.report.published.rows import rows_of
from lra.report.tables.accuracy import accuracy_table
from lra.report.tables.benchmarks import against_reference
from lra.report.tables.leaderboard import leaderboard
from lra.report.tables.markdown import escape
from lra.report.tables.next_tokens import position_table
from lra.report.tables.out_of_distribution import evaluation_tables
from lra.report.tables.position_bits import metadata_tables, position_tables
from lra.report.tables.published import published_table
from lra.report.tables.reproduce import reproduce_table
from lra.report.tables.settings import audit_table, starts_table
from lra.report.tables.speed import memory_table, speed_table
from lra.report.tables.table import Table
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK
from tasks.files import write_atomically

BUBBLES, OUT_OF_DISTRIBUTION, LENGTHS = "bubbles", "out-of-distribution", "lengths"
PERPLEXITY, BY_POSITION = "perplexity", "by-position"
"""Kinds of figures in blocks; the name of a figure's file starts with its kind."""
_KINDS = "|".join((BUBBLES, OUT_OF_DISTRIBUTION, LENGTHS, PERPLEXITY, BY_POSITION))
_OWN = re.compile(rf"({_KINDS})-\d+-[0-9a-f]{{8}}\.svg")


@dataclass(frozen=True)
class Block:
    """Tables and figures that stand between two markers of a README file."""

    tables: Sequence[Table] = ()
    figures: Mapping[Path, ReportFigure] = field(default_factory=dict)
    """Figures by file; a hash of the numbers drawn, in the file's name, shows if it is stale."""

    def text(self, readme: Path) -> str:
        """Write the block as it stands in the file `readme`, with links relative to that file."""
        parts = [
            f"**{escape(table.title)}.** {escape(table.caption)}\n\n{table.markdown()}"
            for table in self.tables
        ]
        for path, figure in self.figures.items():
            link = Path(os.path.relpath(path.resolve(), readme.resolve().parent)).as_posix()
            title, caption = escape(figure.title), escape(figure.caption)
            parts.append(f"![{title}]({link})\n\n**{title}.** {caption}\n")
        return "\n".join(parts) or "No runs yet.\n"


def make_blocks(results: Results) -> dict[str, dict[str, Block]]:
    """Make all blocks, by file and name; figures are still to be drawn."""
    every = boards(results.records)
    tables = _tables(results)
    figures = _figures(results, tables)
    leading = leading_board(every)
    first = [path for path in figures if path.name.startswith(BUBBLES)][:1]
    return {
        "README.md": {
            "leaderboard": Block([leaderboard(leading)] if leading else []),
            "figure": Block(figures={path: figures[path] for path in first}),
        },
        "results/README.md": {
            "published": Block([published_of_the_suite()]),
            "reproduce": Block([reproduce_table(results)]),
            "tables": Block(tables, figures),
            "next tokens": next_tokens(results),
        },
        "results/settings.md": {f"settings {name}": Block(_settings(name)) for name in names()},
    }


def _settings(name: str) -> list[Table]:
    """Make the tables of one file of published settings."""
    starts = [] if read_published(name).mixer is None else [starts_table(name)]
    return [audit_table(name), *starts]


def _main_boards(results: Results) -> list[Board]:
    return [board for board in boards(results.records) if board.is_main]


def _tables(results: Results) -> list[Table]:
    """Make the main accuracy tables, those out of distribution, and speeds."""
    found = _main_boards(results)
    tables = [accuracy_table(board, "accuracy") for board in found]
    tables += [table for board in found for table in evaluation_tables(results, board, "r")]
    for board in speed_boards(results.records):
        tables.append(speed_table(board, DEFAULT_RELATIVE_TO, "speed"))
    compared = against_reference(results.bench, "against-reference")
    return [*tables, compared] if compared else tables


def _figures(results: Results, tables: Sequence[Table]) -> dict[Path, ReportFigure]:
    """Choose figures, and name their files by a hash of the numbers that they are drawn from."""
    found, measured = _main_boards(results), bench_boards(results.bench)
    looks = Looks(method for board in [*found, *measured] for method in board.rows)
    drawn_from = [f"{table.title}{table.markdown()}" for table in tables]
    drawn_from += [
        memory_table(board, DEFAULT_RELATIVE_TO, "memory").markdown()
        for board in speed_boards(results.records)
    ]
    evaluated = [one for board in found for one in evaluation_boards(results, board)]
    chosen = {
        BUBBLES: _bubbles(found, looks),
        OUT_OF_DISTRIBUTION: [f for one in evaluated for f in evaluation_figures(one, looks, "r")],
        LENGTHS: _over_lengths(measured, looks),
    }
    for kind in (OUT_OF_DISTRIBUTION, LENGTHS):
        chosen[kind] = chosen[kind][:1]
    return _by_file(results, chosen, [*drawn_from, repr(measured)])


def _by_file(
    results: Results, chosen: Mapping[str, Sequence[ReportFigure]], drawn_from: Iterable[str]
) -> dict[Path, ReportFigure]:
    """Name the files of figures by their kind and by a hash of what they are drawn from."""
    digest = hashlib.sha256("".join(drawn_from).encode()).hexdigest()[:8]
    return {
        results.folder / f"{kind}-{number}-{digest}.svg": figure
        for kind, figures in chosen.items()
        for number, figure in enumerate(figures, start=1)
    }


def next_tokens(results: Results) -> Block:
    """Make the tables of tasks whose targets are positions, and what they do at other lengths."""
    found = [board for board in position_boards(results.records) if board.is_main]
    looks = Looks(method for board in found for method in board.rows)
    tables: list[Table] = []
    drawn_from: list[Table] = []
    chosen: dict[str, list[ReportFigure]] = {PERPLEXITY: [], BY_POSITION: []}
    for board in found:
        evaluated = evaluation_boards(results, board)
        own, *longest = windows_of(board, evaluated)
        tables += [position_table(board, "r"), *evaluation_tables(results, board, "r")]
        tables += metadata_tables(board, own, "r")
        drawn_from += position_tables(board, longest, "r")
        for one in evaluated:
            chosen[PERPLEXITY] += perplexity_figures(one, looks, "r")
        chosen[BY_POSITION] += by_position_figures(board, longest, looks, "r")
    texts = [f"{table.title}{table.markdown()}" for table in [*tables, *drawn_from]]
    return Block(tables, _by_file(results, chosen, texts))


def _bubbles(found: Sequence[Board], looks: Looks) -> list[ReportFigure]:
    """Choose the first bubble plot of each device, of the first board that has any."""
    for board in found:
        by_device = bubbles_by_device(board, DEFAULT_RELATIVE_TO, looks, "r")
        if any(by_device.values()):
            return [figures[0] for figures in by_device.values() if figures]
    return []


def _over_lengths(measured: Sequence[SpeedBoard], looks: Looks) -> list[ReportFigure]:
    """Draw the board of mixing alone that reaches over most lengths."""
    mixing = [b for b in measured if any(place.task == "mixing" for place in b.places)]
    mixing.sort(key=lambda board: -len(board.places))
    return [figure for board in mixing[:1] for figure in scaling_figures(board, looks)]


def published_of_the_suite() -> Table:
    """Tabulate the published rows whose method is a mixer of the suite or a variant of one."""
    table = published_table(rows_of(MIXERS.classes)).with_columns(["method", *BENCHMARK, "source"])
    return dataclasses.replace(
        table,
        title="Published results of these methods",
        caption="Test accuracy in percent as printed by the source (keys: results/sources.yaml), "
        "on the full tasks, with its own hardware and protocol. FAIL: at chance. Of "
        "results/published.csv, the rows whose method is a mixer of this suite or a variant of "
        "one; all rows are in `python report.py`.",
    )


def marked(name: str, text: str) -> str:
    """Write a block's text between its two markers."""
    return f"<!-- made by report.py: {name} -->\n{text}<!-- end -->\n"


def _split(readme: Path, content: str, name: str) -> tuple[str, str, str]:
    """Cut the content of a file at a block's markers: before, between and after them.

    Raises: UserError if the markers are not there once each, in order.
    """
    start, end = marked(name, "").splitlines()
    before, found, rest = content.partition(f"{start}\n")
    text, ended, after = rest.partition(f"{end}\n")
    if not (found and ended) or "<!-- made by" in text or start in rest:
        raise UserError(f"{readme}: expected block {name}: one line {start} and a line {end} after")
    return before, text, after


def check_readmes(results: Results, root: Path) -> list[str]:
    """Compare the blocks of all README files with the records.

    Args:
        results: the results folder with the records.
        root: folder that the README files are in.
    Returns: lines that say where each block first differs; none if all agree.
    Raises: UserError for a file without its blocks.
    """
    lines: list[str] = []
    for file, blocks in make_blocks(results).items():
        content = _read(root / file)
        _refuse_unknown(root / file, content, blocks)
        for name, block in blocks.items():
            _, old, _ = _split(root / file, content, name)
            found = _difference(old.splitlines(), block.text(root / file).splitlines())
            missing = [path for path in block.figures if not path.is_file()]
            found += [f"there is no figure {path}" for path in missing]
            lines += [f"{file}, block {name}:", *found] if found else []
    return lines


def _refuse_unknown(readme: Path, content: str, blocks: Mapping[str, Block]) -> None:
    for name in re.findall(r"(?m)^<!-- made by report\.py: (.*) -->$", content):
        if name not in blocks:
            raise unknown("block", name, blocks, str(readme))


def _difference(have: list[str], want: list[str]) -> list[str]:
    for number, (old, new) in enumerate(zip(have, want, strict=False), start=1):
        if old != new:
            return [f"line {number} of the block is", old, "the records give", new]
    if len(have) != len(want):
        return [f"the block has {len(have)} lines, the records give {len(want)}"]
    return []


def write_readmes(results: Results, root: Path) -> None:
    """Write all blocks into their files, and replace the figures of earlier records.

    Raises: UserError for a file without its blocks; nothing is written then.
    """
    every = make_blocks(results)
    contents: dict[Path, str] = {}
    for file, blocks in every.items():
        content = _read(root / file)
        _refuse_unknown(root / file, content, blocks)
        for name, block in blocks.items():
            before, _, after = _split(root / file, content, name)
            content = before + marked(name, block.text(root / file)) + after
        contents[root / file] = content
    figures = {
        p: f for blocks in every.values() for b in blocks.values() for p, f in b.figures.items()
    }
    for path, figure in figures.items():
        write_atomically(path, figure.files()[f"{figure.slug}.svg"])
    for path, content in contents.items():
        write_atomically(path, content.encode())
    for path in results.folder.glob("*.svg"):
        if _OWN.fullmatch(path.name) and path not in figures:
            path.unlink()


def _read(readme: Path) -> str:
    if not readme.is_file():
        raise UserError(f"{readme}: there is no such file, expected one with the report's blocks")
    return readme.read_text(encoding="utf-8")
