"""The phases of a run: learning a task's inputs, if it is to be, and learning its labels."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lra.config.schema import RunConfig
from lra.train.messages import warnings_at_start
from lra.train.self_pretraining import (
    PretrainingResult,
    fine_tuning_config,
    pretraining_config,
    pretraining_data,
    summarize_pretraining,
    transfer_weights,
)
from lra.train.state import RunState, restore
from lra.train.trainer import Trainer
from tasks.base import Dataset, TaskInfo

logger = logging.getLogger(__name__)


class Phases:
    """A run's trainers, one after the other, and its steps over all of them.

    Args:
        build: makes the trainer of a phase, from its settings and its data.
        state: where the run goes on; None at its start.
    """

    def __init__(
        self,
        config: RunConfig,
        info: TaskInfo,
        dataset: Dataset,
        *,
        build: Callable[[RunConfig, TaskInfo, Dataset], Trainer],
        state: RunState | None,
    ) -> None:
        self.config = config
        self.info = info
        self.dataset = dataset
        self.build = build
        self.pretrained: PretrainingResult | None = (
            None if state is None else state.get("pretraining")
        )
        """What a pretraining came to that is over; until then the trainer is its."""
        self.trainer = self._built()
        """The trainer of the present phase."""
        if state is not None:
            restore(self.trainer, state["trainer"])
            logger.info(f"resumed at step {self.step} of {self.total_steps}")

    @property
    def is_pretraining(self) -> bool:
        """Whether the model learns its inputs, and labels only afterwards."""
        return self.config.is_pretrained and self.pretrained is None

    @property
    def step(self) -> int:
        """Optimizer steps made in all phases."""
        return self._steps_before + self.trainer.step

    @property
    def validated_step(self) -> int:
        """Step of the last validation."""
        return self._steps_before + self.trainer.validated_step

    @property
    def total_steps(self) -> int:
        """Steps at which the present phase ends, as far as is known."""
        return self._steps_before + self.trainer.total_steps

    @property
    def _steps_before(self) -> int:
        return 0 if self.pretrained is None else self.pretrained["steps"]

    def _built(self) -> Trainer:
        """Build the trainer of the present phase."""
        config, info, dataset = self.config, self.info, self.dataset
        if self.is_pretraining:
            info, dataset = pretraining_data(config, info, dataset)
            config = pretraining_config(config)
        elif self.pretrained is not None:
            config = fine_tuning_config(config, self.pretrained["seconds"])
        return self.build(config, info, dataset)

    def begin_fine_tuning(self) -> None:
        """Let a fresh head read what the pretraining's best model has learned."""
        self.trainer.load_best()
        weights = self.trainer.model.state_dict()
        self.pretrained = summarize_pretraining(self.trainer)
        logger.info(
            f"pretraining ends after {self.pretrained['steps']:,} steps; next, labels are learned"
        )
        self.trainer = self._built()
        model = self.trainer.model
        model.load_state_dict(transfer_weights(weights, model.state_dict()))

    def warn(self) -> None:
        """Say what a user should know before the present phase."""
        trainer = self.trainer
        validations = trainer.length.validations()
        for text in warnings_at_start(
            trainer.config, trainer.total_steps, self.dataset.selected_on, validations
        ):
            logger.warning(text)
