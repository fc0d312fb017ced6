"""Turn logged runs into tables, figures and a page: `python report.py --help`."""

from __future__ import annotations

from lra.runtime.interrupts import expect_interrupts

if __name__ == "__main__":
    expect_interrupts("report.py")

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lra.runtime.cli import INCOMPLETE, Parser, absolute_path, non_negative_float, run_command
from lra.runtime.console import write_out

if TYPE_CHECKING:
    from lra.report.boards.results import Results

logger = logging.getLogger("lra.report")

ROOT = Path(__file__).resolve().parent
"""Folder of the README files that have tables of the report."""

NARROWEST, WIDEST = 150, 1000
"""Widths of columns that a paper may have, in points."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        description="Turn all runs into accuracy, speed and memory tables, figures and one page.",
        epilog="Exit codes: 0 done, 1 done but for files that could not be read (each is named), "
        "or a README file differs (--check), 2 mistake in the command, 130 interrupted.",
    )
    parser.add_argument(
        "--results-dir", type=absolute_path,
        help="with runs/, and shipped/ (results; for README files results/shipped)",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=absolute_path,
        help="where to write (RESULTS_DIR/report, with --paper .../paper there)",
    )
    parser.add_argument(
        "--relative-to",
        "--baseline",
        metavar="MIXER",
        help="mixer, or how its row's name begins, that others are relative to (tnn)",
    )
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="MIXER",
        help="compare the first with the others, example by example; named as for --relative-to",
    )  # fmt: skip
    parser.add_argument("--preset", help="only runs of this preset (all)")
    parser.add_argument("--protocol", help="only runs of this protocol (all)")
    parser.add_argument(
        "--format",
        default="markdown,latex,csv,html",
        help="of these, comma-separated (all); an earlier report's other files are removed",
    )
    parser.add_argument("--published", help="published methods to show, comma-separated, or none")
    add_paper(parser)
    parser.add_argument(
        "--check", action="store_true", help="only check that the README files show the records"
    )
    parser.add_argument(
        "--write-readme",
        action="store_true",
        help="only write the tables and figures of the README files",
    )
    return parser.parse_args(arguments)


def add_paper(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the report for a paper."""
    group = parser.add_argument_group(
        "for a paper",
        "LaTeX tables and PDF figures that fit a column, of all main boards or those of --preset "
        "and --protocol; names may be shortened as long as they are clear.",
    )
    group.add_argument(
        "--paper", action="store_true", help="only write tables/, figures/ and paper.tex for LaTeX"
    )
    group.add_argument(
        "--rows", metavar="NAME,...",
        help="rows, in this order: names, mixers (default: those at their presets' settings), "
        "variants (with changed settings), baselines (trivial ones), published (of these mixers; "
        "with --published those)",
    )  # fmt: skip
    group.add_argument(
        "--columns", metavar="NAME,...",
        help="columns, in this order: names, tasks (those with results), average (that most rows "
        "have), 'mean of 5', 'mean of 6' (tasks,average)",
    )  # fmt: skip
    group.add_argument(
        "--precision", type=int, choices=range(4), metavar="DIGITS", help="decimals, 0 to 3 (1)"
    )
    group.add_argument(
        "--width", type=column_width, metavar="POINTS",
        help="width of a column (345, that of article; 397 of NeurIPS, 234 of ICML)",
    )  # fmt: skip


PAPER_FLAGS = ("rows", "columns", "precision", "width")


def column_width(text: str) -> float:
    """Read the width of a column, in points."""
    value = non_negative_float(text)
    if not NARROWEST <= value <= WIDEST:
        raise argparse.ArgumentTypeError(f"got {text}, expected {NARROWEST} to {WIDEST} points")
    return value


def choose_runs(options: argparse.Namespace, folder: Path) -> Results:
    """Open the results folder and keep the runs asked for.

    Raises: UserError for a preset or protocol that no run has.
    """
    from lra.report.boards.results import Results
    from lra.runtime.errors import unknown

    results = Results(folder)
    for name in ("preset", "protocol"):
        chosen = getattr(options, name)
        known = {getattr(record, name) for record in [*results.records, *results.bench]} - {None}
        if chosen is not None and chosen not in known:
            raise unknown(f"{name} among the runs", chosen, known, f"--{name}")
        results.keep(lambda r, n=name, c=chosen: c is None or getattr(r, n) == c)
    return results


def chosen_formats(options: argparse.Namespace) -> list[str]:
    """Check and return the formats of the report.

    Raises: UserError for an unknown format.
    """
    from lra.report.page.write import FORMATS
    from lra.runtime.errors import unknown

    formats = [name.strip() for name in options.format.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS, "--format")
    return formats


def write_report(
    options: argparse.Namespace, formats: list[str], results: Results, out: Path
) -> None:
    """Write the page and the other files of the report, and print its first tables."""
    from lra.report.chapters import ReportData, ReportOptions
    from lra.report.page import write

    shown = ReportOptions(
        relative_to=options.relative_to, compare=options.compare, published=options.published
    )
    data = ReportData(results, shown)
    chapters = write.write_report(data, formats, out)
    place = out / "index.html" if "html" in formats else out
    write_out(f"\n{write.summarize(data, chapters, place)}")


def refuse_idle_flags(options: argparse.Namespace) -> None:
    """Raise UserError for a flag that the rest of the command line makes idle."""
    from lra.runtime.errors import UserError

    idle = ("compare", "check", "write_readme") if options.paper else PAPER_FLAGS
    for name in idle:
        if getattr(options, name) not in (None, False, []):
            flag = name.replace("_", "-")
            raise UserError(
                f"--{flag} has no effect {'with' if options.paper else 'without'} --paper"
            )


def write_paper(options: argparse.Namespace, results: Results, out: Path) -> None:
    """Write the tables and figures of a paper, and say where."""
    from lra.report.paper.write import DOCUMENT, PaperOptions, write_paper

    given = {name: value for name in (*PAPER_FLAGS, "published", "relative_to")
             if (value := getattr(options, name)) is not None}  # fmt: skip
    tables = write_paper(results, PaperOptions(**given), out)
    logger.info(f"{len(tables)} tables: {out / 'tables'}, figures: {out / 'figures'}")
    logger.info(f"all of them: cd {out} && pdflatex {DOCUMENT}")
    others = sorted({record.task for record in results.records if record.positions is not None})
    if others:
        logger.info(
            f"without {', '.join(others)}, whose targets are positions: python report.py has them"
        )


def check(results: Results) -> int:
    """Compare the README files with the records; return the exit code."""
    from lra.report.page.readme import check_readmes

    differences = check_readmes(results, ROOT)
    if differences:
        write_out(
            "\n".join(
                [*differences, "python report.py --write-readme writes what the records give", ""]
            )
        )
    return INCOMPLETE if differences else 0


def report(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    from lra.record.schema import shipped_dir

    refuse_idle_flags(options)
    formats = chosen_formats(options)
    default = absolute_path("results")
    if options.check or options.write_readme:
        default = shipped_dir(default)
    folder = options.results_dir or default
    results = choose_runs(options, folder)
    code = 0
    if options.check:
        code = check(results)
    elif options.paper:
        write_paper(options, results, options.out or folder / "report" / "paper")
    elif options.write_readme:
        from lra.report.page.readme import write_readmes

        write_readmes(results, ROOT)
    else:
        write_report(options, formats, results, options.out or folder / "report")
    for fault in results.faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if results.faults else code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return run_command("report.py", lambda: report(options))


if __name__ == "__main__":
    sys.exit(main())
