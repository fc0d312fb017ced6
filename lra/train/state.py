"""The complete state of a trainer: captured for a checkpoint, and restored from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from typing_extensions import TypedDict

from common.untrusted import explain_errors
from lra.runtime.environment import RandomState, random_state, restore_random_state
from lra.runtime.errors import UserError
from lra.train.metrics import StepSums
from lra.train.schedule import Plateau
from lra.train.trainer import Best, Trainer

NEW_RUN = "use --resume never to start a new run"


class TrainerState(TypedDict):
    """Everything that later steps depend on."""

    step: int
    seconds: float
    validated_step: int
    validated_seconds: float
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    plateau: dict[str, Any]
    random: list[RandomState]
    """The generators of each process."""
    best: Best | None
    sums: StepSums
    step_seconds: list[float]
    step_flops: list[float]


def capture(trainer: Trainer) -> TrainerState:
    """Capture everything that later steps depend on; all processes must take part.

    Raises: Diverged, see `Trainer.read`.
    """
    trainer.read()
    metrics = trainer.metrics
    return {
        "step": trainer.step,
        "seconds": metrics.seconds,
        "validated_step": trainer.validated_step,
        "validated_seconds": trainer.validated_seconds,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "plateau": asdict(trainer.plateau),
        "random": trainer.group.gather(random_state(trainer.device)),
        "best": trainer.best,
        "sums": metrics.sums,
        "step_seconds": metrics.step_seconds,
        "step_flops": metrics.step_flops,
    }


def restore(trainer: Trainer, state: TrainerState) -> None:
    """Give a trainer a captured state.

    Raises: UserError for weights of another version of the model; DataError for a state that does
        not fit the trainer in another way.
    """
    with explain_errors("the checkpoint", NEW_RUN):
        _require_same_weights(trainer, state["model"])
        if state["best"] is not None:
            _require_same_weights(trainer, state["best"]["model"])
        trainer.model.load_state_dict(state["model"])
        _restore_optimizer(trainer.optimizer, state["optimizer"])
        trainer.plateau = Plateau(**state["plateau"])
        trainer.step = state["step"]
        trainer.validated_step = state["validated_step"]
        trainer.validated_seconds = state["validated_seconds"]
        trainer.best = state["best"]
        for name in ("seconds", "sums", "step_seconds", "step_flops"):
            setattr(trainer.metrics, name, state[name])
        _restore_random_state(trainer, state["random"])


def _require_same_weights(trainer: Trainer, saved: Mapping[str, Tensor]) -> None:
    """Refuse weights that differ from the model's in name, shape or type."""
    own, found = (
        {name: (weight.shape, weight.dtype) for name, weight in weights.items()}
        for weights in (trainer.model.state_dict(), saved)
    )
    if own != found:
        other = sorted(n for n in own.keys() | found.keys() if own.get(n) != found.get(n))
        raise UserError(
            f"the checkpoint is of another version of mixer {trainer.config.mixer_name}, whose "
            f"weight {other[0]} differs; {NEW_RUN}"
        )


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load a saved state whose moments fit the parameters, which torch does not check.

    Raises: ValueError if they do not.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, moments in saved["state"].items():
        shapes = {moment.shape for name, moment in moments.items() if name != "step"}
        if shapes != {parameters[index].shape}:
            raise ValueError("moments of other parameters in the optimizer")
    optimizer.load_state_dict(saved)


def _restore_random_state(trainer: Trainer, states: list[RandomState]) -> None:
    """Give each process its generators back; if their number has changed, the main one's."""
    if len(states) == trainer.group.world_size:
        restore_random_state(states[trainer.group.rank], trainer.device)
    else:
        restore_random_state(states[0], trainer.device)
        trainer.group.seed_rank(trainer.order.seed, trainer.step)
