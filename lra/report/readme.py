"""The parts of the documentation that are made from records, settings files and docstrings.

A block of a Markdown file is a list of names of tables and figures, those of `BLOCKS`. It stands
between the lines `<!-- made by report.py: NAME, NAME -->` and `<!-- end -->`. The files of `CSVS`
are made as a whole.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from common.files import write_atomically
from lra.report.boards import Board, choose_from_grids, rows_at_preset
from lra.report.charts import Chart, Field, bubbles_of_board
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.measured import speeds_csv
from lra.report.published import closest_mean
from lra.report.scores import FIVE
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import evaluation_tables, length_tables
from lra.report.tables.mixer_options import mixer_options_csv
from lra.report.tables.probes import Probe, probe_table, probes
from lra.report.tables.published import differences_csv, reproduce_table
from lra.report.tables.results import leaderboard, leaderboard_csv, position_table
from lra.report.tables.speeds import preset_speeds
from lra.report.tables.table import Table, escape
from lra.runtime.errors import UnknownName, UserError
from tasks.base import PROBES

FILES = (
    "README.md", "docs/results.md", "docs/language_modelling.md", "docs/probes.md",
    "docs/reproduce.md",
)  # fmt: skip
_BLOCK = re.compile(r"(?m)^<!-- made by report\.py: (.*) -->\n((?:(?!<!-- ).*\n)*)<!-- end -->$")
_START = re.compile(r"(?m)^<!-- made by report\.py: .* -->$")
_END = re.compile(r"(?m)^<!-- end -->$")
_FIGURE = re.compile(r"[a-z0-9.-]+-[0-9a-f]{8}\.svg")
"""Names of the figures of blocks: their slug, and a hash of the numbers drawn."""

TOP = 10
"""Rows of the leaderboard that README.md shows."""

Item = Table | Figure


def _main_boards(data: Data, *, of_positions: bool = False) -> list[Board]:
    return [b for b in data.boards if b.is_main and b.of_positions == of_positions]


def _leading(data: Data) -> list[Board]:
    return [] if data.leading_board is None else [data.leading_board]


def _leaderboard(data: Data, most_rows: int | None = None) -> list[Table]:
    speeds = [
        preset_speeds(data.bench, b.preset, b.protocol, data.relative_to) for b in _leading(data)
    ]
    tables = map(leaderboard, _leading(data), speeds)
    return [dataclasses.replace(table, most_rows=most_rows) for table in tables]


def leaderboard_figures(data: Data) -> list[Figure]:
    """Draw the mean accuracy of each row of the leaderboard over its measured training speed.

    A second panel has the published means of the same mixers over the same speeds.

    Returns: the figure; none if no row has a mean and a speed.
    """
    figures: list[Figure] = []
    for board in _leading(data):
        rows = rows_at_preset(board)
        found = bubbles_of_board(data, dataclasses.replace(board, rows=rows)).points
        measured = [p for p in found if p["panel"] == "mean of 5" and "relative" in p]
        if not measured:
            continue
        published = [
            point | {"panel": "published: full size", "score": mean, "low": None, "high": None}
            for point in measured
            if (mean := closest_mean(rows[point["row"]][FIVE[0]].runs[0])) is not None
        ]
        here = f"measured here: preset {board.preset}"
        speeds = preset_speeds(data.bench, board.preset, board.protocol, data.relative_to)
        chart = Chart(
            "bubbles", "", [here, "published: full size"],
            [Field("relative", f"training speed, {speeds.relative_to} = 1", is_logarithmic=True),
             Field("score", "mean accuracy, %"), Field("measured_memory", "peak memory, MiB")],
            {"x": "relative", "y": "score", "size": "measured_memory"},
            [*({**point, "panel": here} for point in measured), *published],
        )  # fmt: skip
        caption = (
            f"Each circle is a mixer, and its area is the peak memory of training. Left: the mean "
            f"test accuracy over {', '.join(FIVE)} at preset {board.preset}; bars show the "
            f"standard deviation over seeds or, for a single seed, the 95 % interval of the test "
            f"examples. Right: the mean that papers report for the same mixers at full size, under "
            f"protocols that differ from paper to paper. Speeds and memory were measured here: "
            f"steps per second, divided by those of {speeds.relative_to} (geometric mean over "
            f"{speeds.tasks}), on {speeds.device}."
        )
        title = "Mean accuracy over training speed"
        styles = styles_of_data(data)
        figures.append(Figure(f"leaderboard-{board.slug}", title, caption, chart, styles))
    return figures


def _draw_first(data: Data, tables: Iterable[Table]) -> list[Figure]:
    """Draw the first table that has lines."""
    styles = styles_of_data(data)
    return [figure for table in tables for figure in figures_of_table(table, styles)][:1]


def _probes(data: Data, task: str) -> list[Probe]:
    return [probe for probe in probes(data) if probe.task == task]


def _probe_tables(data: Data, task: str) -> list[Table]:
    return [*map(probe_table, _probes(data, task))]


def _probe_figure(data: Data, task: str) -> list[Figure]:
    return _draw_first(
        data, (table for one in _probes(data, task) for table in length_tables(data, one))
    )


BLOCKS: Mapping[str, Callable[[Data], Iterable[Item]]] = {
    "leaderboard": _leaderboard,
    "leaderboard-top": partial(_leaderboard, most_rows=TOP),
    "leaderboard-figure": leaderboard_figures,
    "out-of-distribution-figure": lambda data: _draw_first(
        data, (table for b in _main_boards(data) for table in evaluation_tables(data, b))
    ),
    "bits": lambda data: [
        position_table(choose_from_grids(b)) for b in _main_boards(data, of_positions=True)
    ],
    **{task: partial(_probe_tables, task=task) for task in PROBES},
    **{f"{task}-figure": partial(_probe_figure, task=task) for task in PROBES},
    "reproduce": lambda data: [reproduce_table(data)],
}
"""Tables and figures that blocks may have, by name."""

CSVS: Mapping[str, Callable[[Data], str]] = {
    "results/leaderboard.csv": lambda data: "".join(
        leaderboard_csv(data, b) for b in _leading(data)
    ),
    "results/speeds.csv": speeds_csv,
    "results/settings.csv": lambda _: differences_csv(),
    "docs/mixer_options.csv": lambda _: mixer_options_csv(),
}
"""The files that are made as a whole."""


def make_items(data: Data, names: Sequence[str]) -> list[Item]:
    """Make the tables and figures of a block, by their names."""
    items = [item for name in names for item in BLOCKS[name](data)]
    return [one.without_empty_columns() if isinstance(one, Table) else one for one in items]


def _path_of(data: Data, figure: Figure) -> Path:
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
) -> Iterator[tuple[re.Match[str], str, list[Figure]]]:
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
        figures = [item for item in items if isinstance(item, Figure)]
        yield place, _write_block(data, items, readme), figures


def _read(readme: Path) -> str:
    if not readme.is_file():
        raise UserError(f"{readme}: there is no such file, expected one with the report's blocks")
    return readme.read_text(encoding="utf-8")


def check_readmes(data: Data, root: Path) -> list[str]:
    """Compare the blocks of all README files, and the CSV files, with what they are made from.

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
    for file, make in CSVS.items():
        have = (root / file).read_text(encoding="utf-8") if (root / file).is_file() else ""
        found = _difference(have, make(data))
        lines += [f"{file}:", *found] if found else []
    return lines


def _difference(have: str, want: str) -> list[str]:
    before, after = have.splitlines(), want.splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old != new:
            return [f"line {number} is", old, "the records give", new]
    if len(before) != len(after):
        return [f"there are {len(before)} lines, the records give {len(after)}"]
    return []


def write_readmes(data: Data, root: Path) -> None:
    """Write all blocks into their files and the CSV files, and replace the figures of earlier
    records.

    Raises: UserError for a block that cannot be made; nothing is written then.
    """
    contents = {root / file: make(data) for file, make in CSVS.items()}
    drawn: dict[Path, Figure] = {}
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
        write_atomically(path, figure.svg().encode())
    for path, content in contents.items():
        write_atomically(path, content.encode())
    for path in data.folder.glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path not in drawn:
            path.unlink()
