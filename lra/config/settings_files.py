"""Settings files of tasks, mixers and presets: what each says of a setting, and its source.

A task or a mixer has a file with sections of settings. `protocols` and `presets` have further
sections that apply to one protocol, or one preset of published settings, and a preset may have its
own `protocols`. The other presets have a file each, with such sections for every task and mixer by
its name; those of `other` are for tasks without a file. A setting is written in one of three ways.
The fourth line shows how to give each task its own value, in any of the three:

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
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from common.errors import UnknownName, UserError
from common.strict_yaml import LARGEST, parse_yaml, plain
from common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS, Change, TaskRequest
from tasks.base import BENCHMARK

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ALL = "all"
OTHER = "other"
"""Stands for the tasks without a file, in files of presets."""
STARTS = "starts"
"""A further section of a mixer's file: the distributions of released initial parameters, by
patterns of the parameters' names."""
NESTED = ("presets", "protocols")
FileKind = Literal["tasks", "mixers"]
Family = Literal[
    "attention", "linear attention", "state space", "long convolution", "gated recurrence",
    "delta rule or matrix state", "local or none",
]  # fmt: skip
"""What kind of mixer a mixer is, by which charts colour it; "none": nothing learned is mixed."""
_WORDS = re.compile(r"[\w-]+( [\w-]+)*")


@dataclass(frozen=True, kw_only=True)
class Entry(Change):
    """What a settings file says of one setting, for one task or for `ALL`.

    The section may also be `STARTS`. The origin names the file, the preset and protocol that the
    entry is for, and where its value is published.
    """

    preset: str | None = None
    protocol: str | None = None
    task: str = ALL
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
    presets: Set[str]
    protocols: Set[str]
    sources: Mapping[str, str]
    """Repository and commit, or paper, by the word that sources of settings begin with."""
    rows: Mapping[str, Any]
    """Rows of results/published.csv that runs with these settings repeat; see `PublishedRun`."""
    family: Family | None = None
    """The family of a mixer; None for a task, and for a user's own mixer."""


def _mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; an empty section counts as one."""
    if not isinstance(body or {}, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in (body or {}).items()}


def _read_block(body: Any, place: Entry) -> Iterator[Entry]:
    """Read the settings of a block, then those of the presets and protocols within it."""
    blocks = _mapping(body, place.origin)
    for section in sorted(blocks, key=lambda name: name if name in NESTED else ""):
        origin, kind = f"{place.origin}: {section}", section.removesuffix("s")
        if section in NESTED and not (getattr(place, kind) or place.protocol):
            for name, inner in _mapping(blocks[section], origin).items():
                start = f"{place.origin[:-1]}." if place.preset else f"{place.origin} ("
                where = f"{start}{section}.{name})"
                yield from _read_block(inner, replace(place, origin=where, **{kind: name}))
        elif section in (*SECTIONS, STARTS):
            for key, value in _mapping(blocks[section], origin).items():
                yield from _read_tasks(value, replace(place, section=section, key=key))
        else:
            raise UnknownName("section", section, (*SECTIONS, STARTS), place.origin)


def _read_tasks(value: Any, place: Entry) -> Iterator[Entry]:
    """Read the entry of a setting, or its entries by task."""
    is_by_task = isinstance(value, dict) and all(_WORDS.fullmatch(str(key)) for key in value)
    if not (value and is_by_task and "is" not in value):
        yield _read_value(value, place)
        return
    seen: set[str] = set()
    for key, inner in value.items():
        tasks = str(key).replace("benchmark", " ".join(BENCHMARK)).split()
        for number, task in enumerate(tasks):
            if task in seen:
                raise UserError(f"{place.origin}: {place.name}: the task {task} occurs twice")
            seen.add(task)
            entry = _read_value(inner, replace(place, task=task))
            # Words in braces, as many as tasks, belong to the tasks in order.
            for words in re.findall(r"\{([^{}]*)\}", entry.source) if len(tasks) > 1 else ():
                if len(words.split()) == len(tasks):
                    chosen = entry.source.replace(f"{{{words}}}", words.split()[number])
                    entry = replace(entry, source=chosen)
            yield entry


def _read_value(value: Any, place: Entry) -> Entry:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):  # noqa: PLR2004
        return replace(place, value=value[0], source=value[1])
    if not isinstance(value, dict) or "is" not in value:
        return replace(place, value=value)
    known = ("is", "theirs", "from", "why")
    for key in value.keys() - known:
        raise UnknownName("key", str(key), known, f"{place.origin}: {place.name}")
    return replace(
        place, value=value["is"], source=str(value.get("from", "")), has_other="theirs" in value,
        theirs=value.get("theirs"), why=str(value.get("why", "")),
    )  # fmt: skip


def _cite(entry: Entry, sources: Mapping[str, str]) -> Entry:
    """Name the source of an entry, and another value that it states, in its origin."""
    word, _, place = entry.source.partition(" ")
    other = f", which states {plain(entry.theirs)}" if entry.has_other else ""
    cited = f": {sources.get(word, word)} {place}{other}" if entry.source else ""
    return replace(entry, origin=f"{entry.origin}{cited}")


@functools.lru_cache(maxsize=256)
def _parse(text: str, shown: str) -> SettingsFile:
    """Parse the text of a settings file; cached, as plans and reports read the same files often."""
    body = _mapping(parse_yaml(text, shown), shown)
    rows, sources = (_mapping(body.pop(k, None), f"{shown}: {k}") for k in ("rows", "sources"))
    family = body.pop("family", None)
    if family is not None and family not in get_args(Family):
        raise UnknownName("family", str(family), get_args(Family), shown)
    read = _read_block(body, Entry("", "", None, shown))
    entries = [_cite(entry, sources) for entry in read]
    presets = {PAPER, *(body.get("presets") or ())}
    protocols = set(body.get("protocols") or (DEFAULT_PROTOCOL,))
    return SettingsFile(shown, entries, presets, protocols, sources, rows, family)


@functools.lru_cache(maxsize=64)
def _parse_preset(text: str, shown: str, preset: str) -> Mapping[tuple[str, str], list[Entry]]:
    """Parse the file of a preset: its entries by kind and name of their owner."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for kind, owners in _mapping(parse_yaml(text, shown), shown).items():
        if kind not in get_args(FileKind):
            raise UnknownName("section", kind, get_args(FileKind), shown)
        for name, block in _mapping(owners, f"{shown}: {kind}").items():
            place = Entry("", "", None, f"{shown} ({name})", preset=preset)
            found[kind, name] = list(_read_block(block, place))
    return found


def read_file(kind: FileKind, name: str, configs: Path = CONFIGS) -> SettingsFile:
    """Read what files say of a task or a mixer: its own, or the one of all tasks that have none,
    and those of presets.

    A missing file is empty. Every part is checked, used or not.

    Raises: UserError for an unknown section or key, or a value of the wrong form.
    """
    place = f"{kind}/{name}.yaml"
    if kind == "tasks" and not (configs / place).is_file():
        place, name = "own_task.yaml", OTHER
    path = configs / place
    text = read_text(path, largest=LARGEST) if path.exists() else ""
    file = _parse(text, f"configs/{place}")
    entries, presets = [*file.entries], {*file.presets}
    for path in sorted((configs / "presets").glob("*.yaml")):
        text = read_text(path, largest=LARGEST)
        found = _parse_preset(text, f"configs/presets/{path.name}", path.stem)
        if (kind, name) in found:
            entries += [_cite(entry, file.sources) for entry in found[kind, name]]
            presets.add(path.stem)
    return replace(file, entries=entries, presets=presets)


def list_files(kind: FileKind, configs: Path = CONFIGS) -> dict[str, SettingsFile]:
    """Read the settings files of all tasks or mixers, by name."""
    names = sorted(path.stem for path in (configs / kind).glob("*.yaml"))
    return {name: read_file(kind, name, configs) for name in names}


@functools.cache
def published_presets(configs: Path = CONFIGS) -> Set[str]:
    """Name the presets of published settings: `paper`, and those that only mixers have."""
    of_tasks, of_mixers = (
        {name for file in list_files(kind, configs).values() for name in file.presets}
        for kind in ("tasks", "mixers")
    )
    return of_mixers - of_tasks | {PAPER}


def tasks_with_preset(tasks: Sequence[str], preset: str, configs: Path = CONFIGS) -> list[str]:
    """List the tasks whose settings file has a preset; all of them if none has it."""
    found = [task for task in tasks if preset in read_file("tasks", task, configs).presets]
    return found or list(tasks)


def read_layers(
    request: TaskRequest, task: str, mixer: str | None, configs: Path
) -> list[list[Entry]]:
    """List what files say for a run, in layers of which each replaces settings of those before.

    Without a mixer, a preset that only mixers have stands for the data of preset `paper`.

    Raises: UserError for an unknown preset or protocol, for a mixer's preset without settings for
        the protocol, and for a mistake in a file.
    """
    file, published = read_file("tasks", task, configs), published_presets(configs)
    files, presets = [file], file.presets | published
    if mixer is not None:
        own = read_file("mixers", mixer, configs)
        files, presets = [file, own], file.presets | (own.presets & published)
        if request.preset in published - presets:
            raise UserError(
                f"--preset: {mixer} has no preset {request.preset}; another mixer has published "
                f"settings of that name"
            )
        of_preset = {entry.protocol for entry in own.entries if entry.preset == request.preset}
        is_own = bool(of_preset) and request.preset not in file.presets | {PAPER}
        if is_own and of_preset.isdisjoint({None, request.protocol}):
            raise UserError(
                f"--preset {request.preset} of {mixer} has settings for --protocol "
                f"{' or '.join(sorted(filter(None, of_preset)))} alone, and the protocol is "
                f"{request.protocol}"
            )
    missing = f"configs/tasks/{task}.yaml"
    lacking = "" if file.shown == missing else f"; define it in a new file {missing}"
    for kind, valid in (("preset", presets), ("protocol", file.protocols)):
        if (name := getattr(request, kind)) not in valid:
            raise UserError(f"{UnknownName(kind, name, valid, f'--{kind}')}{lacking}")
    layers: dict[tuple[bool, bool, int, bool], list[Entry]] = {}
    for number, one in enumerate(files):
        for entry in one.entries:
            if (
                entry.section in SECTIONS
                and entry.task in (ALL, task)
                and entry.preset in (None, request.preset)
                and entry.protocol in (None, request.protocol)
            ):
                level = bool(entry.preset), bool(entry.protocol), number, entry.task != ALL
                layers.setdefault(level, []).append(entry)
    return [layers[level] for level in sorted(layers)]
