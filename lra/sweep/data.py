"""The data of a sweep's runs, which is checked for every task before the first run.

Runs whose data cannot be had are left out, and do not keep the others from being carried out.
"""

from collections.abc import Callable, Sequence
from functools import partial

from lra.common.errors import DataError
from lra.prepare import attempt_each
from lra.runtime.tables import count_nouns
from lra.sweep.plan import PlannedRun, varied_settings
from lra.tasks.base import Task


class SweepData:
    """The data sets that runs need: one for each task and choice of its options.

    Args:
        runs: the runs of a plan that are to be carried out; others need no data.
    """

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self.faults: dict[str, str] = {}
        """Why data is missing or cannot be prepared, by the name of the data set."""
        self._runs: dict[str, list[PlannedRun]] = {}
        for run, settings in zip(runs, varied_settings(runs, "task."), strict=True):
            name = f"{run.config.task_component.spec} {settings}".rstrip()
            self._runs.setdefault(name, []).append(run)

    def ready(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Choose the runs in whose data no fault was found."""
        left_out = {run.name for name in self.faults for run in self._runs[name]}
        return [run for run in runs if run.name not in left_out]

    def refuse_if_none_is_ready(self, runs: Sequence[PlannedRun]) -> None:
        """Raise DataError if no run of a plan has its data."""
        if not self.ready(runs):
            names = ", ".join(self.faults)
            raise DataError(f"no data of {names} (the reasons are above), so no run was started")

    def describe_faults(self, *, has_reasons: bool = True) -> list[str]:
        """Say which runs are left out, and if asked why: a text for each data set."""
        counts = {name: len(self._runs[name]) for name in self.faults}
        return [
            f"left out: {name} ({count_nouns(count, 'run')}), until its data is there"
            + (f": {self.faults[name]}" if has_reasons else "")
            for name, count in counts.items()
        ]

    def check(self) -> dict[str, str]:
        """Find out what is left to prepare, without doing it; log what is missing, and why.

        Returns: what `Preparation.describe` says, by the name of the data set.
        """
        left: dict[str, str] = {}

        def describe(name: str, task: Task, run: PlannedRun) -> None:
            left[name] = task.plan(run.data_dir).describe()

        self._attempt(describe, "is missing")
        return left

    def prepare(self) -> None:
        """Open all data; download, read or generate what is not in the cache yet."""
        self._attempt(lambda _, task, run: task.prepare(run.data_dir), "cannot be prepared")

    def _attempt(self, action: Callable[[str, Task, PlannedRun], object], fault: str) -> None:
        """Do something for each data set without a fault; note the faults that it finds."""

        def attempt(name: str) -> None:
            run = self._runs[name][0]
            with run.config.task_component.explain_errors(f"its data {fault}"):
                action(name, run.config.build_task(), run)

        sound = [name for name in self._runs if name not in self.faults]
        self.faults |= attempt_each({name: partial(attempt, name) for name in sound}, "left out: ")
