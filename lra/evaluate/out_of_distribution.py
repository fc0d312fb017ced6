"""Evaluating a trained model on data of its task that is longer, deeper or harder."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch

from common.errors import UserError
from lra.api.recompose import find_changed_code, request_of
from lra.api.trained import TrainedRun
from lra.classifier.resolve import resolve
from lra.config.request import Change, list_changes
from lra.config.schema import RunConfig
from lra.record.evaluation import EvaluationRecord, evaluations_of
from lra.record.schema import DataRecord, ThreadsRecord
from lra.runtime.environment import device_name, is_gpu_shared, versions
from lra.runtime.repository import git_state
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

    @property
    def values(self) -> dict[str, Any]:
        """Values of the changed options as records hold them, by full name."""
        return {one.name: one.value for one in sorted(self.changes, key=lambda one: one.text)}


def compose_other(run: TrainedRun, other: OtherData) -> RunConfig:
    """Compose the settings of a run for other data.

    Raises: UserError for changes of anything but the task; DataError for a task without such data.
    """
    for change in other.changes:
        if change.section != "task":
            raise UserError(
                f"{change.origin}: only options of the task can differ from the run's; expected "
                f"task.KEY=VALUE"
            )
    config = resolve(request_of(run.record, other.changes))
    task = config.build_task()
    if other.examples is not None and not task.draws_data:
        raise UserError(
            f"--examples {other.examples}: {run.record.task} draws no new examples, and all of its "
            f"test set is used; leave it out"
        )
    examples = other.examples or EXAMPLES
    fresh = task.fresh(config.task.model_dump(), length=other.length, examples=examples)
    for change in other.changes:
        if change.key in fresh:
            raise UserError(
                f"{change.origin}: a fresh test set comes with its own {change.key}; leave it out"
            )
    drawn = list_changes({"task": fresh}, "a fresh test set")
    return resolve(request_of(run.record, [*other.changes, *drawn]))


def is_measured(run: TrainedRun, other: OtherData) -> bool:
    """Whether this run has a record of an evaluation on this data, with as many examples.

    One of changed code is none: that of the run may be back, or the code have changed again.
    """
    if find_changed_code(run.folder, run.record) is not None:
        return False
    is_drawn = run.config.build_task().draws_data
    examples = other.examples or (EXAMPLES if is_drawn else None)
    for found in evaluations_of(run.folder)[0]:
        # Where positions are targets, they are not the size of the test set.
        size = found.test_examples if found.positions is None else found.data.sizes.get("test")
        is_same = (found.length, found.changes) == (other.length, other.values)
        if is_same and not found.has_changed_code and examples in (None, size):
            return True
    return False


def evaluate_on(run: TrainedRun, other: OtherData) -> EvaluationRecord:
    """Evaluate the best model of a run on the test set of other data.

    Raises: UserError as `compose_other` and `TrainedRun.load_model` do.
    """
    record, device = run.record, run.device
    task = compose_other(run, other).build_task()
    model = run.load_model(task.info)
    dataset = task.prepare(run.data_dir)
    test = dataset.splits["test"]
    # A forward pass has about as many positions as in training.
    longer = max(1.0, task.info.max_length / record.length)
    batch_size = max(1, int((record.micro_batch or record.batch_size) / longer))
    evaluator = run.evaluator(model, batch_size, f"evaluating on {len(test)} examples")
    start = time.perf_counter()
    with run.config.mixer_component.explain_errors("the evaluation failed"):
        score = evaluator.score(test, task.info)
    seconds = time.perf_counter() - start
    return EvaluationRecord(
        **record.model_dump(include={"run_id", "task", "mixer", "seed", "config_hash"}),
        has_changed_code=find_changed_code(run.folder, record) is not None,
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
        precision=evaluator.precision,
        versions=versions(),
        git=git_state(),
        data=DataRecord.of(dataset),
    )
