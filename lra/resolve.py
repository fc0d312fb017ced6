"""The configuration of a run, composed, checked by building its parts, and matched in size."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lra.classifier.block import AlongAxis, build_layers
from lra.classifier.classifier import Classifier, input_length
from lra.common.errors import UserError
from lra.config.compose import compose
from lra.config.mistakes import name_origins
from lra.config.request import Change, RunRequest
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from lra.contradictions import list_contradictions
from lra.models.base import MixerContext
from lra.trial import check_plug_in

logger = logging.getLogger(__name__)

TOLERANCE = 0.05


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
        changes = (change for change in request.changes if change.name in config.changed)
        given = {change.name for change in changes if change.value not in (None, False)}
        for contradiction in list_contradictions(config, info, mixer, given):
            raise UserError(contradiction)
        grid = None if model.axes == "flat" else info.grid
        context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
        check_plug_in(config.mixer_component, mixer, context)
    return config


def count_parameters(config: RunConfig) -> int:
    """Count the trainable parameters of a run's model by building it; raises as `Classifier`."""
    # A mixer may cache tensors while it is built; they must not be on the meta device.
    return Classifier(config, config.build_task().info).num_parameters


def match_parameters(request: RunRequest, other: str) -> RunRequest:
    """Choose model.dim so that a run has about as many parameters as with another mixer.

    This is the Long Range Arena's rule for a fair comparison (Tay et al., 2021).

    Args:
        other: the mixer to match. Changed options of the run's own mixer do not apply to it.
    Returns: the request with this model.dim.
    Raises: UserError if no model.dim comes within 5 %, or if the request has one.
    """
    origin = f"--match-params {other}"
    if origins := [change.origin for change in request.changes if change.name == "model.dim"]:
        raise UserError(f"{origin} chooses model.dim, and {origins[-1]} sets it; leave one out")
    common = tuple(change for change in request.changes if change.section != "mixer")
    try:
        matched = resolve(replace(request, mixer=other, changes=common))
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None
    config, goal = resolve(request), count_parameters(matched)

    def request_at(dim: int) -> RunRequest:
        change = Change("model", "dim", dim, f"{origin} model.dim={dim}")
        return replace(request, changes=(*request.changes, change))

    dim, count = _find_nearest(
        lambda dim: count_parameters(resolve(request_at(dim))), config.model.dim, goal
    )
    sizes = (
        f"{config.mixer_name} {count:,} at model.dim {dim}, {matched.mixer_name} {goal:,} at "
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
    counts: dict[int, int] = {}
    low, high, near = 0, None, start
    while True:
        end = max(3 * low, start + 1) if high is None else high
        for dim in sorted(range(low + 1, end), key=lambda dim: abs(dim - near)):
            with contextlib.suppress(UserError):  # for instance heads that do not divide a width
                counts[dim] = count_at(dim)
                break
        else:
            return min(counts.items(), key=lambda item: abs(item[1] - goal))
        low, high = (dim, high) if counts[dim] < goal else (low, dim)
        near = 2 * low if high is None else (low + high) // 2
