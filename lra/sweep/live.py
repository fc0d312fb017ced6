"""The display of a sweep: a bar over all runs, and a line for each run that is at work."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

from tqdm import tqdm

from lra.sweep.plan import PlannedRun, State
from tasks.progress import is_live

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 1.0
"""Pause between looks at the metrics of runs, on a terminal."""
SECONDS_BETWEEN_LINES = 60.0
"""Pause between lines, where there is no terminal."""


class Live:
    """Shows how far the runs are.

    Args:
        total: number of runs in all.
        slots: how many runs work at a time.
    """

    def __init__(self, total: int, slots: int) -> None:
        self.live = is_live()
        off = not self.live
        self.overall = tqdm(
            total=total, unit=" run", desc="sweep", disable=off, dynamic_ncols=True, smoothing=0
        )
        self.lines = [
            tqdm(bar_format="{desc}", position=1 + i, leave=False, disable=off, dynamic_ncols=True)
            for i in range(slots)
        ]
        self.ends: Counter[str] = Counter()
        self._last = time.monotonic()

    def ended(self, run: PlannedRun, state: State, note: str) -> None:
        """Report the state in which a run has ended."""
        self.ends[state] += 1
        logger.info(f"{run.name}: {state}{f' ({note})' if note else ''}")
        self.overall.set_postfix(self.ends, refresh=False)
        self.overall.update()

    def show(self, runs: Sequence[PlannedRun | None], waiting: int) -> None:
        """Show how far the runs in the slots are, unless that was shown a moment ago."""
        now = time.monotonic()
        if now - self._last < (SECONDS_BETWEEN_LOOKS if self.live else SECONDS_BETWEEN_LINES):
            return
        self._last = now
        texts = [_line(run) if run else "" for run in runs]
        for bar, text in zip(self.lines, texts, strict=True):
            bar.set_description_str(text)
        self.overall.refresh()
        if not self.live:
            logger.info(" | ".join([*filter(None, texts), f"{waiting} runs to come"]))

    def close(self) -> None:
        """End the display."""
        for bar in [*self.lines, self.overall]:
            bar.close()


def _line(run: PlannedRun) -> str:
    """Describe a run at work by the last line of its metrics."""
    found = run.folder.last_metrics()
    shown = [
        f"{label} {found[key]:{form}}"
        for key, label, form in (
            ("step", "step", ",.0f"),
            ("loss", "loss", ".3f"),
            ("accuracy", "accuracy", ".1f"),
            ("val_accuracy", "validation", ".1f"),
            ("val_bits", "bits a token", ".3f"),
            ("steps_per_second", "steps/s", ".2f"),
        )
        if key in found
    ]
    return f"{run.name}: {', '.join(shown) or 'starting'}"
