"""Values against their types and limits, and a line for each that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from lra.config.merge import Values
from lra.config.names import meant_by
from lra.config.registry import Section
from lra.runtime.errors import UserError, unknown


def refuse_unknown(
    values: Values, sections: Mapping[str, type[Section]], owners: Mapping[str, str]
) -> None:
    """Refuse settings that do not exist.

    Args:
        sections: the class of each section's settings.
        owners: what the settings of a section belong to, as messages call it; else the section.
    Raises: UserError naming the setting, where it came from, and what may have been meant.
    """
    known = {name: list(cls.model_fields) for name, cls in sections.items()}
    for (section, key), (_, origin) in values.items():
        if section in known and key not in known[section]:
            owner = owners.get(section, section)
            meant = meant_by(section, key, known)
            raise unknown(f"option of {owner}", key, known[section], origin, meant)


def validate(section: str, owner: str, cls: type[Section], merged: Values) -> Any:
    """Check the values of a section, and return them as its class.

    Args:
        owner: what the options belong to, as messages call it.
    Raises: UserError naming the value, its origin, and the valid ones.
    """
    values = {key: value for (name, key), (value, _) in merged.items() if name == section}
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            with origins_added(merged):
                raise UserError(str(first.get("ctx", {}).get("error", first["msg"]))) from None
        key = str(first["loc"][0])
        _, origin = merged.get((section, key), (None, "settings"))
        if first["type"] == "missing":
            raise UserError(
                f"{section}.{key}: an option of {owner} without a default; use "
                f"--set {section}.{key}=VALUE"
            ) from None
        raise _wrong_value(f"{section}.{key}", first, origin) from None


@contextmanager
def origins_added(merged: Values) -> Iterator[None]:
    """Add to a UserError where the settings that it names came from."""
    try:
        yield
    except UserError as error:
        origins = [
            f"{section}.{key} is from {origin}"
            for (section, key), (_, origin) in merged.items()
            if re.search(_mention(section, key), str(error))
        ]
        raise UserError("; ".join([str(error), *origins])) from None


def _mention(section: str, key: str) -> str:
    """Return a pattern of a setting's name; mixers and tasks name their options alone."""
    before = rf"({section}\.)?" if section in ("mixer", "task") else rf"{section}\."
    return rf"(?<![\w.]){before}{re.escape(key)}(?![\w.])"


def _wrong_value(name: str, error: Any, origin: str) -> UserError:
    """Describe a value of the wrong type or outside its limits."""
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return unknown(f"value of {name}", str(error["input"]), choices, origin)
    expected = error["msg"][0].lower() + error["msg"][1:]
    return UserError(f"{origin}: {name}: got {error['input']!r}; {expected}")
