"""Reasons to stop training that are no errors: signals, and limits of time and steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import psutil

from lra.common.errors import KnownError

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that stop a run: Ctrl-C, a request to end and, but on Windows, a terminal that closes."""


class Stopped(KnownError):
    """Training was asked to stop; its message says by what."""


class StopRequest:
    """Remembers that a signal came or a limit passed, for the loop to act on between steps.

    While used as a context, the signals are remembered, unless they were ignored before; a second
    SIGINT interrupts at once. Only the main thread can handle signals.

    Args:
        max_minutes: limit of this session.
        max_steps: steps of the whole run, not of this session.
        parent: number of a process whose end stops this one.
        time_flag: the flag that gave max_minutes.
    """

    def __init__(
        self,
        max_minutes: float | None = None,
        max_steps: int | None = None,
        parent: int | None = None,
        *,
        time_flag: str = "--max-minutes",
    ) -> None:
        self.time_flag = time_flag
        self.max_seconds = None if max_minutes is None else 60 * max_minutes
        self.max_steps = max_steps
        self.signal: str | None = None
        self._parent = parent
        self._is_child = parent == os.getppid()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        is_main_thread = threading.current_thread() is threading.main_thread()
        for name in SIGNALS if is_main_thread else ():
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # of nohup
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number).name

    def stop_now(self) -> str | None:
        """Name what stops even an evaluation: a signal, or the end of the starting process."""
        if self.signal is not None or self._parent is None:
            return self.signal
        # Where torchrun is in between, the number alone says whether the process is there.
        runs = os.getppid() == self._parent if self._is_child else psutil.pid_exists(self._parent)
        return None if runs else "the end of what started it"

    def reason(self, step: int, made: int, seconds: float) -> str | None:
        """Name what stops training now, if anything.

        Args:
            step: steps of the whole run.
            made: steps of this session, which took so many seconds. Time does not stop a session
                without any, so that a chain of sessions always goes on.
        """
        if (reason := self.stop_now()) is not None:
            return reason
        if self.max_steps is not None and step >= self.max_steps:
            return "--max-steps"
        if self.max_seconds is not None and made > 0 and seconds >= self.max_seconds:
            return self.time_flag
        return None
