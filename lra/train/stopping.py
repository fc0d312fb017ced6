"""Ends of training that are no errors: signals, limits of time and steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

import psutil

from common.errors import KnownError

SIGNALS = [signal.SIGINT, signal.SIGTERM]
"""Signals that stop a run: Ctrl-C, a request to end and, but on Windows, a terminal that closes."""
if hasattr(signal, "SIGHUP"):
    SIGNALS.append(signal.SIGHUP)


class Stopped(KnownError):
    """Training was asked to stop; its message says by what."""


class _Parent:
    """A process that started this one, or that started what did."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_direct = os.getppid() == pid
        self.process: psutil.Process | None = None
        if not self.is_direct:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.process = psutil.Process(pid)

    def has_ended(self) -> bool:
        if self.is_direct:
            return os.getppid() != self.pid
        if self.process is None or not self.process.is_running():
            return True
        with contextlib.suppress(psutil.NoSuchProcess):
            return self.process.status() == psutil.STATUS_ZOMBIE
        return True


class StopRequest:
    """Remembers that a signal came or a limit passed, for the loop to act on between steps.

    While used as a context, SIGINT, SIGTERM and SIGHUP are remembered, unless they were ignored
    before; a second SIGINT interrupts at once. Threads but the main one cannot handle signals.

    Args:
        max_minutes: limit of this session.
        max_steps: steps of the whole run, not of this session.
        parent: process whose end stops this one: it started this one, or what did (torchrun).
        time_flag: what max_minutes was given by.
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
        self._parent = None if parent is None else _Parent(parent)
        self.max_seconds = None if max_minutes is None else 60 * max_minutes
        self.max_steps = max_steps
        self.signal: str | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        is_main_thread = threading.current_thread() is threading.main_thread()
        for number in SIGNALS if is_main_thread else ():
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
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
        if self.signal is not None:
            return self.signal
        if self._parent is not None and self._parent.has_ended():
            return "the end of what started it"
        return None

    def reason(self, step: int, made: int, seconds: float) -> str | None:
        """Name what stops training now, if anything.

        Args:
            step: steps of the whole run.
            made: steps of this session; time alone never stops one that has made none, so
                that a chain of sessions always goes on.
            seconds: time of this session.
        """
        if (found := self.stop_now()) is not None:
            return found
        if self.is_last(step):
            return "--max-steps"
        if self.max_seconds is not None and made > 0 and seconds >= self.max_seconds:
            return self.time_flag
        return None

    def is_last(self, step: int) -> bool:
        """Whether the run stops after this step in any case."""
        return self.max_steps is not None and step >= self.max_steps

    def last_step(self, total: int) -> int:
        """Return the step at which a run of so many steps ends or stops."""
        return total if self.max_steps is None else min(total, self.max_steps)

    def check_signal(self) -> None:
        """Raise Stopped if something stops even an evaluation."""
        if (found := self.stop_now()) is not None:
            raise Stopped(found)
