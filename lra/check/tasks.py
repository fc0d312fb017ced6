"""The checks of a task of the user's own."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common.errors import DataError
from lra.check.checks import Checks
from lra.classifier.resolve import resolve
from lra.config.components import Section, TaskComponent
from lra.config.request import Change, RunRequest, list_changes
from lra.train.trainer import Trainer
from tasks.base import SPLITS, Dataset, Task
from tasks.own import OwnTask

TINY = {
    "model": {"dim": 8, "depth": 1},
    "train": {"steps": 2, "batch_size": 4, "warmup_steps": 0, "evaluate_every": 2},
}
"""Settings of the model that is trained on the task."""

CAUSAL = {"model": {"dim": 8, "depth": 1, "causal": True, "norm": "layer"}}
"""Those of the model for a task whose positions are targets."""


def task_checks(component: TaskComponent, options: Section, changes: tuple[Change, ...]) -> Checks:
    """List all checks of a task, each by its name; its options come from the changed settings."""
    with tempfile.TemporaryDirectory(prefix="lra-check-") as name:
        folder = Path(name)
        yield "its constructor works", partial(component.build, options)
        task = component.build(options)
        if isinstance(task, OwnTask):
            yield "examples(split, rng) returns sequences and labels", partial(_describe_own, task)
            _ = task.drawn  # without them, there is nothing else to check
            yield "examples depend on the seed alone", partial(_check_seed, task)
            for split in SPLITS[1:]:
                known = partial(_check_known, task, split, "train")
                yield f"{split} examples are not in the training split", known
            known = partial(_check_known, task, "val", "test")
            yield "val examples are not in the test split", known
        right = "its data can be prepared, and is as the class states"
        yield right, lambda: _describe_data(task.prepare(folder))
        dataset = task.prepare(folder)
        again = partial(_prepare_again, component.construct(options), folder, dataset)
        yield "a second preparation gives the same data", again
        yield "its data passes its own verification", lambda: "; ".join(task.verify(dataset))
        yield "every class is in the training split", partial(_check_classes, task, dataset)
        yield "batches hold the right examples", partial(_check_batches, task, dataset)
        small = TINY | (CAUSAL if task.info.targets == "position" else {})
        chosen = (*changes, *list_changes(small, "lra.check"))
        yield "a model trains on it", partial(_train, component, chosen, dataset)


def _describe_own(task: OwnTask) -> str:
    info, lengths = task.info, np.concatenate([one.lengths for one in task.drawn.values()])
    inputs = f"{info.vocab_size} tokens" if info.vocab_size else f"{info.channels} real numbers"
    pairs = "pairs of " if info.towers > 1 else ""
    return (
        f"{info.num_classes} classes, {pairs}up to {info.max_length:,} positions, {inputs}; "
        f"lengths {lengths.min():,} to {lengths.max():,}"
    )


def _describe_data(dataset: Dataset) -> str:
    sizes = ", ".join(f"{name} {count:,}" for name, count in dataset.sizes.items())
    return f"{sizes}; majority class {dataset.baselines['majority class']:.2f} %"


def _prepare_again(task: Task, folder: Path, dataset: Dataset) -> None:
    if task.prepare(folder / "again").fingerprint != dataset.fingerprint:
        raise DataError("its fingerprint differs; take random numbers only from rng")


def _train(component: TaskComponent, changes: tuple[Change, ...], dataset: Dataset) -> str:
    config = resolve(RunRequest(task=component.spec, mixer="mean", changes=changes))
    trainer = Trainer(config, config.build_task().info, dataset, 0, torch.device("cpu"))
    trainer.train_step()
    trainer.read()
    return f"validation loss {trainer.validate(lambda: None).loss:.3f} after a step"


def _check_seed(task: OwnTask) -> str | None:
    if task.seed_has_effect():
        return None
    return "the examples are the same for every seed, so task.data_seed has no effect"


def _check_known(task: OwnTask, split: str, other: str) -> str | None:
    """Check that not all examples of a split are in another one."""
    count, total = task.count_known(split, other), len(task.drawn[split])
    if count == total and other == "test":
        return f"except all {total:,}, so the best model is selected on the test set; tables say so"
    if count == total:
        raise DataError(
            f"all {total:,} of them are, so a model can score by memorizing; draw from more "
            f"sequences, or leave out those of the training split"
        )
    return f"except {count:,} of {total:,}" if count else None


def _check_classes(task: Task, dataset: Dataset) -> str | None:
    present = np.unique(dataset.splits["train"].labels)
    missing = sorted(set(range(task.info.num_classes)) - set(present.tolist()))
    if missing and task.info.targets == "example":
        raise DataError(f"classes {', '.join(map(str, missing[:5]))} are missing")
    # Not all bytes occur in a text.
    return f"except {len(missing):,} of {task.info.num_classes:,}" if missing else None


def _check_batches(task: Task, dataset: Dataset) -> None:
    for name, split in dataset.splits.items():
        chosen = np.arange(min(3, len(split)))[::-1]
        together = split.batch(chosen)
        single = [split.batch(np.array([i])) for i in chosen]
        inputs = torch.cat([one.inputs for one in single])
        labels = torch.cat([one.labels for one in single])
        if task.info.targets == "example":
            labels = torch.from_numpy(split.labels[chosen].astype(np.int64))
        if not (torch.equal(together.inputs, inputs) and torch.equal(together.labels, labels)):
            raise DataError(f"a batch of {name} differs from its examples one by one")
        if together.lengths.max(dim=1).values.tolist() != split.lengths[chosen].tolist():
            raise DataError(f"lengths of a batch of {name} are not those of its examples")
