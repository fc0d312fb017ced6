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
    """Whether progress can be drawn over itself: on a terminal that has a width."""
    if not logger.isEnabledFor(logging.INFO):
        return False
    try:
        return sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:
        return False


def progress(
    title: str, iterable: Iterable[Any] | None = None, *, total: int | None = None, unit: str
) -> tqdm[Any]:
    """Show how far a long step is; the result is used as `tqdm` is.

    Args:
        title: what the step does.
        iterable: what to go through, if the bar is to follow it.
        total: number of units in all, if there is no iterable.
        unit: what is counted; bytes ("B") are shown in powers of 1000.
    """
    live = is_live()
    if not live:
        logger.info("%s ...", title)
    return tqdm(
        iterable,
        total=total,
        desc=title,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        disable=not live,
        smoothing=0,
    )
