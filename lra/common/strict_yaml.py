"""YAML by strict rules: 1e-3 is a number, only true and false are booleans, keys occur once."""

import json
import re
from functools import lru_cache
from typing import Any

import yaml

from lra.common.errors import UserError

LARGEST, DEEPEST = 2**20, 20
"""Most characters and most levels of nesting of settings."""


class _Loader(yaml.CSafeLoader):
    """The fast parser in C, with rules of our own for what a plain word means."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_DIGITS = [*"-+0123456789"]
for _tag, _pattern, _first in (
    ("bool", r"true|false", [*"tf"]),
    ("null", r"null|~|", [*"n~", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", _DIGITS),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", [*_DIGITS, "."]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: the key {key!r} occurs twice")
        seen.add(key)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML by the strict rules.

    Raises: UserError naming the origin, for text that is not valid YAML.
    """
    if len(text) > LARGEST:
        raise UserError(f"{origin}: got {len(text):,} characters, expected at most {LARGEST:,}")
    try:
        depth = 0
        for event in yaml.parse(text, _Loader):
            if isinstance(event, yaml.AliasEvent):  # it can grow to any size
                raise yaml.YAMLError("references (*) are not allowed in settings")
            is_start = isinstance(event, yaml.CollectionStartEvent)
            depth += is_start - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise yaml.YAMLError(f"nested more than {DEEPEST} levels deep")
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{origin}: not valid YAML: {said}") from None


def plain(value: Any) -> str:
    """Write a value on one line, so that `parse_yaml` reads it back."""
    is_cached = isinstance(value, (str, int)) or (isinstance(value, float) and bool(value))
    return _plain_once(value) if is_cached else _plain(value)


def _plain(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    text = text.removesuffix("\n").removesuffix("\n...")
    return text if text.isprintable() and parse_yaml(text, "") == value else json.dumps(value)


_plain_once = lru_cache(maxsize=4096, typed=True)(_plain)
"""Writes a value once, because a report writes the same few settings thousands of times."""
