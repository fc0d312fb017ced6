"""Settings that do not work if positions have targets: the next token, or labels of their own."""

from __future__ import annotations

from lra.config.schema import RunConfig
from lra.runtime.errors import UserError
from tasks.base import TaskInfo

READ_EXAMPLES = (
    "model.pooling", "model.head", "model.head_expand", "model.head_activation", "model.head_bias",
)  # fmt: skip
"""Settings that need examples as targets."""


def refuse_unfit(config: RunConfig, info: TaskInfo) -> None:
    """Refuse settings that do not work with the targets of a task.

    Raises: UserError giving the reason.
    """
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
    what = (
        "the next token at each position" if info.targets == "position" else "labels of positions"
    )
    asks = f"task {config.task_name} predicts {what}, and"
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


def refuse_unfit_pretraining(config: RunConfig, info: TaskInfo) -> None:
    """Refuse a pretraining that is impossible.

    Raises: UserError giving the reason.
    """
    if not config.is_pretrained:
        return
    model, train, pretrain = config.model, config.train, config.pretrain
    given = f"pretrain.objective is {pretrain.objective}, and"
    if info.targets != "example":
        what = (
            "the next token at each position"
            if info.targets == "position"
            else "labels of positions"
        )
        raise UserError(
            f"{given} {config.task_name} already predicts {what}; use --set pretrain.objective=none"
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
