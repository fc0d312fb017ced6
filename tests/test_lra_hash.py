"""The hash that runs are known by does not move when settings are added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest

from common.options import Added
from conftest import ROOT
from lra.config.options import NoEffect, Section, options_model
from lra.config.request import SPEED_ALONE
from lra.config.schema import RUN_SECTIONS, ModelConfig, RunConfig, TrainConfig
from lra.record.changes import write_changes
from lra.record.run import RunRecord
from lra.record.table import read_runs
from models.base import MixerContext
from models.promises import BrokenPromise
from models.tnn import TNN
from requested import compose
from tasks.listops import ListOps

SHIPPED = [
    record
    for _, record in read_runs(ROOT / "results", shipped=True)[0]
    if record.mixer_code is None
]


class LaterTNN(TNN):
    def __init__(
        self,
        context: MixerContext,
        *,
        decay: float = 1.0,
        later: Annotated[int, Added(1)] = 1,
    ) -> None: ...


class LaterModel(ModelConfig):
    later: Annotated[int, Added(1)] = 1


class LaterTrain(TrainConfig):
    later: Annotated[str | None, Added(None)] = None


def composed(record: RunRecord, *more: str) -> RunConfig:
    overrides = [*record.overrides, *more]
    preset, protocol = record.preset, record.protocol
    return compose(record.task, record.mixer, preset=preset, protocol=protocol, overrides=overrides)


def add_to_mixer(patch: pytest.MonkeyPatch) -> None:
    add_option(patch, TNN, Added)


def add_to_task(patch: pytest.MonkeyPatch) -> None:
    add_option(patch, ListOps, Added)


def add_option(patch: pytest.MonkeyPatch, owner: type, mark: type) -> None:
    """Give a mixer or a task one option more, as another line of its constructor would."""
    known = options_model(owner)

    class Later(known):
        later: Annotated[int, mark(1)] = 1

    def found(cls: type) -> type[Section]:
        return Later if cls is owner else options_model(cls)

    patch.setattr("lra.config.components.options_model", found)


def add_to_model(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(RUN_SECTIONS, "model", LaterModel)


def add_to_train(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(RUN_SECTIONS, "train", LaterTrain)


ADDITIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "mixer": (add_to_mixer, "mixer.later=2"),
    "task": (add_to_task, "task.later=2"),
    "model": (add_to_model, "model.later=2"),
    "train": (add_to_train, "train.later=other"),
}


def test_shipped_runs_have_the_hash_of_their_settings() -> None:
    assert len(SHIPPED) > 50
    for record in SHIPPED:
        assert composed(record).hash == record.config_hash, record.run_id


@pytest.mark.parametrize("section", ADDITIONS)
def test_an_added_setting_moves_no_shipped_hash(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, change = ADDITIONS[section]
    add(monkeypatch)
    for record in SHIPPED:
        assert composed(record).hash == record.config_hash, record.run_id
    (first, *_) = [r for r in SHIPPED if (r.task, r.mixer) == ("listops", "tnn")]
    config = composed(first, change)
    assert config.hash != first.config_hash
    assert "later: " in config.show()
    assert change in write_changes(config.changes)


def test_options_of_constructors_keep_their_marks() -> None:
    fields = options_model(LaterTNN).model_fields
    assert Added(1) in fields["later"].metadata
    options = options_model(LaterTNN)
    assert options.model_validate({}).hashed() == {"decay": 1.0}
    assert options.model_validate({"later": 3}).hashed() == {"decay": 1.0, "later": 3}


class HiddenMark(TNN):
    def __init__(
        self, context: MixerContext, *, later: Annotated[int, Added(1)] | None = None
    ) -> None: ...


def test_a_mark_without_effect_is_refused() -> None:
    with pytest.raises(BrokenPromise, match="later: write Annotated"):
        options_model(HiddenMark)


def test_sections_have_no_hidden_marks() -> None:
    for section in (ModelConfig, TrainConfig):
        for name, field in section.model_fields.items():
            assert "Added(" not in str(field.annotation), name


def test_a_setting_without_effect_is_in_no_hash() -> None:
    class Settings(Section):
        shown: Annotated[bool, NoEffect()] = False
        steps: int = 1

    assert Settings(shown=True).hashed() == Settings().hashed() == {"steps": 1}
    checkpointed = TrainConfig(steps=1, checkpoint_activations=True)
    assert checkpointed.hashed() == TrainConfig(steps=1).hashed()


def test_the_settings_without_effect_are_listed() -> None:
    marked = {
        f"train.{name}"
        for name, field in TrainConfig.model_fields.items()
        if any(isinstance(mark, NoEffect) for mark in field.metadata)
    }
    assert marked == SPEED_ALONE


def test_without_the_mark_every_hash_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unmarked(ModelConfig):
        later: int = 1

    monkeypatch.setitem(RUN_SECTIONS, "model", Unmarked)
    assert all(composed(record).hash != record.config_hash for record in SHIPPED)
