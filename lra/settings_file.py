"""Reading YAML settings: strict about types, keys and where each value came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lra.errors import UserError, unknown

SECTIONS = ("task", "mixer", "model", "train", "log")


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, only true and false are booleans, keys occur once."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_DIGITS = [*"-+0123456789"]
for _tag, _pattern, _first in (
    ("bool", r"true|false", [*"tf"]),
    ("null", r"null|~|", [*"n~", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", _DIGITS),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?", [*_DIGITS, "."]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: the key {key!r} occurs twice")
        seen.add(key)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML by the strict rules.

    Raises: UserError naming the source for anything that is not YAML.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class Layer:
    """Settings of one origin, one of those that a configuration is laid up from."""

    origin: str
    """The file and the section in it, or the flag."""
    values: Mapping[tuple[str, str], Any]
    """By (section, key)."""


def layer_of(body: Any, origin: str, more: frozenset[str] = frozenset()) -> Layer:
    """Turn a parsed mapping {section: {key: value}} into a layer.

    Args:
        more: keys that may stand beside the sections.
    Raises: UserError for an unknown section or a value that is no mapping.
    """
    values: dict[tuple[str, str], Any] = {}
    for section, entries in _entries(body, origin):
        if section in more or section == "source":
            continue
        if section not in SECTIONS:
            raise unknown("section", section, {*SECTIONS, "source", *more}, origin)
        for key, value in _entries(entries, f"{origin}: {section}"):
            values[section, key] = value
    return Layer(origin, values)


def _entries(body: Any, origin: str) -> Iterator[tuple[str, Any]]:
    if body is None:
        return
    if not isinstance(body, dict):
        raise UserError(f"{origin}: got {body!r}, expected keys with values")
    for key, value in body.items():
        yield str(key), value


NESTED = frozenset({"protocols", "presets", "per_task"})


class SettingsFile:
    """A task's or mixer's YAML: sections, and the same again per protocol, preset and task."""

    def __init__(self, path: Path, shown: str) -> None:
        self.shown = shown
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self.body: dict[str, Any] = dict(_entries(parse_yaml(text, shown), shown))

    def names(self, nested: str) -> set[str]:
        """List what a nested section, "presets" for instance, defines."""
        return {key for key, _ in _entries(self.body.get(nested), f"{self.shown}: {nested}")}

    def layers(self, task: str, protocol: str, preset: str) -> tuple[list[Layer], ...]:
        """List this file's layers: base ones, those of the protocol, those of the preset."""
        bodies = [(self.body, self.shown)]
        per_task = self.body.get("per_task") or {}
        if task in per_task:
            bodies.append((per_task[task], f"{self.shown} (per_task.{task})"))
        base = [layer_of(body, origin, NESTED) for body, origin in bodies]
        return base, *(
            [
                layer_of(body[nested][name], f"{origin} ({nested}.{name})")
                for body, origin in bodies
                if name in (body.get(nested) or {})
            ]
            for nested, name in (("protocols", protocol), ("presets", preset))
        )

    def source(self, task: str) -> str | None:
        """Return the citation of the settings that the file holds for a task."""
        return ((self.body.get("per_task") or {}).get(task) or {}).get("source")
