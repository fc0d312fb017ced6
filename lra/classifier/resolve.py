"""The configuration of a run, composed and then checked by building its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lra.classifier.axes import build_layers
from lra.classifier.classifier import input_length
from lra.classifier.plugin_check import check_plug_in
from lra.config.compose import compose, name_origins
from lra.config.request import Change, RunRequest
from lra.config.schema import PretrainConfig, RunConfig
from lra.config.settings_files import CONFIGS
from lra.runtime.errors import UserError
from models.base import MixerContext
from tasks.base import TaskInfo

OF_HEADS = (
    "model.pooling", "model.head", "model.head_expand", "model.head_activation", "model.head_bias",
)  # fmt: skip
"""Settings that need examples as targets."""
PREDICTED = {"position": "the next token at each position", "token": "labels of positions"}
"""What a task predicts whose targets are not examples."""


def resolve(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, and check it by building its task and first mixers.

    A plug-in is also applied to data.

    Raises: UserError as `compose`, and for options that contradict one another.
    """
    config = compose(request, configs)
    with name_origins(config.origins):
        info = config.build_task().info
        model, length = config.model, input_length(config, info)
        # With alternate axes, blocks see rows and columns, whose lengths may differ.
        different = min(model.depth, 2 if model.axes == "alternate" else 1)
        mixers = list(build_layers(config, info, length, different))
        _refuse_idle_flags(config, request.changes)
        for does_not_work, reason in _list_contradictions(config, info):
            if does_not_work:
                raise UserError(reason)
        grid = None if model.axes == "flat" else info.grid
        context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
        check_plug_in(config.mixer_component, mixers[0], context)
    return config


def _refuse_idle_flags(config: RunConfig, changes: Iterable[Change]) -> None:
    """Refuse flags without effect; settings files may have such values, for other presets."""
    idle = dict(_list_idle(config))
    for change in changes:
        value = getattr(getattr(config, change.section), change.key)
        if change.name in idle and value not in (None, False):
            raise UserError(f"{change.name} has no effect: {idle[change.name]}")


def _list_idle(config: RunConfig) -> Iterator[tuple[str, str]]:
    """List settings that have no effect, each with the reason."""
    model, train, pretrain = config.model, config.train, config.pretrain
    if not config.is_pretrained:
        for key in PretrainConfig.model_fields.keys() - {"objective"}:
            yield f"pretrain.{key}", "there is no pretraining (--pretrain masked or next)"
    elif pretrain.objective != "masked":
        yield "pretrain.masked_share", f"pretrain.objective is {pretrain.objective}"
    for name, own in (("expand", model.head_expand), ("activation", model.head_activation)):
        has_head = model.head == "mlp"
        if not has_head:
            yield f"model.head_{name}", "model.head is linear"
        if model.channel_mixer == "none" and not (has_head and own is None):
            head = f"model.head has model.head_{name}" if has_head else "model.head is linear"
            yield f"model.channel_{name}", f"model.channel_mixer is none, and {head}"
    if model.dropout == model.inner_dropout == 0:
        yield "model.tied_dropout", "model.dropout and model.inner_dropout are 0"
    if train.schedule != "plateau":
        yield "train.plateau_factor", f"train.schedule is {train.schedule}"


def _list_contradictions(config: RunConfig, info: TaskInfo) -> Iterator[tuple[bool, str]]:
    """List what does not work together: whether it is so, and the reason with a way out."""
    model, task = config.model, config.task_name
    if info.targets == "example":
        yield (
            model.tied_embeddings,
            f"model.tied_embeddings needs tokens as targets, and those of {task} are classes of "
            f"examples; use --set model.tied_embeddings=false",
        )
    else:
        yield from _list_contradictions_of_positions(config, info)
    if config.is_pretrained:
        yield from _list_contradictions_of_pretraining(config, info)


def _list_contradictions_of_positions(
    config: RunConfig, info: TaskInfo
) -> Iterator[tuple[bool, str]]:
    model, task = config.model, config.task_name
    asks = f"task {task} predicts {PREDICTED[info.targets]}, and"
    is_next = info.targets == "position"
    yield (
        is_next and not model.causal,
        f"{asks} model.causal is false: positions would see their target; use --set "
        f"model.causal=true, and a mixer that can be causal",
    )
    yield (
        is_next and model.norm == "batch",
        f"{asks} model.norm is batch, whose statistics include later positions; use --set "
        f"model.norm=layer",
    )
    yield (
        is_next and model.axes != "flat",
        f"{asks} model.axes is {model.axes}, which does not follow the order of positions; use "
        f"--set model.axes=flat",
    )
    yield info.towers > 1, f"{asks} has {info.towers} sequences per example, expected 1"
    yield (
        model.tied_embeddings and info.vocab_size != info.num_classes,
        f"model.tied_embeddings needs as many classes as tokens, and {task} has "
        f"{info.num_classes} and {info.vocab_size}; use --set model.tied_embeddings=false",
    )
    for name in config.changed:
        yield name in OF_HEADS, f"{name} has no effect: {asks} nothing is pooled; leave it out"


def _list_contradictions_of_pretraining(
    config: RunConfig, info: TaskInfo
) -> Iterator[tuple[bool, str]]:
    model, train, pretrain = config.model, config.train, config.pretrain
    given = f"pretrain.objective is {pretrain.objective}, and"
    is_next = pretrain.objective == "next"
    yield (
        info.targets != "example",
        f"{given} {config.task_name} already predicts {PREDICTED.get(info.targets)}; use --set "
        f"pretrain.objective=none",
    )
    yield (
        model.pooling == "cls",
        f"{given} model.pooling is cls, whose position pretraining does not have; use "
        f"--set model.pooling=mean",
    )
    yield (
        is_next and not model.causal,
        f"{given} model.causal is false: positions would see the next one; use --set "
        f"model.causal=true, or pretrain.objective=masked",
    )
    yield (
        is_next and model.norm == "batch",
        f"{given} model.norm is batch, whose statistics include later positions; use "
        f"--set model.norm=layer",
    )
    for name, value in (("steps", pretrain.steps), ("epochs", pretrain.epochs)):
        yield (
            value is not None and train.minutes is not None,
            f"pretrain.{name} is {value}, but train.minutes is {train.minutes} and includes the "
            f"pretraining; set pretrain.minutes instead",
        )
    yield (
        pretrain.minutes is not None and pretrain.minutes >= (train.minutes or 0),
        f"pretrain.minutes is {pretrain.minutes}, and train.minutes, which includes them, is "
        f"{'null' if train.minutes is None else train.minutes}; use a longer train.minutes, or "
        f"pretrain.steps or epochs",
    )
