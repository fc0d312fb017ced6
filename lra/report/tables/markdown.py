"""Text for Markdown: what a user wrote stays text, and makes no link and no HTML."""

from __future__ import annotations

import re

_ACTIVE = re.compile(r"[<|]|[*\\]|!(?=\[)|\](?=[(\[:])")
"""Characters that begin HTML, end a cell, or make a link, an image or bold text. Backquotes are not
among them: the report's own texts show commands in them."""


def escape(text: str) -> str:
    """Write text so that a reader of Markdown sees it as it stands."""
    return _ACTIVE.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", text)
