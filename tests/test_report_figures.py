"""Figures: points where the numbers say, text that can be read, the same bytes twice."""

from __future__ import annotations

import hashlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.stats import linregress

import run_task
from conftest import tiny_arguments
from lra.record import RunRecord
from lra.report.boards import boards
from lra.report.breakdown import (
    Outcome,
    _draw_shares,
    breakdown_pictures,
    confusion,
    outcome,
    shares,
    wilson,
)
from lra.report.bubbles import (
    LARGEST_AREA,
    Bubble,
    _draw_relative,
    absolute_plots,
    bubble_pictures,
    relative_bubbles,
    round_number,
    speeds_on,
)
from lra.report.build import Wanted, sections
from lra.report.curves import AXES, curve, curve_pictures
from lra.report.drawing import Looks, style
from lra.report.kernels import by_distance, kernel_pictures, learned_kernels
from lra.report.results import Results
from lra.report.scaling import fit, scaling_pictures
from lra.report.speed import bench_boards, memory_table, speed_boards, speed_table
from made_results import VALUES, made_records, record, save_all, write_guesses, write_metrics
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
    speeds = speeds_on(board, "CPU")
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


def test_a_run_that_stopped_early_cuts_no_curve_short(tmp_path: Path) -> None:
    _, runs = two_seeds(tmp_path)
    stopped = record(run_id="abc-s2", seed=2, status="stopped")
    save_all(tmp_path, [stopped])
    write_metrics(tmp_path, stopped, [5.0])
    results = Results(tmp_path)
    found = curve(results, "tnn", (*runs, stopped), "steps")
    assert found is not None
    assert (found.x, found.seeds) == ([10, 20], 2)
    alone = curve(results, "tnn", (stopped,), "steps")
    assert alone is not None
    assert alone.mean == [5.0]


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
    slugs = ["steps", "seconds", "seconds-device1", "flops"]
    assert [p.slug for p in pictures] == [f"c-listops-{slug}" for slug in slugs]
    assert ["GPU" in p.caption for p in pictures] == [False, False, True, False]


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    results, runs = two_seeds(tmp_path)
    path = results.path(runs[0]) / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 40, "val_accuracy')
    assert len(results.validations(runs[0])) == 3
    assert f"{path}: line 4" in results.faults[0]


def test_wilson_interval() -> None:
    assert wilson(0.8, 10) == (pytest.approx(49.02, abs=0.01), pytest.approx(94.33, abs=0.01))
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(1.0, 10)[1] == pytest.approx(100.0)


def made_outcome(seeds: int = 1, count: int = 400) -> Outcome:
    rng = np.random.default_rng(0)
    labels, lengths = rng.integers(0, 3, count), rng.integers(1, 1000, count)
    guesses = np.where(lengths > 500, (labels + 1) % 3, labels)
    kinds = np.where(labels == 0, "a", "b")
    return Outcome(labels, np.stack([guesses] * seeds), {"length": lengths, "kind": kinds})


def test_shares_are_of_all_examples() -> None:
    found = made_outcome()
    by_length, by_kind = shares(found, "length"), shares(found, "kind")
    for parts in (by_length, by_kind):
        assert sum(part.examples for part in parts) == 400
        right = sum(part.accuracy * part.examples for part in parts) / 100
        assert right == pytest.approx(found.rate.sum())
    assert len(by_length) == 8
    assert [part.accuracy for part in by_length][:3] == [100.0] * 3
    assert [part.accuracy for part in by_length][-3:] == [0.0] * 3
    assert [part.group for part in by_kind] == ["a", "b"]


def test_seeds_add_no_examples() -> None:
    assert shares(made_outcome(seeds=10), "length") == shares(made_outcome(), "length")


def test_a_part_too_small_shifts_no_name(tmp_path: Path) -> None:
    labels = np.zeros(55, dtype=int)
    words = np.array(["k1"] * 5 + ["k2"] * 20 + ["k3"] * 30)
    found = Outcome(labels, labels[None] + (words == "k3"), {"kind": words})
    parts = shares(found, "kind")
    assert [(part.group, part.x, part.accuracy) for part in parts] == [
        ("k2", 1.0, 100.0), ("k3", 2.0, 0.0)
    ]  # fmt: skip
    with style():
        (axes,) = _draw_shares({"tnn": parts}, "kind", False, Looks(["tnn"])).axes
    ticks = {
        tick: label.get_text()
        for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    }
    assert ticks == {1.0: "k2", 2.0: "k3"}


def test_confusions_are_percent_of_a_class() -> None:
    matrix = confusion(Outcome(np.array([0, 0, 1, 2]), np.array([[0, 1, 1, 0]]), {}))
    assert matrix.tolist() == [[50, 50, 0], [0, 100, 0], [100, 0, 0]]


@pytest.mark.parametrize("name", ["a $x$ b", "_mine", "long " * 30])
def test_any_name_is_shown_as_it_is(name: str) -> None:
    bubbles = [Bubble(method, method, x, 50.0, 5.0) for x, method in ((10, name), (90, "tnn"))]
    with style():
        figure = _draw_relative(bubbles, "tnn", Looks([name, "tnn"]))
        (legend, _) = figure.legends
        shown = [" ".join(text.get_text().split()) for text in legend.get_texts()]
        assert shown == [" ".join(name.split()), "tnn"]
        assert [pair for pair in overlaps(figure) if "edge" in pair[1]] == []


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
    found = outcome(results, runs)
    assert found is not None
    assert [part.accuracy for part in shares(found, "length")] == [100.0, 100.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(0, 0, 5)] * 3, "3 of 3 right, its record says 20 of 40"),
        ([(0, 10**9, 5)] * 40, "from 0 to 1000"),
        ([(0, "x", 5)] * 40, "guesses are not all whole numbers"),
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
    (board,) = speed_boards([record(status="oom")])
    assert speed_table(board, "tnn", "t").rows[0][1] == "oom"
    (board,) = speed_boards([record(), record(seed=1, status="oom", steps_per_second=9.0)])
    assert speed_table(board, "tnn", "t").rows[0][1] == "2.50 (1.00 x), 1 oom"


def test_memory_is_the_largest_and_speed_the_median() -> None:
    runs = [
        record(seed=seed, steps_per_second=speed, peak_memory_mib=100.0 * speed)
        for seed, speed in enumerate((1.0, 2.0, 9.0))
    ]
    (board,) = speed_boards(runs)
    assert speed_table(board, "absent", "t").rows[0][1] == "2.00"
    assert memory_table(board, "absent", "t").rows[0][1] == "900"


def test_two_lengths_of_other_settings_are_drawn(tmp_path: Path) -> None:
    runs = [
        record(run_id=f"{code}-s{length}", config_hash=code, length=length)
        for code in ("a", "b")
        for length in (1024, 2048)
    ]
    save_all(tmp_path, runs)
    made = sections(Results(tmp_path), Wanted())
    (picture,) = [p for s in made for p in s.pictures if p.slug.endswith("lengths")]
    assert len(picture.files()) == 2


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
    made = sections(Results(tmp_path), Wanted())
    slugs = [p.slug for s in made for p in s.pictures]
    assert len(set(slugs)) == len(slugs) == 4


def test_errors_of_exponents_are_of_the_textbook() -> None:
    x, y = np.log([1, 2, 4, 8]), np.array([0.0, 1.0, 1.0, 3.0])
    found = fit([1, 2, 4, 8], list(np.exp(-y)))
    reference: Any = linregress(x, y)
    assert found.exponent == pytest.approx(reference.slope)
    assert found.error == pytest.approx(reference.stderr)


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
    (picture,) = kernel_pictures(results, board, "k")
    with style():
        assert overlaps(picture.draw()) == []
    assert sorted(p.name for p in (results.path(run) / "checkpoints").iterdir()) == before


def test_kernels_of_other_settings_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    (board,) = boards([run.model_copy(update={"config_hash": "0" * 16})])
    assert kernel_pictures(results, board, "k") == []
    assert "settings files have changed" in capsys.readouterr().err
    (board,) = boards([run.model_copy(update={"mixer_code": "0" * 16, "mixer_from": "evil.py:X"})])
    assert kernel_pictures(results, board, "k") == []
    (board,) = boards([run])
    for path in (results.path(run) / "checkpoints").iterdir():
        content = b"no checkpoint"
        path.rename(path.with_name(f"step-000000020-{hashlib.sha256(content).hexdigest()[:16]}.pt"))
    for path in (results.path(run) / "checkpoints").iterdir():
        path.write_bytes(b"no checkpoint")
    assert kernel_pictures(results, board, "k") == []


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
