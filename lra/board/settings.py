"""The settings of submitted runs: composed again without the submitter's code, and their division.

In the closed division, a run differs from its preset in options of its mixer, in a learning rate of
the board's grid and, on flip-flop, in longer sequences. It has at most 1.1 times the parameters of
the largest shipped mixer.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import create_model

from lra.api.recompose import request_of
from lra.common.errors import UserError
from lra.config.components import MixerComponent, Section
from lra.config.compose import compose
from lra.config.registry import MIXERS
from lra.config.request import SPEED_ALONE, Change
from lra.config.schema import RunConfig
from lra.record.known_data import KnownData
from lra.record.run import RunRecord
from lra.record.schema import select_sections, write_changes
from lra.report.windows import without_longer

GRID = (1 / 3, 1.0, 3.0)
"""Learning rates of the closed division, as multiples of the preset's."""
TOLERANCE = 0.02
"""Largest relative deviation from a rate of the grid, as presets round their rates."""
MOST_GROWTH = 1.1
"""Parameters of the closed division, as a multiple of those of the largest shipped mixer."""


@dataclass(frozen=True, kw_only=True)
class UnreadMixer(MixerComponent):
    """The mixer of a record. The code of a plug-in is not run: any values of its options pass."""

    record: RunRecord

    @property
    def options(self) -> type[Section]:
        """See `Component.options`: those of a plug-in have the values of the record as defaults."""
        if self.code is None:
            return super().options
        values = select_sections(self.record.settings, "mixer")
        fields = {name.partition(".")[2]: (Any, value) for name, value in values.items()}
        if wrong := [name for name in fields if name.startswith("_") or name in dir(Section)]:
            raise UserError(f"mixer.{wrong[0]} cannot be an option; expected another name")
        return create_model("UnreadOptions", __base__=Section, **fields)  # pyright: ignore


def _compose(record: RunRecord, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Compose the settings of a record, or those of the suite's files with changes; no code that
    the record names is run.
    """
    request = replace(request_of(record), task=record.task)
    if changes is not None:
        parts = [(*name.partition("."), value) for name, value in changes.items()]
        chosen = tuple(Change(section, key, v, "its change") for section, _, key, v in parts)
        request = replace(request, recorded=None, changes=chosen)
    mixer = UnreadMixer(
        spec=request.mixer, origin="the record", cls=MIXERS.classes.get(record.mixer, object),
        code=record.mixer_code, record=record,
    )  # fmt: skip
    return compose(request, mixer=mixer)


def list_deviations(facts: Mapping[str, tuple[object, object]]) -> Iterator[str]:
    """List the facts, by name, whose first value is not the expected one, which is the second."""
    for name, (given, expected) in facts.items():
        if given != expected:
            yield f"{name} {given}; expected {expected}"


def check_settings(record: RunRecord) -> Iterator[str]:
    """List settings that are not those of the preset and of the changes that a record states.

    Raises: UserError for settings that cannot be composed.
    """
    config = _compose(record)
    expected, actual = _compose(record, record.changes).settings, config.settings
    names = sorted((expected.keys() | actual.keys()) - SPEED_ALONE)
    facts: dict[str, tuple[object, object]] = {
        f"without a change of it, {name} is": (actual.get(name), expected.get(name))
        for name in names
        if not name.startswith("log.")
    }
    facts["settings with the hash"] = record.config_hash, config.hash
    steps = actual.get("train.steps")
    if steps is not None and record.pretraining is None and record.status == "done":
        facts["steps"] = (record.steps, record.total_steps), (steps, steps)
    return list_deviations(facts)


def list_differences(record: RunRecord, known: KnownData) -> list[str]:
    """List what a run has in another way than the closed division allows."""
    changed = {*without_longer(record).changed} - SPEED_ALONE
    changes = {n: record.settings[n] for n in changed if not n.startswith("mixer.")}
    preset = _compose(record, {}).train.lr
    rate = changes.get("train.lr", preset)
    if any(math.isclose(rate, factor * preset, rel_tol=TOLERANCE) for factor in GRID):
        changes.pop("train.lr", None)
    differences = [*write_changes(changes)]
    most = MOST_GROWTH * (known.most_parameters or 0)
    if record.params > most:
        differences.append(
            f"{record.params:,} parameters, expected at most {most:,.0f} by those of shipped mixers"
        )
    return [f"{record.task}: {difference}" for difference in differences]
