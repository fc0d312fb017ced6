"""What the command lines have in common: one-line errors and checked arguments."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from common.errors import KnownError, describe, message
from lra.runtime.console import make_absolute, say, show_messages
from lra.runtime.errors import (
    HeldError,
    UserError,
    describe_os_error,
    nearest,
    place_in_user_code,
    user_code,
)
from lra.runtime.interrupts import INTERRUPTED, USER_ERROR, is_interrupted, watch_interrupts
from lra.runtime.launch import is_launched
from lra.runtime.threads import MOST_THREADS

INCOMPLETE = 1
"""Done, but for files that could not be read."""
STOPPED = 3
DIVERGED = 4
OUT_OF_MEMORY = 5
HELD = 6
"""Another process is at work on the same run."""
LARGEST_INT = 2**63 - 1
OWN_CLASS = "file.py:ClassName or package.module:ClassName"
"""How a flag names a mixer or a task of the user's own."""
_UNKNOWN = "unrecognized arguments: "
"""Start of argparse's message on flags that a command does not have."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def format_help(self) -> str:
        """Write the help, with the names that `name_in_help` asks for."""
        for action in self._actions:
            find = getattr(action, "find_names", None)
            if find is not None and action.help is not None:
                action.help = action.help.replace("{names}", ", ".join(find()))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Write the error, without the usage, and exit."""
        given = message.removeprefix(_UNKNOWN).split()
        if message.startswith(_UNKNOWN) and given[0].startswith("-"):
            message = _describe_unknown(given[0], self._option_string_actions)
        report_error(self.prog, f"{message} (see --help)")
        sys.exit(USER_ERROR)


def _describe_unknown(flag: str, valid: Iterable[str]) -> str:
    """Describe an unknown flag, with the one that it may stand for; its value does not count."""
    name = flag.partition("=")[0]
    near = nearest(name, (f for f in valid if f.startswith("--") and f != "--help"))
    return f"unknown flag {name}" + (f"; did you mean {near}?" if near else "")


def name_in_help(action: argparse.Action, find: Callable[[], Iterable[str]]) -> None:
    """Let an argument's help show names in place of {names}.

    They are looked up when a `Parser` shows its help, as finding them takes seconds.

    Args:
        find: lists them.
    """
    vars(action)["find_names"] = find


def add_settings(
    parser: argparse.ArgumentParser,
    tasks: Callable[[], Iterable[str]],
    help_text: str = f"{{names}}, or your own: {OWN_CLASS}",
) -> None:
    """Add the flags that choose a task, its settings and where its data is.

    Args:
        tasks: lists the names that --task takes.
        help_text: help of --task, in which {names} stands for them.
    """
    name_in_help(parser.add_argument("--task", required=True, help=help_text), tasks)
    add_preset(parser)
    add_overrides(
        parser, "change a setting, for example train.lr=1e-3; if given twice, the last value counts"
    )


def add_preset(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a preset and a protocol."""
    parser.add_argument(
        "--preset",
        default="paper",
        help="paper (published sizes, default), quick (minutes), budget (the leaderboard's, "
        "minutes to hours), or a preset of a mixer",
    )
    parser.add_argument(
        "--protocol",
        default="s4",
        help="how data is presented and pooled, and how long training is: s4 (default), as in the "
        "S4 and TNN papers, or lra, as in the Long Range Arena paper",
    )


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
    add_data_dir(parser)


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says where the data is."""
    parser.add_argument(
        "--data-dir",
        type=absolute_path,
        default="data",
        help="folder of official files and caches (default: data)",
    )


def add_trained_model(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how a trained model is loaded: whose code may run, where, its data."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="run the code of the user's own mixer or task that the record names, even if it has "
        "changed since the run",
    )
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    add_threads(parser)
    add_data_dir(parser)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says how many threads compute."""
    parser.add_argument(
        "--threads", type=_thread_count,
        help="number of CPU threads (default: OMP_NUM_THREADS, or one per core)",
    )  # fmt: skip


def positive_int(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole_number(text, 1, LARGEST_INT)


def _thread_count(text: str) -> int:
    return _whole_number(text, 1, MOST_THREADS)


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


def absolute_path(text: str) -> Path:
    """Read a path; it stays what it is where the working directory changes."""
    return make_absolute(text)


def new_file(text: str) -> Path:
    """Read the path of a file that is to be written."""
    found = absolute_path(text)
    try:
        is_folder = found.is_dir()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    if not Path(text).name or is_folder:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected the name of a file")
    return found


ALL = "all"
"""What a command line says for every name that there is."""


def name_list(text: str, flag: str, every: Sequence[str] = (ALL,)) -> list[str]:
    """Read comma-separated names, each once, in order.

    Args:
        text: the names.
        flag: the flag that they were given to.
        every: the names that `ALL` stands for; by default only for itself.

    Raises: UserError naming the flag, for an empty name.
    """
    found = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(found):
        raise UserError(f"{flag} {text!r}: an empty name; expected names, comma-separated")
    return list(every) if found == [ALL] else found


def whole_numbers(text: str, flag: str, least: int) -> list[int]:
    """Read comma-separated whole numbers, each once, in order.

    Raises: UserError naming the flag.
    """
    try:
        numbers = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"{flag} {text}: expected whole numbers, 1,2,3 say") from None
    if not all(least <= number <= LARGEST_INT for number in numbers):
        raise UserError(f"{flag} {text}: expected {least} to {LARGEST_INT}")
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


def run_command(program: str, action: Callable[[], int]) -> int:
    """Run a command; turn a user's mistake, or running out of memory, into a line and an exit code.

    While it runs, what the packages have to say, and warnings of libraries, are printed.
    """
    try:
        watch_interrupts(program)
        show_messages()
        logging.captureWarnings(True)
        return action()
    except BaseException as error:
        end = _end_of(error)
        if end is None:
            raise
        code, text = end
        report_error(program, text)
        return code
    finally:
        logging.captureWarnings(False)


def report_error(program: str, text: str) -> None:
    """Print an error on one line; of processes that torchrun started, the first one alone does."""
    line = f"{program}: error: {text}"
    if not is_launched():
        say(line)
        return
    from lra.runtime.peers import report_once

    with report_once() as is_first:
        if is_first:
            say(line)


def end_now(program: str, error: KnownError) -> NoReturn:
    """End this process with an error from any thread, whatever its main thread waits for."""
    report_error(program, message(error))
    os._exit(USER_ERROR)


def _end_of(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message for an error; None for one that is a fault of ours."""
    if isinstance(error, KnownError):
        return HELD if isinstance(error, HeldError) else USER_ERROR, message(error)
    if isinstance(error, OSError):
        return USER_ERROR, describe_os_error(error)
    if isinstance(error, KeyboardInterrupt) or is_interrupted():
        return INTERRUPTED, "interrupted"
    if isinstance(error, (MemoryError, RuntimeError)):
        # It imports torch, which takes seconds: an interrupt is to be met before that, too.
        from lra.runtime.environment import is_out_of_memory

        if is_out_of_memory(error):
            return OUT_OF_MEMORY, f"out of memory: {message(error)}"
    if not user_code:
        return None
    place = place_in_user_code(error) or f"after {', '.join(sorted(user_code))} was run"
    return USER_ERROR, f"{place}: {describe(error)}"
