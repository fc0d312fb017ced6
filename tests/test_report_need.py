"""What range a task needs, from made records."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lra.record.run import RunRecord
from lra.report.data import Data
from lra.report.readme import FILES, make_files
from lra.report.tables.need import NOT_MEASURED, find_local, need_table, r90, range_needed
from made_results import record, save, write_predictions

EXAMPLES = 1000
FIELDS = {3: 7, 5: 13, 17: 49, 65: 193, 257: 769}
"""The receptive field of three blocks, by the width of their filters."""


def add_run(
    results: Path,
    mixer: str,
    percent: float,
    task: str = "listops",
    *,
    seed: int = 0,
    changes: Mapping[str, object] | None = None,
) -> RunRecord:
    """Save a run with predictions, of which the first ones are right."""
    changes = changes or {}
    settings = {"model.depth": 3, "mixer.width": 5} if mixer == "conv" else {"model.depth": 3}
    overrides = [f"{name}={value}" for name, value in changes.items()]
    right = round(EXAMPLES * percent / 100)
    made = record(
        run_id=f"{'-'.join(map(str, changes.values()))}{mixer}-s{seed}", mixer=mixer, task=task,
        preset="budget", seed=seed, settings=settings, overrides=overrides,
        test_accuracy=100 * right / EXAMPLES, test_total=EXAMPLES, baselines={"root": 30.0},
        config_hash=f"{mixer}{task}{overrides}",
    )  # fmt: skip
    save(results, made)
    write_predictions(results, made, [(1, int(i < right), 9) for i in range(EXAMPLES)])
    return made


def add_widths(results: Path, accuracies: dict[int, float], task: str = "listops") -> None:
    for width, accuracy in accuracies.items():
        changes = {} if width == 5 else {"mixer.width": width}
        for seed in range(3):
            add_run(results, "conv", accuracy + seed - 1, task, seed=seed, changes=changes)


@pytest.mark.parametrize(
    ("accuracies", "accuracy", "expected"),
    [
        ([40, 50, 60, 70, 80], 60, 49),
        ([40, 50, 60, 70, 80], 55, np.sqrt(13 * 49)),
        ([40, 50, 60, 70, 80], 39, 7),
        ([40, 50, 60, 70, 80], 80, 769),
        ([40, 50, 60, 70, 80], 80.1, 770),
        ([40, 60, 50, 70, 80], 55, 13),  # the fit has 55 at 13 and at 49
        ([40, 60, 50, 70, 80], 62.5, np.sqrt(49 * 193)),
        ([60, 50, 40, 30, 20], 41, 7),  # the fit is 60 everywhere
        ([40, 60, 50, 30, 20], 50, np.sqrt(7 * 13)),  # and 60 from 13 on
        ([40, 60, 50, 30, 20], 61, 770),
    ],
)
def test_r90_is_where_the_monotone_fit_reaches_an_accuracy(
    accuracies: list[float], accuracy: float, expected: float
) -> None:
    assert r90([*FIELDS.values()], accuracies, accuracy) == pytest.approx(expected)


def test_the_table_has_what_each_task_needs(tmp_path: Path) -> None:
    # 90 % of the gain of long-conv is 48 %, that of s4d 57 %.
    add_widths(tmp_path, {3: 36, 5: 40, 17: 44, 65: 50, 257: 50})
    add_widths(tmp_path, {3: 49, 5: 50}, "text")
    for task in ("listops", "text", "image"):
        add_run(tmp_path, "long-conv", 50 if task != "image" else 29, task)
        add_run(tmp_path, "s4d", 60, task)
    add_widths(tmp_path, {3: 40, 5: 40}, "image")
    # Neither rates that differ from the preset nor global positions count.
    add_run(tmp_path, "conv", 70, changes={"mixer.width": 1025, "train.lr": 0.5})
    for changes in ({"mixer.num_global": 0}, {"mixer.num_global": 2}):
        for window in (8, 16):
            add_run(tmp_path, "sparse", 45, changes={"mixer.window_size": window, **changes})
    add_run(tmp_path, "transformer", 31)
    data = Data(tmp_path)
    listops, windows, text, image = need_table(data).rows
    assert listops[:3] == [
        "listops", "conv", ", ".join(
            f"{FIELDS[width]}: {accuracy:.2f}"
            for width, accuracy in {3: 36, 5: 40, 17: 44, 65: 50, 257: 50}.items()
        )
    ]  # fmt: skip
    assert listops[3:6] == ["long-conv: 50.00", "s4d: 60.00", "30.00"]
    expected = 49 * (193 / 49) ** ((48 - 44) / (50 - 44))
    point, _, ends = listops[6].partition(" (")
    low, high = ends.rstrip(")").split(" to ")
    assert point == f"{expected:.0f}"
    assert 49 < float(low) < expected < float(high) < 300
    assert listops[7] == "more than 769"
    assert windows[:3] == ["listops", "sparse", "22: 45.00, 46: 45.00"]
    assert windows[6:] == ["at most 22", "more than 46"]
    assert text[6].startswith("at most 7 (at most 7 to ")
    assert text[7] == "more than 13"
    assert image[6:] == ["no gain", "more than 13"]
    needed = range_needed(data)
    assert needed["listops"] == f"{listops[6]}; more than 769"
    assert not find_local(data)


def test_a_task_is_local_if_15_positions_have_90_percent_of_the_best_gain(tmp_path: Path) -> None:
    for task, widest in (("listops", 58), ("text", 57), ("image", 56)):  # 90 % of the gain is 57 %
        add_widths(tmp_path, {3: 40, 5: widest}, task)
        add_run(tmp_path, "long-conv", 50, task)
        add_run(tmp_path, "s4d", 60, task)
    assert find_local(Data(tmp_path)) == ["listops", "text"]


def test_a_task_without_runs_or_predictions_is_not_measured(tmp_path: Path) -> None:
    add_widths(tmp_path, {3: 40, 5: 40})
    add_run(tmp_path, "s4d", 60)
    assert range_needed(Data(tmp_path)) == dict.fromkeys(("listops", "text", "image"), NOT_MEASURED)
    made = add_run(tmp_path, "long-conv", 50)
    assert range_needed(Data(tmp_path))["listops"] != f"{NOT_MEASURED}; {NOT_MEASURED}"
    (tmp_path / "runs/listops/long-conv" / made.run_id / "predictions.csv").unlink()
    (row,) = need_table(Data(tmp_path)).rows
    assert row[6] == NOT_MEASURED


def test_readme_has_the_column(tmp_path: Path) -> None:
    results = tmp_path / "results"
    add_widths(results, {3: 60, 5: 60})
    add_run(results, "long-conv", 40)
    add_run(results, "s4d", 80)
    table = (
        "| `listops` | value | 9 | old |\n| `text` | positive | 8 | old |\n| `lm` | next | 7 | |\n"
    )
    (tmp_path / "docs").mkdir()
    for file in FILES:
        (tmp_path / file).write_text("")
    (tmp_path / "README.md").write_text(table)
    files, _ = make_files(Data(results), tmp_path)
    assert files["README.md"] == (
        "| `listops` | value | 9 | at most 7; more than 13 |\n"
        "| `text` | positive | 8 | not measured |\n| `lm` | next | 7 | |\n"
    )
