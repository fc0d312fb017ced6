"""Effective windows in records, on the last screen, in tables and from a command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import lra
from lra import run_task
from lra.goals.distances import DistanceResult
from lra.record.run import RunRecord, load_record
from lra.report import __main__ as report
from lra.report.charts import lines_of_table
from lra.report.data import Data
from lra.report.leaderboard import leaderboard_csv
from lra.report.leaderboard_figures import leaderboard_figures
from lra.report.page.sheets import make_views
from lra.report.paper import write_paper
from lra.report.readme import BLOCKS
from lra.report.screen import summarize
from lra.report.tables.evaluations import distance_tables
from lra.report.tables.probes import probes
from lra.report.tables.table import Table
from lra.report.windows import LONGER
from made_results import bench_record, record, save_all
from test_run_screen import screen

DISTANCES = (1, 2, 3, 4, 6, 8)
RUN: dict[str, Any] = {
    "task": "flip-flop", "preset": "quick", "steps": 1000, "total_steps": 1000, "length": 32,
    "best_step": 1000, "settings": {"train.steps": 1000},
}  # fmt: skip


def result_of(right: Sequence[int], **changes: object) -> dict[str, Any]:
    """Make the fields of a result with 80 labels at each distance, so many of them right."""
    total, correct = 80 * len(right), sum(right)
    segment = {"name": "", "examples": 40, "correct_examples": 0, "targets": total}
    fields = {
        "goal": "labels by distance", "classes": 8, "low": 2, "high": 4,
        "test_accuracy": 100 * correct / total, "test_correct": correct, "test_total": total,
        "val_accuracy": 70.0, "baselines": {"chance": 12.5}, "largest_class": 12.5,
        "segments": [{**segment, "correct": correct}],
        "distances": [
            {"distance": distance, "asked": 80, "right": number}
            for distance, number in zip(DISTANCES, right, strict=True)
        ],
    }  # fmt: skip
    return {**fields, **changes}


def windows(right: Sequence[int], **changes: object) -> RunRecord:
    made = record(**{**RUN, **changes})
    return made.model_copy(update={"result": DistanceResult(**result_of(right))})


FORGETS, KEEPS, FAILS = [80, 80, 79, 45, 44, 60], [80] * 6, [10] * 6


def test_a_window_ends_where_a_gain_is_below_a_half() -> None:
    result = DistanceResult(**result_of(FORGETS))
    assert result.window == 4, "45 of 80 right is a gain of exactly 1/2"
    assert result.gains[3] == pytest.approx(0.5)
    gains = [1, 1, (79 / 80 - 1 / 8) * 8 / 7, 1 / 2, (0.55 - 1 / 8) * 8 / 7, (0.75 - 1 / 8) * 8 / 7]
    assert result.mean_gain == pytest.approx(100 * sum(gains) / 6)
    assert DistanceResult(classes=8).window is None


@pytest.mark.parametrize(
    "changes",
    [
        {"low": 5},
        {"low": None},
        {"classes": 1},
        {"distances": []},
        {"test_correct": 400, "test_accuracy": 100 * 400 / 480},
        {"distances": [{"distance": 1, "asked": 480, "right": 388}] * 2},
        {"distances": [{"distance": d, "asked": 240, "right": 194} for d in (2, 1)]},
        {"distances": [{"distance": 1, "asked": 80, "right": 88},
                       {"distance": 2, "asked": 400, "right": 300}]},
    ],
)  # fmt: skip
def test_contradictions_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DistanceResult(**result_of(FORGETS, **changes))


def columns_of(result: DistanceResult, examples: int = 40) -> dict[str, np.ndarray]:
    """Spread the labels of a result evenly over examples, the first ones right."""
    columns: dict[str, np.ndarray] = {}
    for one in result.distances:
        asked = np.full(examples, one.asked // examples)
        columns[f"asked_{one.distance}"] = asked
        columns[f"right_{one.distance}"] = np.clip(one.right - np.cumsum(asked) + asked, 0, asked)
    columns["targets"] = sum(v for n, v in columns.items() if n.startswith("asked"))  # pyright: ignore
    columns["correct"] = sum(v for n, v in columns.items() if n.startswith("right"))  # pyright: ignore
    columns["first_wrong"], columns["length"] = np.full(examples, -1), np.full(examples, 32)
    return columns


def test_predictions_are_those_of_the_record() -> None:
    result = DistanceResult(**result_of(FORGETS))
    read = result.read_predictions(columns_of(result))
    assert {*read.metadata} == {"length"} and read.merits.sum() == pytest.approx(388 / 12)
    for name, change in (("right_8", -1), ("asked_8", 1), ("right_1", 1)):
        columns = columns_of(result)
        columns[name][-1 if name == "right_1" else 0] += change
        with pytest.raises(ValueError, match=r"distance|more labels are right"):
            result.read_predictions(columns)
    columns = columns_of(result)
    columns["asked_8"][-2:] += np.array([1, -1])
    with pytest.raises(ValueError, match="an example has other labels"):
        result.read_predictions(columns)
    with pytest.raises(KeyError):
        result.read_predictions({"targets": columns["targets"]})


def test_the_last_screen_says_window_and_steps(tmp_path: Path) -> None:
    first = screen(tmp_path, windows(FORGETS))
    assert first[:3] == [
        "flip-flop / tnn / quick, seed 0:",
        "    effective window 4 of 8 positions, after 1,000 steps (95 % interval 2 to 4)",
        "  mean gain over distances 78.1 % · test accuracy 80.83 %",
    ]
    text = "\n".join(screen(tmp_path, windows(KEEPS, seed=1, run_id="abc-s1")))
    assert "effective window at least 8 of 8 positions, after 1,000 steps" in text
    assert "with 1 other seed: 6 ± 3 positions" in text and "accuracy 70.00 % at step" in text
    text = "\n".join(screen(tmp_path, windows(FAILS, run_id="b-s0", mixer="mean")))
    assert "below 1 of 8 positions, at chance, after 1,000 steps" in text
    assert "not ranked (at chance)" in text


def test_tables_and_figures_are_of_windows(tmp_path: Path) -> None:
    published = record(
        task="flip-flop", run_id="p-s0", config_hash="p", test_accuracy=99.0,
        tokens={"segments": [{"name": "80 % ignored", "examples": 9, "correct_examples": 9,
                              "targets": 2000, "correct": 1980}]},
    )  # fmt: skip
    runs = [
        windows(FORGETS),
        windows(KEEPS, mixer="mamba2"),
        windows(FAILS, mixer="mean"),
    ]
    data = Data(save_all(tmp_path, [*runs, published]))
    (probe,) = probes(data)
    assert probe.records == [published], "whose measure is accuracy"
    (board,) = data.boards
    assert board.name == "Preset quick, protocol s4, effective windows of flip-flop"
    text = summarize(data)
    assert "a: or more, b: at chance." in text and max(map(len, text.split("\n"))) <= 80
    (table,) = BLOCKS["windows"](data)
    assert table.rows == [  # pyright: ignore[reportAttributeAccessIssue]
        ["mamba2", "8 (n=1), or more", "100.0", "1,000", "1,000", "-"],
        ["mean", "at chance: 0 (n=1)", "0.0", "1,000", "1,000", "-"],
        ["tnn", "4 (n=1)", "78.1", "1,000", "1,000", "-"],
    ]
    (lines,) = distance_tables(board)
    assert lines.headings == ["mixer", *map(str, DISTANCES)]
    assert lines.rows[2] == ["tnn", "100.00", "100.00", "98.75", "56.25", "55.00", "75.00"]
    (chart,) = lines_of_table(lines)
    assert {point["distance, positions"] for point in chart.points} == {*DISTANCES}
    (view,) = [view for view in make_views(data, []) if view.slug == "length"]
    assert [sheet.table.slug for sheet in view.sheets] == [lines.slug]
    write_paper(data, tmp_path / "paper")
    (latex,) = (tmp_path / "paper" / "tables").glob("results-*.tex")
    assert "effective window" in latex.read_text()
    assert any("distance" in one.name for one in (tmp_path / "paper" / "figures").glob("*.pdf"))


def test_the_leaderboard_has_the_window_of_the_longest_distances(tmp_path: Path) -> None:
    long = record().data.model_copy(update={"fingerprint": "long"})
    further = {"distances": [
        {"distance": 2 * distance, "asked": 80, "right": number}
        for distance, number in zip(DISTANCES, FORGETS, strict=True)
    ]}  # fmt: skip
    longer = [f"{name}={value}" for name, value in LONGER.items()]
    again = windows(KEEPS, run_id="l-s0", data=long, overrides=longer)
    again = again.model_copy(update={"result": DistanceResult(**result_of(FORGETS, **further))})
    runs = [
        windows(KEEPS), again, windows(FORGETS, mixer="s4"), windows(FAILS, mixer="mean"),
        windows(FAILS, run_id="r-s0", mixer="s4", overrides=["train.lr=1"]),
        windows(FAILS, run_id="o-s0", mixer="s4", overrides=["task.mode=one"], data=long),
        windows(FAILS, run_id="b-s0", mixer="s4", overrides=["train.batch_size=2"]),
        *(record(mixer=mixer, preset="quick", run_id="t-s0") for mixer in ("tnn", "s4", "mean")),
    ]  # fmt: skip
    results = save_all(tmp_path / "results", runs)
    bench_record(mixer="tnn", preset="quick").save(results / "bench")
    data = Data(results)
    assert data.leading_board is not None
    (table,) = BLOCKS["leaderboard"](data)
    assert isinstance(table, Table)
    window = {row[0]: row[table.headings.index("effective window")] for row in table.rows}
    assert window | {"tnn": "8", "s4": "4", "mean": "at chance: 0"} == window
    assert "(task flip-flop, after 1,000 steps). 0 of 3 mixers hold 16" in " ".join(table.notes)
    assert "Mixers with less than 8 were asked for no longer ones." in " ".join(table.notes)
    (figure,) = [f for f in leaderboard_figures(data, data.leading_board) if "windows" in f.slug]
    assert [point["y"] for point in figure.drawn_points] == [8], "which has a speed"
    assert "effective_window" in leaderboard_csv(data, data.leading_board)


def test_from_the_command_line_to_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["task.distance=4", "task.length=24", "task.train=64", "task.val=8", "task.test=20"]
    settings += ["train.steps=3", "train.batch_size=8", "model.dim=8", "train.evaluate_every=3"]
    given = [part for text in settings for part in ("--set", text)]
    for mixer in ("conv", "mean"):
        words = ["--task", "flip-flop", "--mixer", mixer, "--preset", "quick", "--device", "cpu"]
        assert run_task.main([*words, *given]) == 0
    assert "positions, at chance, after 3 steps" in " ".join(capsys.readouterr().out.split())
    (path,) = Path("results/runs/flip-flop/conv").glob("*/result.json")
    result = load_record(path).result
    assert isinstance(result, DistanceResult)
    frame = lra.records()
    assert frame["window.right_3"].tolist()[0] == result.distances[2].right
    assert frame["window.positions"].tolist()[0] == result.window
    assert frame["test_low"].tolist()[0] == result.low
    assert report.main(["--compare", "conv", "mean"]) == 0
    assert "test accuracy" in " ".join(capsys.readouterr().out.split())
