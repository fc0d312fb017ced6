"""What cannot be where positions are targets: each is to say what stands at the next one."""

from __future__ import annotations

from lra.config.schema import RunConfig
from lra.runtime.errors import UserError
from tasks.base import TaskInfo

READ_EXAMPLES = ("pooling", "head", "head_expand", "head_activation", "head_bias")
"""Settings of the model that concern examples alone."""


def refuse_unfit(config: RunConfig, info: TaskInfo) -> None:
    """Refuse settings that do not go with what has a label in a task.

    Raises: UserError saying why.
    """
    model = config.model
    if info.targets == "example":
        if model.tied_embeddings:
            raise UserError(
                f"model.tied_embeddings concerns tasks whose targets are tokens, and those of "
                f"{config.task_name} are classes of examples; use --set model.tied_embeddings=false"
            )
        return
    asks = f"task {config.task_name} asks at each position what comes next, and"
    if not model.causal:
        raise UserError(
            f"{asks} model.causal is false: positions would see it; use --set model.causal=true, "
            f"and a mixer that can be causal"
        )
    if model.norm == "batch":
        raise UserError(
            f"{asks} model.norm is batch, whose statistics are of later positions, too; use --set "
            f"model.norm=layer"
        )
    if model.axes != "flat":
        raise UserError(
            f"{asks} model.axes is {model.axes}, in which later positions of a grid come before "
            f"earlier ones; use --set model.axes=flat"
        )
    if info.towers > 1:
        raise UserError(f"{asks} has {info.towers} sequences an example, expected 1")
    if model.tied_embeddings and info.vocab_size != info.num_classes:
        raise UserError(
            f"model.tied_embeddings is true, and {config.task_name} has other tokens than classes "
            f"({info.vocab_size} and {info.num_classes}); use --set model.tied_embeddings=false"
        )
    for text in config.overrides:
        section, _, key = text.partition("=")[0].partition(".")
        if section == "model" and key in READ_EXAMPLES:
            raise UserError(
                f"{section}.{key} has no effect: {asks} no position is pooled; leave it out"
            )


def refuse_unfit_pretraining(config: RunConfig, info: TaskInfo) -> None:
    """Refuse a pretraining that cannot be.

    Raises: UserError saying why.
    """
    if not config.is_pretrained:
        return
    model, train, pretrain = config.model, config.train, config.pretrain
    given = f"pretrain.objective is {pretrain.objective}, and"
    if info.targets == "position":
        raise UserError(
            f"{given} {config.task_name} asks at each position what comes next already; use "
            f"--set pretrain.objective=none"
        )
    if model.pooling == "cls":
        raise UserError(
            f"{given} model.pooling is cls, a position that no pretraining has; use "
            f"--set model.pooling=mean"
        )
    if pretrain.objective == "next" and not model.causal:
        raise UserError(
            f"{given} model.causal is false: positions would see the next; use --set "
            f"model.causal=true, or pretrain.objective=masked"
        )
    if pretrain.objective == "next" and model.norm == "batch":
        raise UserError(
            f"{given} model.norm is batch, whose statistics are of later positions, too; use "
            f"--set model.norm=layer"
        )
    for name in ("steps", "epochs"):
        value = getattr(pretrain, name)
        if value is not None and train.minutes is not None:
            raise UserError(
                f"pretrain.{name} is {value}, and train.minutes {train.minutes:g}, which includes "
                f"the pretraining, so that its length is a time; use pretrain.minutes"
            )
    if pretrain.minutes is not None and (
        train.minutes is None or pretrain.minutes >= train.minutes
    ):
        has = "null" if train.minutes is None else train.minutes
        raise UserError(
            f"pretrain.minutes is {pretrain.minutes}, and train.minutes {has}, which includes "
            f"them; use a longer train.minutes, or pretrain.steps or epochs"
        )
