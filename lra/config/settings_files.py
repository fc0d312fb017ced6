"""Settings files of tasks and mixers: what each says of a setting, and where it is published.

A file has sections with settings. `protocols` and `presets` have further sections that apply to one
protocol or preset, and a preset may have its own `protocols`. A setting is written in one of three
ways. The fourth line shows how to give each task its own value, in any of the three:

    dim: 128                                                    our choice
    dim: [128, script script_lra.py:30]                         published, with its source
    dim: {is: 128, theirs: 256, from: script a.py:30, why: ...}   published, and ours differs
    dim: {all: 128, listops text: [64, "script script_lra.py:{30 31}"]}    by task

`all` stands for every task, and `benchmark` for the six of the Long Range Arena. A source begins
with a key of the file's section `sources`. Words in braces are assigned to the tasks in order:
above, line 30 is the source for listops and line 31 for text. `theirs` and `from` may be left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from common.strict_yaml import LARGEST, parse_yaml, plain
from common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS, TaskRequest
from lra.runtime.errors import UnknownName, UserError
from tasks.base import BENCHMARK

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ALL = "all"
GROUPS = {"benchmark": BENCHMARK}
"""Words that stand for several tasks."""
STARTS, CITED = "starts", "cited"
"""Further sections of a mixer's file: the distributions of released initial parameters, by patterns
of the parameters' names, and where the settings of a protocol or preset are published."""
FileKind = Literal["tasks", "mixers"]
_WORDS = re.compile(r"[\w-]+( [\w-]+)*")


@dataclass(frozen=True)
class Entry:
    """What a settings file says of one setting, for one task or for `ALL`."""

    origin: str
    """The file, the preset and protocol that the entry is for, and where its value is published."""
    preset: str | None = None
    protocol: str | None = None
    section: str = ""
    """Section of the setting, or `STARTS` or `CITED`."""
    key: str = ""
    task: str = ALL
    value: Any = None
    source: str = ""
    """A word of `sources`, and a file with a line; empty for a value of our choosing."""
    has_other: bool = False
    """Whether the source states another value."""
    theirs: Any = None
    why: str = ""
    """Why the value is not the published one, or none is published."""


@dataclass(frozen=True)
class SettingsFile:
    """The settings file of a task or a mixer."""

    shown: str
    """Name of the file in messages."""
    entries: Sequence[Entry]
    names: Mapping[str, Collection[str]]
    """The presets and protocols that the file has, by "preset" and "protocol"."""
    sources: Mapping[str, str]
    """Repository and commit, or paper, by the word that sources of settings begin with."""
    rows: Mapping[str, Any]
    """Rows of results/published.csv that runs with these settings repeat; see `PublishedRun`."""

    @property
    def published_presets(self) -> set[str]:
        """The presets of published settings that a mixer has besides `paper`."""
        return {e.preset for e in self.entries if e.section == CITED and e.preset} - {PAPER}

    def citation(self, task: str, preset: str, protocol: str) -> str:
        """Return the source of the settings that a mixer's file has for a task."""
        entries = [e for e in self.entries if e.section == CITED and e.task in (ALL, task)]
        entries.sort(key=lambda entry: entry.task != ALL)
        found = {(entry.preset, entry.protocol): entry.value for entry in entries}
        if (preset, None) in found:
            return found[preset, None]
        under = [name for of_preset, name in found if of_preset is None]
        if not under:
            return "the task's own, none published for this mixer"
        text = found.get((None, protocol), found[None, under[0]])
        if protocol not in under:
            text += f" (published under protocol {under[0]}; the task's of {protocol} come first)"
        return text if preset == PAPER else f"preset {preset}, of our choosing, over {text}"

    def refuse_unknown_names(self, tasks: Mapping[str, SettingsFile]) -> None:
        """Check the names of tasks, presets and protocols in the file.

        Args:
            tasks: the files of all tasks.
        Raises: UserError for a task that does not exist, and for a preset or protocol that none of
            the tasks has that it is for.
        """
        for task in {entry.task for entry in self.entries} - {ALL, *tasks}:
            raise UnknownName("task", task, {ALL, *GROUPS, *tasks}, self.shown)
        for kind, names in self.names.items():
            for name in names:
                own = {e.task for e in self.entries if getattr(e, kind) == name} - {ALL}
                known = {one for task in own or tasks for one in tasks[task].names[kind]}
                if name not in known | self.published_presets:
                    raise UnknownName(kind, name, known, self.shown)


def _mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; an empty section counts as one."""
    if not isinstance(body or {}, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in (body or {}).items()}


def _split_blocks(body: dict[str, Any], place: Entry) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Split a file into the settings for all runs, and those of each preset and protocol.

    Yields: an entry with the preset and protocol of the settings, and these.
    """
    kinds = [k for k in ("preset", "protocol") if not (getattr(place, k) or place.protocol)]
    nested = {k: _mapping(body.pop(f"{k}s", None), f"{place.origin}: {k}s") for k in kinds}
    yield place, body
    for kind, blocks in nested.items():
        for name, settings in blocks.items():
            where = f"{kind}s.{name})"
            origin = f"{place.origin[:-1]}.{where}" if place.preset else f"{place.origin} ({where}"
            inner = replace(place, origin=origin, **{kind: name})
            yield from _split_blocks(_mapping(settings, origin), inner)


def _parse_block(body: dict[str, Any], place: Entry) -> Iterator[Entry]:
    if CITED in body and (place.preset or place.protocol):
        yield from _parse_tasks(body.pop(CITED), replace(place, section=CITED))
    for section, settings in body.items():
        if section not in (*SECTIONS, STARTS):
            raise UnknownName("section", section, (*SECTIONS, STARTS), place.origin)
        for key, value in _mapping(settings, f"{place.origin}: {section}").items():
            yield from _parse_tasks(value, replace(place, section=section, key=key))


def _parse_tasks(value: Any, place: Entry) -> Iterator[Entry]:
    """Read the entry of a setting, or its entries by task."""
    is_by_task = isinstance(value, dict) and all(_WORDS.fullmatch(str(key)) for key in value)
    if not (value and is_by_task and "is" not in value):
        yield _parse_entry(value, place)
        return
    seen: set[str] = set()
    for key, inner in value.items():
        tasks = [task for word in str(key).split() for task in GROUPS.get(word, (word,))]
        for number, task in enumerate(tasks):
            if task in seen:
                where = f"{place.origin}: {place.section}.{place.key}"
                raise UserError(f"{where}: the task {task} occurs twice")
            seen.add(task)
            entry = _parse_entry(inner, replace(place, task=task))
            yield replace(entry, source=_choose_words(entry.source, number, len(tasks)))


def _parse_entry(value: Any, place: Entry) -> Entry:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):  # noqa: PLR2004
        return replace(place, value=value[0], source=value[1])
    if not isinstance(value, dict) or "is" not in value:
        return replace(place, value=value)
    known = ("is", "theirs", "from", "why")
    for key in value.keys() - known:
        raise UnknownName("key", str(key), known, f"{place.origin}: {place.section}.{place.key}")
    return replace(
        place, value=value["is"], source=str(value.get("from", "")), has_other="theirs" in value,
        theirs=value.get("theirs"), why=str(value.get("why", "")),
    )  # fmt: skip


def _choose_words(source: str, number: int, count: int) -> str:
    """Replace each pair of braces with `count` words by its word of that number, from 0."""
    for words in re.findall(r"\{([^{}]*)\}", source):
        if 1 < count == len(words.split()):
            source = source.replace(f"{{{words}}}", words.split()[number])
    return source


def _name_source(entry: Entry, sources: Mapping[str, str]) -> Entry:
    """Add to an entry's origin where its value is published."""
    if not entry.source:
        return entry
    word, _, place = entry.source.partition(" ")
    other = f", which states {plain(entry.theirs)}" if entry.has_other else ""
    return replace(entry, origin=f"{entry.origin}: {sources.get(word, word)} {place}{other}")


@functools.lru_cache(maxsize=256)
def _parse(text: str, shown: str, kind: FileKind) -> SettingsFile:
    """Parse the text of a settings file; cached, as plans and reports read the same files often."""
    body = _mapping(parse_yaml(text, shown), shown)
    rows = _mapping(body.pop("rows", None), f"{shown}: rows")
    sources = _mapping(body.pop("sources", None), f"{shown}: sources")
    blocks = [*_split_blocks(body, Entry(shown))]
    entries = [
        _name_source(entry, sources)
        for place, settings in blocks
        for entry in _parse_block(settings, place)
    ]
    for entry in entries if kind == "mixers" else ():
        if entry.section == "task":
            name = f"task.{entry.key}"
            raise UserError(f"{entry.origin}: {name}: the file of a mixer cannot change the data")
    presets = {place.preset for place, _ in blocks if place.preset} | {PAPER}
    protocols = {place.protocol for place, _ in blocks if place.protocol} or {DEFAULT_PROTOCOL}
    return SettingsFile(shown, entries, {"preset": presets, "protocol": protocols}, sources, rows)


def read_file(kind: FileKind, name: str, configs: Path = CONFIGS) -> SettingsFile:
    """Read the settings file of a task or a mixer, or the one of all tasks that have none.

    A missing file is empty. Every part is checked, used or not.

    Raises: UserError for an unknown section, key or task, or a value of the wrong form.
    """
    place = f"{kind}/{name}.yaml"
    if kind == "tasks" and not (configs / place).is_file():
        place = "own_task.yaml"
    path = configs / place
    text = read_text(path, largest=LARGEST) if path.exists() else ""
    return _parse(text, f"configs/{place}", kind)


def list_files(kind: FileKind, configs: Path = CONFIGS) -> dict[str, SettingsFile]:
    """Read the settings files of all tasks or mixers, by name."""
    names = sorted(path.stem for path in (configs / kind).glob("*.yaml"))
    return {name: read_file(kind, name, configs) for name in names}


@functools.cache
def published_presets(configs: Path = CONFIGS) -> frozenset[str]:
    """Name the presets of published settings: `paper`, and those of single mixers."""
    files = list_files("mixers", configs).values()
    return frozenset([PAPER, *(name for file in files for name in file.published_presets)])


def tasks_with_preset(tasks: Sequence[str], preset: str, configs: Path = CONFIGS) -> list[str]:
    """List the tasks whose settings file has a preset; all of them if none has it."""
    found = [t for t in tasks if preset in read_file("tasks", t, configs).names["preset"]]
    return found or list(tasks)


def read_files(
    request: TaskRequest, task: str, mixer: str | None, configs: Path
) -> list[SettingsFile]:
    """Read and check the files of a task and, unless it is None, of a mixer.

    Raises: UserError for an unknown preset or protocol, and for a mistake in a file.
    """
    file = read_file("tasks", task, configs)
    files = [file] if mixer is None else [file, read_file("mixers", mixer, configs)]
    names = {**file.names, "preset": {*file.names["preset"], *files[-1].published_presets}}
    if request.preset not in names["preset"] and request.preset in published_presets(configs):
        if mixer is not None:
            raise UserError(
                f"--preset: {mixer} has no preset {request.preset}; another mixer has published "
                f"settings of that name"
            )
        names["preset"].add(request.preset)
    for kind, name in (("preset", request.preset), ("protocol", request.protocol)):
        if name not in names[kind]:
            missing = f"configs/tasks/{task}.yaml"
            lacking = "" if file.shown == missing else f"; define it in a new file {missing}"
            raise UserError(f"{UnknownName(kind, name, names[kind], f'--{kind}')}{lacking}")
    # Mixers may have settings for future tasks of the benchmark.
    known = {*list_files("tasks", configs), *BENCHMARK, task}
    tasks = {name: read_file("tasks", name, configs) for name in known}
    for one in files:
        one.refuse_unknown_names(tasks)
    return files


def list_layers(
    files: Iterable[SettingsFile], task: str, preset: str, protocol: str
) -> list[list[Entry]]:
    """List what files say for a run, in layers of which each replaces settings of those before.

    Args:
        files: the file of the task before that of the mixer.
    """
    layers: dict[tuple[bool, bool, int, bool], list[Entry]] = {}
    for number, file in enumerate(files):
        for entry in file.entries:
            if (
                entry.section in SECTIONS
                and entry.task in (ALL, task)
                and entry.preset in (None, preset)
                and entry.protocol in (None, protocol)
            ):
                level = bool(entry.preset), bool(entry.protocol), number, entry.task != ALL
                layers.setdefault(level, []).append(entry)
    return [layers[level] for level in sorted(layers)]
