"""Probes in the report: the best attempt of each mixer, successes, variants."""

from pathlib import Path
from typing import Any

from lra.record.run import RunRecord
from lra.report.charts import bubbles_of_board
from lra.report.data import Data
from lra.report.screen import summarize
from lra.report.tables.probes import Probe, ability_table, probe_table, probes
from made_results import record, save_all


def attempt(number: int, accuracy: float, *, language: str = "parity", **changes: Any) -> RunRecord:
    """Make a run of the task languages; its validation accuracy is that of the test."""
    overrides = [f"task.language={language}", *changes.pop("overrides", ())]
    values: dict[str, Any] = {
        "task": "languages", "run_id": f"{number:08x}-s{changes.get('seed', 0)}",
        "config_hash": f"{number:08x}", "test_accuracy": accuracy, "test_total": 100,
        "settings": {"task.train": 100, "model.dim": 64, "train.steps": 1000},
        "val_accuracy": accuracy, "largest_class": 50.0, "baselines": {"chance": 50.0},
        "data": {"source": "generated", "fingerprint": language[0] * 64, "sizes": {"test": 100}},
    }  # fmt: skip
    return record(**{**values, "overrides": overrides, **changes})


def probe_of(folder: Path, *runs: RunRecord) -> tuple[Data, Probe]:
    data = Data(save_all(folder, runs))
    (probe,) = probes(data)
    return data, probe


def test_the_settings_best_in_validation_count_and_successes_are_of_all(tmp_path: Path) -> None:
    _, probe = probe_of(
        tmp_path,
        attempt(0, 52, overrides=["train.lr=1e-4"]),
        attempt(1, 95, overrides=["train.lr=1e-3"]),
        attempt(1, 91, overrides=["train.lr=1e-3"], seed=1),
        attempt(2, 99, overrides=["train.lr=1e-2"], val_accuracy=80.0),
        attempt(2, 60, overrides=["train.lr=1e-2"], val_accuracy=80.0, seed=1),
        attempt(3, 98, overrides=["mixer.expand_ratio=2"]),
        attempt(4, 75, language="even-pairs"),
        attempt(5, 51, language="even-pairs", mixer="mean"),
        attempt(6, 0, mixer="mean", status="diverged", val_accuracy=None),
    )
    assert probe.differing == "language"
    accuracy = probe_table(probe)
    assert {column.name: column.texts for column in accuracy.columns} == {
        "mixer": ["mean", "tnn", "tnn (mixer.expand_ratio=2)", "trivial baseline: chance"],
        "even-pairs": ["at chance: 51.00 (n=1), 0 of 1", "75.00 (n=1), 0 of 1", "-", "50.00"],
        "parity": ["diverged", "93.00 ± 2.83 (n=2), 3 of 5", "98.00 (n=1), 1 of 1", "50.00"],
    }
    assert accuracy.columns[2].marks == {1: "tied", 2: "tied"}, "of 100 test examples"


def test_the_overview_has_the_best_attempt_of_each_mixer_by_ability(tmp_path: Path) -> None:
    """Of all options and budgets; data that one mixer alone was trained on have no column."""
    data, probe = probe_of(
        tmp_path,
        attempt(0, 60),
        attempt(1, 96, overrides=["train.steps=2000"]),
        attempt(2, 99, overrides=["mixer.expand_ratio=2"], val_accuracy=80.0),
        attempt(3, 75, mixer="s4"),
        attempt(4, 75, language="even-pairs"),
    )
    table = ability_table(data, [probe])
    assert {column.name: column.texts for column in table.columns} == {
        "mixer": ["s4", "tnn", "trivial baseline: chance"],
        "languages, parity": ["75.00 (n=1)", "96.00 (n=1)", "50.00"],
    }


def test_runs_with_more_training_are_a_variant_of_their_own(tmp_path: Path) -> None:
    longer = ["train.steps=2000"]
    _, probe = probe_of(
        tmp_path,
        attempt(0, 60),
        attempt(1, 96, overrides=longer),
        attempt(2, 55, overrides=[*longer, "train.lr=1e-2"]),
        attempt(3, 0, seed=1, status="diverged", val_accuracy=None),
    )
    assert {column.name: column.texts for column in probe_table(probe).columns[1:]} == {
        "1,000 steps": ["at chance: 60.00 (n=1), 0 of 2", "50.00"],
        "2,000 steps": ["96.00 (n=1), 1 of 2", "50.00"],
    }


def test_other_data_of_equal_settings_is_a_variant(tmp_path: Path) -> None:
    """Whether its source or the end of its fingerprint differs."""
    facts = {"source": "unofficial", "sizes": {"test": 100}, "fingerprint": "p" * 64}
    runs = [attempt(0, 60), attempt(1, 70, data=facts)]
    runs += [attempt(2, 80, data={**facts, "fingerprint": "p" * 63 + "q"})]
    _, probe = probe_of(tmp_path, *runs)
    assert len(probe.tasks) == len({column.texts[0] for column in probe_table(probe).columns[1:]})
    assert len(probe.tasks) == 3


def test_probes_are_in_no_table_of_the_benchmark(tmp_path: Path) -> None:
    data, probe = probe_of(tmp_path, record(), attempt(1, 95, state_size=640))
    assert {run.task for board in data.boards for run in board.records} == {"listops"}
    assert "languages" not in data.boards[0].tasks
    printed = summarize(data)
    assert "languages, preset" in printed
    assert "95.00" in printed
    (point,) = bubbles_of_board(data, probe).points
    assert (point["width"], point["state"], point["score"]) == (64, 640, 95)
