"""Evaluating a trained model on data of its task that is longer, deeper or harder."""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from common.errors import DataError
from lra.config.registry import TASKS
from lra.config.request import Change, list_changes
from lra.config.schema import RunConfig
from lra.evaluate.trained import (
    list_changed_code,
    load_best_model,
    recompose_config,
)
from lra.record.evaluation import EvaluationRecord, evaluations_of
from lra.record.run import RunRecord
from lra.record.schema import DataRecord, ThreadsRecord
from lra.runtime.environment import device_name, is_gpu_shared, use_kernels, use_tf32, versions
from lra.runtime.errors import UserError
from lra.runtime.repository import git_state
from lra.train.checkpoint import describe_missing
from lra.train.evaluation import Evaluator
from lra.train.scores import compute_position_scores
from tasks.base import largest_class

EXAMPLES = 2000
"""Number of examples in a freshly drawn test set, unless another one is asked for."""


@dataclass(frozen=True, kw_only=True)
class OtherData:
    """How the data of an evaluation differs from the data of the training."""

    length: int | None
    """Positions of the longest sequence; None: as in training."""
    changes: tuple[Change, ...]
    """Changed options of the task."""
    examples: int | None
    """Size of a freshly drawn test set; None: EXAMPLES."""
    trust_code: bool = False
    """See `recompose_config`."""

    @property
    def values(self) -> dict[str, Any]:
        """Values of the changed options as records hold them, by full name."""
        return {one.name: one.value for one in sorted(self.changes, key=lambda one: one.text)}


def compose_other(folder: Path, record: RunRecord, other: OtherData) -> RunConfig:
    """Compose the settings of a run for other data.

    Raises: UserError for changes of anything but the task, and for a task without such data.
    """
    for change in other.changes:
        if change.section != "task":
            raise UserError(
                f"{change.origin}: only options of the task can differ from the run's; expected "
                f"task.KEY=VALUE"
            )
    composed = functools.partial(recompose_config, folder, record, trust_code=other.trust_code)
    config = composed(other.changes)
    task = config.build_task()
    if other.examples is not None and not task.draws_data:
        raise UserError(
            f"--examples {other.examples}: {record.task} draws no new examples, and all of its "
            f"test set is used; leave it out"
        )
    options = config.task.model_dump()
    examples = other.examples or EXAMPLES
    try:
        fresh = task.fresh(options, length=other.length, examples=examples)
    except DataError as error:
        raise UserError(f"{folder}: {error}") from None
    for change in other.changes:
        if change.key in fresh:
            raise UserError(
                f"{change.origin}: a fresh test set comes with its own {change.key}; leave it out"
            )
    drawn = list_changes({"task": fresh}, "a fresh test set")
    return composed([*other.changes, *drawn])


def is_measured(folder: Path, record: RunRecord, other: OtherData) -> bool:
    """Whether this run has a record of an evaluation on this data, with as many examples.

    One of changed code is none: that of the run may be back, or the code have changed again.
    """
    if other.trust_code and list_changed_code(record):
        return False
    task = TASKS.classes.get(record.task)
    is_drawn = task is not None and task.draws_data
    examples = other.examples or (EXAMPLES if is_drawn else None)
    for found in evaluations_of(folder)[0]:
        # Where positions are targets, they are not the size of the test set.
        size = found.test_examples if found.positions is None else found.data.sizes.get("test")
        is_same = (found.length, found.changes) == (other.length, other.values)
        if is_same and not found.has_changed_code and examples in (None, size):
            return True
    return False


def evaluate_on(
    folder: Path,
    record: RunRecord,
    other: OtherData,
    *,
    data_dir: Path,
    device: torch.device,
) -> EvaluationRecord:
    """Evaluate the best model of a run on the test set of other data.

    Raises: UserError if there is no checkpoint, and as `compose_other` and `load_best_model` do.
    """
    config = compose_other(folder, record, other)
    trained = recompose_config(folder, record, trust_code=other.trust_code)
    task = config.build_task()
    with config.mixer_component.explain_errors("its trained model cannot be built"):
        model = load_best_model(folder, trained, task.info)
    if model is None:
        raise UserError(f"{folder}: {describe_missing(folder / 'checkpoints')}")
    dataset = task.prepare(data_dir)
    test = dataset.splits["test"]
    # A forward pass has about as many positions as in training.
    longer = max(1.0, task.info.max_length / record.length)
    batch_size = max(1, int((record.micro_batch or record.batch_size) / longer))
    use_tf32(device, config.train.tf32)
    use_kernels(device, config.train.kernels)
    start = time.perf_counter()
    with config.mixer_component.explain_errors("the evaluation failed"):
        evaluator = Evaluator(
            model=model.to(device),
            batch_size=batch_size,
            device=device,
            precision=config.train.precision,
            title=f"evaluating on {len(test)} examples",
        )
        score = evaluator.score(test, task.info)
    seconds = time.perf_counter() - start
    return EvaluationRecord(
        run_id=record.run_id,
        task=record.task,
        mixer=record.mixer,
        seed=record.seed,
        config_hash=record.config_hash,
        has_changed_code=bool(list_changed_code(record)),
        length=other.length,
        changes=other.values,
        trained_length=record.length,
        test_accuracy=score.accuracy,
        test_correct=score.correct,
        test_total=score.total,
        test_non_finite=score.non_finite,
        loss=score.loss if math.isfinite(score.loss) else None,
        baselines=dict(dataset.baselines),
        largest_class=largest_class(test.labels),
        positions=compute_position_scores(score, dataset) if score.predictions is None else None,
        tokens=score.tokens,
        examples_per_second=score.total / seconds,
        device=device_name(device),
        threads=ThreadsRecord.now(torch.get_num_threads(), device.type),
        gpu_shared=is_gpu_shared(device),
        precision=config.train.precision,
        versions=versions(),
        git=git_state(),
        data=DataRecord.of(dataset),
    )
