"""What Python code calls: lra.build, lra.load and trained runs."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import lra
from conftest import ROOT, tiny_arguments, tiny_sections
from lra import run_task
from lra.record.run import load_record
from lra.train.checkpoint import load_newest
from lra.train.trainer import Trainer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and runs of tnn: done, and in another results folder stopped."""
    folder = tmp_path_factory.mktemp("api")
    assert run_task.main(tiny_arguments(folder)) == 0
    another = ["--results-dir", str(folder / "stopped"), "--max-steps", "12"]
    assert run_task.main(tiny_arguments(folder, *another)) == 3
    return folder


def run_in(results: Path) -> Path:
    (path,) = results.glob("runs/*/*/*")
    return path


def test_type_checkers_know_every_name() -> None:
    stated = re.findall(r" as (\w+)$", (ROOT / "lra" / "__init__.pyi").read_text(), re.M)
    assert sorted(stated) == sorted(lra.__all__)


@pytest.fixture
def run(made: Path) -> lra.TrainedRun:
    return lra.load(run_in(made / "results"), data_dir=made / "data")


def test_predictions_are_those_of_the_run(run: lra.TrainedRun) -> None:
    file = run.folder / "predictions.csv"
    expected = np.genfromtxt(file, delimiter=",", names=True, dtype=None)["prediction"]
    found = run.predict()
    assert found.dtype == np.int64
    assert np.array_equal(found, expected)
    right = int((found == run.dataset.splits["test"].labels).sum())
    assert right == run.record.result.model_dump()["test_correct"]
    some = [7, 3, 3, 49]
    assert np.array_equal(run.predict("test", some), expected[some])
    assert np.array_equal(run.predict(indices=np.array(some)), expected[some])
    assert run.predict(indices=[]).shape == (0,)
    assert run.predict("val").shape == (40,)
    logits = run.logits(indices=some)
    assert (logits.shape, logits.dtype) == ((4, 10), np.float32)
    assert np.allclose(logits, run.logits()[some], atol=1e-5)


def test_a_loaded_run_has_its_record_settings_and_best_weights(run: lra.TrainedRun) -> None:
    assert run.record == load_record(run.folder / "result.json")
    assert run.config.hash == run.record.config_hash
    state = load_newest(run.folder / "checkpoints")
    assert state is not None
    best = state["trainer"]["best"]
    assert best is not None
    assert all(torch.equal(w, best["model"][n]) for n, w in run.model.state_dict().items())
    assert not run.model.training
    assert lra.load(run.folder / "result.json").folder == run.folder


def test_a_stopped_run_is_loaded_and_nothing_is_prepared_before_it_is_used(
    made: Path, tmp_path: Path
) -> None:
    run = lra.load(str(run_in(made / "stopped")), data_dir=tmp_path / "data")
    assert run.record.status == "stopped"
    assert run.model is run.model
    assert not (tmp_path / "data").exists()
    run.data_dir = made / "data"
    assert run.predict("val").min() >= 0


def test_no_prediction_is_made_of_logits_that_are_not_finite(run: lra.TrainedRun) -> None:
    with torch.no_grad():
        run.model.output.bias[3] = torch.nan
    with pytest.raises(lra.UserError, match="logits of 50 of 50 examples are not finite"):
        run.predict()
    assert np.isnan(run.logits()[:, 3]).all()


def test_what_cannot_be_loaded_says_why(made: Path, tmp_path: Path) -> None:
    with pytest.raises(lra.UserError, match=r"there is no result.json, expected the folder of a"):
        lra.load(made)
    results = tmp_path / "results"
    shutil.copytree(made / "results", results)
    shutil.rmtree(run_in(results) / "checkpoints")
    run = lra.load(run_in(results), data_dir=made / "data")
    with pytest.raises(lra.UserError, match="there is no checkpoint of this run"):
        run.predict()
    path = run.folder / "result.json"
    other = run.record.data.model_copy(update={"fingerprint": "0" * 64})
    run.record.model_copy(update={"data": other}).save(run.folder)
    with pytest.raises(lra.UserError, match=r"that of the run was generated \(00000000\)"):
        _ = lra.load(run.folder, data_dir=made / "data").dataset
    run.record.model_copy(update={"config_hash": "0" * 16}).save(run.folder)
    with pytest.raises(lra.UserError, match="expected 0000000000000000; go back to the code"):
        lra.load(run.folder)
    moved = {"mixer_from": "moved.py:Own", "mixer_code": "0" * 16}
    run.record.model_copy(update=moved).save(run.folder)
    with pytest.raises(lra.UserError, match=rf"no such code here .*{run.folder}/mixer.py"):
        lra.load(run.folder)
    path.write_text("{}")
    with pytest.raises(lra.UserError, match="not a record of schema 3"):
        lra.load(run.folder)


def test_what_is_built_is_what_a_run_starts_with(made: Path) -> None:
    built = lra.build(
        "listops", "tnn", preset="quick", data_dir=made / "data", seed=3, **tiny_sections()
    )
    config, model, dataset, info = built
    assert config.hash == load_record(run_in(made / "results") / "result.json").config_hash
    trainer = Trainer(config, info, dataset, 3, torch.device("cpu"))
    own = trainer.model.state_dict()
    assert own.keys() == model.state_dict().keys()
    assert all(torch.equal(w, own[name]) for name, w in model.state_dict().items())
    batch = dataset.splits["train"].batch(np.arange(8))
    loss = cross_entropy(model(batch.inputs, batch.lengths), batch.labels)
    loss.backward()
    assert loss.isfinite()


QUICK = ("listops", "mean")
untyped: Any = lra


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.build("listops"), "lra.build: mixer: missing required"),
        (lambda: lra.build(*QUICK, seed=-1), "lra.build: seed: got -1, expected greater than"),
        (lambda: lra.build(*QUICK, trian={}), "lra.build: unknown section 'trian'; did you"),
        (lambda: lra.build(*QUICK, train={"lr": np.ones(2)}), "lra.build: train.lr: got array"),
        (lambda: untyped.build(*QUICK, lr=1e-3), """lr: got 0.001; did you mean train={"lr": 0."""),
        (lambda: untyped.build(*QUICK, layers=3), """got 3; did you mean model={"depth": 3}"""),
        (lambda: untyped.build(*QUICK, sede=3), "sede: got 3; did you mean seed?"),
        (lambda: untyped.build(*QUICK, pretrain="next"), """mean pretrain={"objective": """),
        (lambda: untyped.build(*QUICK, train=3), "train: got 3, expected a valid dictionary"),
        (lambda: untyped.build(*QUICK, threads=3), "threads: unknown name; if the mixer has it"),
        (lambda: lra.build(*QUICK, train={"learning_rate": 1}), "rate'; did you mean lr?"),
        (lambda: untyped.load("x", devise="cpu"), "devise: unexpected keyword argument"),
        (lambda: lra.metrics("nowhere"), "run: there is no nowhere/metrics.jsonl"),
    ],
)  # fmt: skip
def test_wrong_calls_are_explained(call: Callable[[], object], message: str) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        call()


def test_wrong_arguments_of_a_run_are_named(run: lra.TrainedRun) -> None:
    method: Any = run.predict
    for split in (None, 3, ["test"], "tset"):
        with pytest.raises(lra.UserError, match=r"split: (got|unknown split)"):
            method(split)
    for indices in ([50], [-1], [0.5], [[1], [2, 3]], "test", np.ones(50, bool)):
        with pytest.raises(lra.UserError, match=r"indices: got .*expected whole numbers"):
            method("test", indices)
