"""Turn logged runs into tables and a page: `python report.py --help`."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lra.common.errors import UserError
from lra.runtime.cli import (
    INCOMPLETE,
    Parser,
    absolute_path,
    make_main,
    name_list,
    non_negative_float,
)
from lra.runtime.console import write_out
from lra.runtime.repository import ROOT

if TYPE_CHECKING:
    from lra.report.data import Data
    from lra.report.published import PublishedRow

logger = logging.getLogger("lra.report")

NARROWEST, WIDEST = 150, 1000
"""Widths of columns that a paper may have, in points."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        description="Turn training runs into tables and an interactive page. The terminal shows "
        "your own runs together with the shipped runs that they can be compared with. The page, "
        "one HTML file, shows all runs.",
        epilog="Exit codes: 0: done. 1: done, but some files could not be read and are named, or "
        "--check found a README file that differs. 2: a mistake in the command. 130: interrupted.",
    )
    add = parser.add_argument
    add("--results-dir", type=absolute_path, metavar="FOLDER",
        help="folder with your runs; shipped runs are shown beside them (default: results; with "
        "--check and --write-readme: results/shipped)")  # fmt: skip
    add("--out", type=absolute_path, metavar="FOLDER",
        help="folder to write to (default: RESULTS_DIR/report; with --paper: "
        "RESULTS_DIR/report/paper)")  # fmt: skip
    for name in ("preset", "protocol"):
        add(f"--{name}", help=f"use only runs of this {name}, and print all its tables of results "
            "(default: all)")  # fmt: skip
    add("--compare", nargs="+", default=[], metavar="MIXER",
        help="only print the difference of test accuracy (or R2) between the first mixer and each "
        "other one, with its 95 %% interval, from their answers to the same test examples. Name a "
        "mixer as its row is named; the beginning of the name is enough if no other row begins "
        "with it.")  # fmt: skip
    add("--relative-to", "--baseline", metavar="MIXER",
        help="mixer that the speed and the memory of the others are divided by; named as for "
        "--compare (default: tnn)")  # fmt: skip
    add("--published", metavar="NAME,...",
        help="published results to show, by name; none shows no published result "
        "(default: all)")  # fmt: skip
    add("--format", type=format_names, metavar="NAME,...", default="html,csv",
        help="what to write: html (the page) and csv (a table of numbers for each question) "
        "(default: both)")  # fmt: skip
    add_paper(parser)
    add = parser.add_argument_group("for the README files of the repository").add_argument
    add("--check", action="store_true",
        help="only check that the tables and figures in README files show the shipped "
        "runs")  # fmt: skip
    add("--write-readme", action="store_true",
        help="only write the tables and figures in README files")  # fmt: skip
    return parser.parse_args(arguments)


def add_paper(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the report for a paper."""
    add = parser.add_argument_group(
        "for a paper",
        "Write the main results as LaTeX tables and PDF figures that fit a column of text. "
        "--preset and --protocol choose the runs. The beginning of a name of a row or column is "
        "enough if no other name begins with it.",
    ).add_argument
    add("--paper", action="store_true",
        help="write tables/ and figures/ instead of the page")  # fmt: skip
    add("--rows", metavar="NAME,...",
        help="rows in this order: names of rows, or mixers (with the settings of their preset), "
        "variants (with changed settings), baselines (trivial ones) and published (published "
        "results of the mixers shown, or those of --published) (default: mixers)")  # fmt: skip
    add("--columns", metavar="NAME,...",
        help="columns in this order: names of tasks, or tasks (all with results), 'mean of 5' and "
        "'mean of 6' (tasks), average (the one of these two that most rows have) (default: "
        "tasks,average)")  # fmt: skip
    add("--precision", type=int, choices=range(4), metavar="DIGITS",
        help="decimal digits of accuracies, 0 to 3 (default: 1)")  # fmt: skip
    add("--width", type=column_width, metavar="POINTS",
        help="width of a column: 345 for article, 397 for NeurIPS, 234 for ICML (default: "
        "345)")  # fmt: skip


PAPER_FLAGS = ("rows", "columns", "precision", "width")


def column_width(text: str) -> float:
    """Read the width of a column, in points."""
    value = non_negative_float(text)
    if not NARROWEST <= value <= WIDEST:
        raise argparse.ArgumentTypeError(f"got {text}, expected {NARROWEST} to {WIDEST} points")
    return value


def format_names(text: str) -> list[str]:
    """Read the names of what the report writes."""
    names = name_list(text)
    if not {*names} <= {"html", "csv"}:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected html, csv or html,csv")
    return names


def choose_runs(options: argparse.Namespace, folder: Path) -> Data:
    """Open the results folder and keep the runs asked for.

    Raises: UserError for a preset or protocol that no run has.
    """
    from lra.common.errors import UnknownName
    from lra.report.data import Data

    asked = {"preset": options.preset, "protocol": options.protocol}
    chosen = {name: value for name, value in asked.items() if value is not None}
    data = Data(
        folder,
        lambda record: all(getattr(record, name) == value for name, value in chosen.items()),
        options.relative_to,
    )
    for name, value in chosen.items():
        known = {getattr(record, name) for record in data.every} - {None}
        if value not in known:
            raise UnknownName(f"{name} among the runs", value, known, f"--{name}")
    return data


def write_report(options: argparse.Namespace, data: Data, out: Path) -> None:
    """Print the tables with the user's runs, and write the page and the tables of numbers."""
    from lra.report.screen import summarize
    from lra.report.tables.terminal import wrap

    is_chosen = options.preset is not None or options.protocol is not None
    write_out(summarize(data, is_chosen=is_chosen))
    own = sum(map(data.is_own, data.records))
    logger.info(f"Writing the report: {len(data.records):,} training runs, {own:,} of them yours")
    from lra.report.page.page import write_report

    names = write_report(data, choose_published(options.published), options.format, out)
    page = [f"Open the page in a browser: {out / 'index.html'}"] if "index.html" in names else []
    tables = [name for name in names if name.endswith(".csv")]
    saved = [f"Tables of numbers in {out}: {', '.join(tables)}"] if tables else []
    write_out("\n".join(["", *map(wrap, [*page, *saved]), ""]))


def refuse_idle_flags(options: argparse.Namespace) -> None:
    """Raise UserError for a flag that the rest of the command line makes idle."""
    idle = ("compare", "check", "write_readme") if options.paper else PAPER_FLAGS
    for name in idle:
        if getattr(options, name) not in (None, False, []):
            flag = name.replace("_", "-")
            raise UserError(
                f"--{flag} has no effect {'with' if options.paper else 'without'} --paper"
            )


def write_paper(options: argparse.Namespace, data: Data, out: Path) -> None:
    """Write the tables and figures of a paper; print where they are, and what they leave out."""
    from lra.report.paper import write_paper
    from lra.report.tables.terminal import wrap

    choices = {name: value for name in PAPER_FLAGS
             if (value := getattr(options, name)) is not None}  # fmt: skip
    published = None if options.published is None else choose_published(options.published)
    lines = write_paper(data, out, published=published, **choices)
    write_out("\n".join([*(wrap(line, indent="    ") for line in lines), ""]))


def choose_published(names: str | None) -> list[PublishedRow]:
    """Choose published rows by `--published`: all for None, none for "none", else those named.

    Raises: UserError for a method that is not there.
    """
    from lra.report.names import complete
    from lra.report.published import published_rows

    rows = {row.method: row for row in published_rows()}
    if names is None:
        return [*rows.values()]
    chosen = [] if names == "none" else [name.strip() for name in names.split(",")]
    return [rows[complete(name, rows, "method", "--published")] for name in chosen]


def report(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    from lra.record.schema import shipped_dir

    refuse_idle_flags(options)
    default = absolute_path("results")
    if options.check or options.write_readme:
        default = shipped_dir(default)
    folder = options.results_dir or default
    out = options.out or folder / "report" / ("paper" if options.paper else "")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file, expected a folder")
    data = choose_runs(options, folder)
    code = 0
    if options.check:
        from lra.report.readme import check_readmes

        if differences := check_readmes(data, ROOT):
            code, last = INCOMPLETE, "To write them again: python report.py --write-readme"
            write_out("\n".join([*differences, last, ""]))
    elif options.paper:
        write_paper(options, data, out)
    elif options.write_readme:
        from lra.report.readme import write_readmes

        write_readmes(data, ROOT)
    elif options.compare:
        from lra.report.compare import describe_comparisons

        write_out(describe_comparisons(data, options.compare) + "\n")
    else:
        write_report(options, data, out)
    for fault in data.faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if data.faults else code


main = make_main("report.py", parse_arguments, report)

if __name__ == "__main__":
    sys.exit(main())
