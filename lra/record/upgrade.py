"""Records of schema 1, whose changed settings were texts, as records of schema 2."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.strict_yaml import LARGEST, parse_yaml
from lra.config.request import parse_alternatives, parse_changes
from lra.record.packed import read_file


def upgrade_record(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Turn the values of a record of schema 1, of any kind, into those of schema 2.

    The settings of a run are read from the config.yaml beside its record, their origins are not.

    Raises: DataError, UserError or OSError if the settings cannot be read.
    """
    values = {**values, "schema_version": 2}
    if "trained_length" in values:  # an evaluation
        values["changes"] = _parse_changes(values["changes"])
    elif "mode" in values:  # a benchmark
        values["changes"] = _parse_changes(values.pop("overrides", ()))
        varied = [parse_alternatives(text, "varied") for text in values.get("varied", ())]
        values["varied"] = {
            first.name: [first.value, *(one.value for one in others)] for first, *others in varied
        }
    else:
        changes = _parse_changes(values.pop("overrides", ()))
        settings = _read_settings(path.with_name("config.yaml")) | changes
        values |= {"settings": settings, "origins": {}, "changed": [*changes]}
    return values


def _parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    return {change.name: change.value for change in parse_changes(texts, "overrides")}


def _read_settings(path: Path) -> dict[str, Any]:
    sections = parse_yaml(read_file(path, largest=LARGEST).decode(errors="replace"), str(path))
    if not isinstance(sections, dict) or not all(
        isinstance(entries, dict | None) for entries in sections.values()
    ):
        raise DataError(f"{path.name} has no settings of a run")
    return {
        f"{section}.{key}": value
        for section, entries in sections.items()
        for key, value in (entries or {}).items()
    }
