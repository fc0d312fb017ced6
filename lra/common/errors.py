"""Errors for users: commands print their message as one line, without a traceback."""

import difflib
import os
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LONGEST_VALUE = 100
"""Most characters of a wrong value that a message shows."""
user_code: set[str] = set()
"""Files with code of the user's own that this process has run."""


class KnownError(Exception):
    """An error that says what was given, what was expected, where it came from and what to do."""


class UserError(KnownError):
    """A mistake in the command, in the settings, or in the user's own files."""


class DataError(KnownError):
    """Data that is missing, malformed or damaged: the message says what to do about it."""


class HeldError(UserError):
    """Another process is at work on the same files: no mistake, but not the time for it."""


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


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the valid name that is most like a name, upper or lower case; None if none is.

    Args:
        cutoff: likeness asked for, from 0 to 1.
    """
    by_text = {each.casefold(): each for each in valid}
    near = difflib.get_close_matches(name.casefold(), by_text, n=1, cutoff=cutoff)
    return by_text[near[0]] if near else None


def describe(error: BaseException) -> str:
    """Write the type and the message of an exception."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def format_value(value: object) -> str:
    """Write a wrong value; a long one is shortened, and its `__repr__` may fail."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = LONGEST_VALUE
    return short.repr(value)


def describe_os_error(error: OSError) -> str:
    """Say which file an error of the file system is about, and what it is."""
    if error.filename is None or error.strerror is None:
        return str(error)
    path, reason = Path(os.fsdecode(error.filename)), error.strerror
    if isinstance(error, FileExistsError) and path.is_symlink():
        reason = f"a link to {path.readlink()}, expected one to a folder that is there"
    return f"{path}: {reason}"


def explain_fault(message: str) -> str:
    """Write what pydantic says of a value as the suite does: "expected a valid number"."""
    text = message.removeprefix("Value error, ").replace("Input should be", "expected")
    return text[:1].lower() + text[1:]
