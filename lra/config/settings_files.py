"""Settings files: where they are, what they may contain, and the layers that they give a run."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lra.config.request import DEFAULT_PROTOCOL, PAPER, SECTIONS
from lra.config.settings_layers import SettingsLayer
from lra.config.strict_yaml import LARGEST, parse_yaml
from lra.runtime.errors import UserError, unknown
from tasks.untrusted import read_text

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

READOUT = frozenset(("model", key) for key in ("pooling", "head", "head_expand", "head_activation"))
"""Settings of pooling and head. A preset compares all mixers with those of the task."""

STARTS = frozenset({("model", "starts"), ("model", "head_bias")})
"""Initialization and head bias of a release. Presets of our choosing leave them out."""

MIXER_KEYS = ("per_task", "published_presets", "published_under")
"""Further keys of a mixer's file, which a task's file cannot have."""

AvailableNames = Mapping[str, Mapping[str, Collection[str]]]
"""Names of presets and protocols of each task, by "preset" and "protocol"."""


def mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; nothing counts as an empty one.

    Raises: UserError naming the origin otherwise.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in body.items()}


def parse_layer(body: Any, origin: str, others: Collection[str] = ()) -> SettingsLayer:
    """Turn a parsed mapping {section: {key: value}} into a layer.

    Args:
        others: further keys that are allowed, and ignored.
    Raises: UserError for an unknown section, or a value that is not a mapping.
    """
    values: dict[tuple[str, str], Any] = {}
    for section, entries in mapping(body, origin).items():
        if section in others:
            continue
        if section not in SECTIONS:
            raise unknown("section", section, {*SECTIONS, *others}, origin)
        for key, value in mapping(entries, f"{origin}: {section}").items():
            values[section, key] = value
    return SettingsLayer(origin, values)


@dataclass(frozen=True)
class SettingsGroup:
    """Sections of a file, and further ones for single protocols and presets."""

    layer: SettingsLayer
    protocols: Mapping[str, SettingsLayer]
    presets: Mapping[str, SettingsLayer]
    citation: str | None = None
    """Where the settings were published."""
    protocol_citations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the settings of single protocols were published."""

    def layers(self, protocol: str, preset: str) -> list[list[SettingsLayer]]:
        """List the layers for a run: the general ones, its protocol's, and its preset's."""
        chosen = (self.protocols, protocol), (self.presets, preset)
        return [[self.layer], *([own[name]] if name in own else [] for own, name in chosen)]


def _parse_group(body: Any, origin: str, others: Collection[str]) -> SettingsGroup:
    """Read a group. `others` are further keys that it may have: "source" if it cites a paper."""
    body = mapping(body, origin)
    cited = {"source"} & {*others}
    citations: dict[str, str] = {}

    def nested(kind: str, others: Collection[str]) -> dict[str, SettingsLayer]:
        found: dict[str, SettingsLayer] = {}
        for name, inner in mapping(body.get(kind), f"{origin}: {kind}").items():
            found[name] = parse_layer(inner, f"{origin} ({kind}.{name})", others)
            if others and "source" in inner:
                citations[name] = _require_text(
                    inner["source"], f"{origin} ({kind}.{name}): source"
                )
        return found

    layer = parse_layer(body, origin, {"protocols", "presets", *others})
    citation = body.get("source")
    return SettingsGroup(
        layer,
        nested("protocols", cited),
        nested("presets", ()),
        None if citation is None else _require_text(citation, f"{origin}: source"),
        citations,
    )


def _require_text(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{origin}: got {value!r}, expected a text")
    return value


def _leave_out(
    keys: frozenset[tuple[str, str]], groups: list[list[SettingsLayer]]
) -> list[list[SettingsLayer]]:
    """Leave settings out of all layers but the last group, that of the preset."""
    *common, of_preset = groups
    return [*([layer.without(keys) for layer in group] for group in common), of_preset]


class SettingsFile:
    """The settings file of a task or a mixer: sections, and more by protocol, preset and task.

    Every part of the file is read and checked, whether a run uses it or not.

    Attributes:
        whole: settings for all tasks.
        per_task: settings of a mixer for single tasks; a key may name several, "lm, periodic".
        published_presets: sources of the presets of published settings that a mixer has besides
            `paper`.
        published_under: the protocol of the settings in a mixer's file.
    Raises: UserError for an unknown section, or a value of the wrong type.
    """

    def __init__(self, text: str, shown: str) -> None:
        self.shown = shown
        body = mapping(parse_yaml(text, shown), shown)
        self.mixer_keys = [key for key in MIXER_KEYS if key in body]
        self.whole = _parse_group(body, shown, MIXER_KEYS)
        self.published_presets = {
            name: _require_text(citation, f"{shown} (published_presets.{name})")
            for name, citation in mapping(
                body.get("published_presets"), f"{shown}: published_presets"
            ).items()
        }
        self.published_under = str(body.get("published_under", DEFAULT_PROTOCOL))
        self.per_task: dict[str, SettingsGroup] = {}
        for key, inner in mapping(body.get("per_task"), f"{shown}: per_task").items():
            for task in (name.strip() for name in key.split(",")):
                if task in self.per_task:
                    raise UserError(f"{shown} (per_task): the task {task} occurs twice")
                self.per_task[task] = _parse_group(inner, f"{shown} (per_task.{task})", {"source"})

    @property
    def names(self) -> dict[str, set[str]]:
        """The presets and protocols that a task's file names."""
        protocols = {*self.whole.protocols} or {DEFAULT_PROTOCOL}
        return {"preset": {*self.whole.presets, PAPER}, "protocol": protocols}

    def layers(self, task: str, protocol: str, preset: str) -> list[list[SettingsLayer]]:
        """List the layers for a run: the general ones, its protocol's, and its preset's.

        A preset that is not published leaves out `STARTS`, and the `READOUT` of `per_task`, unless
        the file states them for that preset.
        """
        every = self.whole.layers(protocol, preset)
        is_published = preset in (PAPER, *self.published_presets)
        if not is_published:
            every = _leave_out(STARTS, every)
        if task in self.per_task:
            own = self.per_task[task].layers(protocol, preset)
            if not is_published:
                own = _leave_out(READOUT | STARTS, own)
            every = [[*first, *second] for first, second in zip(every, own, strict=True)]
        return every

    def check(self, names: AvailableNames) -> None:
        """Check the names of tasks, presets and protocols in the file.

        Raises: UserError for a name that does not exist.
        """
        names = {
            task: {**known, "preset": {*known["preset"], *self.published_presets}}
            for task, known in names.items()
        }
        every = {
            kind: {name for known in names.values() for name in known[kind]}
            for kind in ("preset", "protocol")
        }
        if self.published_under not in every["protocol"] and "published_under" in self.mixer_keys:
            raise unknown("protocol", self.published_under, every["protocol"], self.shown)
        parts: list[tuple[SettingsGroup, Mapping[str, Collection[str]]]] = [(self.whole, every)]
        for task, part in self.per_task.items():
            if task not in names:
                raise unknown("task", task, names, f"{self.shown} (per_task)")
            parts.append((part, names[task]))
        for part, known in parts:
            for kind, given in (("preset", part.presets), ("protocol", part.protocols)):
                for name in given:
                    if name not in known[kind]:
                        raise unknown(kind, name, known[kind], part.layer.origin)

    def citation(self, task: str, protocol: str, preset: str) -> str:
        """Return the source of the settings that a mixer's file has for a task."""
        part = self.per_task.get(task)
        if part is None:
            return "the task's own, none published for this mixer"
        published = self.published_presets if preset in part.presets else {}
        under = protocol if protocol in part.protocol_citations else self.published_under
        own = part.protocol_citations.get(protocol, part.citation)
        citation = published.get(preset) or own
        if citation is None:
            return "the task's own, none published for this mixer"
        text = " ".join(citation.split()).rstrip(".")
        if under != protocol:
            text = f"{text} (published under protocol {under}; the task's of {protocol} come first)"
        if preset in (PAPER, *published):
            return text
        return f"preset {preset}, of our choosing, over {text}"


_parse = functools.lru_cache(maxsize=256)(SettingsFile)
"""A plan of many runs, or a report, reads the same few files many times."""


def read_settings_file(path: Path, shown: str) -> SettingsFile:
    """Read a settings file; a missing one is empty.

    Args:
        shown: name of the file in messages.
    Raises: UserError as `SettingsFile`.
    """
    return _parse(read_text(path, largest=LARGEST) if path.exists() else "", shown)


@functools.cache
def published_presets(configs: Path = CONFIGS) -> frozenset[str]:
    """Name the presets of published settings: `paper`, and those of single mixers."""
    files = [read_settings_file(path, path.name) for path in (configs / "mixers").glob("*.yaml")]
    return frozenset([PAPER, *(name for file in files for name in file.published_presets)])


def tasks_with_preset(tasks: Sequence[str], preset: str, configs: Path = CONFIGS) -> list[str]:
    """List the tasks whose settings file has a preset; all of them if none has it."""
    files = {
        task: read_settings_file(configs / f"tasks/{task}.yaml", f"configs/tasks/{task}.yaml")
        for task in tasks
    }
    return [task for task in tasks if preset in files[task].names["preset"]] or list(tasks)
