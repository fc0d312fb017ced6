"""Checking, listing, merging and exporting records: `python -m lra.record --help`."""

from __future__ import annotations

from lra.runtime.interrupts import expect_interrupts

if __name__ == "__main__":
    expect_interrupts("lra.record")

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.frame import read_runs, to_frame
from lra.record.merge_results import merge_results, read_folder
from lra.record.run import RunRecord, folder_of
from lra.runtime.cli import INCOMPLETE, Parser, absolute_path, new_file, run_command
from lra.runtime.console import MISSING, csv_table, markdown, write_out
from tasks.files import write_atomically

logger = logging.getLogger("lra.record")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.record",
        description="Check, list, merge and export the records of runs.",
        epilog="Exit codes: 0 done, 1 done but for records that could not be read (each is "
        "named), 2 mistake in the command, or records in conflict, 130 interrupted.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    folder = Parser(add_help=False)
    folder.add_argument(
        "--results-dir", type=absolute_path, default="results", help="where runs/ is (results)"
    )
    commands.add_parser("validate", parents=[folder], help="read every record, name what is wrong")
    commands.add_parser("list", parents=[folder], help="print a line on every run")
    export = commands.add_parser(
        "export", parents=[folder], help="write all fields, all settings and the folder as CSV"
    )
    export.add_argument("--csv", type=new_file, help="file to write (standard output)")
    export.add_argument(
        "--with-shipped", action="store_true", help="also the runs that came with the repository"
    )
    merge = commands.add_parser(
        "merge", parents=[folder], help="copy the runs of other results folders into this one"
    )
    merge.add_argument("folders", nargs="+", type=absolute_path, metavar="FOLDER")
    return parser.parse_args(arguments)


def list_runs(records: Sequence[RunRecord]) -> str:
    """Write a table of all runs."""
    ordered = sorted(records, key=lambda r: (r.task, r.preset, r.protocol, r.method, r.run_id))
    rows = [
        {
            "task": r.task,
            "mixer": r.method,
            "preset": r.preset,
            "protocol": r.protocol,
            "run": r.run_id,
            "status": r.status,
            "steps": f"{r.steps:,} of {r.total_steps:,}",
            "test %": MISSING if r.test_accuracy is None else f"{r.test_accuracy:.2f}",
            "device": r.device,
            "changed": ", ".join(r.overrides) or MISSING,
        }
        for r in ordered
    ]
    return markdown(rows) if rows else "no runs\n"


def carry(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    folder = options.results_dir
    if options.command == "merge":
        copied, present, faults = merge_results(folder, options.folders)
        logger.info(f"{copied} records copied into {folder}, {present} were there already")
    elif options.command == "export":
        faults = _export(folder, options.csv, with_shipped=options.with_shipped)
    else:
        records, faults = read_folder(folder, "--results-dir")
        if options.command == "list":
            write_out(list_runs(records))
        else:
            measured, others = all_bench_records(folder)
            faults += others
            count = len(records) + len(measured)
            for record in records:
                evaluated, others = evaluations_of(folder_of(folder, record))
                count += len(evaluated)
                faults += others
            logger.info(f"{count} records are valid, {len(faults)} are not")
    for fault in faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if faults else 0


def _export(folder: Path, file: Path | None, *, with_shipped: bool) -> list[str]:
    """Write runs as CSV, to standard output without a file; return the faults of records."""
    found, faults = read_runs(folder, "--results-dir", with_shipped=with_shipped)
    frame, without_settings = to_frame(found)
    for fault in without_settings:
        logger.warning(f"left empty: {fault}")
    text = csv_table(frame)
    if file is None:
        write_out(text)
    else:
        write_atomically(file, text.encode())
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return run_command("lra.record", lambda: carry(options))


if __name__ == "__main__":
    sys.exit(main())
