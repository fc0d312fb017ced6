"""Bubble plots: bubbles lie where the numbers say, and names can be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from figure_checks import overlaps
from lra.record.intervals import wilson_interval
from lra.record.run import RunRecord
from lra.report.data import Data
from lra.report.figures.bubbles import Bubble, Panel, bubble_figures, draw_bubbles
from lra.report.figures.drawing import ReportFigure, style
from lra.report.paper import column_style
from lra.report.points import Bubbles, bubbles_of_board
from lra.report.styles import assign_styles, styles_of_data
from made_results import TASKS, record, save_all

FIVE = [*TASKS][:5]


def draw(*panels: list[Bubble]) -> Figure:
    rows = {bubble.row for bubbles in panels for bubble in bubbles}
    made = [Panel(f"panel {i}", bubbles, "speed", "y") for i, bubbles in enumerate(panels)]
    return draw_bubbles(made, assign_styles(rows))


def names_in(figure: Figure) -> list[str]:
    shown = [text.get_text() for axes in figure.axes for text in axes.texts]
    return [" ".join(text.split()) for text in shown]


def circles(figure: Figure) -> dict[tuple[float, ...], PathCollection]:
    """Find the drawn bubbles of the first panel by their place."""
    found = [one for one in figure.axes[0].collections if isinstance(one, PathCollection)]
    return {tuple(place): one for one in found for place in np.asarray(one.get_offsets())[:1]}


def bubbles_of(folder: Path, runs: list[RunRecord]) -> tuple[Bubbles, ReportFigure]:
    data = Data(save_all(folder, runs))
    (board,) = data.boards
    (figure,) = bubble_figures(data, board, styles_of_data(data))
    return bubbles_of_board(data, board), figure


@pytest.mark.parametrize(
    ("count", "panels", "width"),
    [(2, 1, None), (40, 1, None), (12, 6, 345)],
)
def test_no_names_overlap_and_most_are_there(count: int, panels: int, width: int | None) -> None:
    rng = np.random.default_rng(count)
    made = [
        [Bubble(f"mixer-{i}", x, y, memory) for i, (x, y, memory) in enumerate(numbers)]
        for numbers in rng.uniform(100, 999, (panels, count, 3)).tolist()
    ]
    with column_style(width) if width else style():
        figure = draw(*made)
        assert overlaps(figure) == []
    best = max(made[0], key=lambda bubble: bubble.y).row
    assert figure.axes[0].texts[0].get_text() == best
    assert len(names_in(figure)) >= count * panels * (0.4 if count > 20 else 0.8)
    assert "MiB" in figure.legends[0].get_texts()[0].get_text()


def test_points_have_the_numbers_of_their_runs_on_each_device(tmp_path: Path) -> None:
    runs = [
        record(test_accuracy=40.0, peak_memory_mib=400.0, train_seconds=120.0),
        record(mixer="s4", test_accuracy=50.0, steps_per_second=3.0),
        record(mixer="s4", test_accuracy=52.0, steps_per_second=5.0, seed=1, run_id="abc-s1"),
        record(mixer="fd-tnn", device="NVIDIA H200", test_accuracy=60.0, steps_per_second=30.0),
        record(mixer="mean", test_accuracy=17.0),
        record(mixer="hgrn", status="diverged"),
    ]
    found, made = bubbles_of(tmp_path, runs)
    by_row = {str(point["row"]): point for point in found.points}
    assert by_row.keys() == {"tnn", "s4", "fd-tnn", "mean"}, "not one that diverged"
    tnn, s4, gpu = (by_row[row] for row in ("tnn", "s4", "fd-tnn"))
    assert (tnn["score"], tnn["speed0"], tnn["memory0"], tnn["minutes0"]) == (40, 2.5, 400, 2)
    assert (tnn["low"], tnn["high"]) == wilson_interval(0.4, 2000), "of one seed"
    assert (s4["score"], s4["speed0"], s4["seeds"]) == (51, 4, 2)
    assert (s4["low"], s4["high"]) == pytest.approx((51 - 2**0.5, 51 + 2**0.5)), "of two seeds"
    assert ("speed0" in gpu, gpu["speed1"]) == (False, pytest.approx(30))
    assert by_row["mean"]["remarks"] == "at chance"
    assert "Training speed, steps/s, on CPU. The area" in made.caption
    assert "Not drawn, without a result or a speed: fd-tnn, hgrn." in made.caption
    with style():
        assert circles(made.draw()).keys() == {(2.5, 40.0), (4.0, 51.0), (2.5, 17.0)}
    assert made.svg() == made.svg(), "equal bytes"
