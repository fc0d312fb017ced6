"""Bubble plots: bubbles lie where the numbers say, and a legend names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from figure_checks import legend_names, overlaps
from lra.record.intervals import wilson_interval
from lra.report.boards.board import boards
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.bubble_panels import (
    Bubble,
    Panel,
    average_panels,
    relative_panels,
    speeds_on,
    task_panels,
)
from lra.report.figures.bubbles import LARGEST_AREA, bubble_figures, draw_bubbles, round_number
from lra.report.figures.drawing import style
from lra.report.figures.intervals import average_interval
from lra.report.figures.styles import assign_styles
from made_results import VALUES, made_records, record, save_all

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")


def panel(bubbles: list[Bubble], name: str = "listops") -> Panel:
    return Panel(name, [name], "% of tnn's", bubbles)


@pytest.mark.parametrize(("count", "panels"), [(2, 1), (30, 1), (25, 2), (8, 4), (8, 6)])
@pytest.mark.parametrize("changes", [{}, {"figure.figsize": (3.2, 2.2), "font.size": 8}])
def test_every_bubble_is_named_and_no_names_overlap(
    count: int, panels: int, changes: dict[str, object]
) -> None:
    rng = np.random.default_rng(count)
    names = [f"mixer-{i}" for i in range(count)]
    made = [
        panel(
            [
                Bubble(
                    name, float(rng.uniform(50, 200)), float(rng.uniform(50, 200)), float(memory)
                )
                for name, memory in zip(names, rng.uniform(100, 1000, count), strict=True)
            ],
            task,
        )
        for task in TASKS[:panels]
    ]
    if changes and panels > 2:  # in a paper of narrow columns these span both
        changes = {**changes, "figure.figsize": (4.8, 3.3)}
    with style(changes):
        figure = draw_bubbles(made, assign_styles(names), "tnn")
        assert overlaps(figure) == []
    assert [axes.get_title() for axes in figure.axes] == list(TASKS[:panels])
    ranked = sorted(made[0].bubbles, key=lambda bubble: -bubble.y)
    assert legend_names(figure) == [bubble.method for bubble in ranked]
    of_names, of_sizes = figure.legends
    assert "MiB" in of_sizes.get_texts()[0].get_text()
    assert not of_names.get_window_extent().overlaps(of_sizes.get_window_extent())


def test_bubbles_lie_where_the_numbers_say() -> None:
    runs = [
        record(steps_per_second=2.0, peak_memory_mib=400.0),
        record(mixer="ski-tnn", steps_per_second=3.0, peak_memory_mib=100.0, test_accuracy=30.0),
        record(mixer="fd-tnn", device="GPU", steps_per_second=30.0),
        record(mixer="mean", test_accuracy=17.0),
    ]
    (board,) = boards(runs)
    speeds = speeds_on(board, "CPU")
    (found,) = relative_panels(board, "tnn", speeds)
    places = [(bubble.method, bubble.x, bubble.y, bubble.memory) for bubble in found.bubbles]
    assert places == [
        ("ski-tnn", 150.0, 75.0, 100.0),
        ("tnn", 100.0, 100.0, 400.0),
    ], "neither another device nor a result at chance"
    styles = assign_styles(board.rows)
    figures = bubble_figures(board, "tnn", styles, "b")
    with style():
        figure = figures[0].draw()
    (axes,) = figure.axes
    bubbles = [c for c in axes.collections if isinstance(c, PathCollection)]
    drawn: list[Any] = [c for c in bubbles if len(np.asarray(c.get_offsets()))]
    points = {tuple(c.get_offsets()[0]): float(c.get_sizes()[0]) for c in drawn}
    assert points[100.0, 100.0] == LARGEST_AREA
    assert points[150.0, 75.0] == LARGEST_AREA / 4


def test_each_task_has_a_panel() -> None:
    runs = [
        record(mixer=mixer, task=task, run_id=f"{task}-s0")
        for task in ("listops", "image")
        for mixer in ("tnn", "s4")
    ]
    (board,) = boards(runs)
    (made,) = bubble_figures(board, "tnn", assign_styles(board.rows), "b")
    with style():
        figure = made.draw()
    assert [axes.get_title() for axes in figure.axes] == ["listops", "image"]
    assert set(legend_names(figure)) == {"tnn", "s4"}


def test_a_mixer_far_faster_does_not_push_the_others_together() -> None:
    bubbles = [Bubble(f"m{x}", x, 50.0, 5.0) for x in (80, 100, 120)]
    for fastest, scale in ((200, "linear"), (5000, "log")):
        with style():
            shown = [*bubbles, Bubble("z", fastest, 50.0, 5.0)]
            figure = draw_bubbles([panel(shown)], assign_styles(b.method for b in shown))
        assert figure.axes[0].get_xscale() == scale


def test_the_mixer_compared_with_hides_nothing() -> None:
    bubbles = [Bubble(name, 100, 100, 5.0) for name in ("ski-tnn", "tnn")]
    with style():
        (axes,) = draw_bubbles([panel(bubbles)], assign_styles(["ski-tnn", "tnn"]), "tnn").axes
    filled = {str(c.get_label()): len(c.get_facecolor()) for c in axes.collections}
    assert (filled["ski-tnn"], filled["tnn"]) == (1, 0)


def test_bubbles_are_circles_and_changed_settings_have_a_pattern() -> None:
    names = ["tnn", "tnn (mixer.decay=0.99)", "s4"]
    bubbles = [Bubble(name, 100.0 + k, 100.0, 5.0) for k, name in enumerate(names)]
    with style():
        (axes,) = draw_bubbles([panel(bubbles)], assign_styles(names)).axes
    drawn: dict[str, Any] = {
        str(c.get_label()): c for c in axes.collections if c.get_label() in names
    }
    shapes = {np.shape(c.get_paths()[0].vertices) for c in drawn.values()}
    assert len(shapes) == 1
    patterns = {name: c.get_hatch() for name, c in drawn.items()}
    assert [patterns[name] is None for name in names] == [True, False, True]


def test_intervals_are_of_examples_for_one_seed_and_of_seeds_for_several() -> None:
    runs = [
        record(test_accuracy=40.0, test_correct=800, test_total=2000),
        record(mixer="s4", run_id="abc-s0", test_accuracy=50.0, test_correct=1000, test_total=2000),
        record(mixer="s4", run_id="abc-s1", seed=1, test_accuracy=52.0, test_correct=1040,
               test_total=2000),
    ]  # fmt: skip
    (board,) = boards(runs)
    (found,) = task_panels(board, speeds_on(board, "CPU"))
    by_mixer = {bubble.method: bubble for bubble in found.bubbles}
    assert by_mixer["tnn"].interval == wilson_interval(0.4, 2000)
    assert by_mixer["s4"].interval == pytest.approx((51 - 2**0.5, 51 + 2**0.5))
    assert [by_mixer[name].seeds for name in ("tnn", "s4")] == [1, 2]
    (relative,) = relative_panels(board, "tnn", speeds_on(board, "CPU"))
    low, high = {bubble.method: bubble.interval for bubble in relative.bubbles}["s4"] or (0, 0)
    assert (low, high) == pytest.approx((2.5 * (51 - 2**0.5), 2.5 * (51 + 2**0.5)))
    (made,) = bubble_figures(board, "tnn", assign_styles(board.rows), "b")
    assert "standard deviation over seeds" in made.caption
    assert "95 % binomial interval" in made.caption


def test_the_interval_of_an_average_joins_those_of_tasks() -> None:
    assert average_interval([10.0, 20.0], [(7.0, 13.0), (16.0, 24.0)]) == (12.5, 17.5)
    assert average_interval([10.0, 20.0], [(7.0, 13.0), None]) is None


def test_averages_that_would_leave_mixers_out_are_not_plotted() -> None:
    runs = [record(mixer=mixer, task=task) for mixer in ("s4", "mega") for task in TASKS[:5]]
    styles = assign_styles(["s4", "mega", "lru"])
    for extra, what in (([], "averages over tasks"), ([record(mixer="lru")], "by task")):
        (board,) = boards([*runs, *extra])
        (figure,) = bubble_figures(board, "tnn", styles, "x")
        assert what in figure.title


def test_averages_are_plotted_once_two_mixers_have_them() -> None:
    runs = [
        record(task=task, mixer=mixer, steps_per_second=speed)
        for task in ("listops", "text", "retrieval", "image", "pathfinder")
        for mixer, speed in (("tnn", 2.0), ("s4", 8.0))
    ]
    (board,) = boards(runs)
    (plot,) = average_panels(board, speeds_on(board, "CPU"))
    assert (plot.name, len(plot.tasks), plot.unit) == ("mean of 5", 5, "steps/s")
    assert [(b.method, b.x, b.y) for b in plot.bubbles] == [
        ("s4", pytest.approx(8.0), 40.0), ("tnn", pytest.approx(2.0), 40.0)
    ]  # fmt: skip
    (board,) = boards(runs[:-1])
    assert average_panels(board, speeds_on(board, "CPU")) == []
    found = task_panels(board, speeds_on(board, "CPU"))
    assert [plot.name for plot in found] == ["listops", "text", "retrieval", "image"]


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, 1), (999.0, 500), (977.3, 500), (2000.0, 2000), (31.4, 20)]
)
def test_round_numbers(value: float, expected: float) -> None:
    assert round_number(value) == expected


def test_speeds_of_other_batch_sizes_compare_by_examples() -> None:
    runs = [
        record(batch_size=32, steps_per_second=1.0),
        record(mixer="s4", batch_size=1, steps_per_second=32.0),
    ]
    (board,) = boards(runs)
    speeds = speeds_on(board, "CPU")
    (relative,) = relative_panels(board, "tnn", speeds)
    assert {b.x for b in relative.bubbles} == {100.0}
    (plot,) = task_panels(board, speeds)
    assert plot.unit == "examples/s"
    assert {round(b.x, 9) for b in plot.bubbles} == {32.0}


@pytest.mark.parametrize("name", ["a $\\x$ b", "_mine", "long " * 30])
def test_any_name_is_shown_as_it_is(name: str) -> None:
    bubbles = [Bubble(method, x, 50.0, 5.0) for x, method in ((10, name), (90, "tnn"))]
    with style():
        figure = draw_bubbles([panel(bubbles)], assign_styles([name, "tnn"]), "tnn")
        assert overlaps(figure) == []
    shown = {" ".join(text.split()) for text in legend_names(figure)}
    assert shown == {" ".join(name.split()), "tnn"}


def test_two_devices_and_a_board_apart_have_files_of_their_own(tmp_path: Path) -> None:
    other = {"source": "unofficial", "fingerprint": "u", "sizes": {}}
    runs = [
        record(mixer=mixer, device=device, data=data, run_id=f"{device}{data['source'][0]}-s0",
               test_accuracy=accuracy)
        for mixer in ("tnn", "s4")
        for device, data, accuracy in (("A", VALUES["data"], 40.0), ("A", other, 60.0))
    ]  # fmt: skip
    runs += [
        run.model_copy(update={"device": "B", "seed": 1, "run_id": f"{run.run_id}x"})
        for run in runs
    ]
    save_all(tmp_path, runs)
    data = ReportData(Results(tmp_path), ReportOptions())
    made = [bubble_figures(board, "tnn", data.styles, board.slug) for board in data.boards]
    slugs = [figure.slug for figures in made for figure in figures]
    assert len(set(slugs)) == len(slugs) == 4


def test_figures_are_the_same_bytes_twice(tmp_path: Path) -> None:
    (board, *_) = boards(made_records(60))
    first, second = (
        [drawn.svg() for drawn in bubble_figures(board, "tnn", assign_styles(board.rows), "b")]
        for _ in range(2)
    )
    assert first == second
    assert first


def test_one_bubble_lies_in_the_middle_with_room_around_it() -> None:
    with style():
        (axes,) = draw_bubbles([panel([Bubble("a", 100, 50, 5.0)])], assign_styles(["a"]), "a").axes
    assert axes.get_xlim() == pytest.approx((90, 110))
    assert axes.get_ylim() == pytest.approx((45, 55))
    drawn: list[Any] = [c for c in axes.collections if c.get_label() == "a"]
    assert [float(c.get_sizes()[0]) for c in drawn] == [LARGEST_AREA]
