"""Ends of training that are no errors: signals, limits of time and steps."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any


class Stopped(Exception):
    """Training was asked to stop; its message says by what."""


class StopRequest:
    """Remembers that a signal came or a limit passed, for the loop to act on between steps.

    While used as a context, SIGINT and SIGTERM are remembered; a second SIGINT interrupts at
    once.

    Args:
        max_minutes: from the construction on.
        max_steps: steps of the whole run, not of this session.
    """

    def __init__(self, max_minutes: float | None = None, max_steps: int | None = None) -> None:
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.max_steps = max_steps
        self.signal: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number).name

    def check_signal(self) -> None:
        """Raise Stopped if a signal came."""
        if self.signal is not None:
            raise Stopped(self.signal)

    def check(self, step: int, made: int) -> None:
        """Raise Stopped if a signal came or a limit is reached.

        Args:
            step: steps of the whole run.
            made: steps of this session; time alone never stops one that has made none, so
                that a chain of sessions always goes on.
        """
        self.check_signal()
        if self.max_steps is not None and step >= self.max_steps:
            raise Stopped("--max-steps")
        if self.deadline is not None and made > 0 and time.monotonic() >= self.deadline:
            raise Stopped("--max-minutes")
