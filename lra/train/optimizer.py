"""AdamW with groups of parameters that differ in learning rate and weight decay."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from common.errors import UserError
from lra.config.schema import TrainConfig
from models.base import DecayingAt, Mixer


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Group parameters by learning rate and by whether they decay.

    `weight_decay_on` chooses what decays. Of the parameters that a mixer lists in `learning_rates`,
    only those that are `DecayingAt` a rate decay. `set_rate_factor` scales all rates together.

    Raises: UserError for learning rates of a mixer that cannot be.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    own: dict[nn.Parameter, float | DecayingAt | None] = {}
    for mixer in model.modules():
        if isinstance(mixer, Mixer):
            own |= mixer.learning_rates()
    if own.keys() - set(model.parameters()):
        raise UserError("learning_rates of a mixer names what it does not own")
    undecayed = UNDECAYED[config.weight_decay_on](model)
    for parameter in model.parameters():
        rate = own.get(parameter, DecayingAt(config.lr))
        decays = isinstance(rate, DecayingAt) and parameter not in undecayed
        lr = rate.lr if isinstance(rate, DecayingAt) else rate
        lr = config.lr if lr is None else lr
        if not 0 < lr < math.inf:
            raise UserError(f"learning_rates of a mixer has {lr}, expected > 0")
        decay = config.weight_decay if decays else 0.0
        groups.setdefault((lr, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": lr, "peak_lr": lr, "weight_decay": decay}
            for (lr, decay), parameters in groups.items()
        ],
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def _vectors_and_embeddings(model: nn.Module) -> set[nn.Parameter]:
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    tables = {p for embedding in embeddings for p in embedding.parameters()}
    return tables | {p for p in model.parameters() if p.ndim < 2}  # noqa: PLR2004


def _block_biases_and_norms(model: nn.Module) -> set[nn.Parameter]:
    """Collect what S4's V4 exempts from decay, `self.model` there (train.py, optim_groups.py)."""
    norms = (nn.BatchNorm1d, nn.LayerNorm)
    return {
        parameter
        for place, module in model.named_modules()
        if place == "norm" or place.startswith("blocks.")
        for name, parameter in module.named_parameters(recurse=False)
        if name == "bias" or isinstance(module, norms)
    }


UNDECAYED: dict[str, Callable[[nn.Module], set[nn.Parameter]]] = {
    "all": lambda _: set(),
    "matrices": _vectors_and_embeddings,
    "all_but_block_biases_and_norms": _block_biases_and_norms,
}
"""By `weight_decay_on`, the parameters that do not decay."""


def set_rate_factor(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group to a factor times its highest learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = factor * group["peak_lr"]
