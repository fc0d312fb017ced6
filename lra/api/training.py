"""Training runs, and the models and data that they start with, without the command line."""

import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch

from lra.api.arguments import AnyPath, Minutes, Seed, Steps, check_arguments
from lra.api.definitions import name_plug_in
from lra.api.trained import TrainedRun
from lra.classifier.classifier import Classifier
from lra.common.errors import UserError
from lra.config.compose import compose_task
from lra.config.registry import TASKS
from lra.config.request import DEFAULT_PROTOCOL, PAPER, RunRequest, TaskRequest, list_changes
from lra.config.schema import RunConfig
from lra.resolve import match_parameters, resolve
from lra.runtime.console import absolute_path, display_messages, is_launched
from lra.runtime.environment import choose_device, return_freed_memory, seed_everything
from lra.schema import RowLabel
from lra.tasks.base import Dataset, TaskInfo
from lra.train.run import Run
from lra.train.stopping import StopRequest


def list_tasks() -> list[str]:
    """Return the names of the suite's tasks, as `--task` takes them."""
    return sorted(TASKS.classes)


@check_arguments
def run(
    task: str | type,
    mixer: str | type,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    seed: Seed = 0,
    device: str = "auto",
    results_dir: AnyPath = "results",
    data_dir: AnyPath = "data",
    max_steps: Steps | None = None,
    max_minutes: Minutes | None = None,
    match_params: str | None = None,
    resume: Literal["auto", "never"] = "auto",
    label: RowLabel | None = None,
    quiet: bool = False,
    **settings: dict[str, Any],
) -> TrainedRun:
    """Train a mixer on a task and save the run, as `run_task.py` does with the same settings.

    The run resumes from its last checkpoint if there is one, and a finished run is only loaded.
    Ctrl-C, SIGTERM and a closed terminal save a checkpoint first; then the signal is raised again,
    so that Ctrl-C ends in KeyboardInterrupt. Call `lra.run` again to resume.

    Args:
        task: a name of `lra.list_tasks()`, or a task of your own: "parity.py:Parity", or the class.
            The definitions of a notebook or script that a class reaches are kept with the run, and
            an edited one makes another run.
        mixer: a name of `lra.list_mixers()`, or a mixer of your own, as for a task.
        preset, protocol, seed, device, results_dir, data_dir, max_steps, max_minutes, match_params,
            resume, label: as the flags of `run_task.py` (`python run_task.py --help`).
        quiet: print warnings only, instead of log lines and progress.
        **settings: changed settings by section: mixer={"rpe_dim": 16}, train={"lr": 1e-3}.
    Returns: the run, as `lra.load` returns it; `record.status` is done, stopped (by max_steps or
        max_minutes), diverged or oom (out of memory).
    Raises: UserError for settings that a command would refuse, or if another process is training
        this run; DataError for data that can neither be found nor made.
    """
    if is_launched():
        raise UserError("lra.run trains in one process; use torchrun run_task.py for several")
    changes = list_changes(settings, "lra.run")
    data_dir, results_dir = absolute_path(str(data_dir)), absolute_path(str(results_dir))
    task, mixer = (name_plug_in(one, data_dir, "lra.run") for one in (task, mixer))
    request = RunRequest(task=task, mixer=mixer, preset=preset, protocol=protocol, changes=changes)
    torch_device, stop = choose_device(device), StopRequest(max_minutes, max_steps)
    with display_messages(logging.WARNING if quiet else logging.INFO), torch_defaults():
        if match_params is not None:
            request = match_parameters(request, match_params)
        config = resolve(request)
        this_run = Run(
            config=config,
            seed=seed,
            device=torch_device,
            results_dir=results_dir,
            data_dir=data_dir,
            stop=stop,
            resume=resume,
            label=label,
        )
        record = this_run.execute()
    return_freed_memory()
    if stop.signal is not None:
        signal.raise_signal(signal.Signals[stop.signal])
    return TrainedRun(this_run.folder.path, record, config, data_dir, torch_device)


@contextlib.contextmanager
def torch_defaults() -> Iterator[None]:
    """Compute as commands do, even if the caller has no gradients or another default dtype."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


class Data(NamedTuple):
    """The data of a task."""

    dataset: Dataset
    """Has `splits`, by the names train, val and test; `split.batch(indices)` makes a batch."""
    info: TaskInfo
    """Number of classes, longest sequence, and vocabulary size or channels."""


@check_arguments
def data(
    task: str | type,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: AnyPath = "data",
    **settings: dict[str, Any],
) -> Data:
    """Prepare the data of a task, as a run of any mixer reads it.

    Args: as those of `lra.run`; settings of the task alone, task={"max_length": 500}.
    Raises: UserError for settings that a run would refuse, DataError for data that can neither be
        found nor made.
    """
    folder = absolute_path(str(data_dir))
    changes = list_changes(settings, "lra.data")
    task = name_plug_in(task, folder, "lra.data")
    built = compose_task(TaskRequest(task=task, preset=preset, protocol=protocol, changes=changes))
    return Data(built.prepare(folder), built.info)


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
    task: str | type,
    mixer: str | type,
    /,
    *,
    preset: str = PAPER,
    protocol: str = DEFAULT_PROTOCOL,
    data_dir: AnyPath = "data",
    seed: Seed = 0,
    **settings: dict[str, Any],
) -> Built:
    """Build the model that a run of these settings starts with, and prepare its data.

    Args: as those of `lra.run`; the seed of the model's parameters seeds torch, NumPy and Python
        globally.
    Raises: UserError for settings that a run would refuse, DataError for data that can neither be
        found nor made.
    """
    folder = absolute_path(str(data_dir))
    changes = list_changes(settings, "lra.build")
    task, mixer = (name_plug_in(one, folder, "lra.build") for one in (task, mixer))
    request = RunRequest(task=task, mixer=mixer, preset=preset, protocol=protocol, changes=changes)
    config = resolve(request)
    built_task = config.build_task()
    dataset = built_task.prepare(folder)
    seed_everything(seed)
    with config.mixer_component.explain_errors("its model cannot be built"):
        model = Classifier(config, built_task.info)
    return Built(config, model, dataset, built_task.info)
