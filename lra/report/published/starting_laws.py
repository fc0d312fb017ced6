"""The laws by which released parameters start, each with its place, beside those that ours do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lra.config.initial_values import (
    INITIAL_DISTRIBUTIONS,
    Fan,
    InitialDistribution,
    Initialization,
    parse_initial_distribution,
)
from lra.report.published.audit import FOLDER, StatedStart, read_harness, read_published


def _measured(mean: float, deviation: float) -> Initialization:
    """Describe a parameter whose values released code computes: for comparing, never to draw."""
    return Initialization(mean, deviation, lambda tensor: tensor)


MEASURES: Mapping[str, InitialDistribution] = {
    **INITIAL_DISTRIBUTIONS,
    "moments": InitialDistribution(
        lambda fan, mean, deviation: _measured(mean, deviation),
        "mean and standard deviation of what is drawn", numbers=2,
    ),
    "values": InitialDistribution(
        lambda fan, mean, deviation: _measured(mean, deviation),
        "mean and standard deviation of given values", numbers=2,
    ),
    "root_mean_square": InitialDistribution(
        lambda fan, size: Initialization(0.0, size, lambda tensor: tensor, measures_size=True),
        "of given values, in a basis that a library chooses", numbers=1,
    ),
}  # fmt: skip
"""What laws are stated by: those that settings know, and the first moments of any other."""


def stated_starts(name: str, folder: Path = FOLDER) -> dict[str, StatedStart]:
    """Return the stated laws by patterns of parameters' names, those of every mixer last."""
    return {**read_published(name, folder).starts, **read_harness(folder).starts}


def expected_start(stated: StatedStart, task: str) -> Callable[[Fan], Initialization] | None:
    """Say how a parameter of ours starts: as released, or by a law of ours that a word explains.

    Returns: None where neither is stated.
    """
    law = stated.law(task)
    return None if law is None else parse_initial_distribution(law, MEASURES)
