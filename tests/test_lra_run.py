"""Training runs from Python: `lra.run` makes the runs of `run_task.py`, `lra.data` their data."""

import logging
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lra
from conftest import Settings, tiny_arguments, tiny_sections
from lra import run_task
from lra.record.run import load_record
from lra.train.trainer import Trainer
from made_data import place_made_data
from own_tasks import OWN_TASKS
from run_checks import assert_same_run


def train(
    folder: Path, results: str = "results", mixer: str = "tnn", **arguments: Any
) -> lra.TrainedRun:
    """Train the tiny run of `tiny_arguments` from Python."""
    places = {"data_dir": folder / "data", "results_dir": folder / results}
    given = {"preset": "quick", "device": "cpu", **places, **tiny_sections(), **arguments}
    return lra.run("listops", mixer, **given)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and the tiny run as the command makes it."""
    folder = tmp_path_factory.mktemp("command")
    assert run_task.main(tiny_arguments(folder)) == 0
    return folder


def run_in(results: Path) -> Path:
    (path,) = results.glob("runs/*/*/*")
    return path


def train_beside(command: Path, folder: Path, **arguments: Any) -> lra.TrainedRun:
    """Train from Python with the data of the command."""
    return train(folder, data_dir=command / "data", **arguments)


def test_a_run_is_that_of_the_command(command: Path, tmp_path: Path) -> None:
    run = train_beside(command, tmp_path)
    by_command = run_in(command / "results")
    assert run.folder == tmp_path / "results" / by_command.relative_to(command / "results")
    assert_same_run(run.folder, by_command)
    record, other = run.record, load_record(by_command / "result.json")
    assert (record.config_hash, record.overrides) == (other.config_hash, other.overrides)
    names = {path.name for path in by_command.iterdir()}
    assert {path.name for path in run.folder.iterdir()} == names
    predictions = (by_command / "predictions.csv").read_text()
    assert (run.folder / "predictions.csv").read_text() == predictions


def test_what_the_caller_set_for_torch_changes_no_run(command: Path, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            run = train_beside(command, tmp_path)
            assert torch.is_inference_mode_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_run(run.folder, run_in(command / "results"))


def test_an_interrupt_saves_the_run_and_is_raised_again(
    command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_step = Trainer.train_step

    def train_step(self: Trainer) -> None:
        if self.step == 5:
            signal.raise_signal(signal.SIGINT)
        make_step(self)

    # A shell without a terminal starts background processes with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "train_step", train_step)
            with pytest.raises(KeyboardInterrupt):
                train_beside(command, tmp_path)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    record = load_record(run_in(tmp_path / "results") / "result.json")
    assert (record.status, record.steps, record.message) == ("stopped", 6, "stopped by SIGINT")
    assert train_beside(command, tmp_path).record.status == "done"
    assert_same_run(run_in(tmp_path / "results"), run_in(command / "results"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": 3}, "lra.run: task: got 3, expected "),
        ({"resume": "nver"}, "lra.run: resume: got 'nver', expected 'auto' or 'never'"),
        ({"label": "a\nb"}, "lra.run: label: got 'a\\nb', "),
        ({"device": "cuda:99"}, "no device 'cuda:99' here"),
        ({"trian": {"lr": 1}}, "lra.run: unknown section 'trian'; did you mean train?"),
    ],
)
def test_mistakes_are_explained(arguments: Settings, message: str, tmp_path: Path) -> None:
    places = {"results_dir": tmp_path, "data_dir": tmp_path}
    task: Any = arguments.pop("task", "listops")
    with pytest.raises(lra.UserError, match=re.escape(message)):
        lra.run(task, "mean", **{**places, **arguments})
    assert not [*tmp_path.iterdir()]


def test_log_lines_are_printed_unless_quiet(
    command: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("lra")
    before = (logger.level, logger.propagate, [*logger.handlers])
    train_beside(command, tmp_path, results="loud")
    loud = capsys.readouterr()
    assert "validation accuracy" in loud.err
    assert (logger.level, logger.propagate, [*logger.handlers]) == before
    train_beside(command, tmp_path, results="quiet", quiet=True)
    assert capsys.readouterr() == ("", "")
    assert loud.out == ""


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("Same", {}),  # each example has a class, and two towers
        ("recall", {"train": 20, "val": 10, "test": 20}),  # some positions
        ("lm", {"sequence_length": 16, "stride": 5}),  # next tokens, in windows that overlap
    ],
)
def test_predictions_are_right_as_often_as_the_record_says(
    tmp_path: Path, task: str, options: Settings
) -> None:
    name = task
    if task in OWN_TASKS:
        (tmp_path / "own.py").write_text(OWN_TASKS[task])
        name = f"{tmp_path / 'own.py'}:{task}"
    place_made_data(task, tmp_path / "data")
    run = lra.run(
        name, "conv", preset="quick", device="cpu", quiet=True, data_dir=tmp_path / "data",
        results_dir=tmp_path / "results", task=options, model={"dim": 16, "depth": 1},
        train={"steps": 2, "warmup_steps": 1, "evaluate_every": 2, "batch_size": 8},
    )  # fmt: skip
    predictions = run.predict()
    labels = run.dataset.splits["test"].labels
    assert predictions.shape == labels.shape == run.logits().shape[:1]
    assert (predictions == labels).sum() == run.record.result.model_dump()["test_correct"]
    assert len(labels) == run.record.result.test_total
    some = [run.predict(indices=[i]) for i in (3, 0, 3)]
    assert np.array_equal(run.predict(indices=(3, 0, 3)), np.concatenate(some))
    assert run.predict(indices=range(0)).shape == (0,)


@pytest.mark.parametrize(
    ("norm", "part", "is_warned"), [("batch", 3, True), ("batch", 16, False), ("layer", 3, False)]
)
def test_parts_of_a_batch_under_batch_norm_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], norm: str, part: int, is_warned: bool
) -> None:
    more = ("--set", f"model.norm={norm}", "--set", f"train.micro_batch={part}")
    run_task.main(tiny_arguments(tmp_path, *more, "--max-steps", "1", mixer="mean"))
    warned = f"train.micro_batch={part} changes results" in " ".join(
        capsys.readouterr().err.split()
    )
    assert warned == is_warned
