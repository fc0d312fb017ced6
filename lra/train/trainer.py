"""A model in training: its steps, its validations, and the best model so far."""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple, NotRequired

import numpy as np
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
from lra.train.evaluation import Evaluator, Score
from lra.train.gradient import Gradient
from lra.train.optimizer import build_optimizer, set_rate_factor
from lra.train.schedule import Plateau, RunLength, rate_factor
from lra.train.step_graph import StepGraph, find_obstacle
from models.base import begin_step
from tasks.base import Batch, Dataset, TaskInfo
from tasks.order import BatchOrder
from tasks.splits import put_on_device

logger = logging.getLogger(__name__)

WARMUP_STEPS = 3
"""First steps of a session, which are left out of the measured speed."""
COUNTED_STEPS = 3
"""First steps of a run, whose arithmetic is counted."""
READ_SECONDS = 0.5
"""Time after which a single process reads the numbers of its steps."""
RESIDENT_FRACTION = 0.25
"""Share of a GPU's free memory that a data set may take."""

Sum = Annotated[float, Field(ge=0, lt=1e18)]
StepNumber = Annotated[int, Field(ge=0, lt=2**53)]


class StepSums(TypedDict):
    """Sums over the steps since the last line of metrics; losses in nats."""

    loss: FiniteFloat
    correct: Sum
    seen: Sum
    steps: Sum
    seconds: Sum


class Best(TypedDict):
    """The best model so far on the validation split, by accuracy or by `merit`, in percent."""

    val_accuracy: Annotated[float, Field(ge=0, le=100)]
    val_loss: NotRequired[FiniteFloat]
    merit: NotRequired[Annotated[float, Field(ge=0, le=100)]]
    step: StepNumber
    model: dict[str, DenseTensor]


class Step(NamedTuple):
    """A step whose numbers are still on the device."""

    number: int
    """Counted from 1."""
    rate: float
    targets: int
    """Targets of its batch."""
    numbers: Tensor
    """(3,) this process's part of the loss and of the right predictions; norm of the gradient."""
    flops: float
    """This process's part of the arithmetic; 0 where it is not counted."""


class Diverged(KnownError):
    """The loss or the gradient is no longer finite."""


class Trainer:
    """Trains a classifier; `lra.train.state` captures its complete state.

    Args:
        dataset: with splits train and val.
        classifier: the class of the model.
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
        train, split = config.train, dataset.splits["train"]
        self.group = group
        self.config = config
        self.train_config = train
        self.info = info
        self.device = device
        if device.type == "cuda":
            most = RESIDENT_FRACTION * 2**20 * available_memory_mib(device)
            dataset = put_on_device(dataset, device, most)
        self.dataset = dataset
        self.model = classifier(config, info).to(device)
        self.model.train()
        self.optimizer = build_optimizer(self.model, train)
        self.gradient = Gradient(self.model, config, info, split, device=device, group=group)
        self.plateau = Plateau(train)
        self.order = BatchOrder(
            split.lengths, train.batch_size, seed=seed, bucketing=train.bucketing
        )
        self.length = RunLength(train, self.order.batches_per_epoch)
        self.step = 0
        self.seconds = 0.0
        """Time of all steps of the run whose numbers were read."""
        self.validated_step, self.validated_seconds = 0, 0.0
        self.best: Best | None = None
        self.clear()
        self.rate, self.grad_norm = 0.0, 0.0
        """Learning rate, and norm of the gradient, of the last step that was read."""
        self.step_seconds: list[float] = []
        self.step_flops: list[float] = []
        group.seed_rank(seed, self.step)
        self.full_batch = min(train.batch_size, len(split.lengths))
        """Examples of every batch but the last one of an epoch."""
        self.step_graph: StepGraph | None = None
        """Makes the steps of full batches if they are a CUDA graph."""
        self._unread: list[Step] = []
        self._unread_since = 0.0
        self._session_steps = 0

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run; for a run of minutes, an estimate."""
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
        """Whether the model must be validated before the next step."""
        last = (self.validated_step, self.validated_seconds)
        return self.length.is_due(self.step, self.seconds, last)

    def train_step(self) -> None:
        """Make one optimizer step; its numbers stay on the device until `read`."""
        micro_batch = self.gradient.fit_memory()
        if self._session_steps == 0 and self.train_config.cuda_graphs:
            self.step_graph = self.build_step_graph()
        if not self._unread:
            self._unread_since = time.perf_counter()
        factor = rate_factor(self.step, self.total_steps, self.train_config) * self.plateau.factor
        with record_function("data"):  # named so in a profile of a step
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
                numbers, targets = graph(batch).clone(), len(indices)
            else:
                numbers, targets = self.gradient.compute(batch, len(indices), known)
        if graph is None:
            self.optimizer.step()
        self.step += 1
        self._session_steps += 1
        flops = 0.0 if counter is None else float(counter.total)
        rate = factor * self.train_config.lr
        self._unread.append(Step(self.step, rate, targets, numbers, flops))

    def read_is_due(self) -> bool:
        """Whether to read the numbers of the steps now; several processes do so at every step."""
        if self.group.world_size > 1 or self._session_steps <= WARMUP_STEPS:
            return True
        return time.perf_counter() - self._unread_since >= READ_SECONDS

    def read(self) -> None:
        """Read the numbers of the steps since the last call, which waits for a GPU.

        All processes must call this at the same steps.

        Raises: Diverged for the first step whose loss or gradient is not finite. It does not count.
        """
        steps, self._unread = self._unread, []
        if not steps:
            return
        own = torch.stack([step.numbers for step in steps]).tolist()
        seconds = (time.perf_counter() - self._unread_since) / len(steps)
        parts = [[n[0], n[1], step.flops] for n, step in zip(own, steps, strict=True)]
        sums, seconds = self._add_up(parts, seconds)
        for step, (loss, correct, flops), (*_, norm) in zip(steps, sums, own, strict=True):
            self._require_finite(step, {"loss": loss, "gradient": norm})
            if step.number <= COUNTED_STEPS:
                self.step_flops.append(flops)
            self.sums["loss"] += loss
            self.sums["correct"] += round(correct)
            self.sums["seen"] += step.targets
            self.sums["steps"] += 1
            self.sums["seconds"] += seconds
            self.rate, self.grad_norm = step.rate, norm
        self.seconds += seconds * len(steps)
        if self._session_steps > WARMUP_STEPS:
            self.step_seconds += [seconds] * len(steps)

    def _require_finite(self, step: Step, numbers: dict[str, float]) -> None:
        for what, number in numbers.items():
            if not math.isfinite(number):
                self.step = step.number - 1
                raise Diverged(
                    f"the {what} of step {step.number} is not finite (task "
                    f"{self.config.task_name}, mixer {self.config.mixer_name}, learning rate "
                    f"{step.rate:.3g})"
                )

    def _add_up(self, parts: list[list[float]], seconds: float) -> tuple[list[list[float]], float]:
        """Add up the processes' parts of each step: loss, right predictions and arithmetic.

        Returns: the sums, and the seconds of the main process.
        """
        if self.group.world_size == 1:
            return parts, seconds
        numbers = [number for part in parts for number in part]
        *sums, seconds = self.group.sums_of([*numbers, seconds * self.group.is_main_process])
        by_step = np.reshape(sums, (-1, 3))
        by_step[:, :2] = by_step[:, :2].astype(np.float32)  # as precise as those of one process
        return by_step.tolist(), seconds

    def means(self) -> dict[str, float]:
        """Return the means over the steps read since the last `clear`, and the last rate."""
        steps = self.sums["steps"]
        return {
            "loss": self.sums["loss"] / steps,
            "accuracy": 100.0 * self.sums["correct"] / max(1.0, self.sums["seen"]),
            "steps_per_second": steps / self.sums["seconds"],
            "lr": self.rate,
            "grad_norm": self.grad_norm,
        }

    def clear(self) -> None:
        """Begin a new line of metrics."""
        self.sums = StepSums(loss=0.0, correct=0.0, seen=0.0, steps=0.0, seconds=0.0)

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
        """Make an optimizer step for a whole batch; return the numbers of `Gradient.compute`."""
        numbers, _ = self.gradient.compute(batch, len(batch.lengths), None)
        self.optimizer.step()
        return numbers

    def score(self, split: str, check: Callable[[], None]) -> Score:
        """Evaluate the model on a split; see `Evaluator`."""
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
        self.read()
        score = self.score("val", check)
        has_loss = self.info.targets == "position"
        if has_loss and not math.isfinite(score.loss):
            raise Diverged(f"the validation loss at step {self.step} is not finite")
        self.validated_step, self.validated_seconds = self.step, self.seconds
        self.plateau.update(score.merit)
        if self.best is None or score.merit > self.best.get("merit", self.best["val_accuracy"]):
            weights = copy_to_cpu(self.model.state_dict())
            self.best = {"val_accuracy": score.accuracy, "step": self.step, "model": weights}
            if has_loss:
                self.best["val_loss"], self.best["merit"] = score.loss, score.merit
        return score

    def load_best(self) -> None:
        """Load the weights of the best model."""
        assert self.best is not None
        self.model.load_state_dict(copy_to_device(self.best["model"], self.device))
