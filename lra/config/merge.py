"""Layers of settings, put over one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lra.config.strict_yaml import plain
from lra.config.yaml_layers import Layer
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


def exclusive_with(key: Key) -> Iterable[Key]:
    """List the settings that a setting replaces, as it stands for them."""
    return _EXCLUSIVE.get(key, ())


@dataclass(frozen=True)
class Merged:
    """What several layers come to."""

    values: Values
    replaced: Mapping[Key, str]
    """What a setting took the place of, where that is no longer to be seen: in words."""


def merge(layers: Iterable[Layer]) -> Merged:
    """Put layers over one another, later ones on top.

    Raises: UserError for a layer that holds two settings of which each replaces the other.
    """
    values: dict[Key, tuple[Any, str]] = {}
    replaced: dict[Key, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            gone: list[str] = []
            if layer.is_flag and values.get(key, (value, ""))[0] != value:
                gone.append(_in_words(values[key]))
            for other in exclusive_with(key) if value is not None else ():
                if layer.values.get(other) is not None:
                    raise UserError(
                        f"{layer.origin}: set {'.'.join(key)} or {'.'.join(other)}, not both"
                    )
                old = values.pop(other, None)
                if old is not None and old[0] is not None:
                    gone.append(f"{'.'.join(other)} {_in_words(old)}")
            values[key] = (value, layer.origin)
            replaced.pop(key, None)
            if gone:
                replaced[key] = ", ".join(gone)
    return Merged(values, {key: text for key, text in replaced.items() if key in values})


def _in_words(setting: tuple[Any, str]) -> str:
    value, origin = setting
    return f"{plain(value)} of {origin}"
