"""Accuracy by the length of test examples, from files of predictions."""

from pathlib import Path

import pytest

from lra.goals.labels import SegmentScore
from lra.goals.result import NO_PREDICTION
from lra.record.run import RunRecord, folder_of
from lra.report.charts import lines_of_table
from lra.report.data import Data
from lra.report.tables.evaluations import length_tables
from lra.report.tables.probes import probes
from lra.report.tables.table import Table
from lra.statistics import wilson_interval
from made_results import record, save, write_predictions

LENGTHS = [3] * 12 + [40] * 12 + [1000] * 12 + [2000] * 4


def save_predicted(
    folder: Path, lengths: list[int], right: list[bool], *, label: int = 0, **changes: object
) -> RunRecord:
    """Save a run with its predictions, which are right on some examples."""
    number, total = sum(right), len(right)
    run = record(
        test_accuracy=100 * number / total, test_correct=number, test_total=total, **changes
    )
    save(folder, run)
    rows = [(label, label + (not ok), n) for n, ok in zip(lengths, right, strict=True)]
    write_predictions(folder, run, rows)
    return run


def texts_of(table: Table) -> dict[str, list[str]]:
    return {column.name: column.texts for column in table.columns}


def test_accuracy_by_length_is_a_mean_over_seeds_of_the_same_examples(tmp_path: Path) -> None:
    most = [True] * 18 + [False] * 22
    save_predicted(tmp_path, LENGTHS, most)
    save_predicted(tmp_path, LENGTHS, [True] * 24 + [False] * 16, run_id="abc-s1", seed=1)
    other = save_predicted(tmp_path, LENGTHS, most, label=1, run_id="abc-s2", seed=2)
    save_predicted(tmp_path, LENGTHS, [True] * 30 + [False] * 10, mixer="mean")
    reversed_ = save_predicted(tmp_path, LENGTHS[::-1], most, mixer="s4")
    data = Data(tmp_path)
    (table,) = length_tables(data, data.boards[0])
    assert texts_of(table) == {
        "mixer": ["mean", "tnn"],
        "3": ["100.00", "100.00"],
        "40": ["100.00", "75.00"],
        "1,000": ["50.00", "0.00"],
    }
    assert table.columns[2].entries[1].interval == wilson_interval(0.75, 12)
    assert table.columns[2].marks == {0: "tied", 1: "tied"}, "of 12 examples"
    assert {*data.faults} == {
        f"{data.path(run)}: its predictions are of other examples" for run in (other, reversed_)
    }
    (chart,) = lines_of_table(table)
    points = [p["length, positions"] for p in chart.points if p["row"] == "tnn"]
    assert points == [3, 40, 1000]


def save_labelled(folder: Path, first_wrong: list[int], positions: int) -> Data:
    """Save a run with 16 labels in each example and the first position that was wrong."""
    correct = [16 if wrong == NO_PREDICTION else wrong for wrong in first_wrong]
    score = SegmentScore(
        name="", examples=len(correct), correct_examples=correct.count(16),
        targets=16 * len(correct), correct=sum(correct),
    )  # fmt: skip
    run = record(
        task="groups", test_accuracy=score.token_accuracy, test_correct=score.correct,
        test_total=score.targets, tokens={"segments": [score]},
    )  # fmt: skip
    save(folder, run)
    lines = [f"16,{n},{wrong},{positions}" for n, wrong in zip(correct, first_wrong, strict=True)]
    content = "\n".join(["targets,correct,first_wrong,length", *lines])
    (folder_of(folder, run) / "predictions.csv").write_text(content)
    return Data(folder)


def test_sequence_accuracy_is_of_labels_up_to_a_length(tmp_path: Path) -> None:
    data = save_labelled(tmp_path, [-1, -1, 3, 7, 4], positions=16)
    (probe,) = probes(data)
    (table,) = length_tables(data, probe)
    assert table.rows == [["tnn", "100.00", "100.00", "80.00", "40.00", "40.00"]]
    assert table.headings == ["mixer", "1", "2", "4", "8", "16"]


def test_wilson_interval() -> None:
    assert wilson_interval(0.8, 10) == pytest.approx((49.02, 94.33), abs=0.01)
    assert (wilson_interval(0.0, 10)[0], wilson_interval(1.0, 10)[1]) == pytest.approx((0, 100))
