"""Progress: a live bar on a terminal, otherwise lines of the log."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 20.0
SECONDS_TO_FIRST_LINE = 5.0
"""Soon, because earlier estimates can be wrong, for instance on a busy machine."""


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


def duration(seconds: float) -> str:
    """Write a duration for people: 45 s, 3.2 min, 25 min, 5.2 h, 2.1 days."""
    if seconds < 90:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 5400:  # noqa: PLR2004
        return f"{seconds / 60:.2g} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"


class Progress(tqdm):  # pyright: ignore[reportMissingTypeArgument]
    """Shows loss, accuracy, speed and the time left of training.

    Args:
        step: steps made before.
        total: steps in all, as far as is known.
        what: is done.
    """

    def __init__(self, step: int, total: int, what: str = "training") -> None:
        is_hidden = not is_live()
        super().__init__(
            initial=step, total=total, unit="step", desc=what, disable=is_hidden, dynamic_ncols=True
        )
        self.first_step = step
        self.start = time.monotonic()
        self.last_line = self.start - SECONDS_BETWEEN_LINES + SECONDS_TO_FIRST_LINE

    def step(self, step: int, total: int, loss: float, accuracy: float | None) -> None:
        """Show a step of a total: mean loss and accuracy in percent, of late; None: it has none."""
        means = {"loss": f"{loss:.3f}"}
        if accuracy is not None:
            means["accuracy"] = f"{accuracy:.1f} %"
        if not self.disable:
            self.total = total
            self.set_postfix(means, refresh=False)
            self.update(step - self.n)
            return
        now = time.monotonic()
        if now - self.last_line >= SECONDS_BETWEEN_LINES or step == total:
            self.last_line = now
            rate = (step - self.first_step) / (now - self.start)
            left = duration((total - step) / rate)
            numbers = "  ".join(f"{name} {value}" for name, value in means.items())
            logger.info(f"step {step}/{total}  {numbers}  {rate:.2f} steps/s  {left} left")
