"""Text that fits the width of the terminal."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence

NARROWEST = 20
"""Least width, in characters, that text is fitted to."""
INDENT = "  "
"""Start of a line that belongs to the one above."""
_GOES_ON = " \\"
"""End of a line after which a shell command goes on."""
CONTINUED = "    "
"""Start of a line that continues the one above."""


def terminal_width() -> int:
    """Return the width of the terminal in characters; 80 where it is not known."""
    return max(NARROWEST, shutil.get_terminal_size().columns)


def wrap_parts(
    parts: Sequence[str], width: int, *, separator: str = " · ", indent: str = INDENT
) -> list[str]:
    """Join parts into lines that fit a width; the lines break at the separators.

    A part that is too wide for a line breaks at its spaces; a word, a path for instance, never
    breaks. A separator that is a comma stays at the end of its line, any other is left out there.

    Args:
        parts: texts, in order; empty ones are left out.
        width: of the lines, in characters.
        separator: text between two parts.
        indent: start of the first line.
    """
    lines: list[str] = []
    line = indent
    end = separator.rstrip() if separator.startswith(",") else ""
    for part in filter(None, parts):
        joined = line + part if line in (indent, CONTINUED) else line + separator + part
        if len(joined + end) > width and line not in (indent, CONTINUED):
            lines.append(line + end)
            joined = CONTINUED + part
        line = joined
    return [short for whole in [*lines, line] for short in wrap_words(whole, width)]


def wrap_words(text: str, width: int, *, indent: str = CONTINUED) -> list[str]:
    """Break a text at its spaces into lines that fit a width.

    Args:
        text: a sentence or more.
        width: of the lines, in characters.
        indent: start of all lines but the first.
    """
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def wrap_message(text: str) -> str:
    """Break a message for standard error at its spaces if that is a terminal."""
    return "\n".join(wrap_words(text, terminal_width())) if sys.stderr.isatty() else text


def wrap_command(label: str, words: Sequence[str], width: int) -> list[str]:
    """Write a command line so that it fits a width and can be pasted into a shell.

    A flag stays on one line with its value.

    Args:
        label: text before the command.
        words: of the command, not quoted; the program and its script come first.
        width: of the lines, in characters.
    """
    parts = [shlex.join(words[:2])]
    for word in words[2:]:
        if parts and parts[-1].startswith("--") and not word.startswith("--"):
            parts[-1] += f" {shlex.quote(word)}"
        else:
            parts.append(shlex.quote(word))
    lines: list[str] = []
    line = f"{label} {parts[0]}"
    if len(line + _GOES_ON) > width:
        lines, line = wrap_words(label, width), CONTINUED + parts[0]
    for part in parts[1:]:
        if len(f"{line} {part}{_GOES_ON}") > width:
            lines.append(line + _GOES_ON)
            line = CONTINUED + part
        else:
            line = f"{line} {part}"
    return [*lines, line]
