"""The start of a command: Ctrl-C ends it at once, as long as there is nothing to save."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from lra.runtime.packages import describe_missing, describe_shadow

INTERRUPTED = 130
"""Exit code, as shells give it to what Ctrl-C ends."""

USER_ERROR = 2
"""Exit code of a mistake in the command, in the settings, or in the user's own files."""

_NOT_TO_BE_LEFT = ("<frozen importlib._bootstrap>", "numba/core/dispatcher.py")
"""Ends of the names of files in which exceptions are lost, or come out as others."""


class _Start:
    """Which command is starting, whether it has begun to work, and whether Ctrl-C was pressed."""

    program = "lra"
    has_begun = False
    is_interrupted = False


def expect_interrupts(program: str) -> None:
    """Let Ctrl-C end this process at once until `begin` is called; within imports and Numba later.

    Both take seconds, and an exception within would come out as another one, or be lost.
    A command whose packages are hidden by others, or not installed, ends here with a message.

    Args:
        program: how messages call the command.
    """
    _Start.program, _Start.has_begun, _Start.is_interrupted = program, False, False
    signal.signal(signal.SIGINT, _on_interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `start_with_whole_heap`
    if (fault := describe_shadow() or describe_missing()) is not None:
        sys.stderr.write(f"{program}: error: {fault}\n")
        sys.exit(USER_ERROR)


def begin() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, except within imports and Numba."""
    _Start.has_begun = True


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed; a library may raise another error for it."""
    return _Start.is_interrupted


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None and not frame.f_code.co_filename.endswith(_NOT_TO_BE_LEFT):
        frame = frame.f_back
    if frame is None and _Start.has_begun:
        _Start.is_interrupted = True
        raise KeyboardInterrupt
    os.write(2, f"{_Start.program}: error: interrupted\n".encode())
    os._exit(INTERRUPTED)
