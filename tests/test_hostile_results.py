"""Results folders that somebody changed: records, metrics, predictions, checkpoints, merges."""

import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attack import Place
from conftest import tiny_arguments
from lra import run_task
from lra.report.data import Data
from lra.sweep.plan import Limits
from lra.train.checkpoint import load_newest
from lra.train.run_folder import RunFolder
from made_data import Attack, put

MEAN = "mean"
RECORD = "lra.record.__main__"
TINY_RUN = tiny_arguments(Path(), mixer=MEAN)
SWEEP = ["--tasks", "listops", "--mixers", MEAN, *TINY_RUN[TINY_RUN.index("--preset") :]]


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a finished run, in a folder with its data."""
    folder = tmp_path_factory.mktemp("done")
    assert run_task.main(tiny_arguments(folder, mixer=MEAN)) == 0
    return folder


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a run that was stopped at step 12, in a folder with its data."""
    folder = tmp_path_factory.mktemp("stopped")
    assert run_task.main(tiny_arguments(folder, "--max-steps", "12", mixer=MEAN)) == 3
    return folder


def copied(made: Path, place: Place) -> Path:
    """Copy what a run left behind; return the run's folder."""
    shutil.copytree(made, place.folder, dirs_exist_ok=True)
    (run,) = (place.folder / "results/runs/listops").glob("*/*")
    return run


def go_on(place: Place, *codes: int, says: str = "") -> None:
    place.attack("lra.run_task", TINY_RUN, codes, says=says)


FILES: Mapping[str, bytes] = {
    "no UTF-8": b"\xff\xfe{}", "deep": b"[" * 100_000, "huge": b'{"seed": 1e999}',
    "surrogate": b'{"mixer": "\xed\xb2\x80"}',
}  # fmt: skip


@pytest.mark.parametrize("file", ["result.json", "evaluation-1.json", "failure.txt"])
def test_files_of_records(place: Place, done: Path, file: str) -> None:
    path = copied(done, place) / file
    for content in FILES.values():
        path.write_bytes(content)
        if file == "failure.txt":
            place.attack("lra.sweep.__main__", [*SWEEP, "--dry-run"], {0})
        else:
            place.attack(RECORD, ["validate"], {1})


SHOWN: Mapping[str, Mapping[str, Any]] = {
    "page": {"device": "<script>alert(1)</script>", "label": "<script>alert(1)</script> a|b`c`"},
    "long": {"settings": {"train.lr": "9" * 1900}, "changed": ["train.lr"], "device": "d" * 200,
             "params": 2**63 - 1, "peak_memory_mib": 1e-300, "steps_per_second": None},
    "escapes": {"device": "\x1b[2J"},
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_reports_of_odd_records(place: Place, done: Path, name: str) -> None:
    path = copied(done, place) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **SHOWN[name]}))
    code = int(name == "escapes")  # which make it no record
    place.attack("lra.report.__main__", [], {code})
    page = (place.folder / "results/report/index.html").read_text()
    assert "\x1b" not in page and "<script>alert" not in page


PREDICTIONS: Mapping[str, tuple[bytes, str]] = {
    "words": (b"label,prediction,w\n" + b"1,2,\x1b\n" * 50, "whole numbers nor words"),
    "twice": (b"label,label,prediction\n1,1,1\n", "1 of 1 right, its record says 0 of 50"),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(place: Place, done: Path, name: str) -> None:
    run = copied(done, place)
    content, fault = PREDICTIONS[name]
    (run / "predictions.csv").write_bytes(content)
    data = Data(place.folder / "results")
    result = data.records[0].result.model_copy(update={"test_correct": 0})
    record = data.records[0].model_copy(update={"result": result})
    assert data.predictions(record) is None
    assert len(data.faults) == 1
    assert fault in data.faults[0]
    if name == "words":
        place.attack("lra.report.__main__", ["--format", "csv"], {1}, says="left out: ")


def test_metrics(place: Place, stopped: Path) -> None:
    run = RunFolder(copied(stopped, place))
    path = run.path / "metrics.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"step": 1, "\x1b[2J": 1}\n' * 1000)
    place.attack("lra.report.__main__", ["--format", "html"], {1}, says="is no line of metrics")
    path.write_bytes(before + b'{"step": 1, "\xff": 1}\n' + b"[" * 99_999)
    go_on(place, 0)
    assert json.loads((run.path / "result.json").read_text())["status"] == "done"


def of_each(change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], Any]:
    """Return a function that changes all weights of a model."""
    return lambda weights: {name: change(weight) for name, weight in weights.items()}


MODEL = "trainer/model"
Change = tuple[str, Any]
"""What is put at a place of a state; a function gets what was there."""

NO_STATES: Mapping[str, Change] = {
    "tensor": ("", torch.ones(3)),
    "missing": ("trainer", lambda trainer: {"model": trainer["model"]}),
    "unknown": ("session/more", 1),
    "None": ("trainer/metrics/seconds", None),
    "empty": ("trainer/metrics/sums", {}),
    "NaN": ("session/wall_seconds", float("nan")),
    "text": ("trainer/best/numbers/val_loss", "12.5"),
    "fewer weights": ("trainer/best/model", lambda found: dict([*found.items()][1:])),
    "sparse": (MODEL, of_each(Tensor.to_sparse)),
    "another step": ("trainer/step", 13),
    "place in random numbers": ("trainer/random", lambda found: [
        {**one, "numpy": (*one["numpy"][:2], 10**6, *one["numpy"][3:])} for one in found
    ]),
}  # fmt: skip
UNFIT: Mapping[str, Change] = {
    "other shapes": (MODEL, of_each(lambda w: torch.ones(1))),
    "another type": (MODEL, of_each(Tensor.double)),
    "short moment": ("trainer/moments", lambda found: [
        {**one, "exp_avg": torch.zeros(3)} for one in found
    ]),
    "empty moments": ("trainer/moments", lambda found: [{} for _ in found]),
    "fewer moments": ("trainer/moments", lambda found: found[1:]),
    "no random numbers": ("trainer/random", lambda found: [
        {**one, "torch": torch.ones(3)} for one in found
    ]),
    "without a best": ("trainer/best", None),
}  # fmt: skip
REFUSED: Mapping[str, tuple[Change, str]] = {
    "another version": (("version", 3), "go on at commit ef19c7a3 of the suite, or use --resume"),
    "another commit": (("", lambda state: changed(
        {**state, "session": {**state["session"], "commits": ["0123"]}}, *UNFIT["other shapes"]
    )), "the checkpoint of commit 0123 of the suite does not fit"),
}  # fmt: skip
DIVERGED: Mapping[str, Change] = {
    "NaN weights": (MODEL, of_each(lambda w: w - w / 0 if w.dim() else w)),
}
CHANGES = {**NO_STATES, **UNFIT, **{name: one for name, (one, _) in REFUSED.items()}, **DIVERGED}


def changed(state: Any, place: str, value: Any) -> Any:
    """Copy a state, with a value at a place of keys."""
    if not place:
        return value(state) if callable(value) else value
    name, _, rest = place.partition("/")
    key = int(name) if name.isdigit() else name
    return {**state, key: changed(state.get(key), rest, value)}


def put_state(run: Path, content: bytes) -> None:
    """Put a content in the place of every checkpoint, under a name with its digest."""
    for old in (run / "checkpoints").iterdir():
        old.unlink()
        digest = hashlib.sha256(content).hexdigest()[:16]
        (run / "checkpoints" / f"{old.name[:14]}-{digest}.pt").write_bytes(content)


def changed_state(run: Path, change: Change) -> bytes:
    """Write the state of a run, changed, as a checkpoint holds it."""
    path = max((run / "checkpoints").iterdir())
    return saved(changed(torch.load(path, map_location="cpu", weights_only=True), *change))


def saved(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("name", CHANGES)
def test_states_of_checkpoints(place: Place, stopped: Path, name: str) -> None:
    """What is no state, or does not fit, is set aside; one of other code is refused."""
    run = copied(stopped, place)
    put_state(run, changed_state(run, CHANGES[name]))
    Limits(minutes=1.0).flags(RunFolder(run))  # what a sweep asks of every run
    if name in NO_STATES:
        assert load_newest(run / "checkpoints") is None
        assert {path.suffix for path in (run / "checkpoints").iterdir()} == {".damaged"}
    elif name in UNFIT:
        go_on(place, 0, says="is damaged (its state")
    elif name in REFUSED:
        go_on(place, 2, says=REFUSED[name][1])
    else:
        go_on(place, 4)


CHECKPOINTS: Mapping[str, bytes] = {
    "pickle": pickle.dumps(Attack(os.system, "touch ../executed"), protocol=2),
    "pickle in a zip": saved(Attack(os.system, "touch ../executed")),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_files_of_checkpoints(place: Place, stopped: Path, done: Path, name: str) -> None:
    run = copied(stopped, place)
    put_state(run, CHECKPOINTS[name])
    go_on(place, 0, says="is damaged (")


def test_evaluations_of_checkpoints(place: Place, done: Path) -> None:
    run = copied(done, place)
    put_state(run, CHECKPOINTS["pickle in a zip"])
    place.attack("lra.evaluate", ["--run", str(run), "--lengths", "90"], {2})


@pytest.mark.parametrize("file", ["result.json", "metrics.jsonl", "checkpoint"])
def test_what_is_no_file(place: Place, done: Path, file: str) -> None:
    run = copied(done, place)
    path = max((run / "checkpoints").iterdir()) if file == "checkpoint" else run / file
    path.unlink(missing_ok=True)
    put(path, "pipe")
    code, run_task = (1, 2) if file == "result.json" else (0, 0)
    place.attack(RECORD, ["validate"], {code})
    go_on(place, run_task)


def test_a_finished_run_in_a_folder_that_cannot_be_written(place: Place, done: Path) -> None:
    copied(done, place)
    for path in [place.root, *place.root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    place.attack("lra.run_task", TINY_RUN, {0}, user=65534)


def test_code_that_a_record_names_is_not_run(place: Place, done: Path) -> None:
    path = copied(done, place) / "result.json"
    (place.folder / "evil.py").write_text(f"open({str(place.canary)!r}, 'w')\n")
    record = json.loads(path.read_text())
    for code in (None, "", "0" * 16):
        path.write_text(json.dumps(record | {"mixer_from": "evil.py:Evil", "mixer_code": code}))
        arguments = ["--run", str(path.parent), "--lengths", "90"]
        place.attack("lra.evaluate", arguments, says="--trust-code")
    place.attack("lra.report.__main__", ["--format", "csv"], {0})
