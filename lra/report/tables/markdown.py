"""Text for Markdown: what a user wrote stays text, and makes no link and no HTML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

_ACTIVE = re.compile(r"[<|]|[*\\]|!(?=\[)|\](?=[(\[:])")
"""Characters that begin HTML, end a cell, or make a link, an image or bold text. Backquotes are not
among them: the report's own texts show commands in them."""


def escape(text: str) -> str:
    """Write text so that a reader of Markdown sees it as it stands."""
    return _ACTIVE.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", text)


def command_block(commands: Mapping[str, str]) -> str:
    """Write command lines as a block of code, each below a comment that says what it is for."""
    lines = [f"# {name}\n{_continue(command)}" for name, command in commands.items()]
    return "\n".join(["```", *lines, "```"]) + "\n"


def _continue(command: str) -> str:
    """Write a long command on several lines, which a shell reads as one."""
    words = command.replace(" --set ", " --set\0")
    lines = textwrap.wrap(
        words, 98, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines).replace("\0", " ")
