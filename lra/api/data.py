"""Names of tasks and mixers, and the data of a task without a mixer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from lra.api.arguments import AnyPath, check_arguments
from lra.config.compose import compose_task
from lra.config.registry import MIXERS, TASKS
from lra.config.request import DEFAULT_PROTOCOL, PAPER, TaskRequest, list_changes
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
