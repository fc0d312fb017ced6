"""AdamW with parameter groups, and the learning-rate schedules."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import torch
from torch import nn

from lra.config.schema import TrainConfig
from lra.runtime.errors import UserError
from models.base import DecayingAt, Mixer

logger = logging.getLogger(__name__)


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Group parameters by learning rate and by whether they decay.

    What decays is what `weight_decay_on` says, and of what a mixer lists in `learning_rates` only
    what is `DecayingAt` a rate. `set_rate_factor` scales the groups' rates together.

    Raises: UserError for learning rates of a mixer that cannot be.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    own = _own_rates(model)
    undecayed = UNDECAYED[config.weight_decay_on](model)
    for parameter in model.parameters():
        rate = own.get(parameter, DecayingAt(config.lr))
        decays = isinstance(rate, DecayingAt) and parameter not in undecayed
        lr = rate.lr if isinstance(rate, DecayingAt) else rate or config.lr
        decay = config.weight_decay if decays else 0.0
        groups.setdefault((lr, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": lr, "peak_lr": lr, "weight_decay": decay}
            for (lr, decay), parameters in groups.items()
        ],
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def _own_rates(model: nn.Module) -> dict[nn.Parameter, float | DecayingAt | None]:
    """Collect what the mixers say of their parameters' learning rates.

    Raises: UserError for what is no parameter of the mixer, or no learning rate.
    """
    rates: dict[nn.Parameter, float | DecayingAt | None] = {}
    for mixer in model.modules():
        if not isinstance(mixer, Mixer):
            continue
        own = set(mixer.parameters())
        for parameter, rate in mixer.learning_rates().items():
            if parameter not in own:
                raise UserError(f"mixer {mixer.name}: learning_rates names what it does not own")
            lr = rate.lr if isinstance(rate, DecayingAt) else rate
            if lr is not None and not (math.isfinite(lr) and lr > 0):
                raise UserError(f"mixer {mixer.name}: learning_rates has {lr}, expected > 0")
            rates[parameter] = rate
    return rates


def _vectors_and_embeddings(model: nn.Module) -> set[nn.Parameter]:
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    tables = {p for embedding in embeddings for p in embedding.parameters()}
    return tables | {p for p in model.parameters() if p.ndim < 2}  # noqa: PLR2004


def _block_biases_and_norms(model: nn.Module) -> set[nn.Parameter]:
    """Collect what S4's V4 frees from decay, `self.model` there (train.py, optim_groups.py)."""
    norms = (nn.BatchNorm1d, nn.LayerNorm)
    return {
        parameter
        for place, module in model.named_modules()
        if place == "norm" or place.startswith("blocks.")
        for name, parameter in module.named_parameters(recurse=False)
        if name == "bias" or isinstance(module, norms)
    }


UNDECAYED: dict[str, Callable[[nn.Module], set[nn.Parameter]]] = {
    "all": lambda _: set(),
    "matrices": _vectors_and_embeddings,
    "all_but_block_biases_and_norms": _block_biases_and_norms,
}
"""By `weight_decay_on`, the parameters that do not decay."""


def set_rate_factor(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group to a factor times its highest learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = factor * group["peak_lr"]


def rate_factor(step: int, total_steps: int, config: TrainConfig) -> float:
    """Return the learning rate of a 0-based step of a run, over the highest: in [0, 1].

    That of schedule plateau is `Plateau.factor` times this.
    """
    warmup = warmup_of(total_steps, config)
    if step < warmup:
        return (step + 1) / warmup
    end = config.schedule_steps or total_steps
    done = min(1.0, (step - warmup) / max(1, end - warmup))
    return SCHEDULES[config.schedule](done, warmup, step + 1)


SCHEDULES: dict[str, Callable[[float, int, int], float]] = {
    "cosine": lambda done, warmup, steps: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done, warmup, steps: 1.0 - done,
    "rsqrt": lambda done, warmup, steps: math.sqrt(max(warmup, 1) / max(warmup, steps)),
    "constant": lambda done, warmup, steps: 1.0,
    "plateau": lambda done, warmup, steps: 1.0,
}
"""Factors of the rate after warm-up, of the part of the schedule that is done, the steps of warm-up
and all steps so far."""


def warmup_of(total_steps: int, config: TrainConfig) -> int:
    """Return the steps in which the rate rises."""
    if config.warmup_share is None:
        return config.warmup_steps
    return round(config.warmup_share * total_steps)


def schedule_warning(total_steps: int, config: TrainConfig) -> str | None:
    """Say so if the schedule does not fit the run's real number of steps."""
    if config.warmup_steps >= total_steps:
        return f"the warm-up of {config.warmup_steps} steps outlasts the run's {total_steps} steps"
    end = config.schedule_steps or total_steps
    if config.schedule == "cosine" and end != total_steps:
        factor = rate_factor(total_steps - 1, total_steps, config)
        return (
            f"the cosine ends at step {end}, but the run has {total_steps}: the learning rate "
            f"ends at {factor:.0%} of its highest (--set train.schedule_steps=null mends that)"
        )
    return None


PLATEAU_THRESHOLD = 1e-4
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
        if self.best is None or merit > self.best * (1 + PLATEAU_THRESHOLD):
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
