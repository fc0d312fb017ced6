"""What commands print: messages on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from tqdm import tqdm

MISSING = "-"
"""What a table shows where there is nothing."""

_LOGGERS = ("lra", "models", "tasks")


class _TqdmHandler(logging.Handler):
    """Writes messages to standard error without tearing a progress bar.

    A reader that has gone away must not end the work.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, marked if it is a warning."""
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        with contextlib.suppress(BrokenPipeError):
            tqdm.write(mark + self.format(record), file=sys.stderr)


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


def hide_messages() -> None:
    """Print no messages and no progress from now on: another process does, at the same work."""
    show_messages(logging.CRITICAL + 1)


def write_out(text: str) -> None:
    """Write to standard output; a reader that has had enough is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Keep the interpreter's exit from flushing into it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Write rows as a table in Markdown, a dash for each key that a row lacks."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return markdown_table(columns, [[row.get(name, MISSING) for name in columns] for row in rows])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of text in Markdown, the first column aligned to the left."""
    import pandas as pd

    frame = pd.DataFrame([list(row) for row in rows], columns=list(columns), dtype=str)
    align = ["left", *["right"] * (len(columns) - 1)]
    return frame.to_markdown(index=False, disable_numparse=True, colalign=align) + "\n"
