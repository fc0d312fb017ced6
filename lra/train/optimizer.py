"""AdamW, whose groups of parameters differ in learning rate and weight decay, and its schedules."""

import logging
import math
from collections.abc import Callable

import torch
from torch import nn
from typing_extensions import TypedDict

from lra.common.errors import UserError
from lra.config.schema import TrainConfig
from lra.models.base import DecayingAt, Mixer
from lra.runtime.environment import SavedTensor
from lra.schema import Amount, Count

logger = logging.getLogger(__name__)

PLATEAU_THRESHOLD = 1e-4
"""Share of the best accuracy by which a better one must exceed it."""
Moments = list[dict[str, SavedTensor] | None]
"""What AdamW knows of each parameter, in the order of its groups; None of one without a gradient.
"""


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Group parameters by learning rate and by whether they decay.

    `weight_decay_on` chooses what decays. Of the parameters that a mixer lists in `learning_rates`,
    only those that are `DecayingAt` a rate decay. `set_rate_factor` scales all rates together.

    Raises: UserError for learning rates of a mixer that cannot be.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    rates: dict[nn.Parameter, float | DecayingAt | None] = {}
    for mixer in model.modules():
        if isinstance(mixer, Mixer):
            rates |= mixer.learning_rates()
    if rates.keys() - set(model.parameters()):
        raise UserError("learning_rates of a mixer names what it does not own")
    undecayed = UNDECAYED[config.weight_decay_on](model)
    for parameter in model.parameters():
        rate = rates.get(parameter, DecayingAt(config.lr))
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


def load_moments(optimizer: torch.optim.Optimizer, moments: Moments) -> None:
    """Give an optimizer the moments of `Trainer.state_dict`.

    Raises: ValueError for moments of other parameters.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, tensors in zip(parameters, moments, strict=True):
        like = parameter.shape, parameter.dtype
        expected = {"step": ((), torch.float32), "exp_avg": like, "exp_avg_sq": like}
        if tensors is None:
            continue
        if {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} != expected:
            raise ValueError("moments of other parameters in the optimizer")
    state = {index: tensors for index, tensors in enumerate(moments) if tensors}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _vectors_and_embeddings(model: nn.Module) -> set[nn.Parameter]:
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    tables = {p for embedding in embeddings for p in embedding.parameters()}
    return tables | {p for p in model.parameters() if p.ndim < 2}  # noqa: PLR2004


def _block_biases_and_norms(model: nn.Module) -> set[nn.Parameter]:
    """Collect what S4's V4 exempts from decay, `self.model` there (train.py, optim_groups.py)."""
    norms = (nn.BatchNorm1d, nn.LayerNorm)
    return {
        parameter
        for module_name, module in model.named_modules()
        if module_name == "norm" or module_name.startswith("blocks.")
        for name, parameter in module.named_parameters(recurse=False)
        if name == "bias" or isinstance(module, norms)
    }


UNDECAYED: dict[str, Callable[[nn.Module], set[nn.Parameter]]] = {
    "all": lambda _: set(),
    "matrices": _vectors_and_embeddings,
    "all_but_block_biases_and_norms": _block_biases_and_norms,
}
"""By `weight_decay_on`, the parameters that do not decay."""


def set_rate_factor(
    optimizer: torch.optim.Optimizer, factor: float, beta1: float | None = None
) -> None:
    """Set every group to a factor times its highest learning rate, and to a beta1 if one is given.

    On a GPU the product is rounded to float32, because CUDA graphs read it as such: ordinary steps
    then have the same rate.
    """
    for group in optimizer.param_groups:
        rate = factor * group["peak_lr"]
        is_on_cpu = group["params"][0].device.type == "cpu"
        group["lr"] = rate if is_on_cpu else torch.tensor(rate, dtype=torch.float32).item()
        if beta1 is not None:
            group["betas"] = beta1, group["betas"][1]


ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 250_000
"""First and last factors of schedule onecycle: the defaults of torch's `OneCycleLR`."""
ONE_CYCLE_BETAS = 0.95, 0.85
"""beta1 of schedule onecycle at those two ends, and at the highest rate; defaults as well."""

SCHEDULES: dict[str, Callable[[float, int, int], float]] = {
    "cosine": lambda done, warmup, steps: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done, warmup, steps: 1.0 - done,
    "onecycle": lambda done, warmup, steps: 1.0 - done * (1.0 - ONE_CYCLE_END),
    "rsqrt": lambda done, warmup, steps: math.sqrt(max(warmup, 1) / max(warmup, steps)),
    "constant": lambda done, warmup, steps: 1.0,
    "plateau": lambda done, warmup, steps: 1.0,
}
"""Factor of the learning rate after warm-up, from the share of the schedule that is done, the steps
of warm-up, and all steps so far."""


def rate_factor(step: int, total_steps: int, config: TrainConfig) -> float:
    """Return the learning rate of a 0-based step as a share of the highest, in [0, 1]."""
    warmup = _count_warmup(total_steps, config)
    if config.schedule == "onecycle":
        rise, done = _cycle(step, warmup, total_steps)
        factor = ONE_CYCLE_START + rise * (1.0 - ONE_CYCLE_START)
        return factor * SCHEDULES[config.schedule](done, warmup, step + 1)
    if step < warmup:
        return (step + 1) / warmup
    end = config.schedule_steps or total_steps
    done = min(1.0, (step - warmup) / max(1, end - warmup))
    return SCHEDULES[config.schedule](done, warmup, step + 1)


def scheduled_beta1(step: int, total_steps: int, config: TrainConfig) -> float | None:
    """Return beta1 of a 0-based step if the schedule changes it: against the rate, as onecycle."""
    if config.schedule != "onecycle":
        return None
    rise, done = _cycle(step, _count_warmup(total_steps, config), total_steps)
    at_ends, at_peak = ONE_CYCLE_BETAS
    return at_ends + (rise - done) * (at_peak - at_ends)


def _count_warmup(total_steps: int, config: TrainConfig) -> int:
    share = config.warmup_share
    return config.warmup_steps if share is None else round(share * total_steps)


def _cycle(step: int, warmup: int, total_steps: int) -> tuple[float, float]:
    """Return the shares of the rise and of the fall of one cycle that are done, in [0, 1].

    As in torch's `OneCycleLR`, the last step of the warm-up has the highest rate.
    """
    peak = max(0, warmup - 1)
    if step < peak:
        return step / peak, 0.0
    return 1.0, min(1.0, (step - peak) / max(1, total_steps - 1 - peak))


class Plateau(TypedDict):
    """The state of schedule plateau, by the rule of torch's `ReduceLROnPlateau`, mode max."""

    factor: Amount
    """Factor of the learning rate; with other schedules it stays 1."""
    best: float | None
    waited: Count
    """Validations since the best one, or since the rate fell."""


def update_plateau(plateau: Plateau, merit: float, config: TrainConfig) -> None:
    """Take the result of a validation, in percent: more is better."""
    if config.plateau_patience is None:
        return
    best = plateau["best"]
    if best is None or merit > best * (1 + PLATEAU_THRESHOLD):
        plateau["best"], plateau["waited"] = merit, 0
        return
    plateau["waited"] += 1
    if plateau["waited"] > config.plateau_patience:
        plateau["factor"] *= config.plateau_factor
        plateau["waited"] = 0
        logger.info(f"the learning rate falls to {plateau['factor']:.3g} of its highest")
