"""The complete state of a run: captured, checked when it comes from a file, and restored."""

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
NEW_RUN = "use --resume never to start a new run"


class SamplerState(TypedDict):
    """The order of the examples."""

    seed: NonNegativeInt
    next_step: StepNumber


class TrainerState(TypedDict):
    """Everything that later steps depend on; what is `NotRequired` is missing in old files."""

    seconds: NotRequired[Seconds]
    validated_step: StepNumber
    validated_seconds: NotRequired[Seconds]
    micro_batch: NotRequired[PositiveInt | None]
    sampler: SamplerState
    model: dict[str, DenseTensor]
    optimizer: dict[str, Any]
    plateau: NotRequired[dict[str, float | None]]
    random: list[RandomState] | RandomState
    """The generators of each process; old files have those of the main one alone."""
    best: Best | None
    interval: StepSums
    step_seconds: list[Annotated[float, Field(gt=0, lt=1e18)]]
    step_flops: list[Annotated[float, Field(ge=0, lt=1e30)]]


class RunState(TypedDict):
    """The content of a checkpoint."""

    trainer: TrainerState
    wall_seconds: Seconds
    peak_memory_mib: Annotated[float, Field(ge=0, lt=1e18)]
    device: str
    commits: list[str]
    pretraining: NotRequired[PretrainingResult | None]
    """Result of a pretraining that is over; before, the trainer is that of the pretraining."""
    identity: Annotated[
        dict[str, Any], AfterValidator(TypeAdapter(dict[str, JsonValue]).validate_python)
    ]
    """All settings, the seed and the data, see `RunFolder.resume`."""


_RUN_STATE = TypeAdapter(RunState)
_MOMENT = TypeAdapter(DenseTensor)


def check_run_state(content: object) -> RunState:
    """Return the content of a checkpoint if it is the state of a run.

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

    Raises: UserError for weights of another version of the model; DataError for a state that does
        not fit the trainer.
    """
    own = _kinds(trainer.model.state_dict())
    try:
        trainer.model.load_state_dict(copy_to_device(state["model"], trainer.device))
    except RuntimeError as error:
        what = " ".join(str(error).splitlines()[1:2]).strip()
        raise UserError(
            f"the checkpoint is of another version of mixer {trainer.config.mixer_name}: {what} "
            f"{NEW_RUN}"
        ) from None
    best = state["best"]
    with explain_errors("the checkpoint", NEW_RUN):
        if _kinds(state["model"]) != own or (best and _kinds(best["model"]) != own):
            raise ValueError("weights of other shapes or types")
        _restore_optimizer(trainer, state["optimizer"])
        if "plateau" in state:
            trainer.plateau.restore(state["plateau"])
        _restore_random_state(trainer, state["random"], state["sampler"]["next_step"])
    trainer.step = state["sampler"]["next_step"]
    trainer.seconds = state.get("seconds", 0.0)
    trainer.best = best
    if best is not None:
        trainer.validated_seconds = state.get("validated_seconds", 0.0)
        trainer.validated_step = state["validated_step"]
    trainer.gradient.micro_batch = state.get("micro_batch") or trainer.gradient.micro_batch
    trainer.sums = state["interval"]
    trainer.step_seconds = state["step_seconds"]
    trainer.step_flops = state["step_flops"]


def _kinds(weights: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (weight.shape, weight.dtype) for name, weight in weights.items()}


def _restore_optimizer(trainer: Trainer, saved: dict[str, Any]) -> None:
    """Load a saved state that fits the optimizer, whose steps would not check it.

    Raises: ValueError saying what does not fit.
    """
    optimizer = trainer.optimizer
    fresh = optimizer.state_dict()["param_groups"]
    groups = saved["param_groups"]
    if [group["params"] for group in groups] != [group["params"] for group in fresh]:
        raise ValueError("other groups of parameters in the optimizer")
    for group, own in zip(groups, fresh, strict=True):
        numbers = [*(group[key] for key in ("lr", "peak_lr", "eps", "weight_decay"))]
        numbers += group["betas"]
        if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise ValueError("settings of the optimizer that are no numbers")
        flags = {k: v for k, v in own.items() if v is None or isinstance(v, bool)}
        if any(group.get(key, flag) is not flag for key, flag in flags.items()):
            raise ValueError("another kind of optimizer")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, moments in saved["state"].items():
        shape = parameters[index].shape
        expected = {"step": torch.Size(), "exp_avg": shape, "exp_avg_sq": shape}
        shapes = {name: _MOMENT.validate_python(m).shape for name, m in moments.items()}
        if shapes != expected or moments["exp_avg"].is_complex():
            raise ValueError("moments of other parameters in the optimizer")
    moments = {i: copy_to_device(one, trainer.device) for i, one in saved["state"].items()}
    optimizer.load_state_dict({**saved, "state": moments})


def _restore_random_state(
    trainer: Trainer, states: list[RandomState] | RandomState, step: int
) -> None:
    """Give each process its generators back; if their number has changed, the main one's."""
    if isinstance(states, dict):
        states = [states]
    if len(states) == trainer.group.world_size:
        restore_random_state(states[trainer.group.rank], trainer.device)
    else:
        restore_random_state(states[0], trainer.device)
        trainer.group.seed_rank(trainer.order.seed, step)
