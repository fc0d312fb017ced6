"""Every task through the whole harness, in both protocols, on small files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lra import prepare, run_task
from lra.classifier.classifier import Classifier
from lra.record.run import load_record
from lra.report.boards import boards
from lra.tasks.base import BENCHMARK, Batch
from made_data import SMALLER, place_made_data, reviews, write_archive
from requested import resolve

MODEL = ["model.dim=8", "model.depth=1", "train.steps=2", "train.evaluate_every=2",
         "train.batch_size=4", "train.warmup_steps=1"]  # fmt: skip


def arguments(task: str, folder: Path, *more: str) -> list[str]:
    changes = [part for text in [*SMALLER[task], *MODEL] for part in ("--set", text)]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    start = ["--task", task, "--mixer", "tnn", "--preset", "quick", "--device", "cpu"]
    return [*start, *places, *changes, *more]


def record(folder: Path) -> Any:
    (path,) = folder.glob("results/runs/*/*/*/result.json")
    return load_record(path)


@pytest.mark.parametrize(
    ("task", "protocol"), [*((task, "s4") for task in BENCHMARK), ("text", "lra"), ("image", "lra")]
)
def test_every_task_runs_in_both_protocols(task: str, protocol: str, tmp_path: Path) -> None:
    place_made_data(task, tmp_path / "data")
    assert run_task.main(arguments(task, tmp_path, "--protocol", protocol)) == 0
    done = record(tmp_path)
    assert (done.status, done.protocol, done.task) == ("done", protocol, task)
    assert "majority class" in done.result.trivial_scores
    reads = task in {"text", "retrieval", "image"}
    assert done.data.source == ("unofficial" if reads else "generated")
    assert bool(done.data.unofficial_because) == reads
    assert f"{done.data.source} data" in boards([done])[0].conditions[task]


def test_a_pair_is_seen_whole_and_in_order() -> None:
    config = resolve("retrieval", "mean", preset="quick", overrides=("model.norm=layer",))
    model = Classifier(config, config.build_task().info).eval()
    a, b = torch.randint(3, 90, (7,)), torch.randint(3, 90, (4,))

    def logits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([[len(first), len(second)]])
        batch = Batch.of_examples(torch.cat([first, second]), lengths, torch.zeros(1).long())
        return model(batch.inputs, batch.lengths)

    assert not torch.allclose(logits(a, b), logits(b, a))
    assert not torch.allclose(logits(a, b), logits(a, b.flip(0) + 1))


def test_prepare_all_names_what_is_missing_and_does_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_archive(tmp_path / "aclImdb.tar.gz", reviews())
    data = ["--task", "all", "--preset", "quick", "--source", "official"]
    assert prepare.main([*data, "--data-dir", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert "could not prepare listops, text, retrieval, image, pathfinder, pathx" in shown
    assert "text: task.source is official" in shown
    assert "image: no official files of image in" in shown
    assert "cifar-10-python.tar.gz" in shown
    assert "Traceback" not in shown
