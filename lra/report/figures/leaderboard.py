"""The leaderboard as a figure: mean accuracy over training speed, measured and published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.report.boards.averages import FIVE, averages
from lra.report.boards.board import Board
from lra.report.boards.cells import Cell
from lra.report.boards.preset_speeds import PresetSpeeds
from lra.report.boards.slugs import slugify
from lra.report.figures.bubble_panels import Bubble, Panel
from lra.report.figures.bubbles import draw_bubbles
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.intervals import Interval, average_interval
from lra.report.figures.styles import MethodStyles, styles_of
from lra.report.tables.leaderboard import rows_at_preset


def leaderboard_figures(
    board: Board,
    speeds: PresetSpeeds,
    styles: MethodStyles,
    published_mean: Callable[[RunRecord], float | None],
) -> list[ReportFigure]:
    """Draw the mean accuracy of each row of the leaderboard over its measured training speed.

    A second panel has the published means of the same mixers over the same speeds.

    Args:
        board: the accuracies of all rows.
        speeds: the training speeds of mixers at the preset of the board.
        styles: colours of the rows.
        published_mean: returns the published mean of a run's mixer over five tasks, or None.
    Returns: the figure; none if fewer than two rows have a mean and a speed.
    """
    measured, published = [], []
    rows = rows_at_preset(board)
    for method, cells in rows.items():
        speed, mean = speeds.by_mixer.get(method), averages(cells)["mean of 5"]
        if speed is None or mean is None:
            continue
        own = [cells[task] for task in FIVE]
        interval = average_interval([cell.mean or 0.0 for cell in own], [*map(_interval, own)])
        seeds = min(len(cell.accuracies) for cell in own)
        measured.append(Bubble(method, speed.relative, mean, speed.memory, interval, seeds))
        if (printed := published_mean(own[0].runs[0])) is not None:
            published.append(Bubble(method, speed.relative, printed, speed.memory))
    unit, label = f"relative to {speeds.relative_to}", "mean test accuracy of 5 tasks, %"
    panels = [
        Panel(name, FIVE, unit, bubbles, label)
        for name, bubbles in (("measured", measured), ("published, full size", published))
        if len(bubbles) > 1
    ]
    if len(measured) < 2:  # noqa: PLR2004
        return []
    return [
        ReportFigure(
            slugify("leaderboard", board.preset, board.protocol),
            "Mean accuracy over training speed",
            _caption(board.preset, speeds, rows, panels),
            partial(
                draw_bubbles,
                panels,
                styles_of((b.method for b in measured), styles),
                has_names=True,
            ),
            is_wide=True,
        )
    ]


def _caption(
    preset: str, speeds: PresetSpeeds, rows: Iterable[str], panels: Sequence[Panel]
) -> str:
    """Say what the panels show, and which rows of the leaderboard they lack."""
    drawn = {bubble.method for bubble in panels[0].bubbles}
    left_out = ", ".join(row for row in rows if row not in drawn)
    parts = [
        f"Each circle is a mixer, and its area is the peak memory of training. Left: the mean test "
        f"accuracy over {', '.join(FIVE)} at preset {preset}; bars in the circles show its 95 % "
        f"interval (of the test examples, not of seeds).",
        f"Not drawn, without a mean or a speed: {left_out}." if left_out else "",
        "Right: the mean that papers report for the same mixers at full size, under protocols that "
        "differ from paper to paper." if len(panels) > 1 else "",
        f"Speeds and memory were measured here: steps per second, divided by those of "
        f"{speeds.relative_to} (geometric mean over {speeds.tasks}), on {speeds.device}.",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


def _interval(cell: Cell[RunRecord]) -> Interval | None:
    """Return the 95 % interval of a number as if it was from one seed, as in the table."""
    totals = [run.test_examples for run in cell.runs if run.test_examples]
    return wilson_interval((cell.mean or 0.0) / 100, min(totals)) if totals else None
