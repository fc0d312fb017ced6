"""The configuration of a run, composed and then checked by building its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from torch import nn

from common.strict_yaml import plain
from lra.classifier.axes import AlongAxis, build_layers
from lra.classifier.classifier import input_length
from lra.classifier.plugin_check import check_plug_in
from lra.config.compose import compose, name_origins
from lra.config.request import RunRequest
from lra.config.schema import PretrainConfig, RunConfig
from lra.config.settings_files import CONFIGS
from lra.runtime.errors import UserError
from models.base import Mixer, MixerContext
from tasks.base import TaskInfo

OF_HEADS = ("pooling", "head", "head_expand", "head_activation", "head_bias")
"""Settings of the model that need examples as targets."""
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
    """List the contradictions between settings, the task, and the mixer.

    Args:
        config: the settings.
        info: description of the task.
        mixer: the mixer of the first block.
        given: settings that flags gave a value; a flag without effect is refused. Settings files
            may have such values, for other presets.
    """
    model, train = config.model, config.train
    yield (
        model.axes != "flat" and info.grid is None,
        f"task {config.task_name} has no grid, and model.axes is {model.axes}; use --set "
        f"model.axes=flat",
    )
    yield (
        model.causal and model.pooling == "cls",
        "model.causal with model.pooling=cls: the CLS position comes first and would see nothing; "
        "use --set model.pooling=last or mean",
    )
    yield (
        model.axes != "flat" and model.pooling == "cls",
        f"model.axes={model.axes} with model.pooling=cls: the CLS position is not on the grid; use "
        f"--set model.pooling=mean",
    )
    yield (
        train.schedule_steps is not None and train.schedule != "cosine",
        f"train.schedule_steps has no effect with schedule {train.schedule}; use --set "
        f"train.schedule_steps=null",
    )
    yield (
        (train.schedule == "plateau") != (train.plateau_patience is not None),
        f"train.plateau_patience is {train.plateau_patience} and train.schedule is "
        f"{train.schedule}: plateau needs the number of validations to wait, and other schedules "
        f"need null",
    )
    yield (
        isinstance(train.micro_batch, int) and train.micro_batch > train.batch_size,
        f"train.micro_batch {train.micro_batch} exceeds batch_size {train.batch_size}",
    )
    yield (
        train.steps is None and train.epochs is None and train.minutes is None,
        "none of train.steps, train.epochs and train.minutes is set; use --set train.steps=N",
    )
    for name, reason in _list_idle(config, info):
        yield name in given, f"{name} has no effect: {reason}"
    yield from _list_contradictions_of_mixer(config, mixer)
    yield from _list_contradictions_of_targets(config, info)


def _list_idle(config: RunConfig, info: TaskInfo) -> Iterator[tuple[str, str]]:
    """List settings that have no effect, each with the reason."""
    model, train, pretrain = config.model, config.train, config.pretrain
    if not config.is_pretrained:
        for key in PretrainConfig.model_fields.keys() - {"objective"}:
            yield f"pretrain.{key}", "there is no pretraining (--pretrain masked or next)"
    elif pretrain.objective != "masked":
        yield "pretrain.masked_share", f"pretrain.objective is {pretrain.objective}"
    if info.targets != "example":
        for name in OF_HEADS:
            yield f"model.{name}", f"task {config.task_name} predicts {PREDICTED[info.targets]}"
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


def _list_contradictions_of_targets(config: RunConfig, info: TaskInfo) -> Contradictions:
    model, train, pretrain, task = config.model, config.train, config.pretrain, config.task_name
    predicts = PREDICTED.get(info.targets, "classes of examples")
    asks = f"task {task} predicts {predicts}, and"
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
    yield (
        config.is_pretrained and info.targets != "example",
        f"{asks} pretrain.objective is {pretrain.objective}; use --set pretrain.objective=none",
    )
    if config.is_pretrained:
        asks = f"pretrain.objective is {pretrain.objective}, and"
        yield (
            model.pooling == "cls",
            f"{asks} model.pooling is cls, whose position pretraining does not have; use --set "
            f"model.pooling=mean",
        )
        yield (
            train.minutes is not None and bool(pretrain.steps or pretrain.epochs),
            f"{asks} train.minutes is {train.minutes} and includes the pretraining; set "
            f"pretrain.minutes in place of pretrain.steps or pretrain.epochs",
        )
        yield (
            pretrain.minutes is not None and pretrain.minutes >= (train.minutes or 0),
            f"pretrain.minutes is {pretrain.minutes}, and train.minutes, which includes them, is "
            f"{plain(train.minutes)}; use a longer train.minutes, or pretrain.steps or epochs",
        )
    if info.targets == "position" or pretrain.objective == "next":
        yield (
            not model.causal,
            f"{asks} model.causal is false: positions would see the next one; use --set "
            f"model.causal=true, and a mixer that can be causal",
        )
        yield (
            model.norm == "batch",
            f"{asks} model.norm is batch, whose statistics include later positions; use --set "
            f"model.norm=layer",
        )
        yield (
            info.targets == "position" and model.axes != "flat",
            f"{asks} model.axes is {model.axes}, which does not follow the order of positions; use "
            f"--set model.axes=flat",
        )


def _list_contradictions_of_mixer(config: RunConfig, mixer: nn.Module) -> Contradictions:
    model, name = config.model, config.mixer_name
    is_ours = isinstance(mixer, Mixer)
    yield (
        model.axes == "native" and not (is_ours and mixer.has_native_grid),
        f"mixer {name} has no two-dimensional form, and model.axes is native; use --set "
        f"model.axes=alternate or flat",
    )
    yield (
        model.pooling in ("cls", "last") and is_ours and mixer.reach == (0, 0),
        f"mixer {name} does not mix positions, and model.pooling={model.pooling} reads a single "
        f"one; use --set model.pooling=mean",
    )
    yield (
        model.pooling == "cls" and is_ours and not mixer.looks_ahead,
        f"mixer {name} sees no later positions with these options, and model.pooling=cls reads the "
        f"first position; use --set model.pooling=last",
    )
