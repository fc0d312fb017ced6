"""Models of similar size: the Long Range Arena's rule for a fair comparison (Tay et al., 2021)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from lra.classifier.classifier import Classifier
from lra.config.registry import find_mixer
from lra.config.request import Change, RunRequest
from lra.config.schema import RunConfig
from lra.runtime.errors import UserError

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
    find_mixer(other, FLAG)
    own = resolve(request)
    common = tuple(change for change in request.changes if change.section != "mixer")
    try:
        matched = resolve(replace(request, mixer=other, changes=common))
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None

    def request_at(dim: int) -> RunRequest:
        change = Change("model", "dim", dim, f"{origin} model.dim={dim}")
        return replace(request, changes=(*request.changes, change))

    def count_at(dim: int) -> int:
        return count_parameters(resolve(request_at(dim)))

    goal = count_parameters(matched)
    dim, count = _Search(count_at, goal).nearest(own.model.dim)
    excess = count / goal - 1
    sizes = (
        f"{own.mixer_name} {count:,} at model.dim {dim}, {matched.mixer_name} {goal:,} at "
        f"{matched.model.dim} ({100 * abs(excess):.1f} % {'more' if excess >= 0 else 'less'})"
    )
    if abs(excess) > TOLERANCE:
        raise UserError(
            f"{origin}: no model.dim brings the parameters within {100 * TOLERANCE:.0f} %; the "
            f"nearest: {sizes}; change model.depth, or an option of the mixer, by --set"
        )
    logger.info(f"parameters: {sizes}")
    return request_at(dim)


class _Search:
    """Searches for the model.dim whose parameter count is nearest to a goal."""

    def __init__(self, count_at: Callable[[int], int], goal: int) -> None:
        self.count_at = count_at
        self.goal = goal
        self.counts: dict[int, int] = {}

    def nearest(self, start: int) -> tuple[int, int]:
        """Return the nearest dim and its count. The mixer has to accept `start`."""
        self.counts[start] = self.count_at(start)
        low = high = start
        while self.counts[high] < self.goal:
            larger = self._accepted(2 * high, high, 3 * high)
            if larger is None:
                break
            low, high = high, larger
        while self.counts[low] > self.goal:
            smaller = self._accepted(low // 2, 0, low)
            if smaller is None:
                break
            low, high = smaller, low
        while (middle := self._accepted((low + high) // 2, low, high)) is not None:
            low, high = (middle, high) if self.counts[middle] < self.goal else (low, middle)
        return min(self.counts.items(), key=lambda item: abs(item[1] - self.goal))

    def _accepted(self, dim: int, low: int, high: int) -> int | None:
        """Count at the accepted dim that is nearest to `dim`, strictly between low and high."""
        for candidate in sorted(range(low + 1, high), key=lambda c: abs(c - dim)):
            try:
                self.counts[candidate] = self.count_at(candidate)
            except UserError:  # heads that do not divide a width, for one
                continue
            return candidate
        return None
