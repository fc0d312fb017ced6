"""The configuration of a run, composed, checked by building its parts, and matched in size."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

from common.errors import UserError
from common.strict_yaml import plain
from lra.classifier.block import AlongAxis, build_layers
from lra.classifier.classifier import Classifier, input_length
from lra.classifier.plugin_check import check_plug_in
from lra.config.compose import compose, name_origins
from lra.config.request import Change, RunRequest
from lra.config.schema import PretrainConfig, RunConfig
from lra.config.settings_files import CONFIGS
from models.base import Mixer, MixerContext
from tasks.base import TaskInfo

logger = logging.getLogger(__name__)

FLAG = "--match-params"
TOLERANCE = 0.05

OF_HEADS = (
    "model.pooling", "model.head", "model.head_expand", "model.head_activation", "model.head_bias",
)  # fmt: skip
"""Settings that need examples as targets."""
PREDICTED = {"position": "the next token at each position", "token": "labels of positions"}
"""What a task predicts whose targets are not examples."""

Contradictions = Iterator[tuple[bool, str]]
"""What does not work together: whether it is so, and the reason with a way out."""


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
        given = {
            change.name
            for change in request.changes
            if getattr(getattr(config, change.section), change.key) not in (None, False)
        }
        for does_not_work, reason in _list_contradictions(config, info, mixer, given):
            if does_not_work:
                raise UserError(reason)
        grid = None if model.axes == "flat" else info.grid
        context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
        check_plug_in(config.mixer_component, mixer, context)
    return config


def _list_contradictions(
    config: RunConfig, info: TaskInfo, mixer: nn.Module, given: Collection[str]
) -> Contradictions:
    """List the contradictions between settings, the task, and the mixer of the first block.

    `given` are settings that flags gave a value: a flag without effect is refused, and settings
    files may have such values, for other presets.
    """
    yield from _list_contradictions_of_model(config, info, mixer)
    train = config.train
    yield (
        train.schedule_steps is not None and train.schedule != "cosine",
        f"train.schedule_steps has no effect with schedule {train.schedule}; use --set "
        f"train.schedule_steps=null",
    )
    yield (
        (train.schedule == "plateau") != (train.plateau_patience is not None),
        f"train.schedule is {train.schedule} and train.plateau_patience is "
        f"{plain(train.plateau_patience)}, expected a number of validations for plateau alone",
    )
    yield (
        isinstance(train.micro_batch, int) and train.micro_batch > train.batch_size,
        f"train.micro_batch {train.micro_batch} exceeds batch_size {train.batch_size}",
    )
    yield (
        train.steps is None and train.epochs is None and train.minutes is None,
        "none of train.steps, train.epochs and train.minutes is set; use --set train.steps=N",
    )
    for name in OF_HEADS:
        yield (
            info.targets != "example" and name in given,
            f"{name} has no effect: task {config.task_name} predicts {PREDICTED.get(info.targets)}",
        )
    for key in PretrainConfig.model_fields.keys() - {"objective"}:
        yield (
            not config.is_pretrained and f"pretrain.{key}" in given,
            f"pretrain.{key} has no effect: there is no pretraining (--pretrain masked or next)",
        )
    if config.is_pretrained:
        yield from _list_contradictions_of_pretraining(config, info)


def _list_contradictions_of_model(
    config: RunConfig, info: TaskInfo, mixer: nn.Module
) -> Contradictions:
    model, axes, pretrain = config.model, config.model.axes, config.pretrain
    own = mixer if isinstance(mixer, Mixer) else None
    yield (
        axes != "flat" and info.grid is None,
        f"task {config.task_name} has no grid, and model.axes is {axes}; use --set model.axes=flat",
    )
    yield (
        axes == "native" and (own is None or not own.has_native_grid),
        f"mixer {config.mixer_name} has no two-dimensional form, and model.axes is native; use "
        f"--set model.axes=alternate or flat",
    )
    yield (
        own is not None and own.reach == (0, 0) and model.pooling in ("cls", "last"),
        f"mixer {config.mixer_name} does not mix positions, and model.pooling={model.pooling} "
        f"reads a single one; use --set model.pooling=mean",
    )
    against_cls = {
        "model.causal is true": model.causal,
        f"model.axes is {axes}": axes != "flat",
        f"pretrain.objective is {pretrain.objective}": config.is_pretrained,
        f"mixer {config.mixer_name} sees no later positions": own and not own.looks_ahead,
    }
    for reason, is_so in against_cls.items():
        yield (
            model.pooling == "cls" and bool(is_so),
            f"model.pooling is cls, which reads a position before all others, and {reason}; use "
            f"--set model.pooling=mean or last",
        )
    predicts = PREDICTED.get(info.targets, "classes of examples")
    asks = f"task {config.task_name} predicts {predicts}, and"
    yield (
        model.tied_embeddings
        and (info.targets == "example" or info.vocab_size != info.num_classes),
        f"{asks} model.tied_embeddings needs as many classes of positions as tokens; use --set "
        f"model.tied_embeddings=false",
    )
    yield (
        info.targets != "example" and info.towers > 1,
        f"{asks} has {info.towers} sequences per example, expected 1",
    )
    if info.targets == "position" or pretrain.objective == "next":
        against_next = {
            "model.causal is false": not model.causal,
            "model.norm is batch, which averages over positions": model.norm == "batch",
            f"model.axes is {axes}": info.targets == "position" and axes != "flat",
        }
        asks = asks if info.targets == "position" else "pretrain.objective is next, and"
        for reason, is_so in against_next.items():
            yield (
                is_so,
                f"{asks} {reason}: positions would see the next one; use --set model.causal=true, "
                f"model.norm=layer and model.axes=flat",
            )


def _list_contradictions_of_pretraining(config: RunConfig, info: TaskInfo) -> Contradictions:
    train, pretrain = config.train, config.pretrain
    yield (
        info.targets != "example",
        f"task {config.task_name} predicts {PREDICTED.get(info.targets)} already, and "
        f"pretrain.objective is {pretrain.objective}; use --set pretrain.objective=none",
    )
    yield (
        train.minutes is not None and bool(pretrain.steps or pretrain.epochs),
        f"train.minutes is {train.minutes} and includes the pretraining; set pretrain.minutes in "
        f"place of pretrain.steps or pretrain.epochs",
    )
    yield (
        pretrain.minutes is not None and pretrain.minutes >= (train.minutes or 0),
        f"pretrain.minutes is {pretrain.minutes}, and train.minutes, which includes them, is "
        f"{plain(train.minutes)}; use a longer train.minutes, or pretrain.steps or epochs",
    )


def count_parameters(config: RunConfig) -> int:
    """Count the trainable parameters of a run's model by building it.

    Raises: UserError for options of the mixer that contradict one another.
    """
    # A mixer may cache tensors while it is built; they must not be on the meta device.
    model = Classifier(config, config.build_task().info)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def match_parameters(request: RunRequest, other: str) -> RunRequest:
    """Choose model.dim so that a run has about as many parameters as with another mixer.

    This is the Long Range Arena's rule for a fair comparison (Tay et al., 2021).

    Args:
        request: the run.
        other: the mixer to match. Changed options of the run's own mixer do not apply to it.
    Returns: the request with this model.dim.
    Raises: UserError if no model.dim comes within 5 %.
    """
    origin = f"{FLAG} {other}"
    common = tuple(change for change in request.changes if change.section != "mixer")
    try:
        matched = resolve(replace(request, mixer=other, changes=common))
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None
    own, goal = resolve(request), count_parameters(matched)

    def request_at(dim: int) -> RunRequest:
        change = Change("model", "dim", dim, f"{origin} model.dim={dim}")
        return replace(request, changes=(*request.changes, change))

    def count_at(dim: int) -> int:
        return count_parameters(resolve(request_at(dim)))

    dim, count = _find_nearest(count_at, own.model.dim, goal)
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
    counts = {start: count_at(start)}

    def try_near(dim: int, low: int, high: int) -> int | None:
        """Count at the accepted dim that is nearest to `dim`, strictly between low and high."""
        for candidate in sorted(range(low + 1, high), key=lambda c: abs(c - dim)):
            with contextlib.suppress(UserError):  # for instance heads that do not divide a width
                counts[candidate] = count_at(candidate)
                return candidate
        return None

    low = high = start
    while counts[high] < goal and (larger := try_near(2 * high, high, 3 * high)) is not None:
        low, high = high, larger
    while counts[low] > goal and (smaller := try_near(low // 2, 0, low)) is not None:
        low, high = smaller, low
    while (middle := try_near((low + high) // 2, low, high)) is not None:
        low, high = (middle, high) if counts[middle] < goal else (low, middle)
    return min(counts.items(), key=lambda item: abs(item[1] - goal))
