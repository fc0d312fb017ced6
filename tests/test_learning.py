"""Every mixer learns ListOps, and every task is learnt: `pytest --learn`."""

from pathlib import Path

import pytest

from lra import run_task
from lra.config.registry import MIXERS
from lra.record.run import load_record
from lra.tasks.base import BENCHMARK
from made_data import place_real_data

NOT_ASKED = {"mean", "conv", "fnet"}
"""Simple mixers, which need not learn: others are compared with them."""


@pytest.mark.learn
@pytest.mark.parametrize("mixer", sorted(MIXERS.classes.keys() - NOT_ASKED))
def test_quick_runs_learn(mixer: str, tmp_path: Path) -> None:
    """At least 15 points above predicting the majority class."""
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    assert run_task.main(["--task", "listops", "--mixer", mixer, "--preset", "quick", *places]) == 0
    (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
    record = load_record(path)
    assert record.test_accuracy is not None
    assert record.test_accuracy >= record.result.trivial_scores["majority class"] + 15


@pytest.mark.learn
@pytest.mark.parametrize("task", [name for name in BENCHMARK if name != "listops"])
def test_quick_tasks_are_learnt(task: str, tmp_path: Path) -> None:
    """At least 5 points above predicting the majority class."""
    place_real_data(task, tmp_path / "data")
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "results")]
    assert run_task.main(["--task", task, "--mixer", "tnn", "--preset", "quick", *places]) == 0
    (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
    record = load_record(path)
    assert record.test_accuracy is not None
    assert record.test_accuracy >= record.result.trivial_scores["majority class"] + 5
