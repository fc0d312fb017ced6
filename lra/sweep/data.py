"""The data of a sweep's runs, which is checked for every task before the first run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lra.prepare import attempt_each
from lra.runtime.launch import command_words
from lra.sweep.plan import PlannedRun
from tasks.base import Task
from tasks.errors import DataError


class SweepData:
    """The data sets that runs need: one for each task and choice of its options.

    Args:
        runs: runs of a plan.
    """

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        found: dict[tuple[str, str], PlannedRun] = {}
        for run in runs:
            key = run.config.task_component.spec, run.config.task.model_dump_json()
            found.setdefault(key, run)
        tasks = [run.config.task_name for run in found.values()]
        self.runs: dict[str, PlannedRun] = {}
        """A run that needs each data set, by a name of the data set."""
        self.left: dict[str, str] = {}
        """What `check` has found to be left to prepare."""
        for run in found.values():
            name = run.config.task_name
            if tasks.count(name) > 1:
                name = " ".join([name, *(t for t in run.overrides if t.startswith("task."))])
            self.runs[name] = run

    def check(self) -> dict[str, str]:
        """Find out what is left to prepare, without doing it.

        Returns: what `Task.describe_preparation` says, by the name of the data set.
        Raises: DataError naming every task whose data is missing; the reasons are logged.
        """

        def describe(name: str, task: Task, run: PlannedRun) -> None:
            self.left[name] = task.describe_preparation(run.data_dir)

        self._attempt(describe, "is missing")
        return self.left

    def prepare(self) -> None:
        """Open all data; download, read or generate what is not in the cache yet.

        Raises: DataError naming every task whose data cannot be prepared; the reasons are logged.
        """
        self._attempt(lambda _, task, run: task.prepare(run.data_dir), "cannot be prepared")

    def command(self, name: str) -> list[str]:
        """Return the words of the command that prepares a data set."""
        run, config = self.runs[name], self.runs[name].config
        words = ["--task", config.task_component.spec, "--preset", config.preset]
        changes = [text for text in run.overrides if text.startswith("task.")]
        words += ["--protocol", config.protocol, *(w for text in changes for w in ("--set", text))]
        return command_words("prepare", *words, data_dir=run.data_dir)

    def _attempt(self, action: Callable[[str, Task, PlannedRun], object], fault: str) -> None:
        """Do something for each data set, also after one for which it failed."""

        def attempt(name: str, run: PlannedRun) -> None:
            with run.config.task_component.explain_errors(f"its data {fault}"):
                action(name, run.config.build_task(), run)

        failed = attempt_each({n: partial(attempt, n, run) for n, run in self.runs.items()})
        if not failed:
            return
        others = {r.config.task_component.spec for n, r in self.runs.items() if n not in failed}
        others -= {self.runs[name].config.task_component.spec for name in failed}
        advice = f", or leave tasks out: --tasks {','.join(sorted(others))}" if others else ""
        raise DataError(
            f"the data of {', '.join(failed)} {fault} (the reasons are above), so no run was "
            f"started; add the data{advice}"
        )
