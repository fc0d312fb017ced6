"""Settings that contradict each other, the task, or the mixer."""

from collections.abc import Iterator, Set

from torch import nn

from lra.common.strict_yaml import plain
from lra.config.schema import RunConfig
from lra.goals.next_token import list_views_of_the_next
from lra.goals.registry import scorer_of
from lra.models.base import Mixer
from lra.tasks.base import TaskInfo


def list_contradictions(
    config: RunConfig, info: TaskInfo, module: nn.Module, given: Set[str]
) -> Iterator[str]:
    """List the contradictions between settings, the task, and the mixer of the first block.

    Args:
        module: that mixer; one of a user's own may be any module.
        given: settings that flags gave a value: a flag without effect is refused, and settings
            files may have such values, for other presets.
    """
    model = config.model
    task, name = f"task {config.task_name}", f"mixer {config.mixer_name}"
    mixer = module if isinstance(module, Mixer) else None
    if mixer is None and hasattr(module, "learning_rates"):
        yield f"{name}: learning_rates only works in subclasses of models.base.Mixer"
    if model.axes != "flat" and info.grid is None:
        yield f"{task} has no grid, and model.axes is {model.axes}; use --set model.axes=flat"
    if model.axes == "native" and (mixer is None or not mixer.has_native_grid):
        yield (
            f"{name} has no two-dimensional form, and model.axes is native; use --set "
            f"model.axes=alternate or flat"
        )
    if mixer is not None and mixer.reach == (0, 0) and model.pooling in ("cls", "last"):
        yield (
            f"{name} does not mix positions, and model.pooling={model.pooling} reads a single one; "
            f"use --set model.pooling=mean"
        )
    against_cls = {
        "model.causal is true": model.causal,
        f"model.axes is {model.axes}": model.axes != "flat",
        f"pretrain.objective is {config.pretrain.objective}": config.is_pretrained,
        f"{name} sees no later positions": mixer is not None and not mixer.looks_ahead,
    }
    for reason, is_so in against_cls.items():
        if model.pooling == "cls" and is_so:
            yield (
                f"model.pooling is cls, which reads a position before all others, and {reason}; "
                f"use --set model.pooling=mean or last"
            )
    yield from scorer_of(info).contradictions(config, given)
    if config.pretrain.objective == "next" and not info.goal.of_positions:
        asks = "pretrain.objective is next, and"
        yield from list_views_of_the_next(config, asks, needs_flat=False)
    yield from _list_contradictions_of_training(config, given)


def _list_contradictions_of_training(config: RunConfig, given: Set[str]) -> Iterator[str]:
    train, pretrain = config.train, config.pretrain
    if train.schedule_steps is not None and train.schedule != "cosine":
        yield (
            f"train.schedule_steps has no effect with schedule {train.schedule}; use --set "
            f"train.schedule_steps=null"
        )
    if train.schedule == "onecycle" and "train.beta1" in given:
        yield "train.beta1 has no effect with schedule onecycle, which changes it from 0.95 to 0.85"
    if (train.schedule == "plateau") != (train.plateau_patience is not None):
        yield (
            f"train.schedule is {train.schedule} and train.plateau_patience is "
            f"{plain(train.plateau_patience)}, expected a number of validations for plateau alone"
        )
    if train.steps is None and train.epochs is None and train.minutes is None:
        yield "none of train.steps, train.epochs and train.minutes is set; use --set train.steps=N"
    if not config.is_pretrained:
        for name in sorted(given):
            if name.startswith("pretrain.") and name != "pretrain.objective":
                yield f"{name} has no effect: there is no pretraining (--pretrain masked or next)"
        return
    if train.minutes is not None and (pretrain.steps or pretrain.epochs):
        yield (
            f"train.minutes is {train.minutes} and includes the pretraining; set pretrain.minutes "
            f"in place of pretrain.steps or pretrain.epochs"
        )
    if pretrain.minutes is not None and pretrain.minutes >= (train.minutes or 0):
        yield (
            f"pretrain.minutes is {pretrain.minutes}, and train.minutes, which includes them, is "
            f"{plain(train.minutes)}; use a longer train.minutes, or pretrain.steps or epochs"
        )
