"""Ctrl-C: pressed once it raises KeyboardInterrupt, pressed again it ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

INTERRUPTED = 130
"""Exit code, as shells give it to what Ctrl-C ends."""
USER_ERROR = 2
"""Exit code of a mistake in the command, in the settings, or in the user's own files."""


class _Pressed:
    """Whether Ctrl-C was pressed, and how messages call the command."""

    is_pressed = False
    program = "lra"


def watch_interrupts(program: str) -> None:
    """Notice Ctrl-C from now on, in the main thread.

    Args:
        program: how messages call the command.
    """
    _Pressed.is_pressed, _Pressed.program = False, program
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _on_interrupt)


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed; a library may raise another error for it, or none at all."""
    return _Pressed.is_pressed


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    if _Pressed.is_pressed:  # a library has swallowed the exception of the first time
        os.write(2, f"{_Pressed.program}: error: interrupted\n".encode())
        os._exit(INTERRUPTED)
    _Pressed.is_pressed = True
    raise KeyboardInterrupt
