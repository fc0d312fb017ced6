"""What every task promises, those of the suite and a user's own."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lra.common.errors import DataError
from lra.config.registry import TASKS
from lra.tasks.base import Dataset, Task
from lra.tasks.goals import ExampleNumbers, NextToken
from made_data import SMALLER, place_made_data
from own_tasks import OWN_TASKS
from requested import compose_task

NAMES = [*sorted(TASKS.classes), *OWN_TASKS]


@pytest.fixture(scope="module", params=NAMES)
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Task, Path]:
    """A task, and a folder with data for it."""
    name, folder = request.param, tmp_path_factory.mktemp("task")
    if name in OWN_TASKS:
        path = folder / "own.py"
        path.write_text(OWN_TASKS[name])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path])
            return compose_task(f"{path}:{name}"), folder / "data"
    place_made_data(name, folder / "data")
    return compose_task(name, preset="quick", overrides=SMALLER[name]), folder / "data"


@pytest.fixture(scope="module")
def task(made: tuple[Task, Path]) -> Task:
    return made[0]


@pytest.fixture(scope="module")
def dataset(made: tuple[Task, Path]) -> Dataset:
    return made[0].prepare(made[1])


def test_examples_are_such_as_the_task_says(task: Task, dataset: Dataset) -> None:
    info = task.info
    assert (info.vocab_size is None) != (info.channels is None)
    assert dataset.splits.keys() == {"train", "val", "test"}
    for split in dataset.splits.values():
        split.check(info)
        batch = split.batch(np.arange(len(split)))
        assert batch.lengths.shape == (len(split), info.towers)
        assert np.array_equal(batch.lengths.amax(dim=1).numpy(), split.lengths)
        targets = batch.inputs if isinstance(info.goal, NextToken) else split.labels
        has_numbers = isinstance(info.goal, ExampleNumbers)
        assert batch.labels.dtype == (torch.float64 if has_numbers else torch.int64)
        assert batch.labels.shape == (len(targets), *[info.goal.outputs] * has_numbers)
        assert int(batch.lengths.sum()) == len(batch.inputs)
        if info.vocab_size is None:
            assert batch.inputs.dtype == torch.float32
            assert batch.inputs.shape[1:] == (info.channels,)
        else:
            assert batch.inputs.dtype == torch.int64 and batch.inputs.ndim == 1
            assert 0 <= int(batch.inputs.min()) <= int(batch.inputs.max()) < info.vocab_size
        if info.grid is not None:
            assert set(split.lengths) == {info.grid[0] * info.grid[1]} == {info.max_length}


def test_metadata_is_a_column_of_each_split(dataset: Dataset) -> None:
    names = [list(split.metadata()) for split in dataset.splits.values()]
    assert all(name == names[0] for name in names)
    for split in dataset.splits.values():
        for name, column in split.metadata().items():
            assert name not in ("label", "prediction", "length")
            assert column.shape == (len(split),) and column.dtype.kind in "iuU"


def test_prepared_again_it_is_the_same(made: tuple[Task, Path], dataset: Dataset) -> None:
    task, folder = made
    again = task.prepare(folder)
    assert again.fingerprint == dataset.fingerprint
    for field in dataclasses.fields(Dataset):
        if field.name != "splits":
            assert getattr(again, field.name) == getattr(dataset, field.name)
    for name, split in dataset.splits.items():
        assert np.array_equal(split.labels, again.splits[name].labels)


def test_what_is_left_to_prepare_is_described_and_not_done(
    made: tuple[Task, Path], dataset: Dataset, tmp_path: Path
) -> None:
    task, folder = made
    assert dataset.folder.exists()
    assert task.plan(folder).describe() == "", "the cache is there"
    try:
        described = task.plan(tmp_path / "elsewhere").describe()
    except DataError as error:
        assert task.name in ("retrieval", "lm") and "expected" in str(error)
    else:
        verb, _, what = described.partition(" ")
        assert verb in ("read", "download", "generate", "make") and what
    assert not list(tmp_path.iterdir())


def test_baselines_and_checks(task: Task, dataset: Dataset) -> None:
    labels = {name: split.labels for name, split in dataset.splits.items()}
    assert task.verify(dataset)
    if isinstance(task.info.goal, ExampleNumbers):
        assert not dataset.baselines
        return
    commonest = np.bincount(labels["train"]).argmax()
    share = 100 * float((labels["test"] == commonest).mean())
    assert dataset.baselines["majority class"] == pytest.approx(share)


def test_damage_is_found(made: tuple[Task, Path], dataset: Dataset) -> None:
    task, folder = made
    path = max(dataset.folder.glob("*.npy"), key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DataError, match="checksum"):
            task.verify(task.prepare(folder))
    finally:
        path.write_bytes(content)
