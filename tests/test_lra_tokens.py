"""Labels of positions that are no next tokens: losses, accuracies, records, and one's own tasks."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from lra import run_task
from lra.common.errors import DataError
from lra.config.schema import RunConfig
from lra.goals.labels import LabelsResult
from lra.record.run import load_record
from lra.tasks.base import Dataset
from lra.train.trainer import Trainer
from requested import resolve

CPU = torch.device("cpu")
OWN = '''
class LastBit:
    """Say at each 2 whether the last bit before it was a one."""

    def examples(self, split, rng):
        lengths = rng.integers(4, 25, 200 if split == "train" else 60)
        sequences = [rng.integers(0, 3, n) for n in lengths]
        labels = []
        for s in sequences:
            s[0], s[-1] = 1, 2
            bit, own = 0, []
            for x in s.tolist():
                own.append(bit if x == 2 else -1)
                bit = x if x < 2 else bit
            labels.append(own)
        segment = ["short" if len(s) < 12 else "long" for s in sequences]
        return sequences, labels, {"segment": segment}
'''
TINY = ["model.dim=16", "model.depth=1", "train.batch_size=12", "train.steps=6"]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name a task of one's own whose positions have labels."""
    path = tmp_path_factory.mktemp("own") / "bits.py"
    path.write_text(OWN)
    return f"{path}:LastBit"


def config_of(own: str, *changes: str) -> RunConfig:
    return resolve(own, "conv", preset="quick", overrides=[*TINY, *changes])


@pytest.fixture(scope="module")
def dataset(own: str, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return config_of(own).build_task().prepare(tmp_path_factory.mktemp("data"))


def trainer_of(own: str, dataset: Dataset, *changes: str) -> Trainer:
    config = config_of(own, *changes)
    return Trainer(config, config.build_task().info, dataset, 0, CPU)


@pytest.mark.parametrize("micro_batch", ["null", "5"])
def test_the_loss_is_the_mean_over_labels(own: str, dataset: Dataset, micro_batch: str) -> None:
    trainer = trainer_of(own, dataset, f"train.micro_batch={micro_batch}", "model.norm=layer")
    trainer.model.eval()
    batch = dataset.splits["train"].batch(np.arange(12))
    targets = trainer.gradient.count_targets(batch, 12)
    loss, correct = trainer.gradient.backward(batch, 12, targets)
    logits = trainer.model(batch.inputs, batch.lengths, batch.scored).detach()
    assert targets == len(batch.labels)
    assert float(loss) == pytest.approx(float(functional.cross_entropy(logits, batch.labels)))
    assert int(correct) == int((logits.argmax(dim=1) == batch.labels).sum())


def test_a_score_is_that_of_a_loop_over_examples(own: str, dataset: Dataset) -> None:
    """Token and sequence accuracy, the first wrong position, and the mean over segments."""
    trainer = trainer_of(own, dataset)
    trainer.train_step()
    split = dataset.splits["test"]
    score = trainer.score("test", lambda: None)
    accuracy, outcomes = (
        score.result["test_accuracy"],
        np.stack([*score.predictions.values()], axis=1),
    )
    trainer.model.eval()
    by_segment: dict[str, list[tuple[int, int, bool]]] = {}
    losses: list[float] = []
    for i in range(len(split)):
        one = split.batch(np.array([i]))
        assert one.scored is not None
        with torch.no_grad():
            logits = trainer.model(one.inputs, one.lengths)[one.scored]
        is_right = (logits.argmax(dim=1) == one.labels).tolist()
        wrong = [int(place) for place, ok in zip(one.scored, is_right, strict=True) if not ok]
        expected = [len(is_right), sum(is_right), wrong[0] if wrong else -1]
        assert outcomes[i].tolist() == expected
        kept = by_segment.setdefault(str(split.metadata()["segment"][i]), [])
        kept.append((len(is_right), sum(is_right), all(is_right)))
        losses += functional.cross_entropy(logits, one.labels, reduction="none").tolist()
    groups = by_segment.values()
    token = [100 * sum(r for _, r, _ in one) / sum(n for n, _, _ in one) for one in groups]
    whole = [100 * np.mean([all_right for *_, all_right in one]) for one in groups]
    assert accuracy == pytest.approx(np.mean(token)) and score.merit == accuracy
    assert LabelsResult(segments=score.result["segments"]).sequence_accuracy == pytest.approx(
        np.mean(whole)
    )
    assert score.loss == pytest.approx(np.mean(losses), rel=1e-5)
    assert (score.result["test_correct"], score.total) == tuple(outcomes.sum(axis=0)[[1, 0]])


@pytest.fixture(scope="module")
def run_folder(own: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on the task from the command line."""
    place = tmp_path_factory.mktemp("place")
    flags = [word for text in TINY for word in ("--set", text)]
    flags += ["--results-dir", str(place / "results"), "--data-dir", str(place / "data")]
    assert run_task.main(["--task", own, "--mixer", "conv", "--preset", "quick", *flags]) == 0
    (folder,) = (place / "results").glob("runs/*/*/*")
    return folder


def test_a_run_records_all_accuracies(run_folder: Path) -> None:
    record = load_record(run_folder / "result.json")
    assert isinstance(record.result, LabelsResult)
    assert record.result.test_examples == 60 < (record.result.test_total or 0)
    assert {one.name for one in record.result.segments} == {"short", "long"}
    with (run_folder / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["targets"]) for row in rows) == record.result.test_total
    assert sum(int(row["correct"]) for row in rows) == record.result.model_dump()["test_correct"]


def test_labels_that_fit_no_positions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(OWN.replace("labels.append(own)", "labels.append(own[:-2])"))
    with pytest.raises(DataError, match=r"example 0 has .* positions and the labels"):
        resolve(f"{tmp_path}/bad.py:LastBit", "conv", preset="quick", overrides=TINY).build_task()
