"""What is said of a setting that is unknown, or that has a wrong value, and where it comes from."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lra.common.errors import UnknownName, UserError, explain_fault, nearest
from lra.config.components import Section
from lra.config.request import Change
from lra.config.schema import RUN_SECTIONS

SYNONYMS = {
    "learning_rate": "lr", "wd": "weight_decay", "grad_clip": "clip_norm", "num_layers": "depth",
    "n_layers": "depth", "layers": "depth", "d_model": "dim", "hidden_size": "dim", "width": "dim",
    "pretrain": "objective",
}  # fmt: skip
"""Keys of settings by the names that other libraries have for them."""


@contextmanager
def name_origins(origins: Mapping[str, str]) -> Iterator[None]:
    """Add the origins of the settings that a UserError names; see `RunConfig.origins`."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for name, origin in origins.items():
            section, _, key = name.partition(".")
            # Mixers and tasks name their options without the section.
            prefix = rf"({section}\.)?" if section in ("mixer", "task") else rf"{section}\."
            if re.search(rf"(?<![\w.]){prefix}{re.escape(key)}(?![\w.])", str(error)):
                text += f"; {name} is from {origin}"
        raise UserError(text) from None


def find_setting(key: str, types: dict[str, type[Section]] = RUN_SECTIONS) -> str | None:
    """Return the full name of the setting with a key like this one, of the first section."""
    by_key = {k: f"{name}.{k}" for name in reversed(types) for k in types[name].model_fields}
    near = nearest(SYNONYMS.get(key, key), by_key, 0.8)
    return by_key[near] if near else None


def explain_name(setting: Change, types: Mapping[str, type[Section]], owner: str) -> UserError:
    """Explain that there is no such setting, and suggest one with a similar key."""
    section, key, origin = setting.section, setting.key, setting.origin
    ordered = sorted(types, key=lambda name: name != section)
    near = find_setting(key, {name: types[name] for name in ordered})
    hint = near.removeprefix(f"{section}.") if near else None
    if not section:
        question = f"; did you mean {hint}?" if hint else ""
        return UserError(f"{origin}: expected section.key=value{question}")
    if section not in types:
        return UnknownName("section", section, types, origin, hint)
    return UnknownName(f"option of {owner}", key, types[section].model_fields, origin, hint)


def explain_value(error: Any, name: str, origin: str) -> UserError:
    """Explain an error of pydantic: a value of the wrong type or outside its limits."""
    if error["type"] == "missing":
        return UserError(f"{origin}: {name} has no default; use --set {name}=VALUE")
    if error["type"] == "literal_error":
        choices = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return UnknownName(f"value of {name}", str(error["input"]), choices, origin)
    fault = explain_fault(error["msg"])
    return UserError(f"{origin}: {name}: got {error['input']!r}, {fault}")
