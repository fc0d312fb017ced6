"""What a run starts with: names of tasks and mixers, data, and untrained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from lra.api.arguments import AnyPath, Seed, check_arguments
from lra.classifier.classifier import Classifier
from lra.classifier.resolve import resolve
from lra.config.compose import compose_task
from lra.config.registry import MIXERS, TASKS
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, TaskRequest, list_changes
from lra.config.schema import RunConfig
from lra.runtime.environment import seed_everything
from tasks.base import Dataset, TaskInfo


def tasks() -> list[str]:
    """Return the names of the suite's tasks, as `--task` takes them."""
    return sorted(TASKS.classes)


def mixers() -> list[str]:
    """Return the names of the suite's mixers, as `--mixer` takes them."""
    return sorted(MIXERS.classes)


class Data(NamedTuple):
    """The data of a task."""

    dataset: Dataset
    """Has `splits`, by the names train, val and test; `split.batch(indices)` makes a batch."""
    info: TaskInfo
    """Number of classes, longest sequence, and vocabulary size or channels."""


@check_arguments
def data(
    task: str,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: AnyPath = "data",
    **settings: Any,
) -> Data:
    """Prepare the data of a task, as a run of any mixer reads it.

    Args:
        task: a name of `lra.tasks()`, or a task of your own, "parity.py:Parity".
        preset: paper, quick or budget.
        protocol: s4 or lra.
        data_dir: folder of official files and caches.
        **settings: changed settings of the task: task={"max_length": 500}.
    Raises: UserError for settings that a run would refuse, DataError for data that can neither be
        found nor made.
    """
    data_dir = Path(data_dir).absolute()  # code of the user's own may change the working directory
    changes = list_changes(settings, "lra.data")
    built = compose_task(TaskRequest(task=task, preset=preset, protocol=protocol, changes=changes))
    return Data(built.prepare(data_dir), built.info)


class Built(NamedTuple):
    """The parts that a run starts with."""

    config: RunConfig
    model: Classifier
    """Maps `inputs` and `lengths` of a batch to logits, (batch, classes), or (positions, classes)
    if every position has a target."""
    dataset: Dataset
    info: TaskInfo


@check_arguments
def build(
    task: str,
    mixer: str,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: AnyPath = "data",
    seed: Seed = 0,
    **settings: Any,
) -> Built:
    """Build the model that a run of these settings starts with, and prepare its data.

    Args:
        task: a name of `lra.tasks()`, or a task of your own, "parity.py:Parity".
        mixer: a name of `lra.mixers()`, or a mixer of your own, "gated_mean.py:GatedMean".
        preset: paper, quick, budget, or a preset of the mixer's own.
        protocol: s4 or lra.
        data_dir: folder of official files and caches.
        seed: seed of the model's parameters. It seeds torch, NumPy and Python globally.
        **settings: changed settings by section: mixer={"rpe_dim": 16}, train={"lr": 1e-3}.
    Raises: UserError for settings that a run would refuse, DataError for data that can neither be
        found nor made.
    """
    data_dir = Path(data_dir).absolute()  # code of the user's own may change the working directory
    changes = list_changes(settings, "lra.build")
    request = RunRequest(task=task, mixer=mixer, preset=preset, protocol=protocol, changes=changes)
    config = resolve(request)
    built_task = config.build_task()
    dataset = built_task.prepare(data_dir)
    seed_everything(seed)
    with config.mixer_component.explain_errors("its model cannot be built"):
        model = Classifier(config, built_task.info)
    return Built(config, model, dataset, built_task.info)
