"""Progress of preparations: a bar on a terminal, otherwise one line of the log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

logger = logging.getLogger(__name__)


def is_live() -> bool:
    """Whether a progress bar can be drawn: on a terminal of known width."""
    if not logger.isEnabledFor(logging.INFO):
        return False
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:
        return False


def progress(
    title: str,
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    initial: int = 0,
    unit: str,
) -> tqdm[Any]:
    """Show the progress of a long operation; the result and the arguments are those of `tqdm`.

    Args:
        unit: name of what is counted; bytes ("B") are shown in powers of 1000.
    """
    live = is_live()
    if not live:
        logger.info("%s ...", title)
    return tqdm(
        iterable,
        total=total,
        initial=initial,
        desc=title,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        disable=not live,
        smoothing=0,
    )
