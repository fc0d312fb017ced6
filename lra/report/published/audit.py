"""The published settings, each with its place in a source, beside what the suite resolves.

`configs/published/<mixer>.yaml` holds what papers and their released code state, and why ours
differ where they do; `harness.yaml` there what none of them states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lra.config.compose import compose
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from lra.config.strict_yaml import parse_yaml, plain
from lra.runtime.errors import UserError
from tasks.base import BENCHMARK
from tasks.untrusted import read_text

FOLDER = CONFIGS / "published"
ANY_MIXER = "mean"
"""Stands in where settings are of the data, which no mixer changes."""
_HARNESS = "harness"
STARTS = ("model", "starts")
"""A setting that has a table of its own (`lra.report.published.starting_laws`)."""
KNOWN = (*BENCHMARK, "lm")
"""Tasks that settings are published for."""


class Stated(BaseModel):
    """What the sources state of a setting, by task or for all, and why ours is something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    by_task: dict[str, tuple[Any, str]]
    """(value, place), the place a key of the sources and a file with its line."""
    why: dict[str, str]
    """By task, why ours differs."""
    unstated: str | None
    """Why no source states it, for tasks that `by_task` lacks."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, body: Any) -> Any:
        """Spread what stands for all tasks over them."""
        if not isinstance(body, dict):
            return body
        given = dict(body)
        why = given.pop("why", {})
        own = {key: given.pop(key) for key in cls.model_fields if key in {"ours"} & given.keys()}
        read = {
            **own,
            "why": dict.fromkeys(KNOWN, why) if isinstance(why, str) else why,
            "unstated": given.pop("unstated", None),
        }
        if "all" in given:
            given |= dict.fromkeys(KNOWN, given.pop("all"))
        for task in (*given, *read["why"]):
            if task not in KNOWN:
                raise ValueError(f"there is no task {task}")
        by_task = {task: tuple(v) if isinstance(v, list) else v for task, v in given.items()}
        return {**read, "by_task": by_task}

    def explains(self, task: str) -> str | None:
        """Say why a task's value is not the published one, where that is said."""
        return self.why.get(task) or (None if task in self.by_task else self.unstated)


class StatedStart(Stated):
    """What the sources state of how parameters start, and how ours do, where that is otherwise."""

    ours: dict[str, str] = {}
    """Laws by task."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, body: Any) -> Any:
        """Spread a law of ours that stands for all tasks over them."""
        if not isinstance(body, dict) or not isinstance(body.get("ours"), str):
            return body
        return {**body, "ours": dict.fromkeys(KNOWN, body["ours"])}

    def law(self, task: str) -> str | None:
        """Return the law that ours start by; None where nothing says, or nothing says why."""
        if task in self.ours:
            return self.ours[task] if self.explains(task) is not None else None
        return str(self.by_task[task][0]) if task in self.by_task else None

    def concerns(self, task: str) -> bool:
        """Whether anything is said of a task."""
        return task in self.by_task or task in self.ours

    def text(self, task: str) -> str:
        """Write the released law and ours as `Cell.text` writes values."""
        released = self.by_task[task][0] if task in self.by_task else None
        return Cell(released is not None, released, "", self.law(task), None).text()


class Published(BaseModel):
    """One file of published settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mixer: str | None = None
    """The mixer that the settings are of; None: they are of the tasks' data."""
    protocol: str = DEFAULT_PROTOCOL
    preset: str = PAPER
    tasks: list[str] = Field(default_factory=lambda: [*BENCHMARK])
    """The tasks that the settings are for."""
    rows: dict[str, list[str] | dict[str, list[str]]] = {}
    """Rows of results/published.csv that runs of these settings repeat, by their method; each with
    the changes that it takes, as for --set, or by task, `all` standing for those not named."""
    sources: dict[str, str] = {}
    """Repository and commit, or paper, by the word that places begin with."""
    settings: dict[str, Stated]
    """By "section.key"."""
    starts: dict[str, StatedStart] = {}
    """How parameters start, by patterns of their names."""

    def changes(self, method: str, task: str) -> list[str]:
        """Return the changes that a row takes on a task."""
        found = self.rows[method]
        return found if isinstance(found, list) else found.get(task, found["all"])


@dataclass(frozen=True)
class Cell:
    """A setting of one task."""

    is_stated: bool
    published: Any
    place: str
    ours: Any
    why: str | None

    @property
    def is_unexplained(self) -> bool:
        """Whether ours is not what is published, or is published nowhere, and nothing says why."""
        same = self.is_stated and self.published == self.ours
        return not same and self.why is None

    def text(self) -> str:
        """Write the value; both, where they differ, and in parentheses where none is published."""
        if not self.is_stated:
            return f"({plain(self.ours)})"
        if self.published == self.ours:
            return plain(self.ours)
        return f"{plain(self.published)} → {plain(self.ours)}"


Audit = Mapping[str, Mapping[str, Cell]]
"""Cells by "section.key" and task."""


def names() -> list[str]:
    """List the files of published settings: of a mixer, or of the data, under a protocol."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != _HARNESS)


def read_published(name: str, folder: Path = FOLDER) -> Published:
    """Read a file of published settings.

    Raises: UserError for one that is not of that form.
    """
    path = folder / f"{name}.yaml"
    try:
        return _parse(read_text(path), path.name)
    except (OSError, ValidationError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"{first['loc']}: {first['msg']}" if first else f"cannot be read: {error}"
        raise UserError(f"configs/published/{path.name}: {what}") from None


@lru_cache(maxsize=256)
def _parse(text: str, origin: str) -> Published:
    """Parse a file's text once, because the screen of every run looks into all files."""
    return Published.model_validate(parse_yaml(text, origin))


def read_harness(folder: Path = FOLDER) -> Published:
    """Read what holds for every mixer."""
    return read_published(_HARNESS, folder)


def audit(name: str, folder: Path = FOLDER) -> Audit:
    """Compare every setting of a mixer, or of the data, with what is published, on every task.

    Args:
        name: of the file, see `names`.
    Raises: UserError for a published setting that does not exist here.
    """
    published = read_published(name, folder)
    harness = read_harness(folder)
    mixer, protocol, preset = published.mixer or ANY_MIXER, published.protocol, published.preset
    sections = ("mixer", "model", "train") if published.mixer else ("task",)
    requests = {
        task: RunRequest(task=task, mixer=mixer, preset=preset, protocol=protocol)
        for task in published.tasks
    }
    values = {
        task: dict(_values(compose(request).config, sections)) for task, request in requests.items()
    }
    every = dict.fromkeys(key for of_task in values.values() for key in of_task)
    for key in published.settings:
        if key not in every:
            raise UserError(f"configs/published/{name}.yaml: there is no setting {key}")
    return {
        key: {
            task: _cell(key, task, of_task[key], published, harness)
            for task, of_task in values.items()
            if key in of_task
        }
        for key in every
    }


def _values(config: RunConfig, sections: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for section in sections:
        for key, value in getattr(config, section).model_dump().items():
            if (section, key) != STARTS:
                yield f"{section}.{key}", value


def _cell(key: str, task: str, ours: Any, published: Published, harness: Published) -> Cell:
    stated = published.settings.get(key)
    found = stated.by_task.get(task) if stated else None
    why = stated.explains(task) if stated else None
    if found is None and why is None and key in harness.settings:
        why = harness.settings[key].explains(task)
    value, place = found or (None, "")
    return Cell(found is not None, value, place, ours, why)


def unexplained(name: str, folder: Path = FOLDER) -> list[str]:
    """Name the settings that differ from what is published without a word why."""
    return [
        f"{name}: {key} on {task}: {cell.text()}"
        for key, cells in audit(name, folder).items()
        for task, cell in cells.items()
        if cell.is_unexplained
    ]
