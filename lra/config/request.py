"""The request for a run: a task, a mixer, a preset, a protocol, and changed settings.

Text of the command line becomes data here alone: `--set section.key=value` is a `Change`.
"""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lra.common.errors import UnknownName, UserError, format_value
from lra.common.strict_yaml import parse_yaml, plain

SECTIONS = ("task", "mixer", "model", "train", "pretrain", "log")

PAPER = "paper"
"""The preset of the published settings."""

DEFAULT_PROTOCOL = "s4"

SPEED_ALONE = frozenset({"train.checkpoint_activations", "train.cuda_graphs"})
"""Settings that change no result, only speed and memory, and that no hash of a run has."""

REMOVED: Mapping[str, Any] = {"train.kernels": "own"}
"""Settings that older records may have, each with the value that the code still computes with. With
this value a setting is in no hash."""

MOST_COMBINATIONS = 10_000
"""Most runs of a sweep, and most measurements or evaluations of a command."""


@dataclass(frozen=True)
class Change:
    """One setting that replaces others: from the command line, from Python, or from a file."""

    section: str
    """Empty if the text named no section; such a change is refused once all settings are known."""
    key: str
    value: Any
    origin: str
    """The flag and its text, the Python function that was called with the value, or the file."""

    @property
    def name(self) -> str:
        """Full name of the setting: "train.lr"."""
        return f"{self.section}.{self.key}"

    @property
    def text(self) -> str:
        """Write the change as `--set` takes it."""
        return f"{self.name}={plain(self.value)}"


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """The data of a run, without its mixer."""

    task: str
    """Name of a task, or the place of a plug-in (`lra.config.registry`)."""
    preset: str = PAPER
    """Name of a preset, or the path of a user's own, a file that ends with .yaml."""
    protocol: str = DEFAULT_PROTOCOL
    changes: tuple[Change, ...] = ()
    """Changed settings. Of two changes of one setting the later one wins."""
    recorded: tuple[Change, ...] | None = None
    """All settings of a finished run, which replace those of files; None for a new run."""


@dataclass(frozen=True, kw_only=True)
class RunRequest(TaskRequest):
    """A whole run."""

    mixer: str
    """Name of a mixer, or the place of a plug-in."""


def parse_changes(texts: Iterable[str], flag: str = "--set") -> tuple[Change, ...]:
    """Parse texts like "section.key=value", which were given by a flag.

    Raises: UserError for a value that is not YAML.
    """
    found: list[Change] = []
    for text in texts:
        name, equals, value = text.partition("=")
        section, dot, key = name.strip().partition(".")
        origin = f"{flag} {text}"
        if equals and dot and key:
            found.append(Change(section, key, parse_yaml(value, origin), origin))
        else:
            found.append(Change("", section, None, origin))
    return tuple(found)


def parse_alternatives(text: str, flag: str) -> tuple[Change, ...]:
    """Parse "section.key=a,b" into one change for each value; lists in brackets stay whole.

    Raises: UserError for another form, and for an empty value.
    """
    key, equals, values = text.partition("=")
    if not equals or any(not value.strip() for value in values.split(",")):
        raise UserError(
            f"{flag} {text}: expected section.key=value,value, like train.lr=1e-3,2e-3; write null "
            f"for none"
        )
    parsed = parse_yaml(f"[{values}]", f"{flag} {text}")
    return parse_changes((f"{key}={plain(value)}" for value in parsed), flag)


def combine(what: str, *choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """List every combination of choices, the last ones changing fastest.

    Raises: UserError, before anything is listed, for more than MOST_COMBINATIONS; it names `what`.
    """
    count = math.prod(map(len, choices))
    if count > MOST_COMBINATIONS:
        sizes = " x ".join(f"{len(one):,}" for one in choices if len(one) > 1)
        raise UserError(
            f"{sizes} choices are {count:,} {what}, expected at most {MOST_COMBINATIONS:,}; leave "
            f"values out, or divide them between several commands"
        )
    return list(itertools.product(*choices))


def list_changes(settings: Mapping[str, Mapping[str, object]], origin: str) -> tuple[Change, ...]:
    """Turn settings by section, {"train": {"lr": 1e-3}}, into changes.

    Args:
        origin: the Python function that was called with them.
    Raises: UserError for an unknown section, and for a value that a record cannot hold.
    """
    found: list[Change] = []
    for section, entries in settings.items():
        if section not in SECTIONS:
            raise UnknownName("section", section, SECTIONS, origin)
        for key, value in entries.items():
            try:
                recorded = json.loads(json.dumps(value, allow_nan=False))  # tuples are lists
            except (TypeError, ValueError, RecursionError):
                raise UserError(
                    f"{origin}: {section}.{key}: got {format_value(value)}, expected a number, "
                    f"text, boolean or list"
                ) from None
            found.append(Change(section, str(key), recorded, origin))
    return tuple(found)
