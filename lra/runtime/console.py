"""What commands print, no wider than the terminal: messages on standard error, and results."""

import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from lra.common.files import name_file_in_errors

NARROWEST = 20
"""Least width, in characters, that text is fitted to."""
INDENT = "  "
"""Start of a line that belongs to the one above."""
CONTINUED = "    "
"""Start of a line that continues the one above."""
LONGEST_MESSAGE = 1000
"""Most letters of a message; of a longer one the middle is left out."""

_LOGGERS = ("lra", "py.warnings")
"""Those of this repository, and that of Python's warnings."""


def absolute_path(text: str) -> Path:
    """Make a path that the user typed absolute, as code of the user's own may change the folder.

    A path stays relative where this user may not enter a folder above the working directory.
    """
    path = Path(text)
    return path if path.is_absolute() or not os.access(Path.cwd(), os.X_OK) else path.absolute()


def as_typed(text: str) -> str:
    """Show the paths in a text relative to the working directory, as users type them."""
    with contextlib.suppress(FileNotFoundError):  # the folder may be gone
        return re.sub(rf"(?<![\w./-]){re.escape(str(Path.cwd()))}/", "", text)
    return text


class _TqdmHandler(logging.Handler):
    """Writes messages to standard error without tearing a progress bar.

    Neither a reader that has gone away nor a full disk must end the work.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message, marked if it is a warning."""
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        with contextlib.suppress(OSError):
            tqdm.write(wrap_message(mark + self.format(record)), file=sys.stderr)


@contextlib.contextmanager
def display_messages(level: int = logging.INFO) -> Iterator[None]:
    """Print messages from a level on within a block; afterwards all loggers are as before.

    Without it they print warnings alone, as Python's logging does for libraries.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.level, logger.propagate, [*logger.handlers]) for logger in loggers]
    set_message_level(level)
    for logger in loggers:
        logger.handlers[:] = [_TqdmHandler()]
        logger.propagate = False  # a library that configures the root logger would repeat them
    try:
        yield
    finally:
        for logger, (old_level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(old_level)
            logger.propagate = propagate
            logger.handlers[:] = handlers


def set_message_level(level: int) -> None:
    """Let the packages of this repository print messages from a level on."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(level)


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


def terminal_width() -> int:
    """Return the width of the terminal in characters; 80 where it is not known."""
    return max(NARROWEST, shutil.get_terminal_size().columns)


def printable(text: str) -> str:
    """Write what a terminal would obey, or could not encode, as escapes; lines stay lines."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        c if c == "\n" or c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text
    )


def wrap_words(text: str, width: int, *, indent: str = CONTINUED) -> list[str]:
    """Break a text at its spaces into lines that fit a width in characters."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def wrap_message(text: str) -> str:
    """Write a message for standard error on one line, broken at its spaces on a terminal."""
    line = printable(as_typed(" ".join(text.splitlines())))
    if len(line) > LONGEST_MESSAGE:
        kept = LONGEST_MESSAGE // 2 - 5
        line = f"{line[:kept]} ... {line[-kept:]}"
    return "\n".join(wrap_words(line, terminal_width())) if sys.stderr.isatty() else line


def wrap_parts(
    parts: Sequence[str], width: int, *, separator: str = " · ", indent: str = INDENT
) -> list[str]:
    """Join parts into lines that fit a width; the lines break at the separators.

    Empty parts are left out. A part that is too wide for a line breaks at its spaces. A separator
    that is a comma stays at the end of its line, any other is left out there.
    """
    end = separator.rstrip() if separator.startswith(",") else ""
    lines, line = [], ""
    for part in filter(None, parts):
        if line and len(line + separator + part + end) > width:
            lines.append(line + end)
            line = CONTINUED + part
        else:
            line = f"{line}{separator}{part}" if line else indent + part
    return [short for line in [*lines, line] for short in wrap_words(line, width)]


def wrap_command(label: str, words: Sequence[str], width: int) -> list[str]:
    """Write a command line so that it fits a width and can be pasted into a shell.

    The label comes before the command, whose words are not quoted yet. A flag stays on one line
    with its value.
    """
    quoted = [shlex.quote(word).replace(" ", "\0") for word in words]
    command = re.sub(" (?!--)", "\0", " ".join(quoted))  # lines only break before flags
    before = []
    if len(label + command.partition(" ")[0]) + len("  \\") > width:
        before, label = wrap_words(label, width), CONTINUED[1:]
    lines = textwrap.wrap(
        command, width - len(" \\"), initial_indent=f"{label} ", subsequent_indent=CONTINUED,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [*before, *" \\\n".join(lines).replace("\0", " ").split("\n")]


def is_launched() -> bool:
    """Whether torchrun started this process together with others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
