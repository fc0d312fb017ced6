"""Regression and several labels: measures, losses, and the way from a file to tables."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

import lra
from lra import run_task
from lra.evaluate import main as evaluate
from lra.goals.multilabel import MultilabelScorer
from lra.goals.registry import scorer_of
from lra.goals.regression import RegressionScorer
from lra.record.evaluation import evaluations_of
from lra.record.run import load_record
from lra.report import __main__ as report
from lra.statistics import bootstrap_interval, compare
from lra.tasks.base import Split, TaskInfo
from lra.tasks.goals import ExampleLabels, ExampleValues, Goal
from lra.tasks.returned import build_split
from own_tasks import OWN_TASKS


def split_of(labels: np.ndarray) -> Split:
    ones = np.ones(len(labels), dtype=np.int64)
    return build_split(ones.astype(np.int32), ones, labels, {}, towers=1, goal=ExampleValues)


def info_of(goal: Goal) -> TaskInfo:
    return TaskInfo(name="made", goal=goal, max_length=4, channels=3)


@pytest.mark.parametrize("outputs", [1, 3])
def test_measures_equal_those_of_scikit_learn(outputs: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(5, 3, (50, outputs))
    predictions = labels + rng.normal(size=labels.shape)
    assert RegressionScorer.measure(labels, predictions) == pytest.approx(
        {
            "r2": metrics.r2_score(labels, predictions),
            "rmse": metrics.root_mean_squared_error(labels, predictions),
        }
    )
    labels = (rng.random((50, outputs)) < 0.3).astype(float)
    probabilities = np.clip(0.4 * labels + rng.random(labels.shape), 0, 1).round(1)  # has ties
    several = np.pad(labels, ((0, 0), (0, 2))), np.pad(probabilities, ((0, 0), (0, 2)))
    columns = range(outputs)
    assert MultilabelScorer.measure(*several) == pytest.approx(
        {
            "average_precision": np.mean(
                [
                    metrics.average_precision_score(labels[:, i], probabilities[:, i])
                    for i in columns
                ]
            ),
            "f1": np.mean(
                [metrics.f1_score(labels[:, i], probabilities[:, i] >= 0.5) for i in columns]
            ),
        }
    ), "a label that no example has does not count"


def test_a_constant_label_has_the_r2_of_scikit_learn() -> None:
    labels = np.ones((4, 2))
    predictions = np.stack([labels[:, 0], np.arange(4.0)], axis=1)
    assert RegressionScorer.measure(labels, predictions)["r2"] == 0.5
    assert metrics.r2_score(labels, predictions) == 0.5


def test_labels_of_any_unit_have_the_same_loss() -> None:
    labels, logits = torch.randn(6, 2).double(), torch.randn(6, 2)
    scale, shift = torch.tensor([1e-3, 1e4]).double(), torch.tensor([5.0, -1e8]).double()
    losses: list[torch.Tensor] = []
    for given in (labels, labels * scale + shift):
        goal = ExampleValues(2).fitted(split_of(given.numpy()))
        losses.append(scorer_of(info_of(goal)).losses(logits, given)[0])
    standard = (labels - labels.mean(0)) / labels.std(0, correction=0)
    expected = (logits - standard).square().mean(dim=1).float()
    torch.testing.assert_close(losses[0], expected)
    torch.testing.assert_close(losses[1], expected, rtol=1e-3, atol=1e-3)


def test_the_loss_of_labels_is_binary_cross_entropy() -> None:
    labels, logits = torch.randint(2, (6, 3)).double(), torch.randn(6, 3)
    probabilities = logits.sigmoid()
    right = torch.where(labels == 1, probabilities, 1 - probabilities)
    losses, is_right = scorer_of(info_of(ExampleLabels(3))).losses(logits, labels)
    torch.testing.assert_close(losses, -right.log().mean(dim=1))
    assert not is_right.any()


def test_intervals_are_as_wide_as_theory_says() -> None:
    values = np.random.default_rng(1).normal(size=400)
    low, high = bootstrap_interval(lambda drawn: float(values[drawn].mean()), 400, 1000)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    differences = values / 10 + 0.02
    found = compare([differences], [np.zeros(400)])
    assert found.high - found.low == pytest.approx(100 * (high - low) / 10, rel=0.1)
    assert found.difference == pytest.approx(100 * differences.mean())
    assert 0 < found.p_value < 1
    assert compare([np.abs(differences)], [np.zeros(400)]).p_value == 2 / 10_001


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("name", ["Levels", "Tags"])
def test_from_a_file_to_tables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN_TASKS[name])
    settings = ["model.dim=16", "model.depth=1", "train.steps=60", "train.batch_size=32"]
    given = ["--preset", "quick", "--device", "cpu", "--threads", "1"]
    given += [part for text in settings for part in ("--set", text)]
    for mixer in ("conv", "mean"):
        assert run_task.main(["--task", f"own.py:{name}", "--mixer", mixer, *given]) == 0
    shown = capsys.readouterr().out
    assert "rank" in shown and "of 2 mixers" in shown and "best trivial baseline" in shown
    folders = [next(Path("results/runs", name, mixer).iterdir()) for mixer in ("conv", "mean")]
    run = lra.load(folders[0])
    result, test = run.record.result, run.dataset.splits["test"]
    predictions = run.predict()
    assert predictions.shape == test.labels.shape
    scorer = run.scorer_of(run.config.build_task().info)
    assert isinstance(scorer, (RegressionScorer, MultilabelScorer))
    scores = scorer.measure(test.labels, predictions)
    assert scores == pytest.approx(result.model_dump()["scores"], rel=1e-5)
    assert result.score == pytest.approx(next(iter(scores.values())))
    assert result.score is not None and result.interval is not None
    assert result.interval[0] < result.score < result.interval[1]
    assert not result.is_at_chance, "a few steps suffice for these laws"
    frame = lra.records()
    own = frame[frame.task == name]
    column = np.asarray(own[f"{result.prefix}{next(iter(scores))}"], dtype=float)
    assert column.shape == (2,) and np.isfinite(column).all()
    assert "test_accuracy" not in own

    assert report.main([]) == 0
    assert result.measures[0].name in capsys.readouterr().out
    assert result.measures[0].name in Path("results/report/index.html").read_text()
    assert report.main(["--compare", "conv", "mean"]) == 0
    assert result.compared in " ".join(capsys.readouterr().out.split())
    assert report.main(["--paper", "--out", "paper", "--rows", "variants,baselines"]) == 0
    (latex,) = Path("paper/tables").glob("results-*.tex")
    assert result.measures[0].name in latex.read_text()
    asked = ["--run", str(folders[0]), "--device", "cpu", "--lengths", "40"]
    assert evaluate([*asked, "--vary", "task.train=300"]) == 0
    (other,) = evaluations_of(folders[0])[0]
    assert other.result.score is not None
    if name == "Levels":
        trained, fresh = result.model_dump(), other.result.model_dump()
        assert fresh["means"] == trained["means"], "predictions keep the unit of the training"


@pytest.mark.usefixtures("own_folder")
def test_what_learns_nothing_is_no_better_than_the_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = OWN_TASKS["Levels"].replace("[300, 0.02] * levels", "rng.normal(size=(count, 2))")
    Path("own.py").write_text(text)
    given = ["--preset", "quick", "--device", "cpu", "--set", "train.steps=4"]
    given += ["--set", "model.dim=8", "--set", "model.depth=1"]
    assert run_task.main(["--task", "own.py:Levels", "--mixer", "mean", *given]) == 0
    assert ", no better than the mean\n" in capsys.readouterr().out
    (path,) = Path("results/runs/Levels/mean").glob("*/result.json")
    assert load_record(path).result.is_at_chance
    assert report.main([]) == 0
    assert "no better than the mean" in capsys.readouterr().out


@pytest.mark.usefixtures("own_folder")
def test_a_label_that_no_training_example_has_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN_TASKS["Tags"].replace("(1, 2, 3)", "(1, 2, 99)"))
    given = ["--preset", "quick", "--device", "cpu", "--set", "train.steps=2"]
    assert run_task.main(["--task", "own.py:Tags", "--mixer", "mean", *given]) == 0
    assert "labels that no training example has: 1" in capsys.readouterr().err


KNOWN = """
import numpy as np


class Known:
    def examples(self, split, rng):
        count = 8000 if split == "train" else 4000
        levels = rng.normal(size=count)
        sequences = levels[:, None] + rng.normal(size=(count, 15))
        return sequences, levels + 0.5 * rng.normal(size=count)
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("own_folder")
def test_a_law_of_known_r2_is_learned() -> None:
    """The best prediction is 15/16 of the mean, whose R2 is (15/16) / (1 + 1/4)."""
    Path("own.py").write_text(KNOWN)
    given = ["--preset", "quick", "--device", "cpu", "--set", "train.steps=600"]
    assert run_task.main(["--task", "own.py:Known", "--mixer", "mean", *given]) == 0
    (folder,) = Path("results/runs/Known/mean").iterdir()
    run = lra.load(folder)
    test = run.dataset.splits["test"]
    batch = test.batch(np.arange(len(test)))
    means = batch.inputs.view(len(test), -1).mean(dim=1, keepdim=True).double().numpy()
    best = RegressionScorer.measure(test.labels, 15 / 16 * means)["r2"]
    assert best == pytest.approx(0.75, abs=0.03)
    assert run.record.result.score == pytest.approx(best, abs=0.01)
