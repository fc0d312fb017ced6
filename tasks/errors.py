"""Errors that explain themselves: their message is one line, shown without a traceback."""

from __future__ import annotations


class KnownError(Exception):
    """What was given, what was expected, where it came from, and what to do."""


class DataError(KnownError):
    """Data that is missing, malformed or damaged: the message says what to do about it."""


def describe(error: BaseException) -> str:
    """Name an exception and what it says, if it can say it."""
    said = message(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def message(error: BaseException) -> str:
    """Return what an exception says; nothing for one that fails to say it."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""
