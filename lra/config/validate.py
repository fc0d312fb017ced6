"""Checks of values against their types and limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from lra.config.component import Component
from lra.config.registry import Section
from lra.config.settings_layers import MergedSettings, add_origins
from lra.runtime.errors import UserError, unknown


def validate_sections(
    merged: MergedSettings, types: Mapping[str, type[Section]], components: Mapping[str, Component]
) -> dict[str, Any]:
    """Check all values and return the sections by name.

    Args:
        types: the class of each section's settings.
        components: the mixer and the task whose options the sections are.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    owners = {name: component.name for name, component in components.items()}
    found = {
        name: _validate(name, owners.get(name, name), cls, merged) for name, cls in types.items()
    }
    for section, component in components.items():
        _refuse_unrecordable(section, found[section], component)
    return found


def _validate(section: str, owner: str, cls: type[Section], merged: MergedSettings) -> Any:
    """Check the values of a section, and return them as its class.

    Args:
        owner: name of the mixer, the task or the section, for messages.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    values = {key: value for (name, key), (value, _) in merged.values.items() if name == section}
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            with add_origins(merged.origins):
                raise UserError(str(first.get("ctx", {}).get("error", first["msg"]))) from None
        key = str(first["loc"][0])
        _, origin = merged.values.get((section, key), (None, "settings"))
        if first["type"] == "missing":
            raise UserError(
                f"{section}.{key}: this option of {owner} has no default; use "
                f"--set {section}.{key}=VALUE"
            ) from None
        raise _wrong_value(f"{section}.{key}", first, origin) from None


def _refuse_unrecordable(section: str, options: Section, component: Component) -> None:
    """Refuse options of a mixer or task whose values cannot be written as JSON."""
    for name, value in options.model_dump().items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise UserError(
                f"{component.origin}: {section}.{name} is a {type(value).__name__}, which a record "
                f"cannot hold; use a number, text, boolean or list"
            ) from None


def _wrong_value(name: str, error: Any, origin: str) -> UserError:
    """Describe a value of the wrong type or outside its limits."""
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return unknown(f"value of {name}", str(error["input"]), choices, origin)
    expected = error["msg"][0].lower() + error["msg"][1:]
    return UserError(f"{origin}: {name}: got {error['input']!r}; {expected}")
