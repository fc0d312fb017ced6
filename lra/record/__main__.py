"""Checking, listing, exporting and copying runs: `python -m lra.record --help`."""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from lra.common.files import write_output
from lra.common.spreadsheets import write_csv
from lra.record.benchmark import all_bench_records
from lra.record.community import read_every_run
from lra.record.evaluation import evaluations_of
from lra.record.merge import merge_results
from lra.record.packed import PACK
from lra.record.run import read_runs
from lra.record.run_files import to_frame
from lra.record.schema import SHIPPED_RESULTS
from lra.runtime.cli import INCOMPLETE, Parser, absolute_path, make_main
from lra.runtime.console import as_typed, terminal_width, write_out
from lra.runtime.tables import MISSING, plain_table, rounded

logger = logging.getLogger("lra.record")


def _new_file(text: str) -> Path:
    """Read the path of a file that is to be written."""
    path = absolute_path(text)
    if not Path(text).name or path.is_dir():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected the name of a file")
    return path


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

    def add(name: str, text: str) -> Callable[..., argparse.Action]:
        added = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        added.add_argument(
            "--results-dir", type=absolute_path, default="results",
            help="folder of the results, with runs/ in it (default: results)",
        )  # fmt: skip
        return added.add_argument

    add("validate", "check every record, and print the ones that are not valid")
    add("list", "print one line for each run")
    export = add(
        "export",
        "write a CSV file with one row for each run: every field of its record, every setting, and "
        "its folder",
    )
    export("--csv", type=_new_file, help="file to write (default: standard output)")
    export("--with-shipped", action="store_true",
           help="include shipped and contributed runs")  # fmt: skip
    merge = add("merge", "copy the runs of other results folders into --results-dir")
    merge("folders", nargs="+", type=absolute_path, metavar="FOLDER",
          help="results folder to copy from, with runs/ in it")  # fmt: skip
    ship = add(
        "ship",
        "add the records, metrics and predictions of runs to runs.parquet, the packed results that "
        "come with the repository",
    )
    ship("runs", nargs="*", metavar="RUN",
         help="TASK/MIXER/RUN, as the command list prints it (default: all runs and "
         "measurements)")  # fmt: skip
    ship("--to", type=absolute_path, default=SHIPPED_RESULTS, metavar="FOLDER",
         help="results folder to add to (default: results/shipped of this checkout)")  # fmt: skip
    return parser.parse_args(arguments)


def list_runs(options: argparse.Namespace) -> list[str]:
    """Print one line for each run: in the width of a terminal, and whole for anything else."""
    runs, faults = read_runs(options.results_dir, "--results-dir")
    records = [record for _, record in runs]
    rows = [
        {
            "run": r.name,
            "preset": r.preset,
            "status": r.status,
            "test %": MISSING if r.test_accuracy is None else rounded(r.test_accuracy, 2),
            "changed settings": ", ".join(r.overrides),
            **({} if r.label is None else {"label": r.label}),
        }
        for r in sorted(records, key=lambda r: (r.task, r.preset, r.protocol, r.method, r.run_id))
    ]
    width = terminal_width() if sys.stdout.isatty() else sys.maxsize
    lines = plain_table(rows, width) if rows else ["no runs"]
    write_out("\n".join([*lines, ""]))
    return faults


def validate(options: argparse.Namespace) -> list[str]:
    """Read all records, and print how many are valid."""
    folder = options.results_dir
    runs, faults = read_runs(folder, "--results-dir")
    others = [all_bench_records(folder), *(evaluations_of(run_folder) for run_folder, _ in runs)]
    faults += [fault for _, more in others for fault in more]
    count = len(runs) + sum(len(records) for records, _ in others)
    write_out(f"valid records: {count:,}; invalid files: {len(faults):,}\n")
    return faults


def export(options: argparse.Namespace) -> list[str]:
    """Write runs as CSV into a file, or to standard output."""
    read = read_every_run if options.with_shipped else read_runs
    runs, faults = read(options.results_dir, "--results-dir")
    frame = to_frame(runs, options.results_dir)
    if runs:
        frame["path"] = frame["path"].map(as_typed)
    if options.csv is None:
        write_out(write_csv(frame))
    else:
        write_output(options.csv, write_csv(frame).encode())
    return faults


def merge(options: argparse.Namespace) -> list[str]:
    """Copy runs into the results folder."""
    return _report(options.results_dir, *merge_results(options.results_dir, options.folders))


def ship(options: argparse.Namespace) -> list[str]:
    """Copy runs into the packed file of another results folder."""
    copied = merge_results(options.to, [options.results_dir], options.runs, packed=True)
    return _report(options.to / PACK, *copied)


def _report(target: Path, copied: int, present: int, faults: list[str]) -> list[str]:
    write_out(f"{copied} records copied into {target}, {present} were there already\n")
    return faults


COMMANDS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "validate": validate, "list": list_runs, "export": export, "merge": merge, "ship": ship,
}  # fmt: skip
"""What carries out each command, and returns the faults of what it left out."""


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    faults = COMMANDS[options.command](options)
    for fault in faults:
        logger.warning(f"left out: {fault}")
    return INCOMPLETE if faults else 0


main = make_main("lra.record", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
