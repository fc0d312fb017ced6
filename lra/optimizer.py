"""AdamW with parameter groups, and the learning-rate schedules."""

from __future__ import annotations

import math

import torch
from torch import nn

from lra.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Group parameters by whether they decay: weight matrices do, biases, norms and
    embeddings only with `weight_decay_on: all`.
    """
    undecayed: set[int] = set()
    if config.weight_decay_on == "matrices":
        embeddings = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
        vectors = [p for p in model.parameters() if p.ndim < 2]  # noqa: PLR2004
        undecayed = {id(p) for p in [*embeddings, *vectors]}
    groups = [
        {
            "params": [p for p in model.parameters() if id(p) not in undecayed],
            "weight_decay": config.weight_decay,
        },
        {
            "params": [p for p in model.parameters() if id(p) in undecayed],
            "weight_decay": 0.0,
        },
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=True,
    )


def rate_at(step: int, total_steps: int, config: TrainConfig) -> float:
    """Return the learning rate of a 0-based step of a run of total_steps."""
    warmup = config.warmup_steps
    if step < warmup:
        return config.lr * (step + 1) / warmup
    if config.schedule == "rsqrt":
        return config.lr * math.sqrt(max(warmup, 1) / max(warmup, step + 1))
    if config.schedule == "constant":
        return config.lr
    end = config.schedule_steps or total_steps
    done = min(1.0, (step - warmup) / max(1, end - warmup))
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * done))


def schedule_warning(total_steps: int, config: TrainConfig) -> str | None:
    """Say so if the schedule does not fit the run's real number of steps."""
    if config.warmup_steps >= total_steps:
        return f"the warm-up of {config.warmup_steps} steps outlasts the run's {total_steps} steps"
    end = config.schedule_steps or total_steps
    if config.schedule == "cosine" and end != total_steps:
        rate = rate_at(total_steps - 1, total_steps, config) / config.lr
        return (
            f"the cosine ends at step {end}, but the run has {total_steps}: the learning rate "
            f"ends at {rate:.0%} of its highest (--set train.schedule_steps=null mends that)"
        )
    return None
