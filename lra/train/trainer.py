"""A model in training: its steps, validations, and complete state."""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Callable
from typing import Annotated, NotRequired

import torch
from pydantic import Field, FiniteFloat
from torch import Tensor
from torch.profiler import record_function
from typing_extensions import TypedDict

from common.errors import KnownError
from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import (
    DenseTensor,
    available_memory_mib,
    copy_to_cpu,
    copy_to_device,
    seed_everything,
    use_deterministic,
    use_kernels,
    use_tf32,
)
from lra.runtime.flops import FlopCounter
from lra.train.agreement import Agreement
from lra.train.evaluation import Evaluator, Score
from lra.train.gradient import Gradient
from lra.train.interval import Interval
from lra.train.made_step import MadeStep
from lra.train.optimizer import build_optimizer, rate_factor, set_rate_factor
from lra.train.plateau import Plateau
from lra.train.run_length import RunLength
from lra.train.step_graph import StepGraph, find_obstacle
from models.base import begin_step
from tasks.base import Batch, Dataset, TaskInfo
from tasks.order import BatchOrder
from tasks.resident import put_on_device

logger = logging.getLogger(__name__)

WARMUP_STEPS = 3
"""First steps of a session, left out of the measured speed."""

COUNTED_STEPS = WARMUP_STEPS
"""First steps of a run, whose arithmetic is counted."""


RESIDENT_FRACTION = 0.25
"""How much of a GPU's free memory a data set may take."""


StepNumber = Annotated[int, Field(ge=0, lt=2**53)]


class Best(TypedDict):
    """The best model so far on the validation split.

    By its accuracy in percent, or where positions are targets by its mean loss in nats.
    """

    val_accuracy: Annotated[float, Field(ge=0, le=100)]
    val_loss: NotRequired[FiniteFloat]
    merit: NotRequired[Annotated[float, Field(ge=0, le=100)]]
    step: StepNumber
    model: dict[str, DenseTensor]


class Diverged(KnownError):
    """The loss or the gradient is no longer finite."""


class Trainer:
    """Trains a classifier; `lra.train.state` captures the whole of its state.

    Args:
        dataset: with splits train and val.
        classifier: what is trained; a subclass computes the same by other ways.
        group: the processes that train it together.
    """

    def __init__(
        self,
        config: RunConfig,
        info: TaskInfo,
        dataset: Dataset,
        seed: int,
        device: torch.device,
        *,
        classifier: type[Classifier] = Classifier,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        seed_everything(seed)
        use_tf32(device, config.train.tf32)
        use_kernels(device, config.train.kernels)
        use_deterministic(device, config.train.deterministic)
        self.group = group
        self.config = config
        self.train_config = config.train
        if device.type == "cuda":
            limit = RESIDENT_FRACTION * 2**20 * available_memory_mib(device)
            dataset = put_on_device(dataset, device, limit)
        self.dataset = dataset
        self.info = info
        self.device = device
        self.model = classifier(config, info).to(device)
        self.model.train()
        self.optimizer = build_optimizer(self.model, config.train)
        self.gradient = Gradient(
            self.model, config, info, self.optimizer, dataset.splits["train"], device, group
        )
        self.plateau = Plateau(config.train)
        self.order = BatchOrder(
            dataset.splits["train"].lengths,
            config.train.batch_size,
            seed=seed,
            bucketing=config.train.bucketing,
        )
        self.length = RunLength(config.train, self.order.batches_per_epoch)
        self.step = 0
        self.seconds = 0.0
        """Time that all steps of the run took; of several processes, without the last step."""
        self.validated_step = 0
        self.validated_seconds = 0.0
        self.best: Best | None = None
        self.interval = Interval()
        self.step_seconds: list[float] = []
        self.step_flops: list[float] = []
        self.group.seed_rank(self.order.seed, self.step)
        self._session_steps = 0
        self.full_batch = min(config.train.batch_size, len(self.order.lengths))
        """Examples of every batch but the last one of an epoch."""
        self.step_graph: StepGraph | None = None
        """Makes the steps of full batches, if they are a CUDA graph."""
        self.reads_late = device.type == "cuda"
        """Whether a step's numbers are read after the next step, so that the GPU never waits."""
        self.agreement = Agreement(group)
        self._unread: MadeStep | None = None
        self._untold_seconds = 0.0
        self._facts: dict[str, float] = {}

    @property
    def num_parameters(self) -> int:
        """Trainable numbers in the model."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run; where its length is a time, what they will amount to."""
        return self.length.total(self.step, self.seconds)

    @property
    def steps_per_second(self) -> float | None:
        """One over the median duration of a step; None before the first measured one."""
        return 1.0 / statistics.median(self.step_seconds) if self.step_seconds else None

    @property
    def flops_per_step(self) -> float | None:
        """Mean over the first steps, whose lengths are random; None before the first one."""
        return statistics.mean(self.step_flops) if self.step_flops else None

    def validation_is_due(self) -> bool:
        """Whether the present step must be validated before the next one is made."""
        last = (self.validated_step, self.validated_seconds)
        return self.length.is_due(self.step, self.seconds, last)

    def train_step(self) -> dict[str, float]:
        """Make one optimizer step; return its learning rate and the norm of its gradient.

        Its loss and accuracy enter `interval`. On a GPU, that and what is returned are of the step
        before, so that the GPU never waits; `read_steps` catches up.

        Raises: Diverged, with the parameters as they were before the step; on a GPU a step or two
            later.
        """
        micro_batch = self.gradient.fit_memory()
        if self._session_steps == 0 and self.train_config.cuda_graphs:
            self.step_graph = self.build_step_graph()
        start = time.perf_counter()
        factor = rate_factor(self.step, self.total_steps, self.train_config) * self.plateau.factor
        rate = factor * self.train_config.lr
        with record_function("data"):  # what a profile of a step calls it
            indices = self.order.at(self.step)
            own = self.group.local_indices(indices, micro_batch)
            split = self.dataset.splits["train"]
            batch, known = split.batch(own).to(self.device), split.count_targets(indices)
        if begin_step(self.model):
            self.group.share_buffers(self.model)
        set_rate_factor(self.optimizer, factor)
        graph = self.step_graph if len(indices) == self.full_batch else None
        is_counted = self.step < COUNTED_STEPS
        with FlopCounter() if is_counted else contextlib.nullcontext() as counter:
            if graph is not None:
                numbers, targets = graph(batch), len(indices)
            else:
                numbers, targets = self.gradient.compute(batch, len(indices), known)
        flops = None if counter is None else float(counter.total)
        made = MadeStep(self.step + 1, rate, targets, numbers, flops)
        if graph is None:
            if not self.reads_late:
                self._complete(made)
            self.optimizer.step()
        self.step += 1
        self.read_steps()  # the one before, while a GPU computes this one
        seconds = time.perf_counter() - start
        if self.group.world_size == 1:
            self.seconds += seconds
        elif self.group.is_main_process:
            self._untold_seconds += seconds
        self._session_steps += 1
        if self._session_steps > WARMUP_STEPS:
            self.step_seconds.append(seconds)
        made.seconds = seconds
        self._unread = made
        if not self.reads_late:
            self.read_steps()
        return self._facts

    def read_steps(self) -> dict[str, float]:
        """Read the numbers of the last step, if a GPU was still computing it, into `interval`.

        Returns: the step's learning rate and the norm of its gradient.
        Raises: Diverged, see `train_step`.
        """
        if (made := self._unread) is not None:
            self._unread = None
            self._complete(made)
            loss, correct, norm = made.numbers
            self.interval.add(loss, round(correct), made.targets, made.seconds)
            self._facts = {"lr": made.rate, "grad_norm": norm}
        return self._facts

    def _complete(self, made: MadeStep) -> None:
        """Add up what the processes have of a step, once; all must call this.

        Raises: Diverged for a step whose loss or gradient is not finite; it does not count.
        """
        if not made.is_whole:
            parts = [*made.numbers[:2], made.flops or 0.0, self._untold_seconds]
            loss, correct, flops, seconds = self.agreement.exchange(parts)
            made.take_sums(loss, correct)
            if made.flops is not None:
                self.step_flops.append(flops)
            self.seconds += seconds
            self._untold_seconds = 0.0
        if (what := made.not_finite) is not None:
            self.step = made.number - 1
            raise Diverged(
                f"the {what} of step {made.number} is not finite (task {self.config.task_name}, "
                f"mixer {self.config.mixer_name}, learning rate {made.rate:.3g})"
            )

    def build_step_graph(self) -> StepGraph | None:
        """Build what makes the steps of full batches, or warn why they are no CUDA graph."""
        obstacle = find_obstacle(
            self.info,
            self.order.lengths,
            self.device,
            processes=self.group.world_size,
            examples=self.full_batch,
            micro_batch=self.gradient.micro_batch or self.full_batch,
            is_recomputed=self.model.checkpoint_activations,
        )
        if obstacle is None:
            return StepGraph(self.make_whole_step, self.optimizer)
        logger.warning(f"train.cuda_graphs has no effect: {obstacle}")
        return None

    def make_whole_step(self, batch: Batch) -> Tensor:
        """Make an optimizer step for a whole batch, as `StepGraph` needs it.

        Returns: see `Gradient.compute`.
        """
        numbers, _ = self.gradient.compute(batch, len(batch.lengths), None)
        self.optimizer.step()
        return numbers

    def score(self, split: str, check: Callable[[], None]) -> Score:
        """Evaluate the model on a split."""
        examples = self.gradient.micro_batch or self.train_config.batch_size
        evaluator = Evaluator(
            model=self.model,
            batch_size=max(1, examples // self.group.world_size),
            device=self.device,
            precision=self.train_config.precision,
            check=check,
            title=f"evaluating on {split}",
            group=self.group,
        )
        return evaluator.score(self.dataset.splits[split], self.info)

    def validate(self, check: Callable[[], None]) -> Score:
        """Evaluate on the validation split and keep the model if it is the best so far.

        Raises: Diverged where positions are targets, if their loss is not finite.
        """
        self.read_steps()
        score = self.score("val", check)
        if self.info.targets == "position" and not math.isfinite(score.loss):
            raise Diverged(f"the validation loss at step {self.step} is not finite")
        self.validated_step, self.validated_seconds = self.step, self.seconds
        self.plateau.update(score.merit)
        if self.best is None or score.merit > self.best.get("merit", self.best["val_accuracy"]):
            weights = copy_to_cpu(self.model.state_dict())
            best: Best = {"val_accuracy": score.accuracy, "step": self.step, "model": weights}
            if self.info.targets == "position":
                best["val_loss"], best["merit"] = score.loss, score.merit
            self.best = best
        return score

    def load_best(self) -> None:
        """Put the best model's weights in place of the last ones."""
        assert self.best is not None
        self.model.load_state_dict(copy_to_device(self.best["model"], self.device))
