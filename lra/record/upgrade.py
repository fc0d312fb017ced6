"""Records of schema 1, whose changed settings were texts, as records of schema 2."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.strict_yaml import LARGEST, parse_yaml, plain
from lra.config.request import parse_alternatives, parse_change
from lra.record.packed import read_file


def upgrade_record(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Turn the values of a record of schema 1, of any kind, into those of schema 2.

    The settings of a run are read from the config.yaml beside its record.

    Args:
        path: the record's file.
    Raises: DataError, UserError or OSError if the settings cannot be read, or are not the run's.
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
        values |= _read_settings(path.with_name("config.yaml"), values.pop("overrides"))
    return values


def _parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    changes = (parse_change(text, "overrides") for text in texts)
    return {change.name: change.value for change in changes}


def _read_settings(path: Path, overrides: Iterable[str]) -> dict[str, Any]:
    """Read the settings of a run, their origins, and the names of the changed ones."""
    text = read_file(path, largest=LARGEST).decode(errors="replace")
    body = parse_yaml(text, str(path))
    sections = body if isinstance(body, dict) else {"": body}
    if not all(isinstance(part, dict) or part is None for part in sections.values()):
        raise DataError(f"{path.name} has no settings of a run")
    settings = {
        f"{section}.{key}": value
        for section, part in sections.items()
        for key, value in (part or {}).items()
    }
    changes = _parse_changes(overrides)
    for name, value in changes.items():
        if settings.get(name) != value:
            raise DataError(
                f"{path.name} has {name}={plain(settings.get(name))}, and the run had "
                f"{name}={plain(value)}; was it edited? Undo that"
            )
    return {"settings": settings, "origins": _read_origins(text), "changed": [*changes]}


def _read_origins(text: str) -> dict[str, str]:
    """Read the comments behind settings, "  lr: 0.001    # FILE", other than "default"."""
    origins: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if not line.startswith((" ", "#")):
            section = line.removesuffix(":")
        elif line.startswith("  "):
            setting, _, origin = line.partition(" # ")
            if origin and origin != "default":
                origins[f"{section}.{setting.partition(':')[0].strip()}"] = origin
    return origins
