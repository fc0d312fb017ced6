"""The configuration of a run, composed, checked by building its parts, and matched in size."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from common.errors import UserError
from common.strict_yaml import plain
from lra.classifier.block import AlongAxis, build_layers
from lra.classifier.classifier import Classifier, input_length
from lra.config.components import MixerComponent
from lra.config.compose import compose, name_origins
from lra.config.request import Change, RunRequest
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from lra.goals.next_token import list_views_of_the_next
from lra.goals.registry import scorer_of
from models import promises
from models.base import Mixer, MixerContext
from tasks.base import TaskInfo

logger = logging.getLogger(__name__)

TOLERANCE = 0.05

SHORT, LONG = 5, 300
"""Lengths of the sequences that a plug-in is tried on, if it can be as long. The longer one is more
than one chunk of most mixers that process a sequence in chunks."""


def resolve(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, and check it by building its task and first mixers.

    A plug-in is also applied to data.

    Raises: UserError as `compose`, and for options that contradict one another.
    """
    config = compose(request, configs)
    with name_origins(config.origins):
        model, info = config.model, config.build_task().info
        length = input_length(config, info)
        # With alternate axes, blocks see rows and columns, whose lengths may differ.
        different = min(model.depth, 2 if model.axes == "alternate" else 1)
        mixer, *_ = build_layers(config, info, length, different)
        mixer = mixer.mixer if isinstance(mixer, AlongAxis) else mixer
        changes = (one for one in request.changes if one.name in config.changed)
        given = {change.name for change in changes if change.value not in (None, False)}
        for contradiction in _list_contradictions(config, info, mixer, given):
            raise UserError(contradiction)
        grid = None if model.axes == "flat" else info.grid
        context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
        check_plug_in(config.mixer_component, mixer, context)
    return config


def _list_contradictions(
    config: RunConfig, info: TaskInfo, mixer: nn.Module, given: Set[str]
) -> Iterator[str]:
    """List the contradictions between settings, the task, and the mixer of the first block.

    `given` are settings that flags gave a value: a flag without effect is refused, and settings
    files may have such values, for other presets.
    """
    model = config.model
    task, name = f"task {config.task_name}", f"mixer {config.mixer_name}"
    own = mixer if isinstance(mixer, Mixer) else None
    if own is None and hasattr(mixer, "learning_rates"):
        yield f"{name}: learning_rates only works in subclasses of models.base.Mixer"
    if model.axes != "flat" and info.grid is None:
        yield f"{task} has no grid, and model.axes is {model.axes}; use --set model.axes=flat"
    if model.axes == "native" and (own is None or not own.has_native_grid):
        yield (
            f"{name} has no two-dimensional form, and model.axes is native; use --set "
            f"model.axes=alternate or flat"
        )
    if own is not None and own.reach == (0, 0) and model.pooling in ("cls", "last"):
        yield (
            f"{name} does not mix positions, and model.pooling={model.pooling} reads a single one; "
            f"use --set model.pooling=mean"
        )
    against_cls = {
        "model.causal is true": model.causal,
        f"model.axes is {model.axes}": model.axes != "flat",
        f"pretrain.objective is {config.pretrain.objective}": config.is_pretrained,
        f"{name} sees no later positions": own is not None and not own.looks_ahead,
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


def check_plug_in(component: MixerComponent, mixer: nn.Module, context: MixerContext) -> None:
    """Check that a plug-in keeps the promises that the suite's mixers are tested for.

    Args:
        mixer: a new mixer; it is left in evaluation mode, without parameters that are all 0.
        context: the context that it is built for; a grid has no padding.
    Raises: UserError for a broken promise, and for anything that the mixer raises.
    """
    if component.code is not None:
        with component.explain_errors("it failed in a trial"):
            for name, check in plug_in_checks(mixer, context):
                with component.explain_errors(f"failed in a trial ({name})"):
                    check()


def plug_in_checks(
    mixer: nn.Module, context: MixerContext
) -> Iterator[tuple[str, Callable[[], object]]]:
    """List the checks of a plug-in by name; arguments as for `check_plug_in`.

    Run each check before asking for the next one.
    """
    yield "its weights can be trained and saved", partial(promises.check_weights, mixer)
    shapes = promises.weight_shapes(mixer)
    with torch.no_grad():  # a part behind a map of zeros has no effect that checks can see
        for parameter in mixer.parameters():
            if parameter.requires_grad and not parameter.any():
                parameter.normal_(std=0.1)
    is_padded = context.grid is None
    length = min(LONG, context.max_length) if context.grid is None else math.prod(context.grid)
    short = min(SHORT, length)
    real = {short, max(short, length // 4), -(-length // 2), length - 1, length} - {0}
    mask = torch.arange(length) < torch.tensor(sorted(real))[:, None]
    x = torch.randn(*mask.shape, context.dim)
    x[::2] += 2 * torch.randn(context.dim)  # zeros are like an average position in some rows only
    few = x[:2, :short] if is_padded else x[:2]
    step, padding = promises.take_training_step, "padding changes no real position"
    yield "forward and backward pass without a mask", partial(step, mixer, few)
    if is_padded:
        yield "forward and backward pass with a mask", partial(step, mixer, x, mask)
    mixer.zero_grad(set_to_none=True)
    for training in (True, False):
        mode = "training" if training else "evaluation"
        mixer.train(training)
        if is_padded:
            check = partial(promises.check_padding, mixer, x, mask, [10 * torch.randn_like(x)])
            yield f"{padding} in {mode}", check
            same = partial(_check_amount_of_padding, mixer, x, mask)
            yield f"results do not depend on the amount of padding in {mode}", same
        if context.causal:
            check = partial(promises.check_causality, mixer, x[:2], [length - 1])
            yield f"no position sees a later one in {mode}", check
    yield "its weights keep their shapes", partial(promises.check_weight_shapes, mixer, shapes)


def _check_amount_of_padding(mixer: nn.Module, x: Tensor, mask: Tensor) -> None:
    """Compare amounts of padding, unless a second pass differs by random numbers or a state."""
    mixer = promises.copy_mixer(mixer)
    check = promises.check_less_padding if mixer.training else promises.check_rows
    for module in mixer.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    copied = promises.copy_mixer(mixer)
    with torch.no_grad():
        first, second = (promises.check_output(copied, x, mask)[mask] for _ in range(2))
    if not promises.describe_difference(second, first):
        check(mixer, x, mask)


def count_parameters(config: RunConfig) -> int:
    """Count the trainable parameters of a run's model by building it; raises as `Classifier`."""
    # A mixer may cache tensors while it is built; they must not be on the meta device.
    return Classifier(config, config.build_task().info).num_parameters


def match_parameters(request: RunRequest, other: str) -> RunRequest:
    """Choose model.dim so that a run has about as many parameters as with another mixer.

    This is the Long Range Arena's rule for a fair comparison (Tay et al., 2021).

    Args:
        other: the mixer to match. Changed options of the run's own mixer do not apply to it.
    Returns: the request with this model.dim.
    Raises: UserError if no model.dim comes within 5 %, or if the request has one.
    """
    origin = f"--match-params {other}"
    if given := [change.origin for change in request.changes if change.name == "model.dim"]:
        raise UserError(f"{origin} chooses model.dim, and {given[-1]} sets it; leave one out")
    common = tuple(change for change in request.changes if change.section != "mixer")
    try:
        matched = resolve(replace(request, mixer=other, changes=common))
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None
    own, goal = resolve(request), count_parameters(matched)

    def request_at(dim: int) -> RunRequest:
        change = Change("model", "dim", dim, f"{origin} model.dim={dim}")
        return replace(request, changes=(*request.changes, change))

    dim, count = _find_nearest(
        lambda dim: count_parameters(resolve(request_at(dim))), own.model.dim, goal
    )
    sizes = (
        f"{own.mixer_name} {count:,} at model.dim {dim}, {matched.mixer_name} {goal:,} at "
        f"{matched.model.dim} (difference {100 * (count / goal - 1):+.1f} %)"
    )
    if abs(count / goal - 1) > TOLERANCE:
        raise UserError(
            f"{origin}: no model.dim brings the parameters within {100 * TOLERANCE:.0f} %; the "
            f"nearest: {sizes}; change model.depth, or an option of the mixer, by --set"
        )
    logger.info(f"parameters: {sizes}")
    return request_at(dim)


def _find_nearest(count_at: Callable[[int], int], start: int, goal: int) -> tuple[int, int]:
    """Search for the dim whose count is nearest to a goal, by bisection: the dim and its count.

    The mixer accepts `start`; for a dim that it refuses, `count_at` raises UserError.
    """
    counts: dict[int, int] = {}
    low, high, near = 0, None, start
    while True:
        end = max(3 * low, start + 1) if high is None else high
        for dim in sorted(range(low + 1, end), key=lambda dim: abs(dim - near)):
            with contextlib.suppress(UserError):  # for instance heads that do not divide a width
                counts[dim] = count_at(dim)
                break
        else:
            return min(counts.items(), key=lambda item: abs(item[1] - goal))
        low, high = (dim, high) if counts[dim] < goal else (low, dim)
        near = 2 * low if high is None else (low + high) // 2
