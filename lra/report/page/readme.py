"""The blocks of README files that are made from records.

A block is a list of slugs of tables and figures, see `lra.report.contents`. It stands between the
lines `<!-- made by report.py: SLUG, SLUG -->` and `<!-- end -->`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.files import write_atomically
from lra.report.boards.results import Results
from lra.report.contents import item_names, make_items
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.drawing import ReportFigure
from lra.report.tables.leaderboard_csv import leaderboard_csv
from lra.report.tables.markdown import command_block, escape
from lra.report.tables.table import Table
from lra.runtime.errors import UnknownName, UserError

FILES = (
    "README.md", "docs/results.md", "docs/probes.md", "docs/reproduce.md", "results/settings.md",
)  # fmt: skip
CSV = "results/leaderboard.csv"
"""The file of the runs that the leaderboard is of."""
_BLOCK = re.compile(r"(?m)^<!-- made by report\.py: (.*) -->\n((?:(?!<!-- ).*\n)*)<!-- end -->$")
_START = re.compile(r"(?m)^<!-- made by report\.py: .* -->$")
_END = re.compile(r"(?m)^<!-- end -->$")
_FIGURE = re.compile(r"[a-z0-9.-]+-[0-9a-f]{8}\.svg")
"""Names of the figures of blocks: their slug, and a hash of the numbers drawn."""


@dataclass(frozen=True)
class Block:
    """Tables and figures that stand between two markers of a README file."""

    tables: Sequence[Table]
    figures: Mapping[Path, ReportFigure]
    """Figures by file; a hash of the numbers drawn, in the file's name, shows if it is stale."""

    def text(self, readme: Path) -> str:
        """Write the block as it stands in the file `readme`, with links relative to that file."""
        parts: list[str] = []
        for table in self.tables:
            title, caption = escape(table.title), escape(table.caption)
            parts.append(f"**{title}.** {caption}\n\n{table.markdown()}")
            parts += ["".join(f"- {escape(note)}\n" for note in table.notes)] if table.notes else []
            parts += [command_block(table.commands)] if table.commands else []
        for path, figure in self.figures.items():
            link = Path(os.path.relpath(path.resolve(), readme.resolve().parent)).as_posix()
            title, caption = escape(figure.title), escape(figure.caption)
            parts.append(f"![{title}]({link})\n\n**{title}.** {caption}\n")
        return "\n".join(parts) or "No runs yet.\n"


def make_block(data: ReportData, slugs: Sequence[str]) -> Block:
    """Make the tables and figures of a block; figures are still to be drawn."""
    tables: list[Table] = []
    figures: dict[Path, ReportFigure] = {}
    for item in make_items(data, slugs):
        if isinstance(item, Table):
            tables.append(item.without_empty_columns())
        else:
            figures[data.results.folder / f"{item.slug}-{item.digest}.svg"] = item
    return Block(tables, figures)


def _blocks(data: ReportData, readme: Path, content: str) -> Iterator[tuple[re.Match[str], Block]]:
    """Make the blocks of a file, with their places in its content.

    Raises: UserError for a block without an end, and for a slug that does not exist.
    """
    found = list(_BLOCK.finditer(content))
    starts, ends = _START.findall(content), _END.findall(content)
    if not len(found) == len(starts) == len(ends):
        raise UserError(
            f"{readme}: expected a line <!-- end --> after each line <!-- made by report.py: ... "
            f"-->, found {len(ends)} and {len(starts)} of them"
        )
    known = item_names()
    for place in found:
        slugs = [slug.strip() for slug in place[1].split(",")]
        for slug in slugs:
            if slug not in known:
                raise UnknownName("table or figure", slug, known, str(readme))
        yield place, make_block(data, slugs)


def check_readmes(results: Results, root: Path) -> list[str]:
    """Compare the blocks of all README files, and the leaderboard's CSV, with the records.

    Args:
        results: the results folder with the records.
        root: folder that the README files are in.
    Returns: lines that say where each block first differs; none if all agree.
    Raises: UserError for a block that cannot be made.
    """
    lines: list[str] = []
    data = ReportData(results, ReportOptions())
    for file in FILES:
        for place, block in _blocks(data, root / file, _read(root / file)):
            found = _difference(place[2].splitlines(), block.text(root / file).splitlines())
            missing = [path for path in block.figures if not path.is_file()]
            found += [f"there is no figure {path}" for path in missing]
            lines += [f"{file}, block {place[1]}:", *found] if found else []
    have = (root / CSV).read_text(encoding="utf-8") if (root / CSV).is_file() else ""
    found = _difference(have.splitlines(), _make_csv(data).splitlines())
    return [*lines, *([f"{CSV}:", *found] if found else [])]


def _make_csv(data: ReportData) -> str:
    board = data.leading_board
    return "" if board is None else leaderboard_csv(data.results, board)


def _difference(have: list[str], want: list[str]) -> list[str]:
    for number, (old, new) in enumerate(zip(have, want, strict=False), start=1):
        if old != new:
            return [f"line {number} is", old, "the records give", new]
    if len(have) != len(want):
        return [f"there are {len(have)} lines, the records give {len(want)}"]
    return []


def write_readmes(results: Results, root: Path) -> None:
    """Write all blocks into their files and the runs of the leaderboard into theirs, and replace
    the figures of earlier records.

    Raises: UserError for a block that cannot be made; nothing is written then.
    """
    data = ReportData(results, ReportOptions())
    contents = {root / CSV: _make_csv(data)}
    figures: dict[Path, ReportFigure] = {}
    for file in FILES:
        content = _read(root / file)
        parts: list[str] = []
        end = 0
        for place, block in _blocks(data, root / file, content):
            parts += [content[end : place.start(2)], block.text(root / file)]
            end = place.end(2)
            figures |= block.figures
        contents[root / file] = "".join([*parts, content[end:]])
    for path, figure in figures.items():
        write_atomically(path, figure.svg())
    for path, content in contents.items():
        write_atomically(path, content.encode())
    for path in results.folder.glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path not in figures:
            path.unlink()


def _read(readme: Path) -> str:
    if not readme.is_file():
        raise UserError(f"{readme}: there is no such file, expected one with the report's blocks")
    return readme.read_text(encoding="utf-8")
