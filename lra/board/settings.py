"""The settings of submitted runs: composed again without the submitter's code, and their division.

In the closed division, a run differs from its preset in options of its mixer and in a learning rate
of the board's grid, and has at most 1.1 times the parameters of the largest shipped mixer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import create_model

from lra.api.recompose import request_of
from lra.common.errors import UserError
from lra.config.components import MixerComponent, Section
from lra.config.compose import compose
from lra.config.registry import MIXERS
from lra.config.request import SPEED_ALONE, Change, RunRequest
from lra.config.schema import RunConfig
from lra.record.known_data import KnownData
from lra.record.run import RunRecord
from lra.record.schema import select_sections, write_changes

GRID = (1 / 3, 1.0, 3.0)
"""Learning rates of the closed division, as multiples of the preset's."""
TOLERANCE = 0.02
"""Largest relative deviation from a rate of the grid, as presets round their rates."""
MOST_GROWTH = 1.1
"""Parameters of the closed division, as a multiple of those of the largest shipped mixer."""


@dataclass(frozen=True, kw_only=True)
class UnreadMixer(MixerComponent):
    """A plug-in whose code is not run: its options are those that a record has."""

    record: RunRecord

    @property
    def options(self) -> type[Section]:
        """See `Component.options`: any values, with those of the record as defaults."""
        values = select_sections(self.record.settings, "mixer")
        fields = {name.partition(".")[2]: (Any, value) for name, value in values.items()}
        if wrong := [name for name in fields if name.startswith("_") or name in dir(Section)]:
            raise UserError(f"mixer.{wrong[0]} cannot be an option; expected another name")
        return create_model("UnreadOptions", __base__=Section, **fields)  # pyright: ignore


def _stand_in(record: RunRecord) -> MixerComponent:
    """Return the mixer of a run: one of the suite, or what stands for a plug-in."""
    cls = MIXERS.classes.get(record.mixer, object)
    spec = record.mixer_from or record.mixer
    common: Mapping[str, Any] = {"spec": spec, "origin": "the record", "cls": cls}
    if record.mixer_code is None:
        return MixerComponent(**common)
    return UnreadMixer(**common, code=record.mixer_code, record=record)


def _compose(record: RunRecord, changes: Mapping[str, Any]) -> RunConfig:
    """Compose what the files of the suite say of a run, with changes; no code of it is run."""
    request = RunRequest(
        task=record.task, mixer=record.mixer, preset=record.preset, protocol=record.protocol,
        changes=tuple(Change(section, key, value, "its change") for name, value in changes.items()
                      for section, _, key in [name.partition(".")]),
    )  # fmt: skip
    return compose(request, mixer=_stand_in(record))


def check_settings(record: RunRecord) -> Iterator[str]:
    """List what is wrong with the settings of a run.

    Raises: UserError for settings that cannot be composed.
    """
    config = compose(request_of(record), mixer=_stand_in(record))
    if config.hash != record.config_hash:
        yield f"settings with the hash {record.config_hash}; expected {config.hash}"
    expected, actual = _compose(record, record.changes).settings, config.settings
    for name in sorted(expected.keys() | actual.keys()):
        differs = expected.get(name) != actual.get(name)
        if differs and name not in SPEED_ALONE and not name.startswith("log."):
            yield (
                f"{name} is {actual.get(name)!r}, and its changes do not say so; expected "
                f"{expected.get(name)!r} of preset {record.preset}"
            )
    steps = actual.get("train.steps") if record.pretraining is None else None
    is_whole = record.steps == record.total_steps == steps
    if steps is not None and record.status == "done" and not is_whole:
        yield f"{record.steps:,} of {record.total_steps:,} steps; its settings say {steps:,}"


def list_differences(record: RunRecord, known: KnownData) -> list[str]:
    """List what a run has in another way than the closed division allows."""
    allowed = {name for name in record.changed if name.startswith("mixer.")} | SPEED_ALONE
    changes = {n: value for n, value in record.changes.items() if n not in allowed}
    base = _compose(record, {}).train.lr
    rate = changes.get("train.lr", base)
    if any(math.isclose(rate, factor * base, rel_tol=TOLERANCE) for factor in GRID):
        changes.pop("train.lr", None)
    differences = [f"{record.task}: {text}" for text in write_changes(changes)]
    most = known.most_parameters
    if most is None:
        differences.append(f"{record.task}: no shipped mixer has this data at its preset")
    elif record.params > MOST_GROWTH * most:
        differences.append(
            f"{record.task}: {record.params:,} parameters, expected at most "
            f"{MOST_GROWTH * most:,.0f}"
        )
    return differences
