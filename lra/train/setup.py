"""Setting up a run: its data is prepared, its folder is chosen, and its start is logged."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import device_name, keep_freed_memory, versions
from lra.runtime.launch import is_restart
from lra.runtime.repository import code_digest
from lra.train.run import Run
from lra.train.run_folder import choose_folder
from lra.train.scores import describe_data
from lra.train.stopping import StopRequest

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
        results_dir: the folder with runs/.
        data_dir: the folder of official files and caches.
        stop: what may stop the run; its signals count while it is used as a context.
        resume: auto, or never for a new run beside a finished one.
    Raises: DataError for data that can neither be found nor made; UserError if processes of a
        group have different data.
    """
    # With recomputed activations, kept memory would be fragmented.
    if device.type == "cpu" and config.train.checkpoint_activations is not True:
        keep_freed_memory()
    folder = choose_folder(results_dir, config, seed, "auto" if is_restart() else resume)
    name = " / ".join((config.task_name, config.mixer_name, config.preset))
    logger.info(f"{name}, seed {seed}, on {device_name(device)}")
    logger.info(f"saved in {folder.path}")
    task = config.build_task()
    dataset = task.prepare(data_dir)
    group.require_equal(
        "data", {"data source": dataset.source, "data fingerprint": dataset.fingerprint}
    )
    sizes = ", ".join(f"{count:,} {split}" for split, count in dataset.sizes.items())
    logger.info(f"data: {sizes} examples, {dataset.source}, in {dataset.folder}")
    for line in describe_data(dataset):
        logger.info(line)
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
    )


def common_facts(config: RunConfig, seed: int, device: torch.device) -> dict[str, Any]:
    """List by name what all processes that train one model must have in common, except data.

    It includes settings of `log`, which determine when processes exchange something.
    """
    names = {key: value for key, value in config.values().items() if isinstance(value, str)}
    return {
        "seed": seed,
        **names,
        **config.settings,
        "the device": device.type,
        **{f"the version of {name}": number for name, number in versions().items()},
        "the code of lra": code_digest(),
    }
