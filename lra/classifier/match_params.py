"""Models of similar size: the Long Range Arena's rule for a fair comparison (Tay et al., 2021)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from common.errors import UserError
from lra.classifier.classifier import Classifier
from lra.config.request import Change, RunRequest
from lra.config.schema import RunConfig

logger = logging.getLogger(__name__)

FLAG = "--match-params"
TOLERANCE = 0.05


def count_parameters(config: RunConfig) -> int:
    """Count the trainable parameters of a run's model by building it.

    Raises: UserError for options of the mixer that contradict one another.
    """
    # A mixer may cache tensors while it is built; they must not be on the meta device.
    model = Classifier(config, config.build_task().info)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def match_parameters(
    resolve: Callable[[RunRequest], RunConfig], request: RunRequest, other: str
) -> RunRequest:
    """Choose model.dim so that a run has about as many parameters as with another mixer.

    Args:
        resolve: `lra.classifier.resolve.resolve`.
        request: the run.
        other: the mixer to match. Changed options of the run's own mixer do not apply to it.
    Returns: the request with this model.dim.
    Raises: UserError if no model.dim comes within 5 %.
    """
    origin = f"{FLAG} {other}"
    common = tuple(change for change in request.changes if change.section != "mixer")
    try:
        matched = resolve(replace(request, mixer=other, changes=common))
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None
    own, goal = resolve(request), count_parameters(matched)

    def request_at(dim: int) -> RunRequest:
        change = Change("model", "dim", dim, f"{origin} model.dim={dim}")
        return replace(request, changes=(*request.changes, change))

    def count_at(dim: int) -> int:
        return count_parameters(resolve(request_at(dim)))

    dim, count = _find_nearest(count_at, own.model.dim, goal)
    sizes = (
        f"{own.mixer_name} {count:,} at model.dim {dim}, {matched.mixer_name} {goal:,} at "
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
    counts = {start: count_at(start)}

    def try_near(dim: int, low: int, high: int) -> int | None:
        """Count at the accepted dim that is nearest to `dim`, strictly between low and high."""
        for candidate in sorted(range(low + 1, high), key=lambda c: abs(c - dim)):
            with contextlib.suppress(UserError):  # for instance heads that do not divide a width
                counts[candidate] = count_at(candidate)
                return candidate
        return None

    low = high = start
    while counts[high] < goal and (larger := try_near(2 * high, high, 3 * high)) is not None:
        low, high = high, larger
    while counts[low] > goal and (smaller := try_near(low // 2, 0, low)) is not None:
        low, high = smaller, low
    while (middle := try_near((low + high) // 2, low, high)) is not None:
        low, high = (middle, high) if counts[middle] < goal else (low, middle)
    return min(counts.items(), key=lambda item: abs(item[1] - goal))
