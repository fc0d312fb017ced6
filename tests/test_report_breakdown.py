"""Learning curves, accuracy by metadata, confusions: from metrics and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figure_checks import legend_names, overlaps
from lra.record.intervals import wilson_interval
from lra.record.run import NO_PREDICTION, RunRecord
from lra.report.boards.board import boards
from lra.report.boards.predictions import Predictions
from lra.report.boards.results import Results
from lra.report.figures.breakdown import (
    SeedPredictions,
    breakdown_figures,
    draw_group_accuracies,
    group_accuracies,
    join_predictions,
)
from lra.report.figures.curves import (
    COSTS,
    FLOPS,
    LOSS,
    STEPS,
    TIME,
    Cost,
    curve_figures,
    learning_curve,
)
from lra.report.figures.drawing import style
from lra.report.figures.styles import assign_styles
from made_results import record, save_all, write_metrics, write_predictions


def test_a_run_that_stopped_early_cuts_no_curve_short(tmp_path: Path) -> None:
    _, runs = two_seeds(tmp_path)
    stopped = record(run_id="abc-s2", seed=2, status="stopped")
    save_all(tmp_path, [stopped])
    write_metrics(tmp_path, stopped, [5.0])
    results = Results(tmp_path)
    found = learning_curve(results, "tnn", (*runs, stopped), STEPS)
    assert found is not None
    assert ([step for step, _ in found.points], found.seeds) == ([10, 20], 2)
    alone = learning_curve(results, "tnn", (stopped,), STEPS)
    assert alone is not None
    assert alone.points == [(10, 5.0)]


def two_seeds(folder: Path) -> tuple[Results, list[RunRecord]]:
    runs = [record(run_id=f"abc-s{seed}", seed=seed, flops_per_step=1e9) for seed in (0, 1)]
    save_all(folder, runs)
    write_metrics(folder, runs[0], [10.0, 20.0, 30.0])
    write_metrics(folder, runs[1], [20.0, 40.0])
    return Results(folder), runs


@pytest.mark.parametrize(("cost", "x"), [(STEPS, (10, 20)), (TIME, (5, 10)), (FLOPS, (1e10, 2e10))])
def test_curves_join_seeds_where_all_have_steps(
    tmp_path: Path, cost: Cost, x: tuple[float, float]
) -> None:
    results, runs = two_seeds(tmp_path)
    found = learning_curve(results, "tnn", tuple(runs), cost)
    assert found is not None
    assert found.points == [(x[0], 15.0), (x[1], 30.0)]
    assert found.intervals == [(10.0, 20.0), (20.0, 40.0)]


def test_the_curve_of_one_seed_has_the_interval_of_its_validation_examples(tmp_path: Path) -> None:
    data = {"source": "generated", "fingerprint": "f" * 64, "sizes": {"train": 1, "val": 50}}
    run = record(data=data)
    save_all(tmp_path, [run])
    write_metrics(tmp_path, run, [10.0, 20.0])
    results = Results(tmp_path)
    found = learning_curve(results, "tnn", (run,), STEPS)
    assert found is not None
    assert found.intervals == [wilson_interval(0.1, 50), wilson_interval(0.2, 50)]
    loss = learning_curve(results, "tnn", (run,), STEPS, LOSS)
    assert loss is None or loss.intervals == []
    (board,) = boards(results.records)
    with style():
        (axes,) = curve_figures(results, board, assign_styles(board.rows), "c")[0].draw().axes
    (bar,) = axes.collections
    assert len(bar.get_paths()) == 1, "one bar at the end"


def test_a_figure_per_axis_of_learning(tmp_path: Path) -> None:
    results, _ = two_seeds(tmp_path)
    (board,) = boards(results.records)
    figures = curve_figures(results, board, assign_styles(board.rows), "c")
    names = ["steps-c", "time-c-cpu", "flops-c"]
    assert [p.slug for p in figures] == [f"learning-listops-over-{name}" for name in names]
    for made in figures:
        with style():
            figure = made.draw()
            assert overlaps(figure) == []
        assert all(unit in figure.axes[0].get_ylabel() for unit in ("accuracy", "%"))
        assert figure.axes[0].get_xlabel() in {cost.label for cost in COSTS}


def test_one_long_run_does_not_push_the_others_into_a_corner(tmp_path: Path) -> None:
    runs = [record(mixer=mixer) for mixer in ("tnn", "s4", "mean")]
    save_all(tmp_path, runs)
    for length, scale in ((8, "linear"), (40, "log")):
        for run, count in zip(runs, (4, 4, length), strict=True):
            write_metrics(tmp_path, run, [30.0 + run.seed] * count)
        results = Results(tmp_path)
        (board,) = boards(results.records)
        for made in curve_figures(results, board, assign_styles(board.rows), "c"):
            with style():
                figure = made.draw()
                assert overlaps(figure) == []
            assert figure.axes[0].get_xscale() == scale
            assert ("logarithmic" in made.caption) == (scale == "log")


def test_curves_are_named_from_the_best_to_the_worst(tmp_path: Path) -> None:
    runs = [record(mixer=f"m{k:02}") for k in range(14)]
    save_all(tmp_path, runs)
    for k, run in enumerate(runs):
        write_metrics(tmp_path, run, [10.0, 50.0 + k])
    results = Results(tmp_path)
    (board,) = boards(results.records)
    with style():
        figure = curve_figures(results, board, assign_styles(board.rows), "c")[0].draw()
        assert overlaps(figure) == []
    assert legend_names(figure) == [f"m{k:02} (n=1)" for k in reversed(range(14))]


def test_times_of_two_devices_are_two_figures(tmp_path: Path) -> None:
    runs = [record(), record(run_id="abc-s1", seed=1, device="GPU")]
    save_all(tmp_path, runs)
    for run in runs:
        write_metrics(tmp_path, run, [10.0])
    results = Results(tmp_path)
    (board,) = boards(results.records)
    figures = curve_figures(results, board, assign_styles(board.rows), "c")
    names = ["steps-c", "time-c-cpu", "time-c-gpu", "flops-c"]
    assert [p.slug for p in figures] == [f"learning-listops-over-{name}" for name in names]
    assert ["GPU" in p.title for p in figures] == [False, False, True, False]


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    results, runs = two_seeds(tmp_path)
    path = results.path(runs[0]) / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 40, "val_accuracy')
    assert len(results.validations(runs[0])) == 3
    assert f"{path}: line 4" in results.faults[0]


def test_wilson_interval() -> None:
    assert wilson_interval(0.8, 10) == (
        pytest.approx(49.02, abs=0.01),
        pytest.approx(94.33, abs=0.01),
    )
    assert wilson_interval(0.0, 10)[0] == 0.0
    assert wilson_interval(1.0, 10)[1] == pytest.approx(100.0)


def made_predictions(seeds: int = 1, count: int = 400) -> SeedPredictions:
    rng = np.random.default_rng(0)
    labels, lengths = rng.integers(0, 3, count), rng.integers(1, 1000, count)
    predictions = np.where(lengths > 500, (labels + 1) % 3, labels)
    kinds = np.where(labels == 0, "a", "b")
    one = Predictions(labels, predictions, {"length": lengths, "kind": kinds})
    return SeedPredictions([one] * seeds)


def test_groups_are_of_all_examples() -> None:
    found = made_predictions()
    by_length, by_kind = group_accuracies(found, "length"), group_accuracies(found, "kind")
    for groups in (by_length, by_kind):
        assert sum(group.examples for group in groups) == 400
        right = sum(group.accuracy * group.examples for group in groups) / 100
        assert right == pytest.approx(found.rate.sum())
    assert len(by_length) == 8
    assert [group.accuracy for group in by_length][:3] == [100.0] * 3
    assert [group.accuracy for group in by_length][-3:] == [0.0] * 3
    assert [group.name for group in by_kind] == ["a", "b"]


def test_seeds_add_no_examples() -> None:
    one, ten = made_predictions(), made_predictions(seeds=10)
    assert group_accuracies(ten, "length") == group_accuracies(one, "length")


def test_a_group_too_small_shifts_no_name(tmp_path: Path) -> None:
    labels = np.zeros(55, dtype=int)
    words = np.array(["k1"] * 5 + ["k2"] * 20 + ["k3"] * 30)
    found = SeedPredictions([Predictions(labels, labels + (words == "k3"), {"kind": words})])
    groups = group_accuracies(found, "kind")
    assert [(group.name, group.x, group.accuracy) for group in groups] == [
        ("k2", 1.0, 100.0), ("k3", 2.0, 0.0)
    ]  # fmt: skip
    with style():
        (axes,) = draw_group_accuracies({"tnn": groups}, "kind", False, assign_styles(["tnn"])).axes
    ticks = {
        tick: label.get_text()
        for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    }
    assert ticks == {1.0: "k2", 2.0: "k3"}


def test_an_example_without_a_prediction_is_wrong(tmp_path: Path) -> None:
    run = record(test_accuracy=50.0, test_correct=2, test_total=4)
    save_all(tmp_path, [run])
    write_predictions(tmp_path, run, [(0, 0, 5), (1, 1, 5), (0, NO_PREDICTION, 5), (1, 0, 5)])
    results = Results(tmp_path)
    found = results.predictions(run)
    assert found is not None
    assert not results.faults


def test_breakdowns_are_drawn_from_the_predictions(tmp_path: Path) -> None:
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
        write_predictions(tmp_path, run, rows, "root operator")
    results = Results(tmp_path)
    (board,) = boards(results.records)
    figures = breakdown_figures(results, board, assign_styles(board.rows), "d")
    names = [
        "accuracy-listops-by-length",
        "accuracy-listops-by-root-operator",
    ]
    assert [p.slug for p in figures] == [f"{name}-d" for name in names]
    for made in figures:
        with style():
            assert overlaps(made.draw()) == []
    found = join_predictions(results, runs)
    assert found is not None
    by_length = group_accuracies(found, "length")
    assert [group.accuracy for group in by_length] == [100.0, 100.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(0, 0, 5)] * 3, "3 of 3 right, its record says 20 of 40"),
        ([(0, 10**9, 5)] * 40, "from 0 to 1000"),
        ([(0, "x", 5)] * 40, "predictions are not all whole numbers"),
        ([], "not the predictions"),
    ],
)
def test_predictions_that_contradict_the_record_are_named(
    tmp_path: Path, rows: list[tuple[Any, ...]], what: str
) -> None:
    run = record(test_accuracy=50.0, test_correct=20, test_total=40)
    save_all(tmp_path, [run])
    write_predictions(tmp_path, run, rows)
    results = Results(tmp_path)
    assert results.predictions(run) is None
    assert what in results.faults[0]
