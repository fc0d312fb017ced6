"""The options of all mixers, with their meanings from the docstrings."""

import inspect
import re
import typing

from lra.common.spreadsheets import write_csv
from lra.common.strict_yaml import plain
from lra.config.components import options_model
from lra.config.registry import MIXERS

_ARGUMENTS = re.compile(r"(?ms)^Args:\n(.*?)(?=^\S|\Z)")
_ARGUMENT = re.compile(r"(?m)^    (\w+): (.*(?:\n {8}.*)*)")


def mixer_options_csv() -> str:
    """Write as CSV each option of each mixer: its type, its default and its meaning."""
    import pandas as pd

    rows: list[dict[str, str]] = []
    for mixer in sorted(MIXERS.classes):
        owner = MIXERS.classes[mixer]
        meanings = read_arguments(inspect.getdoc(owner) or "")
        for name, option in options_model(owner).model_fields.items():
            rows.append(
                {
                    "mixer": mixer,
                    "option": f"mixer.{name}",
                    "values": _describe_type(option.annotation),
                    "default": plain(option.default),
                    "meaning": meanings.get(name, ""),
                }
            )
    return write_csv(pd.DataFrame(rows))


def read_arguments(docstring: str) -> dict[str, str]:
    """Read the arguments under `Args` of a docstring, with their descriptions."""
    section = _ARGUMENTS.search(docstring)
    pairs = _ARGUMENT.findall(section[1]) if section else []
    return {name: " ".join(text.split()) for name, text in pairs}


def _describe_type(hint: object) -> str:
    """Write a type in words: the values of a `Literal`, or the name of a type."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(map(str, arguments))
    if typing.get_origin(hint) is typing.Annotated:
        return _describe_type(arguments[0])
    if arguments:
        return " or ".join(map(_describe_type, arguments))
    if hint is type(None):
        return "null"
    return getattr(hint, "__name__", str(hint))
