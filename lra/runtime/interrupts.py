"""Ctrl-C while a command starts: it ends at once, as there is nothing to save yet."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""Exit code, as shells give it to what Ctrl-C ends."""

_IMPORTING = "<frozen importlib._bootstrap>"


class _Start:
    """Which command is starting, and whether it has begun to work."""

    program = "lra"
    has_begun = False


def expect_interrupts(program: str) -> None:
    """Let Ctrl-C end this process at once until `begin` is called, and within any import later.

    Importing torch takes seconds, and an exception within would come out of it as another one.

    Args:
        program: how messages call the command.
    """
    _Start.program, _Start.has_begun = program, False
    signal.signal(signal.SIGINT, _on_interrupt)


def begin() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, except within an import."""
    _Start.has_begun = True


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    while _Start.has_begun and frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    if frame is None and _Start.has_begun:
        raise KeyboardInterrupt
    os.write(2, f"{_Start.program}: error: interrupted\n".encode())
    os._exit(INTERRUPTED)
