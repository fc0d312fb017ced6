"""Bubble plots: where the numbers say, their labels apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figure_checks import overlaps
from lra.report.boards import boards
from lra.report.bubbles import (
    LARGEST_AREA,
    Bubble,
    _draw_relative,
    absolute_plots,
    bubble_figures,
    relative_bubbles,
    round_number,
    speeds_on,
)
from lra.report.build import ReportOptions, chapters
from lra.report.drawing import Looks, style
from lra.report.results import Results
from made_results import VALUES, made_records, record, save_all


@pytest.mark.parametrize("count", [2, 3, 25])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_labels_of_bubbles_never_overlap(count: int, spread: float) -> None:
    rng = np.random.default_rng(count)
    bubbles = [
        Bubble(
            method=f"mixer-{i % 8}",
            text="retrieval",
            x=100 + spread * float(rng.normal(0, 40)),
            y=100 + spread * float(rng.normal(0, 10)),
            memory=float(rng.uniform(100, 1000)),
        )
        for i in range(count)
    ]
    with style():
        figure = _draw_relative(bubbles, "tnn", Looks(b.method for b in bubbles))
        assert overlaps(figure) == []
        (axes,) = figure.axes
        labels = [text for text in axes.texts if text.get_text().strip()]
        assert len(labels) == count


def test_bubbles_lie_where_the_numbers_say() -> None:
    runs = [
        record(steps_per_second=2.0, peak_memory_mib=400.0),
        record(mixer="ski-tnn", steps_per_second=3.0, peak_memory_mib=100.0, test_accuracy=30.0),
        record(mixer="fd-tnn", device="GPU", steps_per_second=30.0),
        record(mixer="mean", test_accuracy=17.0),
    ]
    (board,) = boards(runs)
    speeds = speeds_on(board, "CPU")
    assert relative_bubbles(board, "tnn", speeds) == [
        Bubble("ski-tnn", "listops", 150.0, 75.0, 100.0),
        Bubble("tnn", "tnn", 100.0, 100.0, 400.0),
    ], "neither another device nor a result at chance"
    looks = Looks(board.rows)
    figures = bubble_figures(board, "tnn", looks, "b")
    with style():
        figure = figures[0].draw()
    (axes,) = figure.axes
    drawn: list[Any] = [c for c in axes.collections if len(np.asarray(c.get_offsets()))]
    points = {tuple(c.get_offsets()[0]): float(c.get_sizes()[0]) for c in drawn}
    assert points[100.0, 100.0] == LARGEST_AREA
    assert points[150.0, 75.0] == LARGEST_AREA / 4


def test_the_mixer_compared_with_hides_nothing() -> None:
    bubbles = [Bubble(name, name, 100, 100, 5.0) for name in ("ski-tnn", "tnn")]
    with style():
        (axes,) = _draw_relative(bubbles, "tnn", Looks(["ski-tnn", "tnn"])).axes
    filled = {str(c.get_label()): len(c.get_facecolor()) for c in axes.collections}
    assert (filled["ski-tnn"], filled["tnn"]) == (1, 0)


def test_methods_of_one_colour_have_other_markers() -> None:
    names = [f"m{k}" for k in range(9)]
    looks = Looks(names)
    assert looks.colour("m0") == looks.colour("m8")
    bubbles = [Bubble(name, name, 100.0 + k, 100.0, 5.0) for k, name in enumerate(names)]
    with style():
        (axes,) = _draw_relative(bubbles, "m3", looks).axes
    shapes = {str(c.get_label()): np.shape(c.get_paths()[0].vertices) for c in axes.collections}
    assert shapes["m0"] != shapes["m8"]


def test_averages_are_plotted_once_two_mixers_have_them() -> None:
    runs = [
        record(task=task, mixer=mixer, steps_per_second=speed)
        for task in ("listops", "text", "retrieval", "image", "pathfinder")
        for mixer, speed in (("tnn", 2.0), ("s4", 8.0))
    ]
    (board,) = boards(runs)
    (plot,) = absolute_plots(board, speeds_on(board, "CPU"), taskwise=False)
    assert (plot.name, len(plot.tasks), plot.unit) == ("mean of 5", 5, "steps/s")
    assert [(b.method, b.x, b.y) for b in plot.bubbles] == [
        ("s4", pytest.approx(8.0), 40.0), ("tnn", pytest.approx(2.0), 40.0)
    ]  # fmt: skip
    (board,) = boards(runs[:-1])
    assert absolute_plots(board, speeds_on(board, "CPU"), taskwise=False) == []
    found = absolute_plots(board, speeds_on(board, "CPU"), taskwise=True)
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
    assert {b.x for b in relative_bubbles(board, "tnn", speeds)} == {100.0}
    (plot,) = absolute_plots(board, speeds, taskwise=True)
    assert plot.unit == "examples/s"
    assert {round(b.x, 9) for b in plot.bubbles} == {32.0}


@pytest.mark.parametrize("name", ["a $\\x$ b", "_mine", "long " * 30])
def test_any_name_is_shown_as_it_is(name: str) -> None:
    bubbles = [Bubble(method, method, x, 50.0, 5.0) for x, method in ((10, name), (90, "tnn"))]
    with style():
        figure = _draw_relative(bubbles, "tnn", Looks([name, "tnn"]))
        (legend, _) = figure.legends
        shown = [" ".join(text.get_text().split()) for text in legend.get_texts()]
        assert shown == [" ".join(name.split()), "tnn"]
        assert [pair for pair in overlaps(figure) if "edge" in pair[1]] == []


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
    made = chapters(Results(tmp_path), ReportOptions())
    slugs = [figure.slug for chapter in made for figure in chapter.figures]
    assert len(set(slugs)) == len(slugs) == 4


def test_figures_are_the_same_bytes_twice(tmp_path: Path) -> None:
    (board, *_) = boards(made_records(60))
    first, second = (
        [drawn.files() for drawn in bubble_figures(board, "tnn", Looks(board.rows), "b")]
        for _ in range(2)
    )
    assert first == second
    assert first
    for files in first:
        assert {name.rpartition(".")[2] for name in files} == {"png", "svg"}


def test_colours_are_told_apart() -> None:
    looks = Looks(f"m{i:02}" for i in range(20))
    assert len({tuple(sorted(looks.line(f"m{i:02}").items())) for i in range(20)}) == 20


def test_one_bubble_lies_in_the_middle_with_room_around_it() -> None:
    with style():
        (axes,) = _draw_relative([Bubble("a", "a", 100, 50, 5.0)], "a", Looks(["a"])).axes
    assert axes.get_xlim() == pytest.approx((90, 110))
    assert axes.get_ylim() == pytest.approx((45, 55))
    drawn: list[Any] = [c for c in axes.collections if c.get_label() == "a"]
    assert [float(c.get_sizes()[0]) for c in drawn] == [LARGEST_AREA]
