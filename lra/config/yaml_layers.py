"""Settings files as layers, each with the origin of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lra.config.strict_yaml import LARGEST, parse_yaml
from lra.runtime.errors import UserError, unknown
from tasks.untrusted import read_text

SECTIONS = ("task", "mixer", "model", "train", "pretrain", "log")

READOUT = frozenset(("model", key) for key in ("pooling", "head", "head_expand", "head_activation"))
"""How positions become classes: a preset compares all mixers with the task's own."""

STARTS = frozenset({("model", "starts"), ("model", "head_bias")})
"""What a release starts by, and which map it gives no bias: of no preset of our choosing."""

PAPER = "paper"
"""The preset of the published settings."""

DEFAULT_PROTOCOL = "s4"

BESIDE = frozenset(
    {"per_task", "presets", "protocols", "published_presets", "published_under", "source"}
)
"""Keys of a file that stand beside the sections."""


def alternatives(text: str, flag: str) -> list[str]:
    """Turn "section.key=a,b" into the overrides it stands for.

    A list in brackets and a mapping in braces stay whole.

    Raises: UserError naming the flag that it was given by.
    """
    key, equals, values = text.partition("=")
    if not (equals and values.strip()):
        raise UserError(f"{flag} {text}: expected section.key=value,value, train.lr=1e-3,2e-3 say")
    parts: list[str] = []
    depth = 0
    for piece in values.split(","):
        if depth:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
        depth += sum(piece.count(mark) for mark in "[{") - sum(piece.count(m) for m in "]}")
    if any(not part.strip() for part in parts):
        raise UserError(f"{flag} {text}: an empty value; write null for none")
    return [f"{key.strip()}={part.strip()}" for part in parts]


@dataclass(frozen=True)
class Layer:
    """Settings from one origin; a configuration is composed of several layers."""

    origin: str
    """The file and the section in it, or the flag."""
    values: Mapping[tuple[str, str], Any]
    """Values by (section, key)."""
    is_flag: bool = False
    """Whether it comes from the command line."""

    def without(self, keys: frozenset[tuple[str, str]]) -> Layer:
        """Return the layer without some settings."""
        kept = {key: value for key, value in self.values.items() if key not in keys}
        return Layer(self.origin, kept)


@dataclass(frozen=True)
class FileLayers:
    """The layers of one file, in three groups, each of the whole file's and of the task's."""

    base: list[Layer]
    protocol: list[Layer]
    preset: list[Layer]


def layer_of(body: Any, origin: str, beside: frozenset[str] = frozenset()) -> Layer:
    """Turn a parsed mapping {section: {key: value}} into a layer.

    Args:
        beside: keys that may stand beside the sections, and are left alone.
    Raises: UserError for an unknown section or a value that is no mapping.
    """
    values: dict[tuple[str, str], Any] = {}
    for section, entries in mapping(body, origin).items():
        if section in beside:
            continue
        if section not in SECTIONS:
            raise unknown("section", section, {*SECTIONS, *beside}, origin)
        for key, value in mapping(entries, f"{origin}: {section}").items():
            values[section, key] = value
    return Layer(origin, values)


def mapping(body: Any, origin: str) -> dict[str, Any]:
    """Check that a parsed value is a mapping; nothing counts as an empty one.

    Raises: UserError naming the origin otherwise.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    return {str(key): value for key, value in body.items()}


def _without(keys: frozenset[tuple[str, str]], groups: Sequence[list[Layer]]) -> list[list[Layer]]:
    """Leave settings out of the layers of file and protocol, those of the preset being last."""
    *common, of_preset = groups
    return [*([layer.without(keys) for layer in group] for group in common), of_preset]


class SettingsFile:
    """A task's or mixer's YAML: sections, and the same again per protocol, preset and task.

    A mixer's names the protocol that its settings were `published_under`, and where each task's
    are from, `source`.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self.shown = shown
        text = read_text(path, largest=LARGEST) if path.exists() else ""
        self.body = mapping(parse_yaml(text, shown), shown)

    def nested(self, name: str) -> dict[str, Any]:
        """Return a nested section by its keys, "presets" for instance."""
        return mapping(self.body.get(name), f"{self.shown}: {name}")

    def per_task(self) -> dict[str, Any]:
        """Return what a mixer's file holds for each task; a key may name several, "lm, periodic".

        Raises: UserError for a task that is named twice.
        """
        found: dict[str, Any] = {}
        for key, body in self.nested("per_task").items():
            for task in (name.strip() for name in key.split(",")):
                if task in found:
                    raise UserError(f"{self.shown} (per_task): {task} is named twice")
                found[task] = body
        return found

    def layers(self, task: str, protocol: str, preset: str) -> FileLayers:
        """List this file's layers.

        With a preset that is not published `STARTS` is left out, and what `per_task` states of the
        readout, unless they are for that preset.
        """
        every = self._layers(self.body, self.shown, protocol, preset)
        is_published = preset in (PAPER, *self.published_presets())
        if not is_published:
            every = _without(STARTS, every)
        if task in (per_task := self.per_task()):
            origin = f"{self.shown} (per_task.{task})"
            own = self._layers(mapping(per_task[task], origin), origin, protocol, preset)
            if not is_published:
                own = _without(READOUT | STARTS, own)
            every = [[*first, *second] for first, second in zip(every, own, strict=True)]
        return FileLayers(*every)

    @staticmethod
    def _layers(body: dict[str, Any], origin: str, protocol: str, preset: str) -> list[list[Layer]]:
        groups = [[layer_of(body, origin, BESIDE)]]
        for section, name in (("protocols", protocol), ("presets", preset)):
            inner = mapping(body.get(section), f"{origin}: {section}")
            place = f"{origin} ({section}.{name})"
            groups.append([layer_of(inner[name], place, BESIDE)] if name in inner else [])
        return groups

    def published_presets(self) -> dict[str, str]:
        """Return where presets of published settings are from, which this mixer has beside `paper`.

        Raises: UserError for anything but names with texts.
        """
        found = self.nested("published_presets")
        for name, source in found.items():
            if not isinstance(source, str):
                origin = f"{self.shown} (published_presets.{name})"
                raise UserError(f"{origin}: got {source!r}, expected a text")
        return found

    @property
    def published_under(self) -> str:
        """The protocol that the settings of a mixer's file are of."""
        return str(self.body.get("published_under", DEFAULT_PROTOCOL))

    def check(self, names: Mapping[str, Mapping[str, Iterable[str]]]) -> None:
        """Check every part of the file, those included that this run has no use for.

        Args:
            names: the presets and protocols of each task, by "presets" and "protocols".
        Raises: UserError for an unknown section, or a name that does not exist.
        """
        kinds = ("presets", "protocols")
        own = self.published_presets()
        names = {
            task: {**of_task, "presets": {*of_task["presets"], *own}}
            for task, of_task in names.items()
        }
        every = {kind: {n for of_task in names.values() for n in of_task[kind]} for kind in kinds}
        self._check_part(
            self.body, self.shown, every, {"per_task", "published_presets", "published_under"}
        )
        if "published_under" in self.body and self.published_under not in every["protocols"]:
            raise unknown("protocol", self.published_under, every["protocols"], self.shown)
        for task, body in self.per_task().items():
            origin = f"{self.shown} (per_task.{task})"
            if task not in names:
                raise unknown("task", task, names, f"{self.shown} (per_task)")
            self._check_part(mapping(body, origin), origin, names[task], {"source"})

    @staticmethod
    def _check_part(
        body: dict[str, Any], origin: str, valid: Mapping[str, Iterable[str]], beside: set[str]
    ) -> None:
        layer_of(body, origin, frozenset({*valid, *beside}))
        cites = frozenset({"source"} & beside)
        if not isinstance(source := body.get("source", ""), str):
            raise UserError(f"{origin}: source: got {source!r}, expected a text")
        for kind, names in valid.items():
            for name, inner in mapping(body.get(kind), f"{origin}: {kind}").items():
                if name not in names:
                    raise unknown(kind.removesuffix("s"), name, names, origin)
                may_cite = cites if kind == "protocols" else frozenset[str]()
                layer_of(inner, f"{origin} ({kind}.{name})", may_cite)

    def source(self, task: str, protocol: str, preset: str) -> str | None:
        """Say where the settings that the file holds for a task are from."""
        body = mapping(self.per_task().get(task), self.shown)
        own = mapping(mapping(body.get("protocols"), self.shown).get(protocol), self.shown)
        under = protocol if "source" in own else self.published_under
        has_preset = preset in mapping(body.get("presets"), self.shown)
        published = self.published_presets() if has_preset else {}
        source = published.get(preset) or own.get("source", body.get("source"))
        if source is None:
            return None
        text = " ".join(source.split()).rstrip(".")
        if under != protocol:
            text = f"{text} (published under protocol {under}; the task's of {protocol} come first)"
        return (
            text
            if preset in (PAPER, *published)
            else f"preset {preset}, of our choosing, over {text}"
        )
