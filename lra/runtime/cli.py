"""What command lines have in common: flags, one-line errors, Ctrl-C, and how they were started."""

import argparse
import contextlib
import functools
import logging
import math
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from lra.common.errors import HeldError, KnownError, describe, describe_os_error, nearest, user_code
from lra.common.threads import MOST_THREADS
from lra.runtime.console import absolute_path, as_typed, display_messages, wrap_message
from lra.runtime.repository import PACKAGE, ROOT, leave_path

Options = TypeVar("Options")

INCOMPLETE = 1
"""Done, but for files that could not be read."""
USER_ERROR = 2
"""A mistake in the command, in the settings, or in the user's own files."""
STOPPED = 3
DIVERGED = 4
OUT_OF_MEMORY = 5
HELD = 6
"""Another process is at work on the same run."""
INTERRUPTED = 130
"""As shells give it to what Ctrl-C ends."""
LARGEST_INT = 2**63 - 1
LARGEST_SIZE = 2**31 - 1
"""Largest count, length or process id that a flag takes."""
OWN_CLASS = "file.py:ClassName or package.module:ClassName"
"""How a flag names a mixer or a task of the user's own."""
ALL = "all"
"""What a command line says for every name that there is."""
SCRIPTS = {"run": "run_task.py", "report": "report.py"}
"""The script of a command."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Write the error, without the usage and with what an unknown flag may mean, and exit."""
        unknown = re.fullmatch(r"unrecognized arguments: --([^\s=]+)[\s=]?(\S*).*", message)
        if unknown is not None:
            from lra.config.mistakes import find_setting

            flag, value = unknown.groups()
            meant = nearest(f"--{flag}", flags := self._option_string_actions, 0.8)
            if "--set" in flags and (setting := find_setting(flag.replace("-", "_"))):
                meant = f"--set {setting}={value or 'VALUE'}"
            message += f"; did you mean {meant}?" if meant else ""
        report_error(self.prog, f"{message} (see --help)")
        sys.exit(USER_ERROR)


def list_names(kind: Literal["mixers", "tasks"]) -> str:
    """List the mixers or tasks of the suite, for a help text: each has a file of settings."""
    return ", ".join(sorted(path.stem for path in (PACKAGE / "configs" / kind).glob("*.yaml")))


def whole_number(text: str, least: int = 0, most: int = LARGEST_INT) -> int:
    """Read a whole number within bounds, at least 0 unless another bound is given."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"got {text}, expected {least} to {most}")
    return value


positive_int = functools.partial(whole_number, least=1, most=LARGEST_SIZE)
"""Reads a whole number of at least 1."""


def name_list(text: str) -> list[str]:
    """Read comma-separated names, each once, in order."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected names, comma-separated")
    return names


def whole_numbers(text: str, least: int = 0, most: int = LARGEST_INT) -> list[int]:
    """Read comma-separated whole numbers, each once, in order."""
    return list(dict.fromkeys(whole_number(number, least, most) for number in text.split(",")))


length_list = functools.partial(whole_numbers, least=1, most=LARGEST_SIZE)
"""Reads comma-separated lengths of sequences."""


def non_negative_float(text: str) -> float:
    """Read a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number") from None
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"got {text}, expected a finite number of at least 0")
    return value


FLAGS: dict[str, dict[str, Any]] = {
    "--preset": {
        "default": "paper",
        "help": "paper (published sizes, default), quick (minutes), budget (the leaderboard's, "
        "minutes to hours), a preset of a mixer, or a file of your own, NAME.yaml",
    },
    "--protocol": {
        "default": "s4",
        "help": "how data is presented and pooled, and how long training is: s4 (default), as in "
        "the S4 and TNN papers, or lra, as in the Long Range Arena paper",
    },
    "--set": {
        "action": "append",
        "default": [],
        "dest": "overrides",
        "metavar": "SECTION.KEY=VALUE",
        "help": "change a setting, for example train.lr=1e-3; if given twice, the last value "
        "counts",
    },
    "--data-dir": {
        "type": absolute_path,
        "default": "data",
        "help": "folder of official files and caches (default: data)",
    },
    "--results-dir": {
        "type": absolute_path,
        "default": "results",
        "help": "folder for the results, in runs/TASK/MIXER/RUN (default: results)",
    },
    "--device": {"default": "auto", "help": "auto (default), cpu, cuda or cuda:N"},
    "--threads": {
        "type": functools.partial(whole_number, least=1, most=MOST_THREADS),
        "help": "number of CPU threads (default: OMP_NUM_THREADS, or one per core)",
    },
    "--trust-code": {
        "action": "store_true",
        "help": "run the code of the user's own mixer or task that the record names, even if it "
        "has changed since the run",
    },
}
"""Flags that mean the same in several commands."""


def add_flags(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add flags that several commands have."""
    for name in names:
        parser.add_argument(name, **FLAGS[name])


def run_command(program: str, action: Callable[[], int]) -> int:
    """Run a command; turn a user's mistake, or running out of memory, into a line and an exit code.

    While it runs, what the packages have to say, and warnings of libraries, are printed.
    """
    leave_path()
    pressed: list[bool] = []  # a library may raise another error for Ctrl-C

    def interrupt(*_: object) -> NoReturn:
        pressed.append(True)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    try:
        with display_messages():
            logging.captureWarnings(True)
            return action()
    except BaseException as error:
        end = _end_of(error, is_interrupted=bool(pressed))
        if end is None:
            raise
        code, text = end
        report_error(program, text)
        return code
    finally:
        logging.captureWarnings(False)


def make_main(
    program: str, parse: Callable[[list[str] | None], Options], run: Callable[[Options], int]
) -> Callable[..., int]:
    """Make the `main` of a command: it takes arguments, and returns the exit code."""

    def main(arguments: list[str] | None = None) -> int:
        return run_command(program, lambda: run(parse(arguments)))

    return main


def report_error(program: str, text: str) -> None:
    """Print an error on one line, if it can be written; a command of `lra` is named as such."""
    if _start_of_command():
        scripts = {script: f"lra {name}" for name, script in SCRIPTS.items()}
        program = re.sub(r"^(python -m )?lra\.", "lra ", scripts.get(program, program))
    with contextlib.suppress(OSError):
        sys.stderr.write(wrap_message(f"{program}: error: {text}") + "\n")
        sys.stderr.flush()


def _end_of(error: BaseException, *, is_interrupted: bool) -> tuple[int, str] | None:
    """Return the exit code and the message for an error; None for one that is a fault of ours."""
    if isinstance(error, KnownError):
        return HELD if isinstance(error, HeldError) else USER_ERROR, str(error)
    if isinstance(error, OSError):
        return USER_ERROR, describe_os_error(error)
    if isinstance(error, KeyboardInterrupt) or is_interrupted:
        return INTERRUPTED, "interrupted"
    if isinstance(error, (MemoryError, RuntimeError)):
        # It imports torch, which takes seconds: an interrupt is to be met before that, too.
        from lra.runtime.environment import is_out_of_memory

        if is_out_of_memory(error):
            return OUT_OF_MEMORY, f"out of memory: {error}"
    if not user_code:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{f.filename}, line {f.lineno}" for f in frames if f.filename in user_code]
    line = lines[-1] if lines else f"after {', '.join(sorted(user_code))} was run"
    return USER_ERROR, f"{line}: {describe(error)}"


def _start_of_command() -> list[str]:
    """Return the words before the name of a command that `lra` started; none for another one."""
    match sys.orig_argv[1:3]:
        case ["-m", "lra"]:
            return ["python", "-m", "lra"]
        case [script, *_] if Path(script).name == "lra":
            return ["lra"]
        case _:
            return []


def command_words(
    name: str, *flags: str, data_dir: Path | None = None, results_dir: Path | None = None
) -> list[str]:
    """Return the words of a command, as `lra NAME` takes it, to be started as this one was.

    Folders are named unless they are the default ones.
    """
    is_script = name in SCRIPTS and (ROOT / SCRIPTS[name]).is_file()
    words = ["python", SCRIPTS[name]] if is_script else ["python", "-m", f"lra.{name}"]
    if start := _start_of_command() or (["lra"] if name in SCRIPTS and not is_script else []):
        words = [*start, name]
    words += flags
    for default, folder in (("data", data_dir), ("results", results_dir)):
        shown = default if folder is None else as_typed(str(folder))
        words += [] if shown == default else [f"--{default}-dir", shown]
    return words
