"""What `log.internals` writes about the inside of a model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import tiny_arguments
from lra import run_task
from lra.train.checkpoint import load_newest

WATCHED = ("--set", "log.internals=true", "--set", "model.dropout=0.2", "--set", "model.norm=batch")


def only_folder(folder: Path) -> Path:
    (found,) = folder.glob("results/runs/*/*/*")
    return found


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def load_weights(run: Path) -> dict[str, torch.Tensor]:
    state = load_newest(run / "checkpoints")
    assert state is not None
    return state["trainer"]["model"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    assert run_task.main(tiny_arguments(folder, *WATCHED)) == 0
    return only_folder(folder)


def test_training_computes_the_same_bits(tmp_path: Path, watched: Path) -> None:
    assert run_task.main(tiny_arguments(tmp_path, *WATCHED[2:])) == 0
    plain = only_folder(tmp_path)
    assert plain.name == watched.name  # the hash, too
    assert not (plain / "internals.jsonl").exists()
    weights = [load_weights(run) for run in (plain, watched)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    metrics = [read_lines(run / "metrics.jsonl") for run in (plain, watched)]
    losses = [[(line["step"], line.get("loss")) for line in lines] for lines in metrics]
    assert losses[0] == losses[1]


def test_numbers_are_those_of_the_weights(watched: Path) -> None:
    lines = read_lines(watched / "internals.jsonl")
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20]
    weights = load_weights(watched)
    for block in ("blocks.0", "blocks.1"):
        running = weights[f"{block}.channel_residual.norm.running_var"]
        name = f"{block}.channel_residual.norm.running_variance"
        assert lines[-1][f"{name}_min"] == pytest.approx(float(running.min()), rel=1e-3)
        assert lines[-1][f"{name}_max"] == pytest.approx(float(running.max()), rel=1e-3)
        mixer = [w.square().sum() for n, w in weights.items() if n.startswith(f"{block}.mixer.")]
        expected = pytest.approx(float(sum(mixer)) ** 0.5, rel=1e-3)
        assert lines[-1][f"{block}.mixer.parameters"] == expected
        words = ("activation", "gradient", "mixer.unit.operator.kernel")
        assert all(line[f"{block}.{word}"] > 0 for line in lines for word in words)


def test_a_ratio_is_that_of_the_batch_and_the_running_variance(tmp_path: Path) -> None:
    run_task.main(tiny_arguments(tmp_path, *WATCHED, settings=("log.every_steps=1",)))
    first, *_, last = read_lines(only_folder(tmp_path) / "internals.jsonl")
    assert 0 < first["norm.outlier_max"] < 1
    for end in ("min", "max"):  # running variances start at 1
        assert first[f"norm.ratio_{end}"] == pytest.approx(first[f"norm.variance_{end}"], abs=1e-3)
        assert last[f"norm.ratio_{end}"] != pytest.approx(last[f"norm.variance_{end}"], abs=1e-3)


def test_a_resumed_run_has_every_line_once(tmp_path: Path, watched: Path) -> None:
    for stop in ("--max-steps=10", "--max-steps=13", "--max-steps=20"):
        run_task.main(tiny_arguments(tmp_path, *WATCHED, stop))
        file = only_folder(tmp_path) / "internals.jsonl"
        if stop != "--max-steps=20":
            with file.open("a") as lines:
                lines.write('{"step": 16}\n')  # as of a session that was killed
    assert file.read_bytes() == (watched / "internals.jsonl").read_bytes()


@pytest.mark.parametrize("mixer", ["fnet", "s4", "transformer"])
def test_other_mixers_and_norms_have_what_exists(mixer: str, tmp_path: Path) -> None:
    settings = ("model.norm=layer", "train.micro_batch=4", "train.checkpoint_activations=true")
    arguments = tiny_arguments(tmp_path, *WATCHED[:2], mixer=mixer, settings=settings)
    assert run_task.main(arguments) == 0
    line = read_lines(only_folder(tmp_path) / "internals.jsonl")[-1]
    words = {name.rsplit(".", 1)[1] for name in line if "." in name}
    expected = {"activation", "gradient", "variance_min", "variance_max"}
    expected |= {"kernel"} if mixer == "s4" else set()
    assert words == expected | (set() if mixer == "fnet" else {"parameters"})
