"""Errors that a user can mend: shown as one line, without a traceback."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from common.errors import UserError


class HeldError(UserError):
    """Another process is at work on the same files: no mistake, but not the time for it."""


user_code: set[str] = set()
"""Files with code of the user's own that this process has run."""


def nearest(given: str, valid: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the valid name that is most like a given one, upper or lower case; None if none is.

    Args:
        cutoff: likeness asked for, from 0 to 1.
    """
    by_text = {name.casefold(): name for name in valid}
    near = difflib.get_close_matches(given.casefold(), by_text, n=1, cutoff=cutoff)
    return by_text[near[0]] if near else None


@dataclass(eq=False)
class UnknownName(UserError):
    """A name that does not exist; the message has a suggestion and all valid ones."""

    kind: str
    """What the name should have been, "task" for instance."""
    given: str
    valid: Iterable[str]
    origin: str
    """The file or flag that held the name."""
    suggestion: str | None = None
    """What to use instead. None: the nearest of the valid names."""

    def __str__(self) -> str:
        names = sorted(self.valid)
        suggestion = self.suggestion or nearest(self.given, names)
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        valid = ", ".join(names) or "none"
        return f"{self.origin}: unknown {self.kind} {self.given!r}{hint} (valid: {valid})"


def describe_os_error(error: OSError) -> str:
    """Say which file an error of the file system is about, and what it is."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"
