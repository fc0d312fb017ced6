"""Layers of settings, merged in order: later layers overwrite earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from lra.config.request import Change
from lra.config.strict_yaml import plain
from lra.runtime.errors import UserError

Key = tuple[str, str]
"""Section and name of a setting."""


class Setting(NamedTuple):
    """A value and its origin: the file, and its source where it is published; or the flag."""

    value: Any
    origin: str


Layer = Mapping[Key, Setting]
"""Settings that are merged together; a configuration is composed of several layers."""

IN_PLACE_OF = ", in place of "
"""What is between the origin of a setting and what it replaced."""

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
    """List the settings that a setting excludes: steps exclude epochs and minutes."""
    return _EXCLUSIVE.get(key, ())


@dataclass(frozen=True)
class MergedSettings:
    """The result of merging layers and changes."""

    values: Layer
    initial_values: Layer
    """The values without the changes."""
    changes: Sequence[Change]
    replaced: Mapping[Key, str]
    """Description of what a setting has replaced."""

    @property
    def origins(self) -> dict[str, str]:
        """Origin of each value, and what it replaced, by "section.key"."""
        return {
            ".".join(key): f"{origin}{IN_PLACE_OF}{self.replaced[key]}"
            if key in self.replaced
            else origin
            for key, (_, origin) in self.values.items()
        }


@contextmanager
def add_origins(origins: Mapping[str, str]) -> Iterator[None]:
    """Add the origins of the settings that a UserError names.

    Args:
        origins: see `MergedSettings.origins`.
    """
    try:
        yield
    except UserError as error:
        found = [
            f"{name} is from {origin.partition(IN_PLACE_OF)[0]}"
            for name, origin in origins.items()
            if re.search(_name_pattern(*name.split(".", 1)), str(error))
        ]
        raise UserError("; ".join([str(error), *found])) from None


def merge_layers(layers: Iterable[Layer], changes: Iterable[Change] = ()) -> MergedSettings:
    """Merge layers, of which later ones overwrite earlier ones, and then the changes.

    Raises: UserError for a layer, or for changes, with two settings that exclude each other.
    """
    values: dict[Key, Setting] = {}
    replaced: dict[Key, str] = {}
    for layer in layers:
        for key, setting in layer.items():
            for other in list_exclusive_settings(key) if setting.value is not None else ():
                if other in layer and layer[other].value is not None:
                    raise UserError(
                        f"{setting.origin}: set {'.'.join(key)} or {'.'.join(other)}, not both"
                    )
            _set_value(key, setting, values, replaced, [])
    initial_values = dict(values)
    changes = [*changes]
    _refuse_contradictions(changes)
    for change in changes:
        key = change.section, change.key
        old = values.get(key)
        gone = [_describe_setting(old)] if old and old.value != change.value else []
        _set_value(key, Setting(change.value, change.origin), values, replaced, gone)
    kept = {key: text for key, text in replaced.items() if key in values}
    return MergedSettings(values, initial_values, changes, kept)


def _refuse_contradictions(changes: Iterable[Change]) -> None:
    """Refuse two changes that exclude each other, because flags have no order."""
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
    setting: Setting,
    values: dict[Key, Setting],
    replaced: dict[Key, str],
    gone: list[str],
) -> None:
    """Set a value and its origin, remove settings that it excludes, and note what it replaced."""
    for other in list_exclusive_settings(key) if setting.value is not None else ():
        old = values.pop(other, None)
        if old is not None and old.value is not None:
            gone.append(f"{'.'.join(other)} {_describe_setting(old)}")
    values[key] = setting
    replaced.pop(key, None)
    if gone:
        replaced[key] = ", ".join(gone)


def _name_pattern(section: str, key: str) -> str:
    """Return a pattern of a setting's name; mixers and tasks name options without a section."""
    prefix = rf"({section}\.)?" if section in ("mixer", "task") else rf"{section}\."
    return rf"(?<![\w.]){prefix}{re.escape(key)}(?![\w.])"


def _describe_setting(setting: Setting) -> str:
    return f"{plain(setting.value)} of {setting.origin}"
