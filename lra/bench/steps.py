"""Whole training steps, and batches of an evaluation, of a task's classifier."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lra.bench.case import Case, Subject
from lra.classifier.classifier import Classifier
from lra.classifier.reference import ReferenceClassifier
from lra.common.errors import UserError
from lra.config.request import Change, RunRequest
from lra.config.schema import RunConfig
from lra.resolve import resolve
from lra.runtime.environment import choose_device
from lra.tasks.base import Batch, Dataset, Split, TaskInfo
from lra.train.evaluation import Evaluator
from lra.train.trainer import Trainer

EVALUATED_BATCHES = 4
"""Batches of one forward measurement; kernels are generated once for all of them, as in an
evaluation."""
RECORDED_APART = {"train.batch_size", "train.precision"}
"""Changed settings that have a field of their own in a record."""
PUBLISHED = {
    "precision": "fp32", "bucketing": False, "checkpoint_activations": False, "cuda_graphs": False,
}  # fmt: skip
"""Settings of training of the reference."""


class SyntheticSplit(Split):
    """Random sequences that are all of one length."""

    def __init__(self, info: TaskInfo, examples: int) -> None:
        rng = np.random.default_rng(0)
        self.info = info
        self.lengths = np.full(examples, info.max_length, dtype=np.int64)
        self.labels_each = info.max_length if info.goal.of_positions else 1
        labels = examples * self.labels_each
        self.labels = rng.integers(0, info.goal.outputs, size=labels)

    def assemble(self, indices: np.ndarray) -> Batch:
        """See `Split.assemble`."""
        info = self.info
        positions = len(indices) * info.towers * info.max_length
        if info.vocab_size is not None:
            inputs = torch.randint(1, info.vocab_size, (positions,))
        else:
            inputs = torch.randn(positions, info.channels or 1)
        lengths = torch.full((len(indices), info.towers), info.max_length)
        labels = self.labels.reshape(len(self), -1)[indices].ravel()
        counts = torch.full((len(indices),), self.labels_each)
        return Batch(inputs, lengths, torch.from_numpy(labels), counts, counts)


@dataclass(frozen=True, kw_only=True)
class StepCase(Case):
    """Training steps, or the first batches of an evaluation, of a classifier with one mixer."""

    mode: Literal["step", "forward"]
    request: RunRequest
    length: int | None
    """Positions of synthetic sequences, 0 for the task's longest; None for the task's own data."""
    data_dir: Path
    varied: tuple[Sequence[Change], ...] = ()
    """The values of each setting of which several values share the rounds."""

    def config(self) -> RunConfig:
        """Compose the settings; the reference computes in single precision."""
        config = resolve(self.request)
        if not self.is_reference:
            return config
        return dataclasses.replace(config, train=config.train.model_copy(update=PUBLISHED))

    def keeps_memory(self) -> bool:
        """See `Case.keeps_memory`."""
        return super().keeps_memory() and self.config().train.checkpoint_activations is not True

    def info(self) -> TaskInfo:
        """Return the task's description with sequences of this length.

        Raises: UserError for a length that the task's grid does not have.
        """
        info = self.config().build_task().info
        if not self.length:
            return info
        if info.grid is not None and self.length != info.max_length:
            raise UserError(
                f"--lengths {self.length}: {info.name} is a grid of {info.max_length} positions"
            )
        return dataclasses.replace(info, max_length=self.length)

    def build(self) -> Subject:
        """See `Case.build`."""
        config, info = self.config(), self.info()
        if self.length is None:
            dataset = config.build_task().prepare(self.data_dir)
        else:
            split = SyntheticSplit(info, EVALUATED_BATCHES * config.train.batch_size)
            dataset = Dataset(
                splits={"train": split, "val": split}, source="synthetic", fingerprint="",
                baselines={}, folder=Path(),
            )  # fmt: skip
        trainer = Trainer(
            config,
            info,
            dataset,
            seed=0,
            device=choose_device(self.device),
            classifier=ReferenceClassifier if self.is_reference else Classifier,
        )
        facts: dict[str, Any] = {"params": trainer.model.num_parameters}
        if self.mode == "forward":
            split = trainer.dataset.splits["val"]
            examples = np.arange(min(len(split), EVALUATED_BATCHES * config.train.batch_size))
            evaluator = Evaluator(
                model=trainer.model,
                batch_size=trainer.gradient.micro_batch,
                device=trainer.device,
                precision=config.train.precision,
            )
            return Subject(
                run=lambda: evaluator.compute_logits(split, lambda *_: None, examples),
                repetitions=EVALUATED_BATCHES,
                facts=lambda: facts,
            )

        def step() -> None:
            trainer.train_step()
            trainer.read()

        return Subject(
            run=step, facts=lambda: {**facts, "flops_per_step": trainer.metrics.flops_per_step}
        )

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        config = self.config()
        return {
            "mode": self.mode,
            "mixer": config.mixer_name,
            "mixer_code": config.mixer_component.code,
            "task": config.task_name,
            "preset": config.preset,
            "preset_code": config.preset_code,
            "protocol": config.protocol,
            "changes": {
                change.name: change.value
                for change in self.request.changes
                if change.origin.startswith(("--set ", "--vary "))
                and change.name not in RECORDED_APART
            },
            "varied": {
                first.name: [first.value, *(change.value for change in others)]
                for first, *others in self.varied
            },
            "lengths": "task" if self.length is None else "full",
            "length": self.info().max_length,
            "batch_size": config.train.batch_size,
            "precision": config.train.precision,
        }
