"""Setting up a run: its data is prepared, its folder is chosen, and its start is logged."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import device_name, keep_freed_memory
from lra.runtime.launch import is_restart
from lra.train.run import Run
from lra.train.run_folder import choose_folder
from lra.train.scores import describe_data
from lra.train.stopping import StopRequest
from lra.train.training_time import Speeds, TrainingTime
from tasks.base import Dataset

logger = logging.getLogger(__name__)


def set_up_run(
    config: RunConfig,
    *,
    seed: int,
    device: torch.device,
    results_dir: Path,
    data_dir: Path,
    stop: StopRequest,
    group: ProcessGroup = SINGLE_PROCESS,
    resume: str = "auto",
    label: str | None = None,
    classifier: type[Classifier] = Classifier,
) -> Run:
    """Prepare the data of a run and choose its folder; `Run.execute` then trains.

    Args:
        results_dir: folder in which runs/ is.
        data_dir: official files and caches.
        stop: what may stop the run, its signals included, while it is used as a context.
        resume: auto, or never for a new run beside a finished one.
        label: see `Run`.
        classifier: see `Run`.
    Raises: DataError for data that can neither be found nor made; UserError if processes of a
        group have different data.
    """
    # Where less memory is asked for, what is kept would lie about in pieces.
    saves_memory = config.train.checkpoint_activations is True
    if device.type == "cpu" and not saves_memory and keep_freed_memory():
        logger.debug("allocator: freed memory is kept for the next step")
    here = device_name(device)
    folder = choose_folder(results_dir, config, seed, "auto" if is_restart() else resume)
    name = " / ".join((config.task_name, config.mixer_name, config.preset))
    logger.info(f"{name}, seed {seed}, on {here}")
    logger.info(f"saved in {folder.path}")
    task = config.build_task()
    dataset = task.prepare(data_dir)
    data = {"data source": dataset.source, "data fingerprint": dataset.fingerprint}
    group.require_equal("data", data)
    _log_data(dataset)
    return Run(
        config=config,
        info=task.info,
        dataset=dataset,
        seed=seed,
        device=device,
        folder=folder,
        stop=stop,
        group=group,
        label=label,
        classifier=classifier,
        training_time=TrainingTime(config, Speeds.read(results_dir, config), here, stop),
    )


def _log_data(dataset: Dataset) -> None:
    """Log what the data is, its notes, and how far trivial baselines get on it."""
    sizes = ", ".join(f"{count:,} {split}" for split, count in dataset.sizes.items())
    logger.info(f"data: {sizes} examples, {dataset.source}, in {dataset.folder}")
    logger.debug(f"data fingerprint: {dataset.fingerprint}")
    for line in describe_data(dataset):
        logger.info(line)
