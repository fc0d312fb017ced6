"""Errors for users: commands print their message as one line, without a traceback."""

from __future__ import annotations

import reprlib

LONGEST_VALUE = 100
"""Most characters of a wrong value that a message shows."""


class KnownError(Exception):
    """An error that says what was given, what was expected, where it came from and what to do."""


class UserError(KnownError):
    """A mistake in the command, in the settings, or in the user's own files."""


class DataError(KnownError):
    """Data that is missing, malformed or damaged: the message says what to do about it."""


def describe(error: BaseException) -> str:
    """Write the type and the message of an exception."""
    said = message(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def message(error: BaseException) -> str:
    """Return the message of an exception; empty if it cannot be written."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def format_value(value: object) -> str:
    """Write a wrong value; a long one is shortened, and its `__repr__` may fail."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = LONGEST_VALUE
    return short.repr(value)
