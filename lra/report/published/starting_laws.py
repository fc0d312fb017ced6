"""The laws by which released parameters start, each with its place, beside those that ours do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lra.config.starts import LAWS, Fan, Law, Start, read_law
from lra.report.published.audit import FOLDER, StatedStart, read_harness, read_published


def _measured(mean: float, deviation: float) -> Start:
    """Describe a parameter whose values released code computes: for comparing, never to draw."""
    return Start(mean, deviation, lambda tensor: tensor)


MEASURES: Mapping[str, Law] = {
    **LAWS,
    "moments": Law(
        lambda fan, mean, deviation: _measured(mean, deviation),
        "mean and standard deviation of what is drawn", numbers=2,
    ),
    "values": Law(
        lambda fan, mean, deviation: _measured(mean, deviation),
        "mean and standard deviation of given values", numbers=2,
    ),
    "root_mean_square": Law(
        lambda fan, size: Start(0.0, size, lambda tensor: tensor, measures_size=True),
        "of given values, in a basis that a library chooses", numbers=1,
    ),
}  # fmt: skip
"""What laws are stated by: those that settings know, and the first moments of any other."""


def stated_starts(name: str, folder: Path = FOLDER) -> dict[str, StatedStart]:
    """Return the stated laws by patterns of parameters' names, those of every mixer last."""
    return {**read_published(name, folder).starts, **read_harness(folder).starts}


def expected_start(stated: StatedStart, task: str) -> Callable[[Fan], Start] | None:
    """Say how a parameter of ours starts: as released, or by a law of ours that a word explains.

    Returns: None where neither is stated.
    """
    law = stated.law(task)
    return None if law is None else read_law(law, MEASURES)
