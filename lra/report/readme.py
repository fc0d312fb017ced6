"""The blocks of README files that are made from records.

A block is a list of names of tables and figures, those of `BLOCKS`. It stands between the lines
`<!-- made by report.py: NAME, NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from common.files import write_atomically
from lra.report.boards import Board, choose_from_grids
from lra.report.data import Data
from lra.report.figures.bubbles import leaderboard_figures
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.lines import line_figures
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import evaluation_tables, length_tables
from lra.report.tables.probes import probe_tables, probes
from lra.report.tables.published import differences_table, reproduce_table, suite_table
from lra.report.tables.results import accuracy_table, leaderboard, leaderboard_csv, position_table
from lra.report.tables.speeds import (
    against_reference,
    preset_speeds,
    speed_tables,
    training_speed_table,
)
from lra.report.tables.table import Table, escape
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

Item = Table | ReportFigure


def _main_boards(data: Data, *, of_positions: bool = False) -> list[Board]:
    return [b for b in data.boards if b.is_main and b.of_positions == of_positions]


def _leading(data: Data) -> list[Board]:
    return [] if data.leading_board is None else [data.leading_board]


def _training_speed(data: Data) -> Iterator[Table]:
    for board in _leading(data):
        speeds = preset_speeds(data.bench, board.preset, board.protocol, data.relative_to)
        if speeds.by_mixer:
            yield training_speed_table(speeds, board.preset)


def _leaderboard(data: Data) -> list[Table]:
    return [
        leaderboard(b, preset_speeds(data.bench, b.preset, b.protocol, data.relative_to))
        for b in _leading(data)
    ]


def _draw(data: Data, tables: Iterable[Table], most: int = 100) -> list[ReportFigure]:
    styles = styles_of_data(data)
    return [figure for table in tables for figure in line_figures(table, styles)][:most]


def _mixing(data: Data) -> list[Table]:
    """Return the table of the mixers' own operators that reaches over most lengths."""
    tables = speed_tables(data.bench, data.names, data.relative_to, data.is_own)
    found = [t for t in tables if any(line.startswith("mixing") for line in t.lines)]
    return sorted(found, key=lambda table: -len(table.columns))[:1]


def _evaluations(data: Data, *, of_positions: bool = False) -> list[Table]:
    found = _main_boards(data, of_positions=of_positions)
    return [table for board in found for table in evaluation_tables(data, board)]


BLOCKS: Mapping[str, Callable[[Data], Iterable[Item]]] = {
    "leaderboard": _leaderboard,
    "leaderboard-figure": lambda data: [
        f for b in _leading(data) for f in leaderboard_figures(data, b, styles_of_data(data))
    ],
    "accuracy": lambda data: [accuracy_table(choose_from_grids(b)) for b in _main_boards(data)],
    "out-of-distribution": _evaluations,
    "training-speed": _training_speed,
    "against-reference": lambda data: against_reference(data.bench, data.names),
    "first-out-of-distribution-figure": lambda data: _draw(data, _evaluations(data), 1),
    "mixing-over-length": lambda data: _draw(data, _mixing(data), 1),
    "bits": lambda data: [
        position_table(choose_from_grids(b)) for b in _main_boards(data, of_positions=True)
    ],
    "out-of-distribution-bits": lambda data: _evaluations(data, of_positions=True),
    "probes": lambda data: [t for probe in probes(data) for t in probe_tables(data, probe)],
    "figures-of-probes": lambda data: _draw(
        data,
        [t for p in probes(data) for v in p.variants for t in length_tables(data, v.board)],
    ),
    "published-of-the-suite": lambda _: [suite_table()],
    "reproduce": lambda data: [reproduce_table(data)],
    "settings": lambda _: [differences_table()],
}
"""Tables and figures that blocks may have, by name."""


def make_items(data: Data, names: Sequence[str]) -> list[Item]:
    """Make the tables and figures of a block, by their names."""
    items = [item for name in names for item in BLOCKS[name](data)]
    return [one.without_empty_columns() if isinstance(one, Table) else one for one in items]


def _path_of(data: Data, figure: ReportFigure) -> Path:
    """Return the file of a figure; a hash of its numbers, in the name, shows if it is stale."""
    return data.folder / f"{figure.slug}-{figure.digest}.svg"


def _write_block(data: Data, items: Sequence[Item], readme: Path) -> str:
    """Write a block as it stands in the file `readme`, with links relative to that file."""
    parts: list[str] = []
    for item in items:
        if isinstance(item, Table):
            parts.append(item.block())
            continue
        path = os.path.relpath(_path_of(data, item).resolve(), readme.resolve().parent)
        title, caption = escape(item.title), escape(item.caption)
        parts.append(f"![{title}]({Path(path).as_posix()})\n\n**{title}.** {caption}\n")
    return "\n".join(parts) or "No runs yet.\n"


def _blocks(
    data: Data, readme: Path, content: str
) -> Iterator[tuple[re.Match[str], str, list[ReportFigure]]]:
    """Make the blocks of a file: their places in its content, their texts and their figures.

    Raises: UserError for a block without an end, and for a name that does not exist.
    """
    found = list(_BLOCK.finditer(content))
    starts, ends = _START.findall(content), _END.findall(content)
    if not len(found) == len(starts) == len(ends):
        raise UserError(
            f"{readme}: expected a line <!-- end --> after each line <!-- made by report.py: ... "
            f"-->, found {len(ends)} and {len(starts)} of them"
        )
    for place in found:
        names = [name.strip() for name in place[1].split(",")]
        for name in names:
            if name not in BLOCKS:
                raise UnknownName("table or figure", name, BLOCKS, str(readme))
        items = make_items(data, names)
        figures = [item for item in items if isinstance(item, ReportFigure)]
        yield place, _write_block(data, items, readme), figures


def _make_csv(data: Data) -> str:
    return "".join(leaderboard_csv(data, board) for board in _leading(data))


def _read(readme: Path) -> str:
    if not readme.is_file():
        raise UserError(f"{readme}: there is no such file, expected one with the report's blocks")
    return readme.read_text(encoding="utf-8")


def check_readmes(data: Data, root: Path) -> list[str]:
    """Compare the blocks of all README files, and the leaderboard's CSV, with the records.

    Args:
        data: the records.
        root: folder that the README files are in.
    Returns: lines that say where each block first differs; none if all agree.
    Raises: UserError for a block that cannot be made.
    """
    lines: list[str] = []
    for file in FILES:
        for place, text, figures in _blocks(data, root / file, _read(root / file)):
            found = _difference(place[2], text)
            missing = [path for one in figures if not (path := _path_of(data, one)).is_file()]
            found += [f"there is no figure {path}" for path in missing]
            lines += [f"{file}, block {place[1]}:", *found] if found else []
    have = (root / CSV).read_text(encoding="utf-8") if (root / CSV).is_file() else ""
    found = _difference(have, _make_csv(data))
    return [*lines, *([f"{CSV}:", *found] if found else [])]


def _difference(have: str, want: str) -> list[str]:
    before, after = have.splitlines(), want.splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old != new:
            return [f"line {number} is", old, "the records give", new]
    if len(before) != len(after):
        return [f"there are {len(before)} lines, the records give {len(after)}"]
    return []


def write_readmes(data: Data, root: Path) -> None:
    """Write all blocks into their files and the runs of the leaderboard into theirs, and replace
    the figures of earlier records.

    Raises: UserError for a block that cannot be made; nothing is written then.
    """
    contents = {root / CSV: _make_csv(data)}
    drawn: dict[Path, ReportFigure] = {}
    for file in FILES:
        content = _read(root / file)
        parts: list[str] = []
        end = 0
        for place, text, figures in _blocks(data, root / file, content):
            parts += [content[end : place.start(2)], text]
            end = place.end(2)
            drawn |= {_path_of(data, figure): figure for figure in figures}
        contents[root / file] = "".join([*parts, content[end:]])
    for path, figure in drawn.items():
        write_atomically(path, figure.svg())
    for path, content in contents.items():
        write_atomically(path, content.encode())
    for path in data.folder.glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path not in drawn:
            path.unlink()
