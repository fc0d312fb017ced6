"""A model in training: its steps, its validations, and the best model so far."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import TypedDict

from common.untrusted import explain_errors
from lra.classifier.classifier import Classifier
from lra.classifier.layouts import SAMPLED_BATCHES, choose_layouts, describe_padding
from lra.config.schema import RunConfig
from lra.record.schema import Amount, Count, Percent
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import (
    RandomState,
    SavedTensor,
    copy_to_cpu,
    random_state,
    restore_random_state,
    seed_everything,
    set_arithmetic,
)
from lra.runtime.flops import FlopCounter
from lra.train.evaluation import Evaluator, Score
from lra.train.fixed_batch import FixedBatch
from lra.train.gradient import Gradient
from lra.train.metrics import Diverged, Loss, MetricsState, Step, StepMetrics
from lra.train.optimizer import (
    Moments,
    Plateau,
    build_optimizer,
    load_moments,
    rate_factor,
    scheduled_beta1,
    set_rate_factor,
    update_plateau,
)
from lra.train.step_graph import LEAST_REPEATS, StepGraphs, sort_parts
from lra.train.training_time import RunLength
from models.base import Mixer
from tasks.base import Batch, Dataset, TaskInfo
from tasks.batch import BatchOrder
from tasks.splits import put_on_device

logger = logging.getLogger(__name__)

COUNTED_STEPS = 3
"""First steps of a run, whose arithmetic is counted."""
RESIDENT_FRACTION = 0.25
"""Share of a GPU's free memory that a data set may take."""


class Best(TypedDict):
    """The best model so far on the validation split."""

    merit: Percent
    """See `Score.merit`."""
    val_accuracy: Percent
    val_loss: Loss | None
    """In nats; None unless the next tokens are targets."""
    step: Count
    model: dict[str, SavedTensor]


class TrainerState(TypedDict):
    """Everything that later steps depend on."""

    step: Count
    validated_step: Count
    validated_seconds: Amount
    best: Best | None
    model: dict[str, SavedTensor]
    moments: Moments
    metrics: MetricsState
    plateau: Plateau
    random: Annotated[list[RandomState], Field(min_length=1)]
    """Of each process."""


class Trainer:
    """Trains a classifier."""

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
        train = config.train
        seed_everything(seed)
        set_arithmetic(
            device, tf32=train.tf32, kernels=train.kernels, deterministic=train.deterministic
        )
        self.group = group
        self.config = config
        self.train_config = train
        self.info = info
        self.device = device
        if device.type == "cuda":
            most = RESIDENT_FRACTION * torch.cuda.mem_get_info(device)[0]
            dataset = put_on_device(dataset, device, most)
        self.dataset = dataset
        self.model = classifier(config, info).to(device)
        self.model.train()
        self.optimizer = build_optimizer(self.model, train)
        self.gradient = Gradient(self.model, config, info, group)
        self.plateau = Plateau(factor=1.0, best=None, waited=0)
        lengths = dataset.splits["train"].lengths
        self.order = BatchOrder(lengths, train.batch_size, seed=seed, bucketing=train.bucketing)
        self.full_batch = min(train.batch_size, len(lengths))
        """Examples of every batch but the last one of an epoch."""
        self.length = RunLength(train, self.order.batches_per_epoch)
        self.best: Best | None = None
        self.step = 0
        self.validated_step, self.validated_seconds = 0, 0.0
        self.metrics = StepMetrics(group)
        # With several processes, one that tries alone would wait for the gradients of the others.
        is_single_gpu = device.type == "cuda" and group.world_size == 1
        if is_single_gpu and train.checkpoint_activations == "auto":
            longest = np.argsort(-lengths, kind="stable")[: self.gradient.micro_batch]
            self.gradient.fit_memory(dataset.splits["train"].batch(longest).to(device))
        self.mixers = [m for m in self.model.modules() if isinstance(m, Mixer)]
        self.step_graphs = self.build_step_graphs()
        """Makes the steps of full batches if they are CUDA graphs."""
        group.seed_rank(seed, self.step)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def has_batch_norm(self) -> bool:
        """Whether results depend on which examples of a batch are computed together."""
        return any(isinstance(module, _BatchNorm) for module in self.model.modules())

    @property
    def total_steps(self) -> int:
        """Steps of the whole run; for a run of minutes, an estimate."""
        return self.length.total(self.step, self.metrics.seconds)

    def validation_is_due(self) -> bool:
        """Whether the model must be validated before the next step."""
        last = (self.validated_step, self.validated_seconds)
        return self.length.is_due(self.step, self.metrics.seconds, last)

    def train_step(self) -> None:
        """Make one optimizer step; its numbers stay on the device until `read`."""
        self.metrics.begin_step()
        progress = self.step, self.total_steps, self.train_config
        factor = rate_factor(*progress) * self.plateau["factor"]
        set_rate_factor(self.optimizer, factor, scheduled_beta1(*progress))
        indices = self.order.at(self.step)
        own = self.group.local_indices(indices, self.gradient.micro_batch)
        split = self.dataset.splits["train"]
        batch, known = split.batch(own).to(self.device), split.count_targets(indices)
        have_changed = [mixer.begin_step() for mixer in self.mixers]
        if any(have_changed):
            self.group.share_buffers(self.model)
        is_counted = self.step < COUNTED_STEPS
        with FlopCounter() if is_counted else contextlib.nullcontext() as counter:
            numbers, targets = self._make_any_step(batch, len(indices), known)
        self.step += 1
        flops = None if counter is None else float(counter.total)
        self.metrics.add(Step(self.step, factor * self.train_config.lr, targets, numbers, flops))

    def _make_any_step(self, batch: Batch, examples: int, known: int | None) -> tuple[Tensor, int]:
        """Make a step as a CUDA graph if that is possible."""
        if self.step_graphs is not None and examples == self.full_batch:
            targets = examples if known is None else known
            numbers = self.step_graphs(batch, targets)
            if numbers is not None:
                return numbers, targets
        return self.make_step(batch, examples, known)

    def make_step(
        self,
        batch: Batch | FixedBatch,
        examples: int | None = None,
        targets: int | None = None,
    ) -> tuple[Tensor, int]:
        """Compute a gradient and make an optimizer step; see `Gradient.compute`."""
        numbers, targets = self.gradient.compute(batch, examples, targets)
        self.optimizer.step()
        return numbers, targets

    def find_graph_obstacle(self) -> str | None:
        """Say why the steps of full batches cannot be CUDA graphs, or None if they can."""
        part = self.gradient.micro_batch
        first = self.order.at(0)
        obstacles = {
            "the device is not CUDA": self.device.type != "cuda",
            "several processes train together": self.group.world_size > 1,
            "log.internals measures ordinary steps": self.config.log.internals,
            "schedule onecycle changes beta1 at each step":
                self.train_config.schedule == "onecycle",
            "the model packs batches by itself":
                type(self.model).forward is not Classifier.forward,
            "only a batch tells how many targets it has":
                self.info.targets != "example"
                and self.dataset.splits["train"].count_targets(first) is None,
            f"micro-batches of {part} do not divide a batch of {self.full_batch} evenly":
                self.full_batch % min(part, self.full_batch) > 0,
            "blocks that are computed again set the state of random numbers during a step":
                self.model.checkpoint_activations,
        }  # fmt: skip
        return next((text for text, holds in obstacles.items() if holds), None)

    def build_step_graphs(self) -> StepGraphs | None:
        """Build what makes the steps of full batches, or say why they are no CUDA graphs."""
        wanted = self.train_config.cuda_graphs
        if not wanted or (wanted == "auto" and self.device.type != "cuda"):
            return None
        log = logger.info if wanted == "auto" else logger.warning
        if (reason := self.find_graph_obstacle()) is not None:
            log(f"training steps are not CUDA graphs: {reason}")
            return None
        split = self.dataset.splits["train"]
        part = min(self.gradient.micro_batch, self.full_batch)
        sampled = self.order.sample(SAMPLED_BATCHES)
        lengths = self.model.embedding.add_cls(torch.from_numpy(split.tower_lengths)).numpy()
        batches = np.stack([sort_parts(lengths[batch], part) for batch in sampled])
        layouts = choose_layouts(batches, int(lengths.max()))
        repeats = self.total_steps // len(layouts)
        if wanted == "auto" and repeats < LEAST_REPEATS:
            logger.info(
                f"training steps are not CUDA graphs: each of {len(layouts)} shapes of batches "
                f"would repeat {repeats} times only"
            )
            return None
        logger.info(f"training steps are CUDA graphs: {describe_padding(layouts, batches)}")
        most_targets = None
        if self.info.targets == "token":
            counts = [split.count_targets(p) or 0 for b in sampled for p in b.reshape(-1, part)]
            most_targets = max(counts)
        return StepGraphs(
            lambda batch: self.make_step(batch)[0],
            self.model,
            self.optimizer,
            layouts=layouts,
            part_size=part,
            most_targets=most_targets,
        )

    def read(self) -> None:
        """Read the numbers of the steps since the last call; see `StepMetrics.read`.

        Raises: Diverged for the first step whose loss or gradient is not finite. It does not count.
        """
        bad = self.metrics.read()
        if bad is not None:
            self.step = bad.number - 1
            what = "gradient" if bad.numbers[0].isfinite() else "loss"
            raise Diverged(
                f"the {what} of step {bad.number} is not finite (learning rate {bad.rate:.3g})"
            )

    def score(self, split: str, check: Callable[[], None]) -> Score:
        """Evaluate the model on a split; see `Evaluator`."""
        evaluator = Evaluator(
            model=self.model,
            batch_size=max(1, self.gradient.micro_batch // self.group.world_size),
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
        self.validated_step, self.validated_seconds = self.step, self.metrics.seconds
        update_plateau(self.plateau, score.merit, self.train_config)
        if self.best is None or score.merit > self.best["merit"]:
            self.best = {
                "merit": score.merit,
                "val_accuracy": score.accuracy,
                "val_loss": score.loss if has_loss else None,
                "step": self.step,
                "model": copy_to_cpu(self.model.state_dict()),
            }
        return score

    def test(self, check: Callable[[], None]) -> Score:
        """Evaluate the best model on the test split, and put the present one back."""
        assert self.best is not None
        present = copy_to_cpu(self.model.state_dict())
        self.model.load_state_dict(self.best["model"])
        try:
            return self.score("test", check)
        finally:
            self.model.load_state_dict(present)

    def state_dict(self) -> TrainerState:
        """Return everything that later steps depend on; all processes must take part.

        Raises: Diverged, see `read`.
        """
        self.read()
        moments, groups = self.optimizer.state, self.optimizer.param_groups
        return {
            "step": self.step,
            "validated_step": self.validated_step,
            "validated_seconds": self.validated_seconds,
            "best": self.best,
            "model": self.model.state_dict(),
            "moments": [moments.get(p) for group in groups for p in group["params"]],
            "metrics": self.metrics.state_dict(),
            "plateau": self.plateau,
            "random": self.group.gather(random_state(self.device)),
        }

    def load_state_dict(self, state: TrainerState) -> None:
        """Go on with a state of `state_dict`, of the same settings.

        Raises: DataError for a state that does not fit, after which the trainer is of no use.
        """
        best, group = state["best"], self.group
        with explain_errors("its state"):
            steps = best["step"] if best else 0, state["validated_step"], state["step"]
            if [*steps] != sorted(steps) or (best is None and steps[1]):
                raise ValueError(f"the best, the validated and the last step are {steps}")
            # The best model is only checked, so that it does not fail in the test.
            for weights in [state["model"]] if best is None else [best["model"], state["model"]]:
                self.model.load_state_dict(weights)
                for name, parameter in self.model.named_parameters():
                    if weights[name].dtype != parameter.dtype:  # torch converts them
                        raise ValueError(f"weights of another type in {name}")
            load_moments(self.optimizer, state["moments"])
            is_same = len(state["random"]) == group.world_size
            restore_random_state(state["random"][group.rank if is_same else 0], self.device)
        self.metrics.load_state_dict(state["metrics"])
        self.plateau, self.step, self.best = state["plateau"], state["step"], best
        self.validated_step = state["validated_step"]
        self.validated_seconds = state["validated_seconds"]
        if not is_same:
            group.seed_rank(self.order.seed, self.step)
