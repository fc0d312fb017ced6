"""The hash that runs are known by does not move when settings are added."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import create_model

import lra.config.compose
from conftest import ROOT
from lra.api.recompose import recompose, request_of
from lra.common.errors import UserError
from lra.common.options import Added
from lra.config.components import Section, options_model
from lra.config.request import REMOVED, SPEED_ALONE
from lra.config.schema import RUN_SECTIONS, ModelConfig, RunConfig, TrainConfig
from lra.models.tnn import TNN
from lra.record.run import RunRecord, read_runs
from lra.record.schema import write_changes
from lra.tasks.listops import ListOps
from lra.train.run_record import describe_settings
from requested import compose

SHIPPED = [
    record
    for _, record in read_runs(ROOT / "results", shipped=True)[0]
    if record.mixer_code is None
]


def composed(record: RunRecord, *more: str) -> RunConfig:
    overrides = [*record.overrides, *more]
    preset, protocol = record.preset, record.protocol
    return compose(record.task, record.mixer, preset=preset, protocol=protocol, overrides=overrides)


def test_shipped_runs_have_the_hash_of_their_settings() -> None:
    assert len(SHIPPED) > 50
    for record in SHIPPED:
        assert composed(record).hash == record.config_hash, record.run_id
        again = lra.config.compose.compose(request_of(record))
        assert again.hash == record.config_hash, record.run_id


def add_option(owner: type) -> type[Section]:
    """Give a section, or the options of a mixer or a task, one option more."""
    known = owner if issubclass(owner, Section) else options_model(owner)
    later = (Annotated[int, Added(1)], 1)
    return create_model("Later", __base__=known, later=later)  # pyright: ignore


@pytest.mark.parametrize(
    ("section", "owner"),
    [("mixer", TNN), ("task", ListOps), ("model", ModelConfig), ("train", TrainConfig)],
)
def test_an_added_setting_moves_no_hash(
    section: str, owner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = [r for r in SHIPPED if (r.task, r.mixer) == ("listops", "tnn")]
    later = add_option(owner)
    if section in RUN_SECTIONS:
        monkeypatch.setitem(RUN_SECTIONS, section, later)
    else:
        own = {owner: later}
        find = lambda cls: own.get(cls) or options_model(cls)  # noqa: E731
        monkeypatch.setattr("lra.config.components.options_model", find)
    assert composed(first).hash == first.config_hash
    config = composed(first, f"{section}.later=2")
    assert config.hash != first.config_hash
    assert "later: " in config.show()
    assert f"{section}.later=2" in write_changes(config.changes)


def test_the_settings_without_effect_are_in_no_hash() -> None:
    assert len(SPEED_ALONE) == 2
    for name in SPEED_ALONE:
        config = composed(SHIPPED[0], f"{name}=true")
        assert config.settings[name] is True and config.hash == SHIPPED[0].config_hash


def test_a_record_of_a_users_own_preset_needs_no_file(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("tasks: {listops: {train.steps: 3, train.schedule_steps: null}}")
    config = compose("listops", "tnn", preset=str(path))
    described = describe_settings(config)
    record = RunRecord.model_validate(SHIPPED[0].model_dump() | described)
    assert record.flags()[4:6] == ["--preset", str(path)]
    path.unlink()
    assert recompose(tmp_path, record).hash == config.hash


def test_a_removed_setting_is_read_over_unless_its_value_changed_numbers() -> None:
    folder = Path("runs/one")
    for name, value in REMOVED.items():
        (record, *_) = [r for r in SHIPPED if r.task == "listops" and r.settings.get(name) == value]
        assert name not in composed(record).settings
        assert recompose(folder, record).hash == record.config_hash
        settings = record.settings | {name: "auto"}
        changed = {"settings": settings, "changed": [name], "config_hash": "a" * 16}
        other = RunRecord.model_validate(record.model_dump() | changed)
        assert other.method == f"{record.mixer} ({name}=auto)"
        with pytest.raises(UserError, match=f"{folder}: .* no {name}=auto; go back to the code"):
            recompose(folder, other)
