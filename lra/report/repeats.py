"""The settings that repeat published results, and where ours differ from their sources."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from common.strict_yaml import plain
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, parse_changes
from lra.config.settings_files import ALL, STARTS, list_files
from lra.report.published import PublishedRow, published_rows, published_runs
from lra.report.scores import group_by
from tasks.base import BENCHMARK

if TYPE_CHECKING:
    from lra.config.schema import RunConfig


@dataclass(frozen=True)
class Repeat:
    """A published result on one task, and the settings that repeat it."""

    row: PublishedRow
    task: str
    config: RunConfig
    overrides: Sequence[str]

    def command(self, task: str | None = None) -> str:
        """Write the command that makes the run, with a word in place of the task."""
        line = ["python", "run_task.py", "--task", task or self.task]
        line += ["--mixer", self.config.mixer_name]
        if self.config.protocol != DEFAULT_PROTOCOL:
            line += ["--protocol", self.config.protocol]
        if self.config.preset != PAPER:
            line += ["--preset", self.config.preset]
        return shlex.join([*line, *(part for text in self.overrides for part in ("--set", text))])


def repeats() -> Iterator[Repeat]:
    """List the published results that the suite has the settings of, FAIL apart."""
    from lra.config.compose import compose

    by_method = {row.method: row for row in published_rows()}
    runs = [one for mixer in list_files("mixers") for one in published_runs(mixer).items()]
    for (method, run), task in itertools.product(runs, BENCHMARK):
        if by_method[method].values[task] is not None:
            overrides = run.changes_on(task)
            request = RunRequest(
                task=task, mixer=run.mixer, preset=run.preset, protocol=run.protocol,
                changes=parse_changes(overrides),
            )  # fmt: skip
            yield Repeat(by_method[method], task, compose(request), overrides)


def differences_csv() -> str:
    """Write as CSV each setting that is not what its source states, with the reason: those of
    tasks before those of mixers, and once where several tasks share it.
    """
    import pandas as pd

    rows: list[dict[str, str]] = []
    for owner, file in {**list_files("tasks"), **list_files("mixers")}.items():
        others = [one for one in file.entries if one.has_other]
        alike = group_by(others, lambda one: replace(one, origin="", source="", task=ALL))
        for entry, same in alike.items():
            kind = "initial " if entry.section == STARTS else f"{entry.section}."
            limits = (("preset", entry.preset), ("protocol", entry.protocol))
            where = [one.task for one in same if one.task != ALL]
            where += [f"{of} {name}" for of, name in limits if name not in (None, PAPER)]
            rows.append(
                {
                    "mixer or task": owner,
                    "setting": f"{kind}{entry.key}",
                    "where": ", ".join(where),
                    "published": plain(entry.theirs),
                    "ours": plain(entry.value),
                    "reason": entry.why,
                }
            )
    return pd.DataFrame(rows).to_csv(index=False)
