"""The learning rate that falls where validations no longer get better."""

from __future__ import annotations

import logging

from lra.config.schema import TrainConfig

logger = logging.getLogger(__name__)

THRESHOLD = 1e-4
"""Share of the best accuracy by which a better one must exceed it."""


class Plateau:
    """What schedule plateau has seen, by the rule of torch's `ReduceLROnPlateau`, mode max.

    Of a run with another schedule the factor stays 1.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.patience = config.plateau_patience
        self.step_factor = config.plateau_factor
        self.factor = 1.0
        """What the learning rate is multiplied by."""
        self.best: float | None = None
        self.waited = 0
        """Validations since the best one, or since the rate fell."""

    def update(self, merit: float) -> None:
        """Take in what a validation is worth, in percent: more is better."""
        if self.patience is None:
            return
        if self.best is None or merit > self.best * (1 + THRESHOLD):
            self.best, self.waited = merit, 0
            return
        self.waited += 1
        if self.waited > self.patience:
            self.factor *= self.step_factor
            self.waited = 0
            logger.info(f"the learning rate falls to {self.factor:.3g} of its highest")

    def state(self) -> dict[str, float | None]:
        """Capture what later factors depend on."""
        return {"factor": self.factor, "best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, float | None]) -> None:
        """Take up a captured state."""
        factor, waited = state["factor"], state["waited"]
        assert factor is not None
        assert waited is not None
        self.factor, self.best, self.waited = factor, state["best"], int(waited)
