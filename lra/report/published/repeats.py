"""The published results that the suite has the settings of, and the commands that repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lra.config.compose import compose
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, parse_changes
from lra.config.schema import RunConfig
from lra.report.published.rows import PublishedRow, published_rows
from lra.report.published.settings import published_runs
from tasks.base import BENCHMARK


@dataclass(frozen=True)
class Repeat:
    """A published result on one task, and the settings that repeat it."""

    row: PublishedRow
    task: str
    config: RunConfig
    overrides: Sequence[str]

    @property
    def command(self) -> str:
        """The command that makes the run."""
        return self.command_for(self.task)

    def command_for(self, task: str) -> str:
        """Write the command with a word in place of the task."""
        line = ["python", "run_task.py", "--task", task, "--mixer", self.config.mixer_name]
        if self.config.protocol != DEFAULT_PROTOCOL:
            line += ["--protocol", self.config.protocol]
        if self.config.preset != PAPER:
            line += ["--preset", self.config.preset]
        return shlex.join([*line, *(part for text in self.overrides for part in ("--set", text))])


def repeats() -> Iterator[Repeat]:
    """List the published results that the suite has the settings of, FAIL apart."""
    by_method = {row.method: row for row in published_rows()}
    for method, run in published_runs().items():
        for task in BENCHMARK:
            if by_method[method].values[task] is not None:
                overrides = run.changes_on(task)
                request = RunRequest(
                    task=task, mixer=run.mixer, preset=run.preset, protocol=run.protocol,
                    changes=parse_changes(overrides),
                )  # fmt: skip
                yield Repeat(by_method[method], task, compose(request), overrides)
