"""The progress of a sweep: a bar for all runs, and a line for each run that is running."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

from tqdm import tqdm

from common.progress import is_live
from lra.runtime.plain_table import cut
from lra.runtime.terminal import terminal_width
from lra.sweep.plan import PlannedRun, State

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_UPDATES = 1.0
"""Pause between two updates of the lines on a terminal."""
MOST_LINES = 16
"""Most lines for single runs on a terminal."""
SECONDS_BETWEEN_LINES = 60.0
"""Pause between two lines where there is no terminal."""


class Live:
    """Shows the progress of the runs.

    Args:
        total: number of runs in all.
        capacity: number of runs at a time.
    """

    def __init__(self, total: int, capacity: int) -> None:
        self.live = is_live()
        off = not self.live
        self.overall = tqdm(
            total=total, unit=" run", desc="sweep", disable=off, dynamic_ncols=True, smoothing=0
        )
        self.lines = [
            tqdm(bar_format="{desc}", position=1 + i, leave=False, disable=off, dynamic_ncols=True)
            for i in range(min(capacity, MOST_LINES))
        ]
        self.ends: Counter[str] = Counter()
        self._last = time.monotonic()

    def ended(self, run: PlannedRun, state: State, note: str) -> None:
        """Report the state in which a run has ended, and the result of one that is done."""
        self.ends[state] += 1
        record = run.folder.record() if state == "done" else None
        result = f", test {record.test_text}" if record else ""
        logger.info(f"{run.name}: {state}{result}{f' ({note})' if note else ''}")
        self.overall.set_postfix(self.ends, refresh=False)
        self.overall.update()

    def show(self, runs: Sequence[PlannedRun], waiting: int) -> None:
        """Show the progress of the runs that are at work, unless it was shown a moment ago."""
        now = time.monotonic()
        if now - self._last < (SECONDS_BETWEEN_UPDATES if self.live else SECONDS_BETWEEN_LINES):
            return
        self._last = now
        texts = [_line(run) for run in runs[: len(self.lines)]]
        for bar, text in zip(self.lines, [*texts, *[""] * len(self.lines)], strict=False):
            bar.set_description_str(cut(text, terminal_width() - 1))
        self.overall.refresh()
        if not self.live:
            for text in texts:
                logger.info(text)
            logger.info(f"{waiting} run{'s' * (waiting != 1)} waiting")

    def close(self) -> None:
        """End the display."""
        for bar in [*self.lines, self.overall]:
            bar.close()


def _line(run: PlannedRun) -> str:
    """Describe a running run by the last line of its metrics."""
    found = run.folder.last_metrics()
    shown = [
        f"{label} {found[key]:{form}}"
        for key, label, form in (
            ("step", "step", ",.0f"),
            ("loss", "loss", ".3f"),
            ("accuracy", "accuracy", ".1f"),
            ("val_accuracy", "validation", ".1f"),
            ("val_bits", "bits per token", ".3f"),
            ("steps_per_second", "steps/s", ".2f"),
        )
        if key in found
    ]
    return f"{run.name}: {', '.join(shown) or 'starting'}"
