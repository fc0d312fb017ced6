"""What commands print: messages on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from common.files import name_file_in_errors
from lra.runtime.terminal import MISSING, printable, wrap_message

if TYPE_CHECKING:
    import pandas as pd

LONGEST_MESSAGE = 1000
"""Most letters of a message; of a longer one the middle is left out."""

_LOGGERS = ("lra", "models", "tasks", "common", "py.warnings")
"""Those of this repository, and that of Python's warnings."""

_bases: set[str] = set()
"""Working directories at the time when relative paths were made absolute."""


def make_absolute(text: str) -> Path:
    """Make a path that the user typed absolute, as code of the user's own may change the folder.

    What is printed shows the path as it was typed.
    """
    if not Path(text).is_absolute():
        _bases.add(f"{Path.cwd()}/")
    return Path(text).absolute()


def as_typed(text: str) -> str:
    """Show the paths in a text relative to the working directory, as the user typed them."""
    for base in _bases:
        text = re.sub(rf"(?<![\w./-]){re.escape(base)}", "", text)
    return text


class _TqdmHandler(logging.Handler):
    """Writes messages to standard error without tearing a progress bar.

    Neither a reader that has gone away nor a full disk must end the work.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, marked if it is a warning."""
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        with contextlib.suppress(OSError):
            tqdm.write(wrap_message(in_one_line(mark + self.format(record))), file=sys.stderr)


def show_messages(level: int = logging.INFO) -> None:
    """Let the packages of this repository print messages from a level on.

    Without this call they print warnings alone, as Python's logging does for libraries.
    """
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _TqdmHandler) for handler in logger.handlers):
            logger.addHandler(_TqdmHandler())
        logger.setLevel(level)
        logger.propagate = False  # a library that configures the root logger would repeat them


@contextlib.contextmanager
def display_messages(level: int = logging.INFO) -> Iterator[None]:
    """Print messages from a level on within a block; afterwards all loggers are as before."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate, [*logger.handlers]) for logger in loggers]
    show_messages(level)
    try:
        yield
    finally:
        for logger, (old_level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(old_level)
            logger.propagate = propagate
            logger.handlers[:] = handlers


def in_one_line(text: str) -> str:
    """Write a message on one line of at most LONGEST_MESSAGE letters."""
    line = printable(as_typed(" ".join(text.splitlines())))
    kept = LONGEST_MESSAGE // 2 - 5
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:kept]} ... {line[-kept:]}"


def write_out(text: str, *, whole_paths: bool = False) -> bool:
    """Write to standard output; a reader that has had enough is no error.

    Args:
        text: the text.
        whole_paths: whether absolute paths are shown, and not as the user typed them.
    Returns: whether it may have more.
    """
    encoding = sys.stdout.encoding or "utf-8"  # pyright: ignore[reportUnnecessaryComparison]
    shown = printable(text if whole_paths else as_typed(text))
    try:
        with name_file_in_errors("standard output"):
            sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()
    except BrokenPipeError:
        # Keep the interpreter's exit from flushing into it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def csv_table(frame: pd.DataFrame) -> str:
    """Write a data frame as CSV, its texts `as_text`, the names of columns too."""
    import pandas as pd

    shown = frame.map(lambda cell: as_text(cell) if isinstance(cell, str) else cell)
    return pd.DataFrame(shown).rename(columns=as_text).to_csv(index=False, lineterminator="\n")


def as_text(text: str) -> str:
    """Write a cell of CSV, with an apostrophe before text that a spreadsheet would compute."""
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")) or text == MISSING:
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def without_apostrophe(text: str) -> str:
    """Read what `as_text` has written."""
    bare = text.removeprefix("'")
    return bare if as_text(bare) == text else text


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of text in Markdown, the first column aligned to the left."""
    from tabulate import tabulate

    align = ["left", *["right"] * (len(columns) - 1)]
    text = tabulate(rows, columns, tablefmt="pipe", disable_numparse=True, colalign=align)
    return text + "\n"
