"""Published settings: the runs that repeat published rows, and where ours differ from the source.

The settings files hold each published value with its source, and ours with the reason where it
differs (`lra.config.settings_files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from lra.config.request import DEFAULT_PROTOCOL, PAPER
from lra.config.settings_files import (
    ALL,
    CONFIGS,
    STARTS,
    Entry,
    SettingsFile,
    list_files,
)
from lra.runtime.errors import UserError


def _by_task(changes: Any) -> Any:
    return {ALL: changes} if isinstance(changes, list) else changes


class PublishedRun(BaseModel):
    """The run that repeats a row of results/published.csv."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mixer: str
    protocol: str = DEFAULT_PROTOCOL
    preset: str = PAPER
    changes: Annotated[Mapping[str, list[str]], BeforeValidator(_by_task)] = {ALL: []}
    """Changed settings, as for --set, by task or for `ALL` others."""

    def changes_on(self, task: str) -> list[str]:
        """Return the changed settings on a task."""
        return self.changes.get(task, self.changes.get(ALL, []))


def published_runs(configs: Path = CONFIGS) -> dict[str, PublishedRun]:
    """Read the runs that repeat published rows, by the method of the row.

    Raises: UserError for a row that is not of that form.
    """
    found: dict[str, PublishedRun] = {}
    for mixer, file in list_files("mixers", configs).items():
        for method, body in file.rows.items():
            try:
                found[method] = PublishedRun.model_validate({"mixer": mixer, **(body or {})})
            except (TypeError, ValidationError) as error:
                said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
                raise UserError(f"{file.shown}: rows: {method}: {said}") from None
    return found


@dataclass(frozen=True)
class Difference:
    """A setting that is not what its source states, or parameters that start in another way."""

    owner: str
    """Mixer or task."""
    setting: str
    condition: str
    """Protocol or preset that the setting is for; empty for all."""
    tasks: tuple[str, ...]
    entry: Entry


def list_differences(configs: Path = CONFIGS) -> list[Difference]:
    """List where our settings differ from what their sources state, tasks before mixers."""
    files = {**list_files("tasks", configs), **list_files("mixers", configs)}
    return [difference for owner, file in files.items() for difference in _compare(owner, file)]


def _compare(owner: str, file: SettingsFile) -> Iterator[Difference]:
    groups: dict[Entry, list[str]] = {}
    for entry in file.entries:
        if entry.has_other:
            groups.setdefault(replace(entry, origin="", source="", task=ALL), []).append(entry.task)
    for entry, tasks in groups.items():
        kind = "initial " if entry.section == STARTS else f"{entry.section}."
        named_tasks = tuple(task for task in tasks if task != ALL)
        yield Difference(owner, f"{kind}{entry.key}", _condition(entry), named_tasks, entry)


def _condition(entry: Entry) -> str:
    names = (("preset", entry.preset), ("protocol", entry.protocol))
    return ", ".join(f"{kind} {name}" for kind, name in names if name not in (None, PAPER))
