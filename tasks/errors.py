"""Errors that explain themselves: their message is one line, shown without a traceback."""

from __future__ import annotations


class KnownError(Exception):
    """What was given, what was expected, where it came from, and what to do."""


class DataError(KnownError):
    """Data that is missing, malformed or damaged: the message says what to do about it."""
