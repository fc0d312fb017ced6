"""Probes in the report: best attempts, successes, lengths, and figures over sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lra.record.run import RunRecord
from lra.record.scores import SegmentScore, TokenScores
from lra.report.boards.board import boards
from lra.report.boards.probes import Probe, probes
from lra.report.boards.results import Results
from lra.report.data import ReportData, ReportOptions
from lra.report.figures.drawing import ReportFigure
from lra.report.figures.probes import probe_figures
from lra.report.figures.styles import assign_styles
from lra.report.summary import summarize
from lra.report.tables.probes import longest_right, probe_tables
from lra.report.tables.table import Table
from made_results import record, save_all


def attempt(number: int, accuracy: float, *, language: str = "parity", **changes: Any) -> RunRecord:
    """Make a run of the task languages; its validation accuracy is that of the test."""
    overrides = [f"task.language={language}", *changes.pop("overrides", ())]
    run_id = f"{number:08x}-s{changes.get('seed', 0)}"
    data = {
        "source": "generated",
        "fingerprint": {"parity": "a", "even-pairs": "b"}[language] * 64,
        "sizes": {"train": 1, "val": 100, "test": 100},
    }
    return record(
        task="languages",
        run_id=run_id,
        config_hash=f"{number:08x}",
        settings={"task.train": 100, "model.dim": 64, "train.steps": 1000},
        overrides=overrides,
        test_accuracy=accuracy,
        test_correct=round(accuracy),
        test_total=100,
        val_accuracy=changes.pop("val_accuracy", accuracy),
        baselines={"chance": 50.0, "majority class": 50.0},
        largest_class=50.0,
        data=data,
        **changes,
    )


def found_in(folder: Path, runs: list[RunRecord]) -> tuple[Results, Probe]:
    save_all(folder, runs)
    results = Results(folder)
    (probe,) = probes(results)
    assert not any("predictions" in fault for fault in results.faults)
    return results, probe


def columns_of(table: Table) -> dict[str, list[str]]:
    return {column.name: column.texts for column in table.columns}


def test_the_rate_that_is_best_in_validation_counts_and_successes_are_of_all(
    tmp_path: Path,
) -> None:
    runs = [
        attempt(0, 52, overrides=["train.lr=1e-4"]),
        attempt(1, 95, overrides=["train.lr=1e-3"]),
        attempt(1, 91, overrides=["train.lr=1e-3"], seed=1),
        attempt(2, 99, overrides=["train.lr=1e-2"], val_accuracy=80.0),
        attempt(2, 60, overrides=["train.lr=1e-2"], val_accuracy=80.0, seed=1),
        attempt(3, 98, overrides=["mixer.expand_ratio=2"]),
        attempt(4, 75, language="even-pairs"),
    ]
    results, probe = found_in(tmp_path, runs)
    assert probe.differing == "language"
    accuracy, scaled = probe_tables(results, probe)
    assert columns_of(accuracy) == {
        "mixer": ["tnn", "tnn (mixer.expand_ratio=2)", "trivial baseline: chance"],
        "even-pairs": ["75.00 (n=1), 0 of 1", "-", "50.00"],
        "parity": ["93.00 ± 2.83 (n=2), 3 of 5", "98.00 (n=1), 1 of 1", "50.00"],
    }
    assert columns_of(scaled)["parity"] == ["0.860", "0.960"]


def test_runs_with_more_training_are_a_variant_of_their_own(tmp_path: Path) -> None:
    longer = ["train.steps=2000"]
    runs = [
        attempt(0, 60),
        attempt(1, 96, overrides=longer),
        attempt(2, 55, overrides=[*longer, "train.lr=1e-2"]),
    ]
    _, probe = found_in(tmp_path, runs)
    assert [variant.name for variant in probe.variants] == ["1,000 steps", "2,000 steps"]
    assert [variant.successes("tnn") for variant in probe.variants] == ["0 of 1", "1 of 2"]
    assert [variant.board.rows["tnn"]["languages"].mean for variant in probe.variants] == [60, 96]


def test_probes_are_in_no_table_of_the_benchmark(tmp_path: Path) -> None:
    save_all(tmp_path, [record(), attempt(1, 95)])
    results = Results(tmp_path)
    data = ReportData(results, ReportOptions())
    assert [board.tasks for board in data.boards] == [board.tasks for board in boards([record()])]
    printed = summarize(data)
    assert "languages, preset" in printed
    assert "95.00" in printed


def test_variants_are_named_by_what_the_command_changed(tmp_path: Path) -> None:
    settings = {"task.length": 64, "task.pairs": 4, "task.longest": 1024, "task.mixture": False,
                "task.val": 9}  # fmt: skip
    changes = [
        {},
        {"length": "128", "pairs": "8"},
        {"length": "128", "pairs": "4", "val": "8"},
        {"mixture": "true", "longest": "256"},
    ]
    for number, changed in enumerate(changes):
        overrides = [f"task.{key}={value}" for key, value in changed.items()]
        data = {"source": "generated", "fingerprint": str(number) * 64, "sizes": {"test": 100}}
        run = record(task="recall", run_id=f"{number:08x}-s0", overrides=overrides, data=data,
                     settings=settings)  # fmt: skip
        save_all(tmp_path, [run])
    (probe,) = probes(Results(tmp_path))
    assert probe.differing == "length, longest, mixture, pairs"
    assert {variant.name for variant in probe.variants} == {
        "default",
        "length 128, pairs 8",
        "length 128, pairs 4",
        "longest 256, mixture",
    }


def test_runs_without_a_result_are_attempts_that_failed(tmp_path: Path) -> None:
    runs = [attempt(1, 95), attempt(2, 0, seed=1).model_copy(update={"status": "diverged"})]
    none: dict[str, None] = dict.fromkeys(
        ("test_accuracy", "test_correct", "test_total", "val_accuracy")
    )
    runs[1] = runs[1].model_copy(update=none)
    _, probe = found_in(tmp_path, runs)
    (variant,) = probe.variants
    assert (variant.name, variant.successes("tnn")) == ("", "1 of 2")


def test_a_validation_accuracy_of_zero_counts_in_the_mean(tmp_path: Path) -> None:
    runs = [
        attempt(1, 60, overrides=["train.lr=1e-3"]),
        attempt(2, 90, overrides=["train.lr=1e-2"]),
        attempt(2, 0, overrides=["train.lr=1e-2"], seed=1),
    ]
    _, probe = found_in(tmp_path, runs)
    (variant,) = probe.variants
    cell = probe.cell("tnn", variant)
    assert cell is not None
    assert cell.accuracies == [60.0]


def test_accuracy_is_drawn_over_width_and_state(tmp_path: Path) -> None:
    runs = [
        attempt(n, 50 + n, overrides=[f"model.dim={width}"], state_size=10 * width)
        for n, width in enumerate((16, 32, 64), start=1)
    ]
    results, probe = found_in(tmp_path, runs)
    styles = assign_styles([*probe.rows, *probe.families.values()])
    over_width, over_state = probe_figures(results, probe, styles)
    assert over_width.draw.args[0] == {"tnn": [(16.0, 51.0), (32.0, 52.0), (64.0, 53.0)]}
    assert over_state.draw.args[0] == {"tnn": [(160.0, 51.0), (320.0, 52.0), (640.0, 53.0)]}
    for figure in (over_width, over_state):
        assert b"mathdefault" not in figure.svg()
    # At one width, there is nothing to draw.
    results, probe = found_in(tmp_path / "one", runs[:1])
    assert not probe_figures(results, probe, styles)


def found_with(
    tmp_path: Path, first_wrong: list[int], positions: int
) -> tuple[float | None, list[ReportFigure]]:
    """Return the longest length and the figures of a run with 16 labels in each example."""
    correct = [16 if wrong < 0 else wrong for wrong in first_wrong]
    score = SegmentScore(
        name="",
        examples=10,
        correct_examples=correct.count(16),
        targets=160,
        correct=sum(correct),
    )
    run = record(
        task="groups",
        test_accuracy=score.token_accuracy,
        test_correct=score.correct,
        test_total=160,
        tokens=TokenScores(segments=[score]),
    )
    save_all(tmp_path, [run])
    lines = [f"16,{n},{wrong},{positions}" for n, wrong in zip(correct, first_wrong, strict=True)]
    place = tmp_path / "runs" / run.task / run.mixer / run.run_id
    place.joinpath("predictions.csv").write_text(
        "\n".join(["targets,correct,first_wrong,length", *lines])
    )
    results = Results(tmp_path)
    (probe,) = probes(results)
    (variant,) = probe.variants
    found = longest_right(results, probe.cell("tnn", variant))
    assert not any("predictions" in fault for fault in results.faults)
    return found, probe_figures(results, probe, assign_styles(probe.rows))


@pytest.mark.parametrize(
    ("first_wrong", "length"),
    [([-1] * 10, 16.0), ([3, *[-1] * 9], 16.0), ([3, 7, *[-1] * 8], 7.0), ([0] * 10, 0.0)],
)
def test_the_longest_length_has_nine_in_ten_right(
    tmp_path: Path, first_wrong: list[int], length: float
) -> None:
    found, (figure,) = found_with(tmp_path, first_wrong, positions=16)
    assert found == length
    assert b"mathdefault" not in figure.svg()


def test_a_longest_length_needs_a_label_at_every_position(tmp_path: Path) -> None:
    assert found_with(tmp_path, [-1] * 10, positions=32) == (None, [])
