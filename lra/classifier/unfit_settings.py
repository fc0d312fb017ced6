"""Settings of a run that have no effect, or that do not work with each other or with its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lra.config.request import Change
from lra.config.schema import PretrainConfig, RunConfig
from lra.runtime.errors import UserError
from tasks.base import TaskInfo

READ_EXAMPLES = (
    "model.pooling", "model.head", "model.head_expand", "model.head_activation", "model.head_bias",
)  # fmt: skip
"""Settings that need examples as targets."""

PREDICTED = {"position": "the next token at each position", "token": "labels of positions"}
"""What a task predicts whose targets are not examples."""


def refuse_unfit_settings(config: RunConfig, changes: Iterable[Change], info: TaskInfo) -> None:
    """Refuse settings that do not work, and flags that have no effect.

    Settings files may have values without effect, for other presets.

    Args:
        changes: the changed settings that the configuration comes from.
        info: describes the task.
    Raises: UserError giving the reason.
    """
    idle = dict(_list_idle(config))
    for change in changes:
        value = getattr(getattr(config, change.section), change.key)
        if change.name in idle and value not in (None, False):
            raise UserError(f"{change.name} has no effect: {idle[change.name]}")
    _refuse_unfit_targets(config, info)
    if config.is_pretrained:
        _refuse_unfit_pretraining(config, info)


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


def _refuse_unfit_targets(config: RunConfig, info: TaskInfo) -> None:
    """Refuse settings that do not work with the targets of a task."""
    model = config.model
    if info.targets == "example":
        if model.tied_embeddings:
            raise UserError(
                f"model.tied_embeddings needs tokens as targets, and those of {config.task_name} "
                f"are classes of examples; use --set model.tied_embeddings=false"
            )
        return
    if info.targets == "position":
        _refuse_seeing_targets(config)
    asks = f"task {config.task_name} predicts {PREDICTED[info.targets]}, and"
    if info.towers > 1:
        raise UserError(f"{asks} has {info.towers} sequences per example, expected 1")
    if model.tied_embeddings and info.vocab_size != info.num_classes:
        raise UserError(
            f"model.tied_embeddings needs as many classes as tokens, and {config.task_name} has "
            f"{info.num_classes} and {info.vocab_size}; use --set model.tied_embeddings=false"
        )
    for name in config.changed:
        if name in READ_EXAMPLES:
            raise UserError(f"{name} has no effect: {asks} nothing is pooled; leave it out")


def _refuse_seeing_targets(config: RunConfig) -> None:
    """Refuse models of next tokens whose positions see later ones."""
    model = config.model
    asks = f"task {config.task_name} predicts the next token at each position, and"
    if not model.causal:
        raise UserError(
            f"{asks} model.causal is false: positions would see their target; use --set "
            f"model.causal=true, and a mixer that can be causal"
        )
    if model.norm == "batch":
        raise UserError(
            f"{asks} model.norm is batch, whose statistics include later positions; use --set "
            f"model.norm=layer"
        )
    if model.axes != "flat":
        raise UserError(
            f"{asks} model.axes is {model.axes}, which does not follow the order of positions; use "
            f"--set model.axes=flat"
        )


def _refuse_unfit_pretraining(config: RunConfig, info: TaskInfo) -> None:
    """Refuse a pretraining that is impossible."""
    model, train, pretrain = config.model, config.train, config.pretrain
    given = f"pretrain.objective is {pretrain.objective}, and"
    if info.targets != "example":
        raise UserError(
            f"{given} {config.task_name} already predicts {PREDICTED[info.targets]}; use --set "
            f"pretrain.objective=none"
        )
    if model.pooling == "cls":
        raise UserError(
            f"{given} model.pooling is cls, whose position pretraining does not have; use "
            f"--set model.pooling=mean"
        )
    if pretrain.objective == "next" and not model.causal:
        raise UserError(
            f"{given} model.causal is false: positions would see the next one; use --set "
            f"model.causal=true, or pretrain.objective=masked"
        )
    if pretrain.objective == "next" and model.norm == "batch":
        raise UserError(
            f"{given} model.norm is batch, whose statistics include later positions; use "
            f"--set model.norm=layer"
        )
    for name in ("steps", "epochs"):
        value = getattr(pretrain, name)
        if value is not None and train.minutes is not None:
            raise UserError(
                f"pretrain.{name} is {value}, but train.minutes is {train.minutes:g} and includes "
                f"the pretraining; set pretrain.minutes instead"
            )
    if pretrain.minutes is not None and (
        train.minutes is None or pretrain.minutes >= train.minutes
    ):
        has = "null" if train.minutes is None else train.minutes
        raise UserError(
            f"pretrain.minutes is {pretrain.minutes}, and train.minutes, which includes them, is "
            f"{has}; use a longer train.minutes, or pretrain.steps or epochs"
        )
