"""What the command lines share: one-line errors and checked arguments."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from lra.runtime.console import show_messages
from lra.runtime.errors import HeldError, UserError

INCOMPLETE = 1
"""Done, but for files that could not be read."""
USER_ERROR = 2
STOPPED = 3
DIVERGED = 4
OUT_OF_MEMORY = 5
HELD = 6
"""Another process is at work on the same run."""
INTERRUPTED = 130
LARGEST_INT = 2**63 - 1


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Write the error, without the usage, and exit."""
        self.exit(USER_ERROR, f"{self.prog}: error: {message} (see --help)\n")


class _Names:
    """Names that are looked up when a help text shows them, as finding them takes seconds."""

    def __init__(self, find: Callable[[], Iterable[str]]) -> None:
        self.find = find

    def __str__(self) -> str:
        return ", ".join(self.find())


def name_in_help(action: argparse.Action, find: Callable[[], Iterable[str]]) -> None:
    """Let an argument's help show names where it says %(names)s.

    Args:
        find: lists them.
    """
    vars(action)["names"] = _Names(find)


def add_settings(
    parser: argparse.ArgumentParser,
    tasks: Callable[[], Iterable[str]],
    help_text: str = "%(names)s",
) -> None:
    """Add the flags that choose a task, its settings and where its data is.

    Args:
        tasks: lists the names that --task takes.
        help_text: of --task, with %(names)s for these.
    """
    name_in_help(parser.add_argument("--task", required=True, help=help_text), tasks)
    parser.add_argument("--preset", default="paper", help="paper (default), quick or budget")
    parser.add_argument("--protocol", default="s4", help="s4 (default) or lra")
    add_overrides(parser, "change a setting, train.lr=1e-3 for instance; of several the last wins")


def add_overrides(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the flags that change settings and say where the data is.

    Args:
        text: help of --set.
    """
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="overrides",
        help=text,
    )
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data"), help="official files and caches (data)"
    )


def positive_int(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole_number(text, 1, LARGEST_INT)


def seed(text: str) -> int:
    """Read a whole number of at least 0."""
    return _whole_number(text, 0, LARGEST_INT)


def _whole_number(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"got {text}, expected {least} to {most}")
    return value


def whole_numbers(text: str, flag: str, least: int) -> list[int]:
    """Read comma-separated whole numbers, each once, in order.

    Raises: UserError naming the flag.
    """
    try:
        numbers = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"{flag} {text}: expected whole numbers, 1,2,3 say") from None
    if min(numbers) < least:
        raise UserError(f"{flag} {text}: expected at least {least}")
    return numbers


def non_negative_float(text: str) -> float:
    """Read a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number") from None
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"got {text}, expected a finite number of at least 0")
    return value


def carry_out(program: str, action: Callable[[], int]) -> int:
    """Run a command; turn a user's mistake, or running out of memory, into a line and an exit code.

    While it runs, what the packages have to say is printed.
    """
    from tasks.base import DataError

    show_messages()
    try:
        return action()
    except HeldError as error:
        return _fail(program, str(error), HELD)
    except (UserError, DataError, OSError) as error:
        return _fail(program, str(error), USER_ERROR)
    except KeyboardInterrupt:
        return _fail(program, "interrupted", INTERRUPTED)
    except (MemoryError, RuntimeError) as error:
        from lra.runtime.environment import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        return _fail(program, f"out of memory: {error}", OUT_OF_MEMORY)


def _fail(program: str, message: str, code: int) -> int:
    sys.stderr.write(f"{program}: error: {' '.join(message.splitlines())}\n")
    return code
