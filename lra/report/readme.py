"""The parts of the documentation that are made from records, settings files and docstrings.

A block of a Markdown file is a list of names of tables and figures, those of `BLOCKS`. It stands
between the lines `<!-- made by report.py: NAME, NAME -->` and `<!-- end -->`. The files of `CSVS`
are made as a whole.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from lra.common.errors import UnknownName, UserError
from lra.common.files import write_atomically
from lra.config.request import PAPER
from lra.report.boards import Board, choose_from_grids
from lra.report.data import Data
from lra.report.drawing import Figure, figures_of_table
from lra.report.known_data import known_data_csv
from lra.report.leaderboard import leaderboard, leaderboard_csv
from lra.report.leaderboard_figures import leaderboard_figures
from lra.report.repeated import repeated_results, repeated_table
from lra.report.repeats import differences_csv, reproduce_table, speeds_csv
from lra.report.styles import styles_of_data
from lra.report.tables.evaluations import distance_tables, evaluation_tables, length_tables
from lra.report.tables.fresh import fresh_tables
from lra.report.tables.mixer_options import mixer_options_csv
from lra.report.tables.need import find_local, need_table, range_needed
from lra.report.tables.probes import probe_table, probes
from lra.report.tables.results import measures_table
from lra.report.tables.speeds import preset_speeds
from lra.report.tables.table import Table, escape
from lra.report.windows import find_windows
from lra.tasks.base import PROBES

FILES = (
    "README.md", "docs/results.md", "docs/language_modelling.md", "docs/probes.md",
    "docs/reproduce.md", "docs/range.md", "docs/open_board.md",
)  # fmt: skip
_BLOCK = re.compile(
    r"(?m)^(<!-- made by report\.py: (.*) -->\n)(?:(?!<!-- ).*\n)*(?=<!-- end -->$)"
)
_MARK = re.compile(r"(?m)^<!-- (?:made by report\.py: .*|end) -->$")
_SENTENCE_END = re.compile(r'(?<=\.) (?=[A-Z"])')
_FIGURE = re.compile(r"[a-z0-9.-]+-[0-9a-f]{8}\.svg")
"""Names of the figures of blocks: their slug, and a hash of the numbers drawn."""

TOP = 10
"""Rows of the leaderboard that README.md shows."""


def _main_boards(data: Data, goal: str | None = None) -> list[Board]:
    """List the main boards of accuracies, or of another goal."""
    main = [board for board in data.boards if board.is_main]
    if goal is None:
        return [board for board in main if board.is_of_accuracy]
    return [board for board in main if board.records[0].result.goal == goal]


def _measures(data: Data, goal: str) -> list[Table]:
    return [measures_table(choose_from_grids(board)) for board in _main_boards(data, goal)]


def _leading(data: Data) -> list[Board]:
    return [] if data.leading_board is None else [data.leading_board]


def _leaderboard(data: Data, most_rows: int | None = None) -> list[Table]:
    tables = [
        leaderboard(
            board, preset_speeds(data, board), find_windows(data.boards, board), find_local(data)
        )
        for board in _leading(data)
    ]
    return [dataclasses.replace(table, most_rows=most_rows) for table in tables]


def _draw_first(data: Data, tables: Iterable[Table]) -> list[Figure]:
    """Draw the first table that has lines."""
    styles = styles_of_data(data)
    return [figure for table in tables for figure in figures_of_table(table, styles)][:1]


def _probe_tables(data: Data, task: str) -> list[Table]:
    """Tabulate a probe at the published settings; others are on the page."""
    return [probe_table(p) for p in probes(data) if p.task == task and p.preset == PAPER]


def _probe_figure(data: Data, task: str) -> list[Figure]:
    of_task = (probe for probe in probes(data) if probe.task == task)
    return _draw_first(data, (table for probe in of_task for table in length_tables(data, probe)))


BLOCKS: Mapping[str, Callable[[Data], Iterable[Table | Figure]]] = {
    "leaderboard": _leaderboard,
    "leaderboard-top": partial(_leaderboard, most_rows=TOP),
    "leaderboard-figure": lambda data: [
        figure for board in _leading(data) for figure in leaderboard_figures(data, board)
    ],
    "out-of-distribution-figure": lambda data: _draw_first(
        data, (table for b in _main_boards(data) for table in evaluation_tables(data, b))
    ),
    "bits": partial(_measures, goal="next token"),
    "windows": partial(_measures, goal="labels by distance"),
    "windows-figure": lambda data: _draw_first(
        data, (t for b in _main_boards(data, "labels by distance") for t in distance_tables(b))
    ),
    **{task: partial(_probe_tables, task=task) for task in PROBES},
    **{f"{task}-figure": partial(_probe_figure, task=task) for task in PROBES},
    "range-needed": lambda data: [table] if (table := need_table(data)).rows else [],
    "fresh": fresh_tables,
    "reproduce": lambda data: [reproduce_table(data)],
    "repeated": lambda data: [repeated_table(data)] if repeated_results(data) else [],
}
"""Tables and figures that blocks may have, by name."""

CSVS: Mapping[str, Callable[[Data], str]] = {
    "results/leaderboard.csv": lambda data: "".join(
        leaderboard_csv(data, b) for b in _leading(data)
    ),
    "results/known_data.csv": known_data_csv,
    "results/speeds.csv": speeds_csv,
    "results/settings.csv": lambda _: differences_csv(),
    "docs/mixer_options.csv": lambda _: mixer_options_csv(),
}
"""The files that are made as a whole."""


def make_files(data: Data, root: Path) -> tuple[dict[str, str], dict[Path, Figure]]:
    """Make the README files and CSV files of a folder by name, and their figures by path.

    Raises: UserError for a file that is not there, a block without an end, and an unknown name.
    """
    files = {file: make(data) for file, make in CSVS.items()}
    figures: dict[Path, Figure] = {}
    for file in FILES:
        path = root / file
        if not path.is_file():
            raise UserError(f"{path}: there is no such file, expected one with the report's blocks")
        content = path.read_text(encoding="utf-8")
        if len(_MARK.findall(content)) != 2 * len(_BLOCK.findall(content)):
            raise UserError(
                f"{path}: expected a line <!-- end --> after each line <!-- made by report.py: "
                f"... -->, and no other such lines"
            )

        def fill(block: re.Match[str], path: Path = path) -> str:
            texts: list[str] = []
            said: set[str] = set()
            for name in map(str.strip, block[2].split(",")):
                if name not in BLOCKS:
                    raise UnknownName("table or figure", name, BLOCKS, str(path))
                drawn: dict[Path, Figure] = {}
                for item in BLOCKS[name](data):
                    if isinstance(item, Table):
                        texts.append(_leave_out(said, item.without_empty_columns()).block())
                    else:
                        # A hash of the numbers in the name shows whether a figure is stale.
                        drawn[data.folder / f"{item.slug}-{item.digest}.svg"] = item
                texts += [_show_figures(drawn, path)] if drawn else []
                figures.update(drawn)
            return block[1] + ("\n".join(texts) or "No runs yet.\n")

        files[file] = _BLOCK.sub(fill, content)
    for task, text in range_needed(data).items():
        # The last cell of a row of the table of tasks, in which no block can stand.
        row = re.compile(rf"(?m)^(\| `{task}` \|.*\|)[^|\n]*\|$")
        files["README.md"] = row.sub(rf"\1 {text} |", files["README.md"])
    return files, figures


def _leave_out(said: set[str], table: Table) -> Table:
    """Leave sentences of earlier captions of the block out of a caption, but its first one."""
    first, *others = _SENTENCE_END.split(table.caption)
    new = [sentence for sentence in others if sentence not in said]
    said.update(others)
    return dataclasses.replace(table, caption=" ".join([first, *new]))


def _show_figures(figures: Mapping[Path, Figure], readme: Path) -> str:
    """Show figures side by side with links that are relative to the README file, and captions."""
    folder = readme.resolve().parent
    links = {Path(os.path.relpath(path.resolve(), folder)): f for path, f in figures.items()}
    images = [f"![{escape(figure.title)}]({path.as_posix()})" for path, figure in links.items()]
    captions = [f"**{escape(f.title)}.** {escape(f.caption)}" for f in figures.values()]
    return "\n\n".join([" ".join(images), *captions]) + "\n"


def check_readmes(data: Data, root: Path) -> list[str]:
    """Name the README files, CSV files and figures that differ from what the records give.

    Raises: UserError for a block that cannot be made.
    """
    files, figures = make_files(data, root)
    have = {file: (root / file).read_text("utf-8") for file in files if (root / file).is_file()}
    stale = [f"{file} differs" for file, content in files.items() if have.get(file) != content]
    return stale + [f"{path} is not there" for path in figures if not path.is_file()]


def write_readmes(data: Data, root: Path) -> None:
    """Write the README files and CSV files, and replace the figures of earlier records.

    Raises: UserError for a block that cannot be made; nothing is written then.
    """
    files, figures = make_files(data, root)
    contents = {path: figure.svg() for path, figure in figures.items()}
    contents |= {root / file: content for file, content in files.items()}
    for path, content in contents.items():
        write_atomically(path, content.encode())
    for path in data.folder.glob("*.svg"):
        if _FIGURE.fullmatch(path.name) and path not in figures:
            path.unlink()
