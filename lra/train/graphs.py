"""Whether the steps of a run are CUDA graphs, and the shapes of batches that are captured."""

from __future__ import annotations

import logging

import numpy as np
import torch
from torch import Tensor

from lra.classifier.classifier import Classifier
from lra.classifier.layouts import SAMPLED_BATCHES, choose_layouts, describe_padding
from lra.config.schema import RunConfig
from lra.train.fixed_batch import FixedBatch
from lra.train.gradient import Gradient
from lra.train.step_graph import LEAST_REPEATS, StepGraphs, sort_parts
from tasks.base import Split
from tasks.batch import BatchOrder

logger = logging.getLogger(__name__)


def build_step_graphs(
    config: RunConfig,
    gradient: Gradient,
    optimizer: torch.optim.Optimizer,
    split: Split,
    order: BatchOrder,
    *,
    total_steps: int,
) -> StepGraphs | None:
    """Build what makes the steps of full batches, or say why they are no CUDA graphs.

    Args:
        split: the training examples.
    """
    wanted, model = config.train.cuda_graphs, gradient.model
    if not wanted or (wanted == "auto" and gradient.device.type != "cuda"):
        return None
    log = logger.info if wanted == "auto" else logger.warning
    if (reason := find_obstacle(config, gradient, split, order)) is not None:
        log(f"training steps are not CUDA graphs: {reason}")
        return None
    part = min(gradient.micro_batch, order.full_batch)
    sampled = order.sample(SAMPLED_BATCHES)
    lengths = model.embedding.add_cls(torch.from_numpy(split.tower_lengths)).numpy()
    batches = np.stack([sort_parts(lengths[batch], part) for batch in sampled])
    layouts = choose_layouts(batches, int(lengths.max()))
    repeats = total_steps // len(layouts)
    if wanted == "auto" and repeats < LEAST_REPEATS:
        logger.info(
            f"training steps are not CUDA graphs: each of {len(layouts)} shapes of batches "
            f"would repeat {repeats} times only"
        )
        return None
    logger.info(f"training steps are CUDA graphs: {describe_padding(layouts, batches)}")
    most_targets = None
    if split.batch(sampled[0][:1]).scored is not None:
        counts = [split.count_targets(p) or 0 for b in sampled for p in b.reshape(-1, part)]
        most_targets = max(counts)

    def make_step(batch: FixedBatch) -> Tensor:
        numbers = gradient.compute(batch, len(batch), batch.targets)
        optimizer.step()
        return numbers

    return StepGraphs(
        make_step, model, optimizer, layouts=layouts, part_size=part, most_targets=most_targets
    )


def find_obstacle(
    config: RunConfig, gradient: Gradient, split: Split, order: BatchOrder
) -> str | None:
    """Say why the steps of full batches cannot be CUDA graphs, or None if they can."""
    part, full, device = gradient.micro_batch, order.full_batch, gradient.device
    draws_labels = gradient.scorer.goal.of_positions and split.count_targets(order.at(0)) is None
    obstacles = {
        "the device is not CUDA": device.type != "cuda",
        "several processes train together": gradient.group.world_size > 1,
        "log.internals measures ordinary steps": config.log.internals,
        "schedule onecycle changes beta1 at each step": config.train.schedule == "onecycle",
        "the model packs batches by itself":
            type(gradient.model).forward is not Classifier.forward,
        "only a batch tells how many targets it has": draws_labels,
        f"micro-batches of {part} do not divide a batch of {full} evenly":
            full % min(part, full) > 0,
        "blocks that are computed again set the state of random numbers during a step":
            gradient.model.checkpoint_activations,
    }  # fmt: skip
    return next((text for text, holds in obstacles.items() if holds), None)
