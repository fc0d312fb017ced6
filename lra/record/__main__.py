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
from typing import TYPE_CHECKING

from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.merge import merge, read_folder
from lra.record.run import RunRecord, folder_of
from lra.runtime.cli import INCOMPLETE, Parser, carry_out, new_file
from lra.runtime.console import MISSING, csv_table, markdown, write_out
from tasks.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

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
        "--results-dir", type=Path, default=Path("results"), help="where runs/ is (results)"
    )
    commands.add_parser("validate", parents=[folder], help="read every record, name what is wrong")
    commands.add_parser("list", parents=[folder], help="print a line on every run")
    export = commands.add_parser("export", parents=[folder], help="write all fields as CSV")
    export.add_argument("--csv", type=new_file, help="file to write (standard output)")
    merge = commands.add_parser(
        "merge", parents=[folder], help="copy the runs of other results folders into this one"
    )
    merge.add_argument("sources", nargs="+", type=Path, metavar="FOLDER")
    return parser.parse_args(arguments)


def to_frame(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return a row per record and a column per field; nested fields are named as in data.source."""
    import pandas as pd

    frame = pd.json_normalize([record.model_dump(mode="json") for record in records])
    return frame.map(lambda value: "; ".join(map(str, value)) if isinstance(value, list) else value)


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
        copied, present, faults = merge(folder, options.sources)
        logger.info(f"{copied} records copied into {folder}, {present} were there already")
    else:
        records, faults = read_folder(folder, "--results-dir")
        if options.command == "list":
            write_out(list_runs(records))
        elif options.command == "validate":
            measured, others = all_bench_records(folder)
            faults += others
            count = len(records) + len(measured)
            for record in records:
                evaluated, others = evaluations_of(folder_of(folder, record))
                count += len(evaluated)
                faults += others
            logger.info(f"{count} records are valid, {len(faults)} are not")
        else:
            text = csv_table(to_frame(records))
            if options.csv is None:
                write_out(text)
            else:
                write_atomically(options.csv, text.encode())
    for fault in faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if faults else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return carry_out("lra.record", lambda: carry(options))


if __name__ == "__main__":
    sys.exit(main())
