"""The figures of the leaderboard: what its mixers reach over their training speeds."""

import dataclasses
import math

from lra.report.boards import Board, rows_at_preset
from lra.report.charts import Chart, Field
from lra.report.data import Data
from lra.report.drawing import Figure
from lra.report.leaderboard import GAIN, OPEN, mean_gains
from lra.report.styles import styles_of_data
from lra.report.tables.speeds import preset_speeds
from lra.report.windows import WINDOW, Windows, find_windows, window_entries

_SHORTEST = 0.5
"""Where a window below one position is drawn, in positions: the axis is logarithmic."""
_WIDTH = 420
"""Pixels of each figure: two stand side by side."""
Score = tuple[float | None, float | None, float | None]
"""The number of a row, and the ends of its bar."""


def leaderboard_figures(data: Data, board: Board) -> list[Figure]:
    """Draw the mean gain and the effective window of each row of the leaderboard over its measured
    training speed; a figure without points is left out.
    """
    board = dataclasses.replace(board, rows=rows_at_preset(board))
    speeds, windows = preset_speeds(data, board), find_windows(data.boards, board)
    gain_caption = (
        f"Each circle is a mixer at preset {board.preset}, and its area is the peak memory of "
        f"training. Bars show the standard deviation over seeds or, for a single seed, the 95 % "
        f"interval of the test examples. The {GAIN} is that over {', '.join(OPEN)}. Speeds "
        f"are those of the leaderboard."
    )
    window_caption = (
        "The same mixers: the largest distance up to which each remembers a value, on the task "
        "flip-flop; the notes of the leaderboard say more."
    )
    charts = {
        "leaderboard": (f"{GAIN.capitalize()}, %", gain_caption, _score_gains(board)),
        "windows": (f"{WINDOW.capitalize()}, positions", window_caption, _score_windows(windows)),
    }
    axes = {"x": "relative", "y": "score", "size": "measured_memory"}
    styles = styles_of_data(data)
    figures: list[Figure] = []
    for name, (title, caption, scores) in charts.items():
        fields = [
            Field("relative", f"training speed, {speeds.relative_to} = 1", is_logarithmic=True),
            Field("score", title, is_logarithmic=name == "windows"),
            Field("measured_memory", "peak memory, MiB"),
        ]
        points = [
            {
                "row": row, "panel": "", "score": score, "low": low, "high": high,
                "relative": speed.mean, "measured_memory": speed.memory,
            }
            for row, (score, low, high) in scores.items()
            if (speed := speeds.by_mixer.get(row)) is not None
        ]  # fmt: skip
        chart = Chart("bubbles", "", [""], fields, axes, points)
        shown = f"{title.partition(',')[0]} over training speed"
        figures.append(Figure(f"{name}-{board.slug}", shown, caption, chart, styles, width=_WIDTH))
    return [figure for figure in figures if figure.drawn_points]


def _score_gains(board: Board) -> dict[str, Score]:
    """Give each row its mean gain, with the interval of independent errors."""
    best = next(iter(board.best_trivial_baseline().values()), {})
    scores: dict[str, Score] = {}
    for row, gain in mean_gains(board).items():
        entries = {task: board.rows[row][task].entry() for task in OPEN if task in board.rows[row]}
        halves = [
            50 * (entry.interval[1] - entry.interval[0]) / (100 - best[task])
            for task, entry in entries.items()
            if entry.interval and not entry.chance
        ]
        half = math.hypot(*halves) / len(OPEN)
        scores[row] = (gain, None, None) if gain is None else (gain, gain - half, gain + half)
    return scores


def _score_windows(windows: Windows) -> dict[str, Score]:
    """Give each row its window, with the interval of the test examples."""

    def place(number: float | None) -> float | None:
        return None if number is None else max(number, _SHORTEST)

    scores: dict[str, Score] = {}
    for row, entry in window_entries(windows).items():
        low, high = entry.interval or (None, None)
        scores[row] = place(entry.value), place(low), place(high)
    return scores
