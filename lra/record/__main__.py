"""Checking, listing, exporting and copying runs: `python -m lra.record --help`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from common.files import write_atomically
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.merge_results import merge_results
from lra.record.packed import PACK
from lra.record.run import RunRecord
from lra.record.schema import SHIPPED_RESULTS
from lra.record.table import read_runs, to_frame
from lra.runtime.cli import INCOMPLETE, Parser, absolute_path, new_file, run_command
from lra.runtime.console import MISSING, as_typed, csv_table, plain_table, terminal_width, write_out

logger = logging.getLogger("lra.record")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.record",
        description="Check, list, export, merge and ship the records of runs.",
        epilog="Exit codes: 0 done, 1 some records could not be read (each is named), 2 mistake "
        "in the command, or records in conflict, 130 interrupted. "
        "python -m lra.record COMMAND --help lists the flags of a command.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    folder = Parser(add_help=False)
    folder.add_argument(
        "--results-dir", type=absolute_path, default="results",
        help="folder of the results, with runs/ in it (default: results)",
    )  # fmt: skip

    def add(name: str, text: str, more: str = "") -> Parser:
        description = f"{text[0].upper()}{text[1:]}. {more}".strip()
        return commands.add_parser(name, parents=[folder], help=text, description=description)

    add("validate", "check every record, and print the ones that are not valid")
    add("list", "print one line for each run")
    export = add(
        "export", "write a CSV file with one row for each run",
        "A row has every field of a record, every setting, and the folder of the run.",
    )  # fmt: skip
    export.add_argument("--csv", type=new_file, help="file to write (default: standard output)")
    export.add_argument(
        "--with-shipped", action="store_true",
        help="include the runs that come with the repository",
    )  # fmt: skip
    merge = add("merge", "copy the runs of other results folders into --results-dir")
    merge.add_argument(
        "folders", nargs="+", type=absolute_path, metavar="FOLDER",
        help="results folder to copy from, with runs/ in it",
    )  # fmt: skip
    ship = add(
        "ship", "add runs to the packed results that come with the repository",
        "The file runs.parquet of a results folder gets their records, metrics and predictions, "
        "and no checkpoints.",
    )  # fmt: skip
    ship.add_argument(
        "runs", nargs="*", metavar="RUN",
        help="TASK/MIXER/RUN, as the command list prints it (default: all runs and measurements)",
    )  # fmt: skip
    ship.add_argument(
        "--to", type=absolute_path, default=SHIPPED_RESULTS, metavar="FOLDER",
        help="results folder to add to (default: results/shipped of this checkout)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def list_runs(records: Sequence[RunRecord]) -> str:
    """Write one line for each run, in the width of the terminal."""
    ordered = sorted(records, key=lambda r: (r.task, r.preset, r.protocol, r.method, r.run_id))
    rows = [
        {
            "run": f"{r.task}/{r.mixer}/{r.run_id}",
            "preset": r.preset,
            "status": r.status,
            "test %": MISSING if r.test_accuracy is None else f"{r.test_accuracy:.2f}",
            "changed settings": ", ".join(r.overrides),
        }
        for r in ordered
    ]
    lines = plain_table(rows, terminal_width()) if rows else ["no runs"]
    return "\n".join([*lines, ""])


def _validate(options: argparse.Namespace) -> list[str]:
    folder = options.results_dir
    runs, faults = read_runs(folder, "--results-dir")
    found = [all_bench_records(folder), *(evaluations_of(place) for place, _ in runs)]
    faults += [fault for _, more in found for fault in more]
    count = len(runs) + sum(len(records) for records, _ in found)
    write_out(f"valid records: {count:,}; invalid files: {len(faults):,}\n")
    return faults


def _list(options: argparse.Namespace) -> list[str]:
    runs, faults = read_runs(options.results_dir, "--results-dir")
    write_out(list_runs([record for _, record in runs]))
    return faults


def _merge(options: argparse.Namespace) -> list[str]:
    if options.command == "ship":
        place, sources, runs = options.to / PACK, [options.results_dir], options.runs
        found = merge_results(options.to, sources, runs, packed=True)
    else:
        place = options.results_dir
        found = merge_results(place, options.folders)
    copied, present, faults = found
    write_out(f"{copied} records copied into {place}, {present} were there already\n")
    return faults


def _export(options: argparse.Namespace) -> list[str]:
    """Write runs as CSV into a file, or to standard output."""
    folder, file = options.results_dir, options.csv
    found, faults = read_runs(folder, "--results-dir", shipped=options.with_shipped)
    frame = to_frame(found, folder)
    if found:
        frame["path"] = frame["path"].map(as_typed)
    text = csv_table(frame)
    if file is None:
        write_out(text)
    else:
        write_atomically(file, text.encode())
    return faults


COMMANDS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "validate": _validate, "list": _list, "export": _export, "merge": _merge, "ship": _merge,
}  # fmt: skip
"""What carries out each command, and returns the faults of what it left out."""


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    faults = COMMANDS[options.command](options)
    for fault in faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if faults else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.record", lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
