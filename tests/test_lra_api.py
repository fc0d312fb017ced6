"""What Python code calls: lra.build and lra.load."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import lra
import run_task
from conftest import Settings, python_example, tiny_arguments, tiny_sections
from lra.api import data, frame, model, training
from lra.api.arguments import ANYTHING, check_arguments
from lra.record.run import load_record
from lra.train.checkpoint import load_newest
from lra.train.trainer import Trainer
from models.base import MixerContext
from models.tnn import TNN
from tasks.listops import ListOps


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


@pytest.fixture
def run(made: Path) -> lra.TrainedRun:
    return lra.load(run_in(made / "results"), data_dir=made / "data")


def written_predictions(folder: Path) -> np.ndarray:
    table = np.genfromtxt(folder / "predictions.csv", delimiter=",", names=True, dtype=None)
    return table["prediction"]


def test_predictions_are_those_of_the_run(run: lra.TrainedRun) -> None:
    expected = written_predictions(run.folder)
    found = run.predict()
    assert found.dtype == np.int64
    assert np.array_equal(found, expected)
    right = int((found == run.dataset.splits["test"].labels).sum())
    assert right == run.record.test_correct
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
    run.model.train()
    run.predict(indices=[0])
    assert run.model.training


def test_weights_are_saved_for_others(run: lra.TrainedRun, tmp_path: Path) -> None:
    path = tmp_path / "tnn.safetensors"
    run.save_weights(str(path))
    wanted = run.model.state_dict()
    weights = load_file(path)
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(w, wanted[name]) for name, w in weights.items())
    with safe_open(path, "np") as file:
        assert set(file.keys()) == set(wanted)
        metadata = file.metadata()
    assert (metadata["mixer"], metadata["run"]) == ("tnn", run.record.run_id)
    settings = json.loads(metadata["settings"])
    mixer = TNN(MixerContext.of(dim=settings["model"]["dim"], length=80), **settings["mixer"])
    own = {n.removeprefix("blocks.1.mixer."): w for n, w in weights.items() if ".1.mixer." in n}
    mixer.load_state_dict(own)
    with pytest.raises(lra.UserError, match=r"TrainedRun.save_weights: .*nowhere.*No such file"):
        run.save_weights(tmp_path / "nowhere" / "tnn.safetensors")
    run.model.register_buffer("wide", torch.zeros(1, dtype=torch.complex128))
    with pytest.raises(lra.UserError, match=r"safetensors has no type torch.complex128"):
        run.save_weights(path)


def test_a_stopped_run_is_loaded_too(made: Path) -> None:
    run = lra.load(str(run_in(made / "stopped")), data_dir=str(made / "data"))
    assert run.record.status == "stopped"
    assert run.predict("val").min() >= 0


def test_no_prediction_is_made_of_logits_that_are_not_finite(run: lra.TrainedRun) -> None:
    with torch.no_grad():
        run.model.output.bias[3] = torch.nan
    with pytest.raises(lra.UserError, match="logits of 50 of 50 examples are not finite"):
        run.predict()
    assert np.isnan(run.logits()[:, 3]).all()


def test_nothing_is_prepared_before_it_is_used(made: Path, tmp_path: Path) -> None:
    run = lra.load(run_in(made / "results"), data_dir=tmp_path / "data")
    assert run.model is run.model
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tset"}, "split: unknown split 'tset'; did you mean test?"),
        ({"indices": [50]}, "indices: got 50, expected whole numbers from 0 to 49, in a list"),
        ({"indices": [-1]}, "indices: got -1, expected whole numbers from 0 to 49"),
        ({"indices": [0.5]}, "indices: got [0.5], expected whole numbers"),
        ({"indices": [[1], [2, 3]]}, "indices: got [[1], [2, 3]], expected whole numbers"),
        ({"indices": np.ones(50, dtype=bool)}, "indices: got bool (50,), expected whole"),
    ],
)
def test_mistakes_in_what_to_predict_are_named(
    run: lra.TrainedRun, arguments: Settings, message: str
) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        run.predict(**arguments)


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
    with pytest.raises(lra.UserError, match="settings files have changed since"):
        lra.load(run.folder)
    path.write_text("{}")
    with pytest.raises(lra.UserError, match="not a record of schema 2"):
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


def test_settings_are_those_of_set(made: Path) -> None:
    values: Settings = tiny_sections("mixer.rpe_dim=8", "train.lr=1e-5", "train.clip_norm=null")
    built = lra.build("listops", "tnn", preset="quick", data_dir=made / "data", **values)
    config = built.config
    assert (config.mixer.model_dump()["rpe_dim"], config.train.lr) == (8, 1e-5)
    assert config.train.clip_norm is None
    assert config.origins["train.lr"].startswith("lra.build, in place of")


def test_a_mixer_of_ones_own_is_built(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gated_mean.py").write_text(python_example("docs/your_mixer.md"))
    mixer = f"{tmp_path / 'gated_mean.py'}:GatedMean"
    built = lra.build(
        "listops",
        mixer,
        preset="quick",
        data_dir=made / "data",
        **tiny_sections("mixer.bias=false"),
    )
    assert "GatedMean" in {type(module).__name__ for module in built.model.modules()}


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("listop", "tnn"), {}, "did you mean listops?"),
        (("listops", "tn"), {}, "did you mean tnn?"),
        (("listops", "tnn"), {"lr": 1e-3}, "lra.build: unknown section 'lr'"),
        (
            ("listops", "tnn"),
            {"trian": {}},
            "lra.build: unknown section 'trian'; did you",
        ),
        (("listops", TNN), {}, "lra.build: mixer: got <class 'models.tnn.TNN'>, expected a name"),
        (
            (ListOps, "tnn"),
            {},
            "lra.build: task: got <class 'tasks.listops.task.ListOps'>, expected",
        ),
        (("listops", "tnn"), {"train": 3}, "lra.build: train: got 3, expected keys with values"),
        (("listops", "tnn"), {"mixer": {"rpe_dims": 3}}, "did you mean rpe_dim?"),
        (("listops", "tnn"), {"train": {"lr": "fast"}}, "train.lr: got 'fast'"),
        (("listops", "tnn"), {"train": {"lr": Path()}}, "lra.build: train.lr: got PosixPath('.')"),
        (("listops", "tnn"), {"train": {"lr": float("nan")}}, "train.lr: got nan, expected a num"),
    ],
)
def test_mistakes_in_what_to_build_are_named(
    names: tuple[Any, Any], settings: Settings, message: str
) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        lra.build(*names, **settings)


def test_a_run_is_found_by_its_record_too(made: Path) -> None:
    folder = run_in(made / "results")
    run = lra.load(folder / "result.json")
    assert run.folder == folder
    assert repr(run) == f"TrainedRun({str(folder)!r})"


class Unprintable:
    """Fails in whatever it is asked."""

    def __repr__(self) -> str:
        raise ZeroDivisionError("no text")

    def __array__(self, *_: object) -> np.ndarray:
        raise ZeroDivisionError("no array")


QUICK = ("listops", "mean")
untyped: Any = lra
NO_TEXTS = [None, 3, b"s", ["test"], Path("test"), Unprintable()]
NO_PATHS = [None, 3, b"runs", ["runs"], Unprintable(), "a\0b", "a\ud8ffb", object]
NO_SEEDS = [None, -1, 2**63, 2**70, 1.0, "1", True, np.float64(1), [1]]
NO_SWITCHES = [None, 1, "yes", [], np.ones(2)]
WRONG_BUILDS = [
    *((name, value, {name: value}) for value in NO_TEXTS for name in ("preset", "protocol")),
    *(("data_dir", value, {"data_dir": value}) for value in NO_PATHS),
    *(("seed", value, {"seed": value}) for value in NO_SEEDS),
]
WRONG_LOADS = [
    *(("data_dir", value, {"data_dir": value}) for value in NO_PATHS),
    *(("trust_code", value, {"trust_code": value}) for value in NO_SWITCHES),
    *(("device", value, {"device": value}) for value in NO_TEXTS),
]


def refused(name: str, call: Callable[[], object]) -> str:
    """Return the message of a wrong call, which has to name the argument and to be short."""
    with pytest.raises(lra.UserError) as caught:
        call()
    message = str(caught.value)
    assert re.search(rf"(?<![\w.]){name}: got .*, expected ", message, re.DOTALL), message
    assert len(message) < 400
    return message


def test_wrong_arguments_of_build_are_named() -> None:
    for value in [*NO_TEXTS, TNN]:
        refused("task", lambda: lra.build(value, "mean"))  # noqa: B023
        refused("mixer", lambda: lra.build("listops", value))  # noqa: B023
    for name, value, given in WRONG_BUILDS:
        message = refused(name, lambda: lra.build(*QUICK, **given))  # noqa: B023
        assert message.startswith("lra.build: "), (value, message)


def test_wrong_arguments_of_load_and_records_are_named(made: Path) -> None:
    folder = run_in(made / "results")
    for value in NO_PATHS:
        refused("run", lambda: lra.load(value))  # noqa: B023  # pyright: ignore
        refused("results_dir", lambda: lra.records(value))  # noqa: B023  # pyright: ignore
    for name, _, given in WRONG_LOADS:
        refused(name, lambda: lra.load(folder, **given))  # noqa: B023
    for value in NO_SWITCHES:
        refused("with_shipped", lambda: lra.records(made, with_shipped=value))  # noqa: B023


def test_wrong_arguments_of_a_run_are_named(run: lra.TrainedRun) -> None:
    no_indices = [3, "test", ["test"], object(), Unprintable(), {1: 2}, [2**70], [[0]], [None]]
    for method in (run.predict, run.logits):
        for value in NO_TEXTS:
            refused("split", lambda: method(value))  # noqa: B023  # pyright: ignore
        for value in no_indices:
            refused("indices", lambda: method("test", value))  # noqa: B023  # pyright: ignore
    parts = [run.folder, run.record, run.config, run.data_dir, run.device]
    for k, name in enumerate(("folder", "record", "config", "data_dir", "device")):
        wrong: list[Any] = [*parts[:k], None, *parts[k + 1 :]]
        refused(name, lambda: lra.TrainedRun(*wrong))  # noqa: B023


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.build("listops"), "lra.build: missing a required argument: 'mixer'"),
        (lambda: untyped.build("listops", "mean", "s4"), "lra.build: too many positional"),
        (lra.load, "lra.load: missing a required argument: 'run'"),
        (lambda: untyped.load("x", devise="cpu"), "got an unexpected keyword argument 'devise'"),
        (lambda: untyped.records(with_ship=True), "lra.records: got an unexpected keyword"),
        (lambda: lra.build(*QUICK, preset="pape"), "did you mean paper?"),
        (lambda: lra.build(*QUICK, train={"lr=0.5 #": 1}), "expected the name of a setting"),
        (lambda: untyped.build(*QUICK, train={3: 1}), "expected the name of a setting"),
        (lambda: lra.build(*QUICK, train={"lr": Unprintable()}), "lra.build: train.lr: got"),
        (lambda: lra.build(*QUICK, train={"lr": 10**400}), "train.lr: got"),
        (lambda: lra.build(*QUICK, train={"lr": nested(10_000)}), "lra.build: train.lr: got"),
        (lambda: lra.load("x" * 5000), "File name too long"),
        (lambda: lra.load("nowhere"), "nowhere: there is no result.json"),
    ],
)
def test_wrong_calls_are_explained(call: Callable[[], object], message: str) -> None:
    with pytest.raises(lra.UserError, match=re.escape(message)):
        call()


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def test_a_folder_that_cannot_be_made_is_named(made: Path, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(lra.UserError, match=rf"lra.build: {taken}.*(directory|exists)"):
        lra.build(*QUICK, preset="quick", data_dir=taken / "data", **tiny_sections())
    run = lra.load(run_in(made / "results"), data_dir=taken / "data")
    with pytest.raises(lra.UserError, match=rf"TrainedRun.dataset: {taken}"):
        _ = run.dataset


def test_every_function_of_the_api_is_checked() -> None:
    """One that is added is, too: `check_arguments` asks for a word on each of its arguments."""
    functions = {
        f"{module.__name__}.{name}": function
        for module, owner in (
            (model, model), (frame, frame), (data, data), (training, training),
            (model, lra.TrainedRun),
        )
        for name, function in vars(owner).items()
        if is_public(name, function, module.__name__)
    }  # fmt: skip
    unchecked = {
        name
        for name, made in functions.items()
        if not hasattr(getattr(made, "func", made), "__wrapped__")
    }
    assert not unchecked
    assert len(functions) == 3 + 3 + 2 + 6


def is_public(name: str, value: object, module: str) -> bool:
    function = getattr(value, "func", value)  # of a cached property
    is_named = not name.startswith("_") or name == "__init__"
    return is_named and inspect.isfunction(function) and function.__module__ == module


def test_signatures_are_those_of_the_functions() -> None:
    assert list(inspect.signature(lra.load).parameters) == [
        "run",
        "data_dir",
        "trust_code",
        "device",
    ]
    assert (lra.load.__doc__ or "").startswith("Load a run from its folder.")
    with pytest.raises(TypeError, match="say what is expected of"):
        check_arguments("f", data_dir=ANYTHING)(lambda run, data_dir: None)
