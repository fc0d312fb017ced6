"""What a settings file may contain: blocks of settings, each with its source where it is published.

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

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lra.config.request import SECTIONS
from lra.config.settings_layers import Key
from lra.runtime.errors import UserError, unknown
from tasks.base import BENCHMARK

ALL = "all"
GROUPS = {"benchmark": BENCHMARK}
"""Words that stand for several tasks."""
FILE_KEYS = ("sources", "rows", "starts")
"""Further keys of a file; only that of a mixer has others than `sources`."""
BLOCK_KEYS = ("cited", "starts")
"""Further keys of a protocol or a preset in the file of a mixer."""
_WORDS = re.compile(r"[\w-]+( [\w-]+)*")
_BRACES = re.compile(r"\{([^{}]*)\}")


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
    """Check that a parsed value is a mapping; None, an empty section, counts as an empty one.

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
    source, why = (require_text(value.get(key, ""), f"{origin}: {key}") for key in ("from", "why"))
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
    """Replace each pair of braces with `count` words by its word of that number, from 0."""

    def choose(braces: re.Match[str]) -> str:
        words = braces[1].split()
        return words[number] if 1 < len(words) == count else braces[0]

    return _BRACES.sub(choose, source)


def parse_block(body: Any, origin: str, protocol: str | None, preset: str | None) -> list[Block]:
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
        require_text(entry.value, f"{origin}: cited")
    blocks = [own]
    for kind in nested:
        for name, inner in mapping(body.get(kind), f"{origin}: {kind}").items():
            where = f"{origin} ({kind}.{name})" if is_top else f"{origin[:-1]}.{kind}.{name})"
            names = (name, preset) if kind == "protocols" else (protocol, name)
            blocks += parse_block(inner, where, *names)
    return blocks


def require_text(value: Any, origin: str) -> str:
    """Return a text; a UserError that names the origin for anything else."""
    if not isinstance(value, str):
        raise UserError(f"{origin}: got {value!r}, expected a text")
    return value
