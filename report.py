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

from lra.runtime.cli import INCOMPLETE, Parser, carry_out
from lra.runtime.console import write_out

if TYPE_CHECKING:
    from lra.report.build import ReportOptions
    from lra.report.results import Results

logger = logging.getLogger("lra.report")

ROOT = Path(__file__).resolve().parent
"""Folder of the README files that have tables of the report."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        description="Turn all runs into accuracy, speed and memory tables, figures and one page.",
        epilog="Exit codes: 0 done, 1 done but for files that could not be read (each is named), "
        "or a README file differs (--check), 2 mistake in the command, 130 interrupted.",
    )
    parser.add_argument(
        "--results-dir", type=Path,
        help="with runs/, and shipped/ (results; for README files results/shipped)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="where to write (RESULTS_DIR/report)")
    parser.add_argument(
        "--relative-to",
        "--baseline",
        metavar="MIXER",
        help="mixer that others are relative to (tnn)",
    )
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="MIXER",
        help="compare the first with the others, example by example",
    )  # fmt: skip
    parser.add_argument("--preset", help="only runs of this preset (all)")
    parser.add_argument("--protocol", help="only runs of this protocol (all)")
    parser.add_argument(
        "--format",
        default="markdown,latex,csv,html",
        help="of these, comma-separated (all); an earlier report's other files are removed",
    )
    parser.add_argument("--published", help="published methods to show, comma-separated, or none")
    parser.add_argument(
        "--check", action="store_true", help="only check that the README files show the records"
    )
    parser.add_argument(
        "--write-readme",
        action="store_true",
        help="only write the tables and figures of the README files",
    )
    return parser.parse_args(arguments)


def choose_runs(options: argparse.Namespace, folder: Path) -> Results:
    """Open the results folder and keep the runs asked for.

    Raises: UserError for a preset or protocol that no run has.
    """
    from lra.report.results import Results
    from lra.runtime.errors import unknown

    results = Results(folder)
    for name in ("preset", "protocol"):
        chosen = getattr(options, name)
        known = {getattr(record, name) for record in [*results.records, *results.bench]} - {None}
        if chosen is not None and chosen not in known:
            raise unknown(f"{name} among the runs", chosen, known, f"--{name}")
        results.keep(lambda r, n=name, c=chosen: c is None or getattr(r, n) == c)
    return results


def report_options(options: argparse.Namespace) -> ReportOptions:
    """Check and return what the report is to show.

    Raises: UserError for an unknown format.
    """
    from lra.report.build import FORMATS, ReportOptions
    from lra.runtime.errors import unknown

    formats = [name.strip() for name in options.format.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS, "--format")
    return ReportOptions(
        relative_to=options.relative_to,
        compare=options.compare,
        published=options.published,
        formats=formats,
    )


def check(results: Results) -> int:
    """Compare the README files with the records; return the exit code."""
    from lra.report.readme import check_readmes

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
    from lra.record.schema import SHIPPED

    chosen = report_options(options)
    default = Path("results", SHIPPED) if options.check or options.write_readme else Path("results")
    folder = options.results_dir or default
    results = choose_runs(options, folder)
    code = 0
    if options.check:
        code = check(results)
    elif options.write_readme:
        from lra.report.readme import write_readmes

        write_readmes(results, ROOT)
    else:
        from lra.report.build import summarize, write_report

        out = options.out or folder / "report"
        chapters = write_report(results, chosen, out)
        write_out(f"\n{summarize(results, chapters, chosen, out)}")
    for fault in results.faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if results.faults else code


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return carry_out("report.py", lambda: report(options))


if __name__ == "__main__":
    sys.exit(main())
