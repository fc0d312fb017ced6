"""Prepare a task's data without training: `python -m lra.prepare --help`."""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from lra.common.errors import DataError, UserError
from lra.common.untrusted import explain_errors
from lra.config.compose import compose_task
from lra.config.request import Change, TaskRequest, parse_changes
from lra.runtime.cli import (
    ALL,
    OWN_CLASS,
    Parser,
    absolute_path,
    add_flags,
    list_names,
    make_main,
)
from lra.tasks.base import BENCHMARK

logger = logging.getLogger("lra.prepare")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.prepare",
        description="Prepare a task's data before you train: find, download or generate it, and "
        "store it in a cache. It can also verify the data and export it.",
        epilog="Exit codes: 0 done, 2 mistake in the command or the data, 5 out of memory, "
        "130 interrupted (run the same command again to continue).",
    )
    add = parser.add_argument
    add("--task", required=True,
        help=f"{list_names('tasks')}, all for the six of the Long Range Arena, or your own: "
        f"{OWN_CLASS}")  # fmt: skip
    add_flags(parser, "--preset", "--protocol", "--set", "--data-dir")
    add("--source",
        help="official: use the official files in --data-dir; download or generate: do this even "
        "if there are files; tfds: use what tensorflow-datasets has prepared; auto (default): use "
        "the files if they are there, otherwise download (up to 1 GiB) or generate if "
        "possible")  # fmt: skip
    add("--verify", action="store_true", help="check the files and the content of the data")
    add("--export", type=absolute_path, metavar="DIR",
        help="write the data to DIR in the official file format")  # fmt: skip
    return parser.parse_args(arguments)


def prepare(options: argparse.Namespace) -> int:
    """Carry a command line out; return the exit code."""
    if options.task != ALL:
        prepare_task(options, options.task)
        return 0
    failed = attempt_each({name: partial(prepare_task, options, name) for name in BENCHMARK})
    if failed:
        raise DataError(f"could not prepare {', '.join(failed)}; the reasons are above")
    return 0


def attempt_each(actions: Mapping[str, Callable[[], None]], start: str = "") -> dict[str, str]:
    """Carry out actions, also after one that failed for a reason that users can mend.

    Args:
        actions: actions by the names of what they are for.
        start: of the messages.
    Returns: the reasons of those that failed, by name; they are logged, too.
    """
    failed: dict[str, str] = {}
    for name, action in actions.items():
        try:
            action()
        except (DataError, UserError) as error:
            reason = "for the same reason" if str(error) in failed.values() else str(error)
            failed[name] = str(error)
            logger.info(f"{start}{name}: {reason}")
    return failed


def prepare_task(options: argparse.Namespace, name: str) -> None:
    """Prepare a task's data as a command line asks."""
    changes = parse_changes(options.overrides)
    if options.source is not None:
        changes += (Change("task", "source", options.source, f"--source {options.source}"),)
    request = TaskRequest(
        task=name, preset=options.preset, protocol=options.protocol, changes=changes
    )
    task = compose_task(request)
    start = time.monotonic()
    dataset = task.prepare(options.data_dir)
    seconds = time.monotonic() - start
    logger.info(f"{name}: {dataset.source} data in {dataset.folder} ({seconds:.1f} s)")
    if dataset.unofficial_because:
        logger.info(f"unofficial: {dataset.unofficial_because}")
    sizes = ", ".join(f"{split} {count:,}" for split, count in dataset.sizes.items())
    logger.info(f"examples: {sizes}; fingerprint {dataset.fingerprint[:16]}")
    for line in dataset.describe():
        logger.info(line)
    if options.verify:
        with explain_errors(f"the data cache {dataset.folder}"):
            for check in task.verify(dataset):
                logger.info(f"verified: {check}")
    if options.export is not None:
        for path in task.export(dataset, options.export):
            logger.info(f"wrote {path}")


main = make_main("lra.prepare", parse_arguments, prepare)

if __name__ == "__main__":
    sys.exit(main())
