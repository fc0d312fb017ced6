"""Progress of preparations: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

_silent = False


def be_silent() -> None:
    """Show nothing from now on: another process does, that is at the same work."""
    global _silent  # noqa: PLW0603 (what a process shows is a matter of the whole process)
    _silent = True


def say(message: str) -> None:
    """Print a line on standard error without tearing a progress bar.

    A reader that has gone away must not end the work.
    """
    if _silent:
        return
    with contextlib.suppress(BrokenPipeError):
        tqdm.write(message, file=sys.stderr)


def is_live() -> bool:
    """Whether progress can be drawn over itself: on a terminal that has a width."""
    if _silent:
        return False
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:
        return False


def progress(
    title: str, iterable: Iterable[Any] | None = None, *, total: int | None = None, unit: str
) -> tqdm[Any]:
    """Show how far a long step is; used as `tqdm` is.

    Args:
        unit: of the total; bytes are shown in powers of 1000.
    """
    live = is_live()
    if not live:
        say(f"{title} ...")
    return tqdm(
        iterable,
        total=total,
        desc=title,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        disable=not live,
        smoothing=0,
    )
