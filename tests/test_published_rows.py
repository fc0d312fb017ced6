"""Published rows: their averages and sources, and that the commands which repeat them train."""

import csv
import math
import shlex
from pathlib import Path

import pytest
import torch
import yaml

from lra import run_task
from lra.classifier import packing
from lra.record.schema import write_changes
from lra.report import __main__ as report
from lra.report.data import Data
from lra.report.published import PUBLISHED, SOURCES, PublishedRow, published_rows
from lra.report.repeated import compare, repeated_table
from lra.report.repeats import repeats
from lra.report.scores import FIVE
from lra.report.tables.results import published_table
from lra.tasks.base import BENCHMARK
from lra.train.trainer import Trainer
from made_data import SMALLER, place_made_data
from made_results import VALUES, record, save

SHORTER = {
    "listops": [
        "task.min_length=10", "task.max_length=60", "task.sequence_length=80", "train.batch_size=3",
    ],
    "text": ["task.sequence_length=80", "train.batch_size=3"],
    "retrieval": ["task.sequence_length=80", "train.batch_size=2"],
}  # fmt: skip
"""Settings by which a step takes little; other tasks have images of 1,024 pixels, at least."""


@pytest.mark.thorough
@pytest.mark.parametrize("task", BENCHMARK)
def test_every_row_makes_a_step_on_short_sequences(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has two blocks, and published settings otherwise.

    A batch is three texts, two pairs or an image: mixers are called for several groups of like
    length.
    """
    monkeypatch.setattr(packing, "SMALLEST_GROUP", 1)
    monkeypatch.setattr(packing, "SHORTEST_OVER_LONGEST", 1)
    place_made_data(task, tmp_path)
    changes = [*SMALLER[task], *SHORTER.get(task, ["train.batch_size=1"])]
    changes += ["model.depth=2", "train.micro_batch=null"]
    for row in [row for row in repeats() if row.task == task]:
        words = shlex.split(row.command())[2:] + [w for text in changes for w in ("--set", text)]
        config = run_task.configure(run_task.parse_arguments(words))
        info, dataset = config.build_task().info, config.build_task().prepare(tmp_path)
        trainer = Trainer(config, info, dataset, 0, torch.device("cpu"))
        before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
        trainer.train_step()
        assert not all(map(torch.equal, before, trainer.model.parameters())), row.command()


def average_by(row: PublishedRow, rule: str) -> float | None:
    """Recompute the average of a row by a rule, as `mean_over` would not."""
    tasks = {"of 5": FIVE, "of 5, no ListOps": BENCHMARK[1:]}.get(rule, BENCHMARK)
    fail = 50.0 if rule == "of 6, FAIL as 50" else None
    values = [fail if row.printed[task] == "FAIL" else row.values[task] for task in tasks]
    return None if None in values else math.fsum(filter(None, values)) / len(values)


def test_each_printed_average_follows_from_its_rule() -> None:
    lines = csv.DictReader(PUBLISHED.read_text().splitlines())
    for row, line in zip(published_rows(), lines, strict=True):
        printed, rule = line["avg_as_published"], line["avg_rule"]
        rounding = 1.01 * 10.0 ** -len(printed.partition(".")[2])  # or cut off
        fitting = [
            name
            for name in ("of 6", "of 5", "of 5, no ListOps", "of 6, FAIL as 50")
            if printed
            and (value := average_by(row, name)) is not None
            and abs(value - float(printed)) <= rounding
        ]
        if not printed or not any(row.printed.values()):
            assert rule == "", row.method
        else:
            assert rule in (fitting or ["wrong"]), row.method


def test_published_rows_have_sources_and_no_average_over_a_hole() -> None:
    rows = published_rows()
    sources = yaml.safe_load(SOURCES.read_text())
    assert {row.source for row in rows} - {"chance level"} == sources.keys()
    for row, line in zip(rows, published_table(rows).rows, strict=True):
        assert all(text in ("", "FAIL") or 0 < float(text) < 100 for text in row.printed.values())
        for text, rule in zip(line[7:9], ("of 5", "of 6"), strict=True):
            mean = average_by(row, rule)
            assert text == "-" if mean is None else float(text) == pytest.approx(mean, abs=0.006)


def test_published_methods_are_chosen_by_name() -> None:
    chosen = report.choose_published("tnn, MRConv")
    assert [row.method for row in chosen] == ["TNN", "MRConv"]
    assert report.choose_published("none") == []


ROW = PublishedRow("A", "tnn", {"listops": "37.10"}, "tay2021lra", "")


@pytest.mark.parametrize(
    ("accuracies", "ours", "tolerance", "verdict", "baseline"),
    [
        # 1.96 times the root of 37.1 (100 - 37.1) / 2000 + 40 (100 - 40) / 2000
        ([40.0], "40.00", "3.02", "met", "above 36.50 (root operator)"),
        ([33.0], "33.00", "2.95", "not met", "below 36.50 (root operator)"),
        # The spread of 2 counts for the published run, and by a third for the mean of three.
        ([35.0, 37.0, 39.0], "37.00 ± 2.00", "5.43", "met", "not above 36.50 (root operator)"),
    ],
)
def test_a_published_number_is_met_within_its_tolerance(
    accuracies: list[float], ours: str, tolerance: str, verdict: str, baseline: str
) -> None:
    runs = [
        record(test_accuracy=accuracy, test_correct=int(20 * accuracy), seed=seed,
               baselines={"majority class": 17.0, "root operator": 36.5})
        for seed, accuracy in enumerate(accuracies)
    ]  # fmt: skip
    found = {name: entry.text for name, entry in compare(ROW, runs).items()}
    assert found.pop("difference") == f"{sum(accuracies) / len(accuracies) - 37.1:+.2f}"
    seeds = ", ".join(str(run.seed) for run in runs)
    assert found.pop("seeds") == f"{len(runs)} (seed {seeds})"
    expected = {"ours": ours, "tolerance": tolerance, "verdict": verdict}
    assert found == {**expected, "best trivial baseline": baseline}


def test_a_published_validation_accuracy_is_compared_with_ours() -> None:
    run = record(task="image", val_accuracy=82.0, data={**VALUES["data"], "sizes": {"val": 5000}})
    row = PublishedRow("B", "s4d", {"image": "82.78"}, "gu2023small", "", "val")
    found = {name: entry.text for name, entry in compare(row, [run]).items()}
    assert (found["ours"], found["tolerance"], found["verdict"]) == ("82.00", "1.49", "met")
    assert found["best trivial baseline"] is None


def test_a_run_of_published_settings_joins_the_table_by_itself(tmp_path: Path) -> None:
    """A run that is not done does not count, nor one with another setting."""
    facts = {"mixer": "linformer", "protocol": "lra", "preset": "nystromformer"}
    save(tmp_path, record(**facts))
    save(tmp_path, record(**facts, run_id="abc-s1", seed=1, status="stopped"))
    save(tmp_path, record(**facts, run_id="abd-s0", overrides=["train.lr=1e-2"]))
    own = [
        row for row in repeated_table(Data(tmp_path)).rows if row[0].startswith("Linformer (rer")
    ]
    shown = [(row[1], row[3], row[6]) for row in own]
    assert shown == [("listops (generated)", "40.00", "1 (seed 0)")]


def test_rows_state_their_changes_as_records_write_them() -> None:
    """By which runs are recognised that repeat them."""
    for one in repeats():
        assert {*write_changes(one.config.changes)} == {*one.overrides}, one.command()
