"""Training runs from Python: `lra.run` makes the runs of `run_task.py`, `lra.data` their data."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lra
import run_task
from conftest import Settings, python_example, tiny_arguments, tiny_sections
from lra.record.run import load_record
from lra.train.run_folder import RunFolder
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


@pytest.mark.parametrize("switch", ["no_grad", "inference_mode", "float64"])
def test_what_the_caller_set_for_torch_changes_no_run(
    command: Path, tmp_path: Path, switch: str
) -> None:
    before = torch.get_default_dtype()
    modes = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
    with modes.get(switch, contextlib.nullcontext)():
        torch.set_default_dtype(torch.float64 if switch == "float64" else before)
        try:
            run = train_beside(command, tmp_path)
            assert torch.is_grad_enabled() == (switch == "float64")
            assert (torch.get_default_dtype() == torch.float64) == (switch == "float64")
        finally:
            torch.set_default_dtype(before)
    assert_same_run(run.folder, run_in(command / "results"))


def test_what_is_returned_is_what_load_returns(command: Path, tmp_path: Path) -> None:
    run = train_beside(command, tmp_path)
    loaded = lra.load(run.folder, data_dir=command / "data")
    assert run.record == loaded.record
    assert run.config.values() == loaded.config.values()
    assert np.array_equal(run.predict(), loaded.predict())


def test_a_stopped_run_resumes_and_a_finished_one_is_only_loaded(
    command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_beside(command, tmp_path, max_steps=12)
    assert (first.record.status, first.record.steps) == ("stopped", 12)
    second = train_beside(command, tmp_path)
    assert (second.record.status, second.folder) == ("done", first.folder)
    assert_same_run(second.folder, run_in(command / "results"))
    monkeypatch.delattr(Trainer, "train_step")
    assert train_beside(command, tmp_path).record == second.record


def test_a_run_of_the_command_resumes_from_python(command: Path, tmp_path: Path) -> None:
    arguments = [*tiny_arguments(tmp_path), "--data-dir", str(command / "data")]
    assert run_task.main([*arguments, "--max-steps", "7"]) == 3
    assert train_beside(command, tmp_path).record.status == "done"
    assert_same_run(run_in(tmp_path / "results"), run_in(command / "results"))


def send_at_step(number: signal.Signals, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a signal to this process before a training step."""
    make_step = Trainer.train_step

    def train_step(self: Trainer) -> None:
        if self.step == step:
            signal.raise_signal(number)
        make_step(self)

    monkeypatch.setattr(Trainer, "train_step", train_step)


def test_an_interrupt_saves_the_run_and_is_raised_again(
    command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shell without a terminal starts background processes with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        send_at_step(signal.SIGINT, 5, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            train_beside(command, tmp_path)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    record = load_record(run_in(tmp_path / "results") / "result.json")
    assert (record.status, record.steps, record.message) == ("stopped", 6, "stopped by SIGINT")
    assert train_beside(command, tmp_path).record.status == "done"
    assert_same_run(run_in(tmp_path / "results"), run_in(command / "results"))


def test_the_callers_handler_gets_the_signal_after_the_run_is_saved(
    command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[bool] = []

    def handle(*_: object) -> None:
        saved.append(RunFolder(run_in(tmp_path / "results")).has_checkpoint())

    before = signal.signal(signal.SIGTERM, handle)
    try:
        send_at_step(signal.SIGTERM, 5, monkeypatch)
        assert train_beside(command, tmp_path).record.status == "stopped"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert saved == [True]


def test_a_thread_can_train(command: Path, tmp_path: Path) -> None:
    """Python handles signals in the main thread alone."""
    found: list[lra.TrainedRun] = []
    worker = threading.Thread(
        target=lambda: found.append(train_beside(command, tmp_path, max_steps=3))
    )
    worker.start()
    worker.join()
    assert found[0].record.steps == 3


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


def test_a_mixer_of_ones_own_is_trained(command: Path, tmp_path: Path) -> None:
    (tmp_path / "gated_mean.py").write_text(python_example("docs/your_mixer.md"))
    mixer = f"{tmp_path / 'gated_mean.py'}:GatedMean"
    run = lra.run(
        "listops", mixer, preset="quick", device="cpu", data_dir=command / "data",
        results_dir=tmp_path / "results", **tiny_sections(),
    )  # fmt: skip
    assert (run.record.mixer, run.record.status) == ("GatedMean", "done")
    assert run.predict().shape == (50,)


def test_the_size_of_another_mixer_is_matched(command: Path, tmp_path: Path) -> None:
    run = train_beside(command, tmp_path, mixer="mean", match_params="transformer", max_steps=1)
    line = ["--match-params", "transformer", "--max-steps", "1"]
    line = tiny_arguments(tmp_path, *line, mixer="mean")
    assert run_task.main([*line, "--data-dir", str(command / "data")]) == 3
    assert run_in(tmp_path / "results") == run.folder


def test_a_label_and_another_attempt(command: Path, tmp_path: Path) -> None:
    first = train_beside(command, tmp_path, label="first", max_steps=1)
    assert first.record.label == "first"
    assert train_beside(command, tmp_path, resume="never", max_steps=1).folder.name.endswith("-r2")


WRONG: dict[str, list[Any]] = {
    "task": [None, 3], "mixer": [None, b"tnn"], "preset": [None, 1], "protocol": [None],
    "device": [None, torch.device("cpu")], "seed": [None, -1, 1.0, True],
    "results_dir": [None, 3], "data_dir": [None, "a\0b"],
    "max_steps": [0, -1, 1.5, "3", True], "max_minutes": [-1, float("nan"), "3", True],
    "match_params": [3], "resume": [None, True], "label": [3], "quiet": [None, 1],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(name: str) -> None:
    for value in WRONG[name]:
        names = {"task": "listops", "mixer": "mean", **{name: value}}
        task, mixer = names.pop("task"), names.pop("mixer")
        with pytest.raises(lra.UserError, match=rf"^lra.run: {name}: got .*, expected "):
            lra.run(task, mixer, **names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resume": "nver"}, "lra.run: resume: unknown value 'nver'; did you mean never?"),
        ({"label": "a\nb"}, "lra.run: label 'a\\nb': no name of a row"),
        ({"device": "cuda:99"}, "no device 'cuda:99' here"),
        ({"train": {"lrr": 1}}, "lra.run"),
        ({"trian": {"lr": 1}}, "lra.run: unknown section 'trian'; did you mean train?"),
        ({"match_params": "tn"}, "did you mean tnn?"),
    ],
)
def test_mistakes_are_explained(arguments: Settings, message: str, tmp_path: Path) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        lra.run("listops", "mean", results_dir=tmp_path, data_dir=tmp_path, **arguments)
    assert not [*tmp_path.iterdir()]


def test_processes_of_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(lra.UserError, match=r"use torchrun run_task.py"):
        lra.run("listops", "mean")


def test_names_are_those_of_the_commands() -> None:
    assert lra.tasks() == run_task.list_names("TASKS")
    assert lra.mixers() == run_task.mixer_names()


def test_data_is_that_of_a_run(command: Path) -> None:
    dataset, info = lra.data(
        "listops", preset="quick", data_dir=command / "data", task=tiny_sections()["task"]
    )
    built = lra.build(
        "listops", "mean", preset="quick", data_dir=command / "data", **tiny_sections()
    )
    assert dataset.fingerprint == built.dataset.fingerprint
    assert info == built.info
    inputs, mask = dataset.splits["test"].batch(np.arange(4)).padded()
    assert inputs.shape == mask.shape


def test_data_of_a_task_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_TASKS["Same"])
    dataset, info = lra.data(f"{tmp_path / 'own.py'}:Same", data_dir=tmp_path / "data")
    inputs, mask = dataset.splits["test"].batch(np.arange(5)).padded()
    assert info.towers == 2
    assert inputs.shape == mask.shape
    assert inputs.shape[:2] == (5, 2)


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("listop", {}, "did you mean listops?"),
        (3, {}, "lra.data: task: got 3, expected a valid string"),
        ("listops", {"preset": 3}, "lra.data: preset: got 3, expected a valid string"),
        ("listops", {"preset": "quik"}, "did you mean quick?"),
        ("listops", {"train": {"lr": 1}}, "has no effect on the data"),
        ("listops", {"task": {"max_lenght": 1}}, "did you mean max_length?"),
    ],
)
def test_mistakes_in_what_data_are_named(task: Any, settings: Settings, message: str) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        lra.data(task, **settings)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("Parity", {}),  # each example has a class
        ("Same", {}),  # of two towers
        ("Last", {}),  # one position of each example
        ("recall", {"train": 20, "val": 10, "test": 20}),  # some positions
        ("groups", {"train": 20, "val": 10, "test": 20}),  # every position
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
    assert (predictions == labels).sum() == run.record.test_correct
    assert len(labels) == run.record.test_total
    some = [run.predict(indices=[i]) for i in (3, 0, 3)]
    assert np.array_equal(run.predict(indices=(3, 0, 3)), np.concatenate(some))
    assert run.predict(indices=range(0)).shape == (0,)
