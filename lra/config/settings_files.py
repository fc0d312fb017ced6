"""Settings files of tasks and mixers, and the settings that they give a run."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER
from lra.config.settings_blocks import (
    ALL,
    GROUPS,
    Block,
    Entry,
    mapping,
    parse_block,
    require_text,
)
from lra.config.settings_layers import Layer, Setting
from lra.config.strict_yaml import LARGEST, parse_yaml, plain
from lra.runtime.errors import unknown

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
UNCITED = "the task's own, none published for this mixer"

AvailableNames = Mapping[str, Mapping[str, Collection[str]]]
"""Names of presets and protocols of each task, by "preset" and "protocol"."""


@dataclass(frozen=True)
class SettingsFile:
    """The settings file of a task or a mixer."""

    shown: str
    """Name of the file in messages."""
    blocks: Sequence[Block]
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """Repository and commit, or paper, by the word that sources of settings begin with."""
    rows: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Rows of results/published.csv that runs with these settings repeat; see `PublishedRun`."""

    @property
    def mixer_keys(self) -> list[str]:
        """The keys of the file that only the file of a mixer can have."""
        found = {
            "rows": bool(self.rows),
            "starts": any(block.starts for block in self.blocks),
            "cited": any(block.cited for block in self.blocks),
        }
        return [key for key, is_there in found.items() if is_there]

    def layers(self, task: str, block: Block) -> Iterator[Layer]:
        """List the settings of a block for all tasks, and those for one, which overwrite them."""
        for name in (ALL, task):
            yield {
                key: Setting(by[name].value, self._describe_origin(block, by[name]))
                for key, by in block.settings.items()
                if name in by
            }

    def _describe_origin(self, block: Block, entry: Entry) -> str:
        if not entry.source:
            return block.origin
        other = f", which states {plain(entry.theirs)}" if entry.has_other else ""
        return f"{block.origin}: {self.name_source(entry.source)}{other}"

    def name_source(self, source: str) -> str:
        """Write a source with the repository or paper in place of its first word."""
        word, _, place = source.partition(" ")
        return f"{self.sources.get(word, word)} {place}"

    @property
    def names(self) -> dict[str, set[str]]:
        """The presets and protocols that a task's file names."""
        protocols = {block.protocol for block in self.blocks} - {None}
        presets = {block.preset for block in self.blocks} - {None}
        return {"preset": {*presets, PAPER}, "protocol": protocols or {DEFAULT_PROTOCOL}}  # pyright: ignore[reportReturnType]

    @property
    def published_presets(self) -> set[str]:
        """The presets of published settings that a mixer has besides `paper`."""
        return {b.preset for b in self.blocks if b.preset is not None and b.cited} - {PAPER}

    def check(self, names: AvailableNames) -> None:
        """Check the names of tasks, presets and protocols in the file.

        Raises: UserError for a task that does not exist, and for a name that no task of its block
            has.
        """
        for block in self.blocks:
            for task in sorted(block.tasks - names.keys()):
                raise unknown("task", task, {ALL, *GROUPS, *names}, block.origin)
        for kind in ("preset", "protocol"):
            for block in self.blocks:
                name = getattr(block, kind)
                known = {
                    one
                    for task in (block.tasks & names.keys() or names)
                    for one in names[task][kind]
                } | (self.published_presets if kind == "preset" else set[str]())
                if name is not None and name not in known:
                    raise unknown(kind, name, known, self.blocks[0].origin)

    def citation(self, task: str, protocol: str, preset: str) -> str:
        """Return the source of the settings that a mixer's file has for a task."""
        found = {
            (block.preset, block.protocol): entry.value
            for block in self.blocks
            if (entry := block.cited.get(task, block.cited.get(ALL))) is not None
        }
        if (preset, None) in found:
            return found[preset, None]
        text = found.get((None, protocol))
        if text is None:
            others = [(under, found[None, under]) for one, under in found if one is None]
            if not others:
                return UNCITED
            under, text = others[0]
            text = f"{text} (published under protocol {under}; the task's of {protocol} come first)"
        return text if preset == PAPER else f"preset {preset}, of our choosing, over {text}"


@functools.lru_cache(maxsize=256)
def _parse(text: str, shown: str) -> SettingsFile:
    """Parse the text of a settings file; cached, as plans and reports read the same files often."""
    body = mapping(parse_yaml(text, shown), shown)
    sources = mapping(body.get("sources"), f"{shown}: sources")
    return SettingsFile(
        shown,
        parse_block(body, shown, None, None),
        {word: require_text(source, f"{shown}: sources") for word, source in sources.items()},
        mapping(body.get("rows"), f"{shown}: rows"),
    )


def read_settings_file(path: Path, shown: str) -> SettingsFile:
    """Read a settings file; a missing one is empty. Every part is checked, used or not.

    Args:
        shown: name of the file in messages.
    Raises: UserError for an unknown section, key or task, or a value of the wrong form.
    """
    return _parse(read_text(path, largest=LARGEST) if path.exists() else "", shown)


def read_mixer_file(mixer: str, configs: Path = CONFIGS) -> SettingsFile:
    """Read the settings file of a mixer; see `read_settings_file`."""
    return read_settings_file(configs / f"mixers/{mixer}.yaml", f"configs/mixers/{mixer}.yaml")


def list_mixer_files(configs: Path = CONFIGS) -> dict[str, SettingsFile]:
    """Read the settings files of all mixers, by mixer."""
    paths = sorted((configs / "mixers").glob("*.yaml"))
    return {path.stem: read_mixer_file(path.stem, configs) for path in paths}


def list_task_files(configs: Path = CONFIGS) -> dict[str, SettingsFile]:
    """Read the settings files of all tasks, by task."""
    paths = sorted((configs / "tasks").glob("*.yaml"))
    return {p.stem: read_settings_file(p, f"configs/tasks/{p.name}") for p in paths}


@functools.cache
def published_presets(configs: Path = CONFIGS) -> frozenset[str]:
    """Name the presets of published settings: `paper`, and those of single mixers."""
    files = list_mixer_files(configs).values()
    return frozenset([PAPER, *(name for file in files for name in file.published_presets)])


def tasks_with_preset(tasks: Sequence[str], preset: str, configs: Path = CONFIGS) -> list[str]:
    """List the tasks whose settings file has a preset; all of them if none has it."""
    files = {
        task: read_settings_file(configs / f"tasks/{task}.yaml", f"configs/tasks/{task}.yaml")
        for task in tasks
    }
    return [task for task in tasks if preset in files[task].names["preset"]] or list(tasks)
