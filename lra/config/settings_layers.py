"""Layers of settings, merged in order: later layers overwrite earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lra.config.request import Change
from lra.config.strict_yaml import plain
from lra.runtime.errors import UserError

Key = tuple[str, str]
"""Section and name of a setting."""

Values = Mapping[Key, tuple[Any, str]]
"""(value, origin) by (section, key)."""

_LENGTH = ("steps", "epochs", "minutes")
_EXCLUSIVE = {
    ("train", key): [("train", other) for other in group if other != key]
    for group in (_LENGTH, ("warmup_steps", "warmup_share"))
    for key in group
}
_EXCLUSIVE |= {
    ("pretrain", key): [("pretrain", other) for other in _LENGTH if other != key] for key in _LENGTH
}
_EXCLUSIVE["train", "minutes"].append(("train", "schedule_steps"))  # steps are not known then


def list_exclusive_settings(key: Key) -> Iterable[Key]:
    """List the settings that a setting replaces, as it stands for them."""
    return _EXCLUSIVE.get(key, ())


@dataclass(frozen=True)
class SettingsLayer:
    """Settings from one origin; a configuration is composed of several layers."""

    origin: str
    """The file and the section in it."""
    values: Mapping[Key, Any]

    def without(self, keys: frozenset[Key]) -> SettingsLayer:
        """Return the layer without some settings."""
        kept = {key: value for key, value in self.values.items() if key not in keys}
        return SettingsLayer(self.origin, kept)


@dataclass(frozen=True)
class MergedSettings:
    """What several layers, and changes over them, come to."""

    values: Values
    initial_values: Values
    """The values without the changes."""
    changes: Sequence[Change]
    replaced: Mapping[Key, str]
    """What a setting took the place of, where that is no longer to be seen: in words."""

    @property
    def origins(self) -> dict[str, str]:
        """Where each value came from, and what it replaced, by "section.key"."""
        return {
            ".".join(key): f"{origin}, in place of {self.replaced[key]}"
            if key in self.replaced
            else origin
            for key, (_, origin) in self.values.items()
        }

    @contextmanager
    def add_origins(self) -> Iterator[None]:
        """Add to a UserError where the settings that it names came from."""
        try:
            yield
        except UserError as error:
            origins = [
                f"{section}.{key} is from {origin}"
                for (section, key), (_, origin) in self.values.items()
                if re.search(_name_pattern(section, key), str(error))
            ]
            raise UserError("; ".join([str(error), *origins])) from None


def merge_layers(layers: Iterable[SettingsLayer], changes: Iterable[Change] = ()) -> MergedSettings:
    """Put layers over one another, later ones on top, and changes over them all.

    Raises: UserError for a layer, or for changes, with two settings of which each replaces the
        other.
    """
    values: dict[Key, tuple[Any, str]] = {}
    replaced: dict[Key, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            for other in list_exclusive_settings(key) if value is not None else ():
                if layer.values.get(other) is not None:
                    raise UserError(
                        f"{layer.origin}: set {'.'.join(key)} or {'.'.join(other)}, not both"
                    )
            _set_value(key, (value, layer.origin), values, replaced, [])
    initial_values = dict(values)
    changes = [*changes]
    _refuse_contradictions(changes)
    for change in changes:
        key = change.section, change.key
        gone = [
            _describe_setting(old) for old in (values.get(key),) if old and old[0] != change.value
        ]
        _set_value(key, (change.value, change.origin), values, replaced, gone)
    kept = {key: text for key, text in replaced.items() if key in values}
    return MergedSettings(values, initial_values, changes, kept)


def _refuse_contradictions(changes: Iterable[Change]) -> None:
    """Refuse two changes that replace each other: no flag comes before another one."""
    given = {(change.section, change.key): change for change in changes}
    for key, change in given.items():
        for other in list_exclusive_settings(key) if change.value is not None else ():
            if other in given and given[other].value is not None:
                raise UserError(
                    f"{change.origin} and {given[other].origin}: set {'.'.join(key)} or "
                    f"{'.'.join(other)}, not both"
                )


def _set_value(
    key: Key,
    setting: tuple[Any, str],
    values: dict[Key, tuple[Any, str]],
    replaced: dict[Key, str],
    gone: list[str],
) -> None:
    """Set a value and its origin, remove those that it stands for, and note what is gone."""
    for other in list_exclusive_settings(key) if setting[0] is not None else ():
        old = values.pop(other, None)
        if old is not None and old[0] is not None:
            gone.append(f"{'.'.join(other)} {_describe_setting(old)}")
    values[key] = setting
    replaced.pop(key, None)
    if gone:
        replaced[key] = ", ".join(gone)


def _name_pattern(section: str, key: str) -> str:
    """Return a pattern of a setting's name; mixers and tasks name their options alone."""
    prefix = rf"({section}\.)?" if section in ("mixer", "task") else rf"{section}\."
    return rf"(?<![\w.]){prefix}{re.escape(key)}(?![\w.])"


def _describe_setting(setting: tuple[Any, str]) -> str:
    value, origin = setting
    return f"{plain(value)} of {origin}"
