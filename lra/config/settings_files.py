"""Settings files: what they may contain, and the settings that they give a run.

A file has sections with settings, and under `protocols` and `presets` more of them, for single
protocols and presets; a preset may have `protocols` of its own. A setting is written in one of four
ways, each also by task:

    dim: 128                                                    our choice
    dim: [128, script script_lra.py:30]                         published, with its source
    dim: {is: 128, theirs: 256, from: script a.py:30, why: ...}   published, and ours differs
    dim: {all: 128, listops text: [64, "script script_lra.py:{30 31}"]}    by task

`all` stands for every task, and `benchmark` for the six of the Long Range Arena. A source begins
with a word of `sources`. Words in braces belong to the tasks in their order: 30 to listops.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS
from lra.config.settings_layers import Key, Layer, Setting
from lra.config.strict_yaml import LARGEST, parse_yaml, plain
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ALL = "all"
GROUPS = {"benchmark": BENCHMARK}
"""Words that stand for several tasks."""
FILE_KEYS = ("sources", "rows", "starts")
"""Further keys of a file; only that of a mixer has others than `sources`."""
BLOCK_KEYS = ("cited", "starts")
"""Further keys of a protocol or a preset in the file of a mixer."""
_WORDS = re.compile(r"[\w-]+( [\w-]+)*")
_BRACES = re.compile(r"\{([^{}]*)\}")
UNCITED = "the task's own, none published for this mixer"

AvailableNames = Mapping[str, Mapping[str, Collection[str]]]
"""Names of presets and protocols of each task, by "preset" and "protocol"."""


@dataclass(frozen=True)
class Entry:
    """What a settings file says of one setting for one task."""

    value: Any
    source: str = ""
    """A word of `sources`, and a file with a line; empty for a value of our choosing."""
    has_other: bool = False
    """Whether the source states another value."""
    theirs: Any = None
    why: str = ""
    """Why the value is not the published one, or none is published."""


ByTask = Mapping[str, Entry]
"""Entries by task, or by `ALL`."""


@dataclass(frozen=True)
class Block:
    """Settings for all runs, or for those of a protocol, of a preset, or of both."""

    origin: str
    protocol: str | None
    preset: str | None
    settings: Mapping[Key, ByTask]
    starts: Mapping[str, ByTask]
    """Distributions that released parameters start from, by patterns of the parameters' names."""
    cited: Mapping[str, Entry]
    """Where the settings of the block are published, by task."""

    @property
    def level(self) -> int:
        """Place in the order of merging: all runs, protocols, presets, a preset's protocols."""
        return 2 * (self.preset is not None) + (self.protocol is not None)

    def matches(self, protocol: str, preset: str) -> bool:
        """Whether a run of this protocol and preset has the settings of the block."""
        return self.protocol in (None, protocol) and self.preset in (None, preset)

    @property
    def tasks(self) -> set[str]:
        """The tasks that have settings of their own."""
        every = (*self.settings.values(), *self.starts.values(), self.cited)
        return {task for by in every for task in by} - {ALL}


def mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; nothing counts as an empty one.

    Raises: UserError naming the origin otherwise.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in body.items()}


def parse_sections(body: Any, origin: str, others: Collection[str] = ()) -> dict[Key, Any]:
    """Read a parsed mapping {section: {key: value}}.

    Args:
        others: further keys that are allowed, and ignored.
    Raises: UserError for an unknown section, or a value that is not a mapping.
    """
    values: dict[Key, Any] = {}
    for section, entries in mapping(body, origin).items():
        if section in others:
            continue
        if section not in SECTIONS:
            raise unknown("section", section, {*SECTIONS, *others}, origin)
        for key, value in mapping(entries, f"{origin}: {section}").items():
            values[section, key] = value
    return values


def _parse_entry(value: Any, origin: str) -> Entry:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):  # noqa: PLR2004
        return Entry(value[0], value[1])
    if not isinstance(value, dict) or "is" not in value:
        return Entry(value)
    known = {"is", "theirs", "from", "why"}
    for key in value:
        if key not in known:
            raise unknown("key", str(key), known, origin)
    source, why = (_require_text(value.get(key, ""), f"{origin}: {key}") for key in ("from", "why"))
    return Entry(value["is"], source, "theirs" in value, value.get("theirs"), why)


def _parse_tasks(value: Any, origin: str) -> ByTask:
    """Read an entry, or entries by task."""
    is_by_task = isinstance(value, dict) and all(_WORDS.fullmatch(str(key)) for key in value)
    if not (value and is_by_task and "is" not in value):
        return {ALL: _parse_entry(value, origin)}
    found: dict[str, Entry] = {}
    for key, inner in value.items():
        entry = _parse_entry(inner, origin)
        words = str(key).split()
        tasks = [task for word in words for task in GROUPS.get(word, (word,))]
        for number, task in enumerate(tasks):
            if task in found:
                raise UserError(f"{origin}: the task {task} occurs twice")
            found[task] = replace(entry, source=_choose_words(entry.source, number, len(tasks)))
    return found


def _choose_words(source: str, number: int, count: int) -> str:
    """Replace braces with `count` words by the word of that number."""

    def choose(braces: re.Match[str]) -> str:
        words = braces[1].split()
        return words[number] if 1 < len(words) == count else braces[0]

    return _BRACES.sub(choose, source)


def _parse_block(body: Any, origin: str, protocol: str | None, preset: str | None) -> list[Block]:
    """Read a block, and those for single protocols and presets in it."""
    body = mapping(body, origin)
    is_top = protocol is None and preset is None
    nested = ("presets", "protocols") if is_top else ("protocols",) if protocol is None else ()
    keys = FILE_KEYS if is_top else BLOCK_KEYS
    own = Block(
        origin,
        protocol,
        preset,
        {
            (section, key): _parse_tasks(value, f"{origin}: {section}.{key}")
            for (section, key), value in parse_sections(body, origin, (*keys, *nested)).items()
        },
        {
            pattern: _parse_tasks(value, f"{origin}: starts: {pattern}")
            for pattern, value in mapping(body.get("starts"), f"{origin}: starts").items()
        },
        _parse_tasks(body["cited"], f"{origin}: cited") if "cited" in body else {},
    )
    for entry in own.cited.values():
        _require_text(entry.value, f"{origin}: cited")
    blocks = [own]
    for kind in nested:
        for name, inner in mapping(body.get(kind), f"{origin}: {kind}").items():
            where = f"{origin} ({kind}.{name})" if is_top else f"{origin[:-1]}.{kind}.{name})"
            names = (name, preset) if kind == "protocols" else (protocol, name)
            blocks += _parse_block(inner, where, *names)
    return blocks


def _require_text(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{origin}: got {value!r}, expected a text")
    return value


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
    """A plan of many runs, or a report, reads the same few files many times."""
    body = mapping(parse_yaml(text, shown), shown)
    sources = mapping(body.get("sources"), f"{shown}: sources")
    return SettingsFile(
        shown,
        _parse_block(body, shown, None, None),
        {word: _require_text(source, f"{shown}: sources") for word, source in sources.items()},
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
