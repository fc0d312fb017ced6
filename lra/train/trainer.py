"""A model in training: its steps, its validations, and the best model so far."""

import contextlib
import math
from collections.abc import Callable

import torch

from lra.classifier.classifier import Classifier
from lra.common.untrusted import explain_errors
from lra.config.schema import RunConfig
from lra.goals.registry import scorer_of
from lra.goals.scorer import Score
from lra.models.base import begin_step
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from lra.runtime.environment import (
    copy_to_cpu,
    random_state,
    restore_random_state,
    seed_everything,
    set_arithmetic,
)
from lra.runtime.flops import FlopCounter
from lra.tasks.base import Dataset, TaskInfo
from lra.tasks.batch import BatchOrder
from lra.tasks.splits import put_on_device
from lra.train.evaluation import Evaluator
from lra.train.gradient import Gradient
from lra.train.metrics import Diverged, Step, StepMetrics
from lra.train.optimizer import (
    Plateau,
    build_optimizer,
    load_moments,
    rate_factor,
    scheduled_beta1,
    set_rate_factor,
    update_plateau,
)
from lra.train.state import Best, TrainerState, load_weights
from lra.train.step_graph import build_step
from lra.train.training_time import RunLength, list_warnings

COUNTED_STEPS = 3
"""First steps of a run, whose arithmetic is counted."""
RESIDENT_FRACTION = 0.25
"""Share of a GPU's free memory that a data set may take."""


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
        set_arithmetic(device, tf32=train.tf32, deterministic=train.deterministic)
        self.group = group
        self.train_config = train
        self.device = device
        if device.type == "cuda":
            most = RESIDENT_FRACTION * torch.cuda.mem_get_info(device)[0]
            dataset = put_on_device(dataset, device, most)
        self.dataset = dataset
        self.model = classifier(config, info).to(device)
        self.model.train()
        self.optimizer = build_optimizer(self.model, train)
        self.scorer = scorer_of(info, dataset)
        self.gradient = Gradient(self.model, config, self.scorer, group)
        self.plateau = Plateau(factor=1.0, best=None, waited=0)
        split = dataset.splits["train"]
        self.order = BatchOrder(
            split.lengths, train.batch_size, seed=seed, bucketing=train.bucketing
        )
        self.length = RunLength(train, self.order.batches_per_epoch)
        self.best: Best | None = None
        self.step = 0
        self.validated_step, self.validated_seconds = 0, 0.0
        self.metrics = StepMetrics(group)
        if device.type == "cuda":
            self.gradient.fit_memory(split)
        self.make_step = build_step(config, self.gradient, self.optimizer, split, self.total_steps)
        group.seed_rank(seed, self.step)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run; for a run of minutes, an estimate."""
        return self.length.total(self.step, self.metrics.seconds)

    def validation_is_due(self) -> bool:
        """Whether the model must be validated before the next step."""
        last = (self.validated_step, self.validated_seconds)
        return self.length.is_due(self.step, self.metrics.seconds, last)

    def list_warnings(self) -> list[str]:
        """List what a user should know before the first step."""
        warnings = list_warnings(self.train_config, self.total_steps)
        part, full_batch = self.gradient.micro_batch, self.order.full_batch
        if self.model.has_batch_norm and part < full_batch:
            warnings.append(
                f"train.micro_batch={part} changes results, because a batch norm averages over "
                f"each part of a batch, not over all {full_batch} examples; with another norm it "
                f"does not"
            )
        return warnings

    def explain_out_of_memory(self) -> str:
        """Say at how many examples per pass memory did not suffice, and what to do."""
        part, has_batch_norm = self.gradient.micro_batch, self.model.has_batch_norm
        end = ", but not what a batch norm averages over" if has_batch_norm else ""
        return (
            f"out of memory on {self.device} at {part} examples per forward pass; try --set "
            f"train.micro_batch={max(1, part // 2)}, which keeps the batch size{end}"
        )

    def train_step(self) -> None:
        """Make one optimizer step; its numbers stay on the device until `read`."""
        self.metrics.start_clock()
        progress = self.step, self.total_steps, self.train_config
        factor = rate_factor(*progress) * self.plateau["factor"]
        set_rate_factor(self.optimizer, factor, scheduled_beta1(*progress))
        indices = self.order.at(self.step)
        local_indices = self.group.local_indices(indices, self.gradient.micro_batch)
        batch = self.dataset.splits["train"].batch(local_indices).to(self.device)
        targets = self.gradient.count_targets(batch, len(indices))
        if begin_step(self.model):
            self.group.share_buffers(self.model)
        is_counted = self.step < COUNTED_STEPS
        with FlopCounter() if is_counted else contextlib.nullcontext() as counter:
            numbers = self.make_step(batch, len(indices), targets)
        self.step += 1
        flops = None if counter is None else float(counter.total)
        self.metrics.add(Step(self.step, factor * self.train_config.lr, targets, numbers, flops))

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
        return evaluator.score(self.dataset.splits[split], self.scorer)

    def validate(self, check: Callable[[], None]) -> Score:
        """Evaluate on the validation split and keep the model if it is the best so far.

        Raises: Diverged if models are ranked by their loss, and it is not finite.
        """
        self.read()
        score = self.score("val", check)
        if self.scorer.needs_finite_loss and not math.isfinite(score.loss):
            raise Diverged(f"the validation loss at step {self.step} is not finite")
        self.validated_step, self.validated_seconds = self.step, self.metrics.seconds
        update_plateau(self.plateau, score.merit, self.train_config)
        if self.best is None or score.merit > self.best["merit"]:
            self.best = {
                "merit": score.merit,
                "numbers": {n: v for n, v in score.numbers.items() if math.isfinite(v)},
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
        group = self.group
        with explain_errors("its state"):
            load_weights(self.model, state)
            load_moments(self.optimizer, state["moments"])
            is_same = len(state["random"]) == group.world_size
            restore_random_state(state["random"][group.rank if is_same else 0], self.device)
        self.metrics.load_state_dict(state["metrics"])
        self.plateau, self.step, self.best = state["plateau"], state["step"], state["best"]
        self.validated_step = state["validated_step"]
        self.validated_seconds = state["validated_seconds"]
        if not is_same:
            group.seed_rank(self.order.seed, self.step)
