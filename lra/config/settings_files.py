"""Settings files of tasks, mixers and presets: what each says of a setting, and its source.

    configs/tasks/NAME.yaml      blocks
    configs/mixers/NAME.yaml     blocks for tasks: `all`, or names, with the blocks of each
    configs/presets/NAME.yaml    `tasks`, by name, and `mixers`, by name and then for tasks

A block's name says when its settings hold: `base` always, `paper` under that preset, which is of
published settings, `base, protocol s4` under a protocol, `paper, protocol s4` under both. Files of
presets have no blocks, as each of them is one. `other` stands for tasks without a file. A setting
is written in one of three ways:

    model.dim: 128                                                     our choice
    model.dim: [128, script script_lra.py:30]                          published, with its source
    model.dim: {is: 128, theirs: 256, from: script a.py:30, why: ...}  published, and ours differs

A source begins with a key of the file's section `sources`. `theirs` and `from` may be left out.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from lra.common.errors import UnknownName, UserError
from lra.common.strict_yaml import LARGEST, parse_yaml, plain
from lra.common.untrusted import read_text
from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS, Change

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
ALL = "all"
OTHER = "other"
BASE = "base"
PROTOCOL = ", protocol "
"""What stands between a block's preset and its protocol."""
STARTS = "starts"
"""A further section of a mixer's file: the distributions of released initial parameters, by
patterns of the parameters' names."""
FileKind = Literal["tasks", "mixers"]
Family = Literal[
    "attention", "linear attention", "state space", "long convolution", "gated recurrence",
    "delta rule or matrix state", "local or none",
]  # fmt: skip
"""What kind of mixer a mixer is, by which charts colour it; "none": nothing learned is mixed."""


@dataclass(frozen=True, kw_only=True)
class Entry(Change):
    """What a settings file says of one setting, for one task or for `ALL`.

    The section may also be `STARTS`. The origin names the file, the block of a preset of the
    mixer's own, and where the value is published.
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
    sources: Mapping[str, str]
    """Repository and commit, or paper, by the word that sources of settings begin with."""
    rows: Mapping[str, Any]
    """Rows of results/published.csv that runs with these settings repeat; see `PublishedRun`."""
    family: Family | None = None
    """The family of a mixer; None for a task, and for a user's own mixer."""
    protocols: Set[str] = frozenset()
    """The protocols of a task."""

    def block(self, preset: str | None, protocol: str | None) -> list[Entry]:
        """Return what holds under a preset and a protocol, but not in general."""
        return [one for one in self.entries if (one.preset, one.protocol) == (preset, protocol)]

    @property
    def presets(self) -> Set[str]:
        """The presets of published settings that the file has blocks of."""
        return {entry.preset for entry in self.entries if entry.preset}


@dataclass(frozen=True)
class Preset:
    """The file of a preset."""

    name: str
    entries: Mapping[tuple[str, str], Sequence[Entry]]
    """What the file says, by kind and name of the owner of the settings."""
    code: str | None = None
    """Start of the SHA-256 of a user's own file; None for a preset of the suite."""

    def lists(self, task: str) -> bool:
        """Whether the preset is for a task."""
        return ("tasks", task) in self.entries


_Reader = Callable[[Any, Entry], Iterator[Entry]]


def _mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; an empty section counts as one."""
    if not isinstance(body or {}, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in (body or {}).items()}


def _read_tasks(body: Any, place: Entry, read: _Reader) -> Iterator[Entry]:
    """Read what a mixer has for tasks, each setting once for each."""
    seen: set[tuple[object, ...]] = set()
    for names, inner in _mapping(body, place.origin).items():
        for task in names.split():
            for entry in read(inner, replace(place, task=task)):
                key = (task, entry.name, entry.preset, entry.protocol)
                if key in seen:
                    raise UserError(f"{place.origin}: {task}: {entry.name} is there twice")
                seen.add(key)
                yield entry


def _read_blocks(body: Any, place: Entry) -> Iterator[Entry]:
    for name, block in _mapping(body, place.origin).items():
        first, _, protocol = name.partition(PROTOCOL)
        preset = None if first == BASE else first
        origin = f"{place.origin} ({name})" if preset not in (None, PAPER) else place.origin
        inner = replace(place, origin=origin, preset=preset, protocol=protocol or None)
        yield from _read_settings(block, inner)


def _read_settings(body: Any, place: Entry) -> Iterator[Entry]:
    for name, value in _mapping(body, place.origin).items():
        section, _, key = name.partition(".")
        if section not in (*SECTIONS, STARTS) or not key:
            known = f"{', '.join(SECTIONS)} or {STARTS}"
            raise UserError(
                f"{place.origin}: {name}: expected section.key, such as train.lr, with a section "
                f"{known}"
            )
        yield _read_value(value, replace(place, section=section, key=key))


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
def _parse(text: str, shown: str, kind: FileKind) -> SettingsFile:
    """Parse the text of a settings file; cached, as plans and reports read the same files often."""
    body = _mapping(parse_yaml(text, shown), shown)
    rows, sources = (_mapping(body.pop(k, None), f"{shown}: {k}") for k in ("rows", "sources"))
    family = body.pop("family", None)
    if family is not None and family not in get_args(Family):
        raise UnknownName("family", str(family), get_args(Family), shown)
    place = Entry("", "", None, shown)
    found = _read_blocks(body, place) if kind == "tasks" else _read_tasks(body, place, _read_blocks)
    entries = [_cite(entry, sources) for entry in found]
    protocols = {name.partition(PROTOCOL)[2] for name in body} - {""} or {DEFAULT_PROTOCOL}
    return SettingsFile(shown, entries, sources, rows, family, protocols)


@functools.lru_cache(maxsize=64)
def parse_preset(text: str, shown: str, name: str, is_own: bool = False) -> Preset:
    """Parse the file of a preset."""
    found: dict[tuple[str, str], Sequence[Entry]] = {}
    for kind, owners in _mapping(parse_yaml(text, shown), shown).items():
        if kind not in get_args(FileKind):
            raise UnknownName("section", kind, get_args(FileKind), shown)
        for owner, body in _mapping(owners, f"{shown}: {kind}").items():
            place = Entry("", "", None, f"{shown} ({owner})", preset=name)
            of_task = kind == "tasks"
            found[kind, owner] = list(
                _read_settings(body, place) if of_task else _read_tasks(body, place, _read_settings)
            )
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Preset(name, found, digest if is_own else None)


def _read(path: Path) -> str:
    return read_text(path, largest=LARGEST) if path.exists() else ""


def read_file(kind: FileKind, name: str, configs: Path = CONFIGS) -> SettingsFile:
    """Read the file of a task or a mixer; a task without one has that of all such tasks.

    A missing file is empty. Every part is checked, used or not.

    Raises: UserError for an unknown section or key, or a value of the wrong form.
    """
    place = f"{kind}/{name}.yaml"
    if kind == "tasks" and not (configs / place).is_file():
        place = "own_task.yaml"
    return _parse(_read(configs / place), f"configs/{place}", kind)


def list_files(kind: FileKind, configs: Path = CONFIGS) -> dict[str, SettingsFile]:
    """Read the settings files of all tasks or mixers, by name."""
    names = sorted(path.stem for path in (configs / kind).glob("*.yaml"))
    return {name: read_file(kind, name, configs) for name in names}


def read_presets(configs: Path = CONFIGS) -> dict[str, Preset]:
    """Read the presets of the suite that have a file, by name."""
    paths = sorted((configs / "presets").glob("*.yaml"))
    return {p.stem: parse_preset(_read(p), f"configs/presets/{p.name}", p.stem) for p in paths}
