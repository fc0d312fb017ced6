"""Settings by their full names, such as "train.lr"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from common.strict_yaml import plain
from lra.record.schema import PrintableText, refuse_control_characters

SettingName = Annotated[str, Field(max_length=200, pattern=r"^[a-z]+\.[A-Za-z_]\w*$")]
Settings = Annotated[
    dict[SettingName, Any], Field(max_length=1000), AfterValidator(refuse_control_characters)
]
Origins = Annotated[dict[SettingName, PrintableText], Field(max_length=1000)]
"""Where each value that is not a default comes from: a file, or a flag."""


def select_sections(changes: Mapping[str, Any], *sections: str) -> dict[str, Any]:
    """Select the settings of some sections: "task", "mixer", "model", "train"."""
    return {name: value for name, value in changes.items() if section_of(name) in sections}


def section_of(name: str) -> str:
    """Return the section of a setting: "train" for "train.lr"."""
    return name.partition(".")[0]


def write_changes(changes: Mapping[str, Any]) -> tuple[str, ...]:
    """Write settings as `--set` takes them: "train.lr=0.001"."""
    return tuple(f"{name}={plain(value)}" for name, value in changes.items())
