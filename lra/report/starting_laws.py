"""The laws by which released parameters start, each with its place, beside those that ours do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lra.config.starts import LAWS, Fan, Law, Start, read_law
from lra.report.audit import (
    FOLDER,
    StatedStart,
    conditions,
    letters,
    places,
    read_harness,
    read_published,
)
from lra.report.table import Table


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


def starts_table(name: str) -> Table:
    """Make the table of one file: a row a pattern, with the released laws and ours."""
    published = read_published(name)
    notes: dict[str, str] = {}
    rows: list[list[str]] = []
    for pattern, stated in stated_starts(name).items():
        tasks = [task for task in published.tasks if stated.concerns(task)]
        texts = {task: stated.text(task) for task in tasks}
        whys = dict.fromkeys(why for task in tasks if (why := stated.explains(task)) is not None)
        marks = "".join(f" {notes.setdefault(why, letters(len(notes)))}" for why in whys)
        cited = places([stated.by_task[task][1] for task in tasks if task in stated.by_task])
        rows.append([f"`{pattern}`", _joined(texts) + marks, cited])
    said = "; ".join(f"{letter}: {why}" for why, letter in notes.items())
    return Table(
        slug=f"starts-{name}",
        title=f"{published.mixer}, {conditions(published)}: how parameters start",
        caption="Each row is a pattern of parameters' names; the last pattern that fits a name "
        "holds. An arrow leads from the released law to ours, and a law in parentheses is stated "
        f"by no source. Notes: {said}.",
        columns=["parameters", "law", "place"],
        rows=rows,
    )


def _joined(texts: Mapping[str, str]) -> str:
    """Write the laws of all tasks, one once."""
    by_text: dict[str, list[str]] = {}
    for task, text in texts.items():
        by_text.setdefault(text, []).append(task)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{', '.join(tasks)}: {text}" for text, tasks in by_text.items())
