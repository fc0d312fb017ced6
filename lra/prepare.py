"""Prepare a task's data without training: `python -m lra.prepare --help`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lra.cli import Parser, add_settings, carry_out, positive_int
from lra.resolve import resolve_task
from tasks.progress import say


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.prepare", description="Prepare, check or export a task's data."
    )
    add_settings(parser)
    parser.add_argument("--source", help="auto (default), official or generate")
    parser.add_argument(
        "--examples", type=positive_int, metavar="N", help="generate N examples in all"
    )
    parser.add_argument("--verify", action="store_true", help="check the data in full")
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write the data in the official layout"
    )
    return parser.parse_args(arguments)


def prepare(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    flags = {"--source": f"task.source={options.source}"} if options.source is not None else {}
    overrides = list(options.overrides)
    if options.examples is not None:
        sizes = resolve_task(options.task).split_sizes(options.examples)
        sizes_flags = [f"task.{name}={count}" for name, count in sizes.items()]
        say(f"--examples {options.examples} stands for --set {' --set '.join(sizes_flags)}")
        overrides = sizes_flags + overrides
    task = resolve_task(
        options.task,
        preset=options.preset,
        protocol=options.protocol,
        overrides=overrides,
        flags=flags,
    )
    start = time.monotonic()
    dataset = task.prepare(options.data_dir)
    say(f"{dataset.source} data in {dataset.folder} ({time.monotonic() - start:.1f} s)")
    say(f"examples {dataset.sizes}, fingerprint {dataset.fingerprint[:16]}")
    for name, accuracy in dataset.baselines.items():
        say(f"guessing by {name}: {accuracy:.2f} % of the test set")
    if options.verify:
        for check in task.verify(dataset):
            say(f"verified: {check}")
    if options.export is not None:
        for path in task.export(dataset, options.export):
            say(f"wrote {path}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = parse_arguments(arguments)
    return carry_out("lra.prepare", lambda: prepare(options))


if __name__ == "__main__":
    sys.exit(main())
