"""The whole state of a run: captured, checked where it comes from a file, and restored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired

import torch
from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
)
from torch import Tensor
from typing_extensions import TypedDict

from common.untrusted import explain_errors
from lra.runtime.environment import (
    DenseTensor,
    RandomState,
    copy_to_device,
    random_state,
    restore_random_state,
)
from lra.runtime.errors import UserError
from lra.train.self_pretraining import PretrainingResult
from lra.train.trainer import Best, StepNumber, StepSums, Trainer

Seconds = Annotated[float, Field(ge=0, lt=1e18)]


class SamplerState(TypedDict):
    """The order of the examples."""

    seed: NonNegativeInt
    next_step: StepNumber


class TrainerState(TypedDict):
    """Everything that later steps depend on.

    What checkpoints of earlier versions lack is not required.
    """

    seconds: NotRequired[Seconds]
    validated_step: StepNumber
    validated_seconds: NotRequired[Seconds]
    micro_batch: NotRequired[PositiveInt | None]
    sampler: SamplerState
    model: dict[str, DenseTensor]
    optimizer: dict[str, Any]
    plateau: NotRequired[dict[str, float | None]]
    random: list[RandomState] | RandomState
    """The generators of each process; earlier versions captured those of the main one alone."""
    best: Best | None
    interval: StepSums
    step_seconds: list[Annotated[float, Field(gt=0, lt=1e18)]]
    step_flops: list[Annotated[float, Field(ge=0, lt=1e30)]]


_PLAIN = TypeAdapter(dict[str, JsonValue])


class RunState(TypedDict):
    """What a checkpoint holds: the trainer's state, and the run's so far."""

    trainer: TrainerState
    wall_seconds: Seconds
    peak_memory_mib: Annotated[float, Field(ge=0, lt=1e18)]
    device: str
    commits: list[str]
    pretraining: NotRequired[PretrainingResult | None]
    """What a pretraining came to that is over; until then the trainer is its."""
    identity: Annotated[dict[str, Any], AfterValidator(_PLAIN.validate_python)]
    """All settings, the seed and the data, see `RunFolder.resume`."""


_RUN_STATE = TypeAdapter(RunState)
_MOMENT = TypeAdapter(DenseTensor)


def check_run_state(content: object) -> RunState:
    """Return what a checkpoint holds, if it is the state of a run.

    Raises: ValueError for anything else, most often the ValidationError of pydantic.
    """
    return _RUN_STATE.validate_python(content, strict=True)


def capture(trainer: Trainer) -> TrainerState:
    """Capture everything that later steps depend on; all processes must take part.

    Raises: Diverged, see `Trainer.read`.
    """
    trainer.read()
    return {
        "seconds": trainer.seconds,
        "validated_step": trainer.validated_step,
        "validated_seconds": trainer.validated_seconds,
        "micro_batch": trainer.gradient.micro_batch,
        "sampler": {"seed": trainer.order.seed, "next_step": trainer.step},
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "plateau": trainer.plateau.state(),
        "random": trainer.group.gather(random_state(trainer.device)),
        "best": trainer.best,
        "interval": trainer.sums,
        "step_seconds": trainer.step_seconds,
        "step_flops": trainer.step_flops,
    }


def restore(trainer: Trainer, state: TrainerState) -> None:
    """Give a trainer a captured state.

    Raises: UserError for weights that another version of the model has; DataError for a state
        that fits no trainer.
    """
    trainer.step = state["sampler"]["next_step"]
    trainer.seconds = state.get("seconds", 0.0)
    best = state["best"]
    if best is not None:
        trainer.validated_seconds = state.get("validated_seconds", 0.0)
        trainer.validated_step = state["validated_step"]
    trainer.gradient.micro_batch = state.get("micro_batch") or trainer.gradient.micro_batch
    own = _kinds(trainer.model.state_dict())
    try:
        trainer.model.load_state_dict(copy_to_device(state["model"], trainer.device))
    except RuntimeError as error:
        what = " ".join(str(error).splitlines()[1:2]).strip()
        raise UserError(
            f"the checkpoint is of another version of mixer {trainer.config.mixer_name}: {what} "
            f"use --resume never to start a new run"
        ) from None
    with explain_errors("the checkpoint", "use --resume never to start a new run"):
        if _kinds(state["model"]) != own or (best and _kinds(best["model"]) != own):
            raise ValueError("weights of other shapes or types")
        _check_optimizer(trainer.optimizer, state["optimizer"])
        moments = {
            index: copy_to_device(held, trainer.device)
            for index, held in state["optimizer"]["state"].items()
        }
        trainer.optimizer.load_state_dict({**state["optimizer"], "state": moments})
        if "plateau" in state:  # as those from before there was that schedule have none
            trainer.plateau.restore(state["plateau"])
        trainer.best = best
        trainer.sums = state["interval"]
        trainer.step_seconds = state["step_seconds"]
        trainer.step_flops = state["step_flops"]
        _restore_random_state(trainer, state["random"])


def _kinds(weights: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (weight.shape, weight.dtype) for name, weight in weights.items()}


def _check_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Make sure that a saved state fits an optimizer; its steps would not look.

    Raises: ValueError saying what does not fit.
    """
    fresh = optimizer.state_dict()["param_groups"]
    groups = saved["param_groups"]
    if [group["params"] for group in groups] != [group["params"] for group in fresh]:
        raise ValueError("the optimizer's groups are others")
    for group, own in zip(groups, fresh, strict=True):
        numbers = [group[key] for key in ("lr", "peak_lr", "eps", "weight_decay")]
        numbers += group["betas"]
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise ValueError("the optimizer's settings are no numbers")
        if any(group.get(key, value) is not value for key, value in own.items()
               if value is None or isinstance(value, bool)):  # fmt: skip
            raise ValueError("the optimizer is of another kind")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, moments in saved["state"].items():
        expected = {"exp_avg": parameters[index].shape, "exp_avg_sq": parameters[index].shape}
        shapes = {name: _MOMENT.validate_python(m).shape for name, m in moments.items()}
        if shapes != {"step": torch.Size(), **expected} or moments["exp_avg"].is_complex():
            raise ValueError("the optimizer's moments are those of other parameters")


def _restore_random_state(trainer: Trainer, states: list[RandomState] | RandomState) -> None:
    """Give each process its generators back; with other processes, the main one alone."""
    if isinstance(states, dict):
        states = [states]
    if len(states) == trainer.group.world_size:
        restore_random_state(states[trainer.group.rank], trainer.device)
    else:
        restore_random_state(states[0], trainer.device)
        trainer.group.seed_rank(trainer.order.seed, trainer.step)
