"""Figures: points where the numbers say, text that can be read, the same bytes twice."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import run_task
from conftest import tiny_arguments
from lra.record import RunRecord
from lra.report.boards import boards
from lra.report.breakdown import breakdown_pictures, confusion, pooled, shares, wilson
from lra.report.bubbles import (
    LARGEST_AREA,
    Bubble,
    _draw_relative,
    _speeds,
    absolute_bubbles,
    bubble_pictures,
    relative_bubbles,
    round_number,
)
from lra.report.curves import AXES, curve, curve_pictures
from lra.report.drawing import Looks, style
from lra.report.kernels import by_distance, kernel_pictures, learned_kernels
from lra.report.results import Guesses, Results
from lra.report.scaling import fit, scaling_pictures
from lra.report.speed import bench_boards, speed_boards, speed_table
from made_results import made_records, record, save_all, write_guesses, write_metrics
from test_report_bench import bench_record


def texts_of(figure: Figure) -> list[Text]:
    """List the texts that are drawn: not the labels of ticks beyond the limits."""
    found: list[Text] = []
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
            found.append(axis.get_offset_text())
    for legend in figure.legends:
        found += [*legend.get_texts(), legend.get_title()]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """List pairs of texts that overlap, and texts that leave the figure."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts_of(figure)]
    whole = figure.bbox.padded(1)
    found = [
        (a, b)
        for (a, one), (b, two) in itertools.combinations(boxes, 2)
        if one.padded(-1).overlaps(two.padded(-1))
    ]
    corners = [(text, x, y) for text, box in boxes for x, y in box.corners()]
    return found + [(text, "the edge") for text, x, y in corners if not whole.contains(x, y)]


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
    speeds = _speeds(board, "CPU")
    assert relative_bubbles(board, "tnn", speeds) == [
        Bubble("ski-tnn", "listops", 150.0, 75.0, 100.0),
        Bubble("tnn", "tnn", 100.0, 100.0, 400.0),
    ], "neither another device nor a result at chance"
    looks = Looks(board.rows)
    pictures = bubble_pictures(board, "tnn", looks, "b")
    with style():
        figure = pictures[0].draw()
    (axes,) = figure.axes
    drawn: list[Any] = [c for c in axes.collections if len(np.asarray(c.get_offsets()))]
    points = {tuple(c.get_offsets()[0]): float(c.get_sizes()[0]) for c in drawn}
    assert points[100.0, 100.0] == LARGEST_AREA
    assert points[150.0, 75.0] == LARGEST_AREA / 4


def test_averages_are_plotted_once_two_mixers_have_them() -> None:
    runs = [
        record(task=task, mixer=mixer, steps_per_second=speed)
        for task in ("listops", "text", "retrieval", "image", "pathfinder")
        for mixer, speed in (("tnn", 2.0), ("s4", 8.0))
    ]
    (board,) = boards(runs)
    ((name, tasks, bubbles),) = absolute_bubbles(board, _speeds(board, "CPU"), taskwise=False)
    assert (name, len(tasks)) == ("mean of 5", 5)
    assert [(b.method, b.x, b.y) for b in bubbles] == [
        ("s4", pytest.approx(8.0), 40.0), ("tnn", pytest.approx(2.0), 40.0)
    ]  # fmt: skip
    (board,) = boards(runs[:-1])
    assert absolute_bubbles(board, _speeds(board, "CPU"), taskwise=False) == []
    found = absolute_bubbles(board, _speeds(board, "CPU"), taskwise=True)
    assert [name for name, _, _ in found] == ["listops", "text", "retrieval", "image"]


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, 1), (999.0, 500), (977.3, 500), (2000.0, 2000), (31.4, 20)]
)
def test_round_numbers(value: float, expected: float) -> None:
    assert round_number(value) == expected


def two_seeds(folder: Path) -> tuple[Results, list[RunRecord]]:
    runs = [record(run_id=f"abc-s{seed}", seed=seed, flops_per_step=1e9) for seed in (0, 1)]
    save_all(folder, runs)
    write_metrics(folder, runs[0], [10.0, 20.0, 30.0])
    write_metrics(folder, runs[1], [20.0, 40.0])
    return Results(folder), runs


@pytest.mark.parametrize(
    ("axis", "x"), [("steps", [10, 20]), ("seconds", [5, 10]), ("flops", [1e10, 2e10])]
)
def test_curves_join_seeds_where_all_have_steps(tmp_path: Path, axis: str, x: list[float]) -> None:
    results, runs = two_seeds(tmp_path)
    found = curve(results, "tnn", tuple(runs), axis)
    assert found is not None
    assert (found.x, found.mean) == (x, [15.0, 30.0])
    assert (found.low, found.high) == ([10.0, 20.0], [20.0, 40.0])


def test_a_figure_per_axis_of_learning(tmp_path: Path) -> None:
    results, _ = two_seeds(tmp_path)
    (board,) = boards(results.records)
    pictures = curve_pictures(results, board, Looks(board.rows), "c")
    assert [p.slug for p in pictures] == [f"c-listops-{axis}" for axis in AXES]
    for picture in pictures:
        with style():
            figure = picture.draw()
            assert overlaps(figure) == []
        assert all(unit in figure.axes[0].get_ylabel() for unit in ("accuracy", "%"))
        assert figure.axes[0].get_xlabel() in AXES.values()


def test_times_of_two_devices_are_two_figures(tmp_path: Path) -> None:
    runs = [record(), record(run_id="abc-s1", seed=1, device="GPU")]
    save_all(tmp_path, runs)
    for run in runs:
        write_metrics(tmp_path, run, [10.0])
    results = Results(tmp_path)
    (board,) = boards(results.records)
    pictures = curve_pictures(results, board, Looks(board.rows), "c")
    slugs = ["steps", "seconds", "seconds-1", "flops"]
    assert [p.slug for p in pictures] == [f"c-listops-{slug}" for slug in slugs]
    assert ["GPU" in p.caption for p in pictures] == [False, False, True, False]


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    results, runs = two_seeds(tmp_path)
    path = results.path(runs[0]) / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 40, "val_accuracy')
    assert len(results.validations(runs[0])) == 3
    assert f"{path}: line 4" in results.faults[0]


def test_wilson_interval() -> None:
    assert wilson(8, 10) == (pytest.approx(49.02, abs=0.01), pytest.approx(94.33, abs=0.01))
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == pytest.approx(100.0)


def guesses(count: int = 400) -> Guesses:
    rng = np.random.default_rng(0)
    labels, lengths = rng.integers(0, 3, count), rng.integers(1, 1000, count)
    wrong = np.where(lengths > 500, (labels + 1) % 3, labels)
    return Guesses(labels, wrong, {"length": lengths, "kind": np.where(labels == 0, "a", "b")})


def test_shares_are_of_all_examples() -> None:
    found = guesses()
    by_length, by_kind = shares(found, "length"), shares(found, "kind")
    for parts in (by_length, by_kind):
        assert sum(part.examples for part in parts) == 400
        right = sum(part.accuracy * part.examples for part in parts) / 100
        assert right == pytest.approx(found.is_right.sum())
    assert len(by_length) == 8
    assert [part.accuracy for part in by_length][:3] == [100.0] * 3
    assert [part.accuracy for part in by_length][-3:] == [0.0] * 3
    assert [part.group for part in by_kind] == ["a", "b"]


def test_confusions_are_percent_of_a_class() -> None:
    matrix = confusion(Guesses(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), {}))
    assert matrix.tolist() == [[50, 50, 0], [0, 100, 0], [100, 0, 0]]


def test_breakdowns_are_drawn_from_the_guesses(tmp_path: Path) -> None:
    runs = [
        record(mixer=mixer, test_accuracy=50.0, test_correct=20, test_total=40)
        for mixer in ("tnn", "s4")
    ]
    save_all(tmp_path, runs)
    for run in runs:
        rows = [
            (i % 2, int(i >= 20) ^ (i % 2), i // 10 + 3, "MIN" if i % 2 else "SM")
            for i in range(40)
        ]
        write_guesses(tmp_path, run, rows, "root operator")
    results = Results(tmp_path)
    (board,) = boards(results.records)
    pictures = breakdown_pictures(results, board, Looks(board.rows), "d")
    names = ["by-length", "by-root-operator", "confusion"]
    assert [p.slug for p in pictures] == [f"d-listops-{name}" for name in names]
    for picture in pictures:
        with style():
            assert overlaps(picture.draw()) == []
    found = pooled(results, runs)
    assert found is not None
    assert [part.accuracy for part in shares(found, "length")] == [100.0, 100.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(0, 0, 5)] * 3, "3 of 3 right, its record says 20 of 40"),
        ([(0, "x", 5)] * 40, "guesss are not all whole numbers"),
        ([], "not the guesses"),
    ],
)
def test_guesses_that_contradict_the_record_are_named(
    tmp_path: Path, rows: list[tuple[Any, ...]], what: str
) -> None:
    run = record(test_accuracy=50.0, test_correct=20, test_total=40)
    save_all(tmp_path, [run])
    write_guesses(tmp_path, run, rows)
    results = Results(tmp_path)
    assert results.guesses(run) is None
    assert what in results.faults[0]


def test_exponents_are_recovered() -> None:
    lengths = [1024, 2048, 4096, 16384]
    exact = fit(lengths, [100 * length**-1.25 for length in lengths])
    assert exact.exponent == pytest.approx(1.25)
    assert exact.error == pytest.approx(0, abs=1e-9)
    assert str(fit([1, 2], [1.0, 0.5])) == "time ~ n^1.00"
    with pytest.raises(ValueError, match="two or more"):
        fit([5, 5], [1.0, 1.0])


def test_speed_over_length_per_device() -> None:
    found = [
        bench_record(mixer=mixer, length=length, device=device, steps_per_second=1e4 / length)
        for mixer in ("tnn", "ski-tnn")
        for length in (1024, 2048, 4096)
        for device in ("CPU", "GPU")
    ]
    made = bench_boards(found)
    assert [board.device for board in made] == ["CPU", "GPU"]
    (picture,) = scaling_pictures(made[0], Looks(["tnn", "ski-tnn"]), "s")
    with style():
        figure = picture.draw()
        assert overlaps(figure) == []
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "n^1.00" in axes.get_legend_handles_labels()[1][0]


def test_two_devices_are_two_tables() -> None:
    runs = [record(), record(seed=1, device="GPU"), record(mixer="s4", steps_per_second=5.0)]
    made = speed_boards(runs)
    assert [board.device for board in made] == ["CPU", "GPU"]
    table = speed_table(made[0], "tnn", "t")
    assert [row[1] for row in table.rows] == ["5.00 (2.00 x)", "2.50 (1.00 x)"]
    assert all("(" not in row[1] for row in speed_table(made[0], "absent", "t").rows)


def test_speeds_of_other_settings_are_rows_of_their_own() -> None:
    (board,) = speed_boards([record(), record(seed=1, config_hash="b", steps_per_second=9.0)])
    assert list(board.rows) == ["tnn [settings abc]", "tnn [settings b]"]


def test_out_of_memory_is_a_word_in_the_speed_table() -> None:
    (board,) = speed_boards([record(status="oom", test_accuracy=None)])
    assert speed_table(board, "tnn", "t").rows[0][1] == "oom"


@pytest.mark.parametrize("mixer", ["tnn", "ski-tnn", "fd-tnn"])
def test_kernels_come_from_the_checkpoint(tmp_path: Path, mixer: str) -> None:
    assert run_task.main(tiny_arguments(tmp_path, mixer=mixer)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    before = sorted(path.name for path in (results.path(run) / "checkpoints").iterdir())
    kernels = learned_kernels(results, run)
    assert [kernel.name for kernel in kernels] == ["layer 1", "layer 2"]
    for kernel in kernels:
        length = kernel.matrices.shape[-1]
        assert kernel.by_lag.shape == (len(kernel.matrices), 2 * length - 1)
        middle = list(kernel.lags).index(0)
        assert np.array_equal(kernel.by_lag[:, middle], kernel.matrices[:, 0, 0])
        assert np.array_equal(kernel.by_lag[:, middle + 3], kernel.matrices[:, 3, 0])
        assert np.array_equal(kernel.by_lag[:, middle - 3], kernel.matrices[:, 0, 3])
    (board,) = boards(results.records)
    (picture,), faults = kernel_pictures(results, board, "k")
    assert not faults
    with style():
        assert overlaps(picture.draw()) == []
    assert sorted(p.name for p in (results.path(run) / "checkpoints").iterdir()) == before


def test_kernels_of_other_settings_are_not_shown(tmp_path: Path) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    changed = run.model_copy(update={"config_hash": "0" * 16})
    (board,) = boards([changed])
    pictures, faults = kernel_pictures(results, board, "k")
    assert not pictures
    assert "settings files have changed" in faults[0]


def test_decay_is_the_larger_of_both_sides() -> None:
    assert by_distance(np.array([-5.0, 1.0, 2.0, -3.0, 4.0])).tolist() == [2.0, 3.0, 5.0]


def test_figures_are_the_same_bytes_twice(tmp_path: Path) -> None:
    (board, *_) = boards(made_records(60))
    first, second = (
        [picture.files() for picture in bubble_pictures(board, "tnn", Looks(board.rows), "b")]
        for _ in range(2)
    )
    assert first == second
    assert first
    for files in first:
        assert {name.rpartition(".")[2] for name in files} == {"png", "svg"}


def test_colours_are_told_apart() -> None:
    looks = Looks(f"m{i:02}" for i in range(20))
    assert len({tuple(sorted(looks.line(f"m{i:02}").items())) for i in range(20)}) == 20


def test_areas_are_finite_for_one_bubble() -> None:
    with style():
        figure = _draw_relative([Bubble("a", "a", 100, 100, 5.0)], "a", Looks(["a"]))
    assert all(math.isfinite(edge) for edge in figure.axes[0].get_xlim())
