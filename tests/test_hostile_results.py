"""Results folders that somebody changed: records, metrics, predictions, checkpoints, merges."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import run_task
from attack import Place
from conftest import tiny_arguments
from lra.report.boards.results import Results
from lra.sweep.plan import Limits, limit_flags
from lra.train.checkpoint import load_newest
from lra.train.run_folder import RunFolder
from made_data import Attack, put
from made_results import write_as_schema_1

MEAN = "mean"
RECORD = "lra.record.__main__"


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
    place.attack("run_task", tiny_arguments(Path(), mixer=MEAN), codes, says=says)


BAD: Mapping[str, Any] = {
    "null": None,
    "text": "x",
    "list": [],
    "object": {},
    "true": True,
    "minus": -1,
    "huge": 10**400,
    "nan": float("nan"),
    "infinite": float("inf"),
    "escape": "\x1b[2J",
    "long": "x" * 20_000,
    "up": "../../..",
    "surrogate": "\udc80",
}
REFUSED: Mapping[str, str] = {
    "run_id": "null up",
    "mixer": "long surrogate",
    "status": "text escape",
    "test_accuracy": "nan huge",
    "test_total": "minus true",
    "steps": "minus infinite",
    "seed": "text huge",
    "changed": "object null",
    "settings": "list null",
    "origins": "list true",
    "device": "escape long",
    "git": "list",
    "data": "object",
    "versions": "list",
    "peak_memory_mib": "minus infinite",
    "schema_version": "null huge",
}
ACCEPTED: Mapping[str, str] = {
    "changed": "list",
    "device": "text up",
    "git": "object",
    "versions": "object",
}


@pytest.mark.parametrize(
    ("code", "field", "kind"),
    [
        (code, field, kind)
        for code, cases in ((1, REFUSED), (0, ACCEPTED))
        for field, kinds in cases.items()
        for kind in kinds.split()
    ],
)
def test_fields_of_records(place: Place, done: Path, code: int, field: str, kind: str) -> None:
    path = copied(done, place) / "result.json"
    text = json.dumps({**json.loads(path.read_text()), field: BAD[kind]})
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    place.attack(RECORD, ["validate"], {code}, says="not a record of schema 2" if code else "")


FILES: Mapping[str, bytes] = {
    "empty": b"",
    "no UTF-8": b"\xff\xfe{}",
    "deep": b"[" * 100_000,
    "null": b"null",
    "a list": b"[]",
    "digits": b"9" * 100_000,
    "twice": b"{}{}",
    "NUL": b"\0" * 999,
}


@pytest.mark.parametrize(
    ("file", "code", "names"),
    [
        ("result.json", 1, list(FILES)),
        ("evaluation-1.json", 1, ["empty", "no UTF-8", "deep"]),
        ("failure.json", 0, ["empty", "no UTF-8", "deep"]),
    ],
)
def test_files_of_records(
    place: Place, done: Path, file: str, code: int, names: Sequence[str]
) -> None:
    path = copied(done, place) / file
    sweep = ["--tasks", "listops", "--mixers", MEAN, "--dry-run", "--device", "cpu"]
    tiny = tiny_arguments(Path(), mixer=MEAN)
    sweep += [*tiny[tiny.index("--preset") : tiny.index("--device")], *tiny[tiny.index("--set") :]]
    for name in names:
        path.write_bytes(FILES[name])
        place.attack(RECORD, ["validate"], {code})
        place.attack("lra.sweep.__main__", sweep, {0})


SHOWN: Mapping[str, Mapping[str, Any]] = {
    "formulas": {"device": "=cmd|' /C calc'!A0", "precision": "@SUM(1)"},
    "page": {"device": "<script>alert(1)</script>", "label": "<script>alert(1)</script> a|b`c`"},
    "LaTeX": {"device": r"\input{/etc/passwd} & % # _ {", "label": r"$\frac{1}{$"},
    "Markdown": {"device": "a|b`c`*d*", "label": "[l](javascript:x)"},
    "link": {"device": "![l][r] <javascript:x> [r]: javascript:y"},
    "long": {
        "settings": {"train.lr": "9" * 1900},
        "changed": ["train.lr"],
        "device": "d" * 200,
        "params": 2**63 - 1,
    },
    "letters": {"device": "Ж漢字 💥 مرحبا", "peak_memory_mib": 1e-300, "steps_per_second": 1e-300},
    "never": {"steps_per_second": None, "flops_per_step": None, "best_step": None},
    "label of another row": {"label": "x (train.lr=1) [settings 0]"},
    "escapes": {"device": "\x1b[2J"},
}


@pytest.mark.parametrize("name", SHOWN)
def test_reports_of_odd_records(place: Place, done: Path, name: str) -> None:
    path = copied(done, place) / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **SHOWN[name]}))
    code = int(name == "escapes")
    place.attack("report", [], {code})
    place.attack(RECORD, ["export", "--csv", "all.csv"], {code})
    page = (place.folder / "results/report/index.html").read_text()
    data = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert "<" not in data
    assert "\x1b" not in data
    cells = [
        c for line in (place.folder / "all.csv").read_text().splitlines() for c in line.split(",")
    ]
    assert not [cell for cell in cells if cell.strip('"')[:1] in {"=", "@"}]


SETTINGS: Mapping[str, bytes] = {
    **FILES,
    "no section": b"x: 1\n",
    "formula": b"train:\n  lr: '=cmd'\n  b: ['@SUM(1)']\n",
    "escapes": b'train:\n  lr: "\\e[2J"\n  "\\e[2J": 1\n',
    "code": b"train: !!python/object/apply:os.system ['touch ../executed']\n",
    "references": b"train:\n  a: &a [1]\n  b: [*a, *a]\n",
    "many": b"train:\n" + b"".join(b"  k%d: 1\n" % k for k in range(50_000)),
    "deep value": b"train:\n  a: " + b"[" * 50 + b"]" * 50 + b"\n",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_old_runs(place: Place, done: Path, name: str) -> None:
    run = copied(done, place)
    write_as_schema_1(run)
    (run / "config.yaml").write_bytes(SETTINGS[name])
    place.attack(RECORD, ["export", "--csv", "all.csv"], {0, 1})
    text = (place.folder / "all.csv").read_text()
    assert "\x1b" not in text
    assert not [cell for cell in text.split(",") if cell.strip('"')[:1] in {"=", "@"}]


def test_settings_that_are_no_file(place: Place, done: Path) -> None:
    run = copied(done, place)
    write_as_schema_1(run)
    (run / "config.yaml").unlink()
    os.mkfifo(run / "config.yaml")
    place.attack(RECORD, ["export", "--csv", "all.csv"], {1}, says="is a pipe")


PREDICTIONS: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "its text is damaged or incomplete (EmptyDataError"),
    "no UTF-8": (b"\xff\xfe", "its text is damaged or incomplete (UnicodeDecodeError"),
    "header": (b"label,prediction,length\n", "labels are not all whole numbers"),
    "NUL": (b"\0" * 999, "'label'"),
    "control": (b"label,prediction,\x1b[2J\n" + b"1,2,3\n" * 50, "or odd ones"),
    "words": (b"label,prediction,w\n" + b"1,2,\x1b\n" * 50, "or odd ones"),
    "long words": (b"label,prediction,w\n" + b"1,2," + b"w" * 999 + b"\n1,2,w\n" * 49, "of over"),
    "fractions": (b"label,prediction,w\n" + b"1,2,0.5\n" * 50, "neither whole numbers nor words"),
    "many columns": (b"label,prediction," + b"a," * 5000 + b"b\n", "labels are not all"),
    "quotes": (b'label,prediction,"\n' * 50, "labels are not all whole numbers"),
    "infinite": (b"label,prediction\n" + b"inf,1\n" * 50, "labels are not all whole numbers"),
    "classes": (b"label,prediction\n" + b"99999,1\n" * 50, "labels are not all whole numbers"),
    "predicted": (b"label,prediction\n" + b"1,-2\n" * 50, "predictions are not all whole numbers"),
    "bool": (b"label,prediction\nTrue,1\n", "labels are not all whole numbers"),
    "twice": (b"label,label,prediction\n1,1,1\n", "1 of 1 right, its record says 0 of 50"),
}


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions(place: Place, done: Path, name: str) -> None:
    run = copied(done, place)
    content, fault = PREDICTIONS[name]
    (run / "predictions.csv").write_bytes(content)
    results = Results(place.folder / "results")
    record = results.records[0].model_copy(update={"test_correct": 0})
    assert results.predictions(record) is None
    assert len(results.faults) == 1
    assert fault in results.faults[0]


def test_reports_of_odd_predictions(place: Place, done: Path) -> None:
    run = copied(done, place)
    (run / "predictions.csv").write_bytes(PREDICTIONS["words"][0])
    place.attack("report", ["--format", "csv"], {0})
    one_slug = b"label,prediction,a b,a-b\n" + b"1,2,3,4\n" * 25 + b"1,2,4,3\n" * 25
    (run / "predictions.csv").write_bytes(one_slug)
    right = {"test_total": 50, "test_correct": 0, "test_accuracy": 0.0}
    record = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**record, **right}))
    place.attack("report", [], {0})


METRICS: Mapping[str, bytes] = {
    "empty": b"",
    "no UTF-8": b'{"step": 1, "\xff": 1}\n',
    "no step": b'{"loss": 1}\n',
    "step of text": b'{"step": "x"}\n',
    "step of a list": b'{"step": [1]}\n',
    "deep": b"[" * 99_999,
    "step of NaN": b'{"step": NaN}\n',
    "list": b"[1]\n",
    "NUL": b"\0\n",
    "cut": b'{"step": 1, "lo',
    "huge": b'{"step": 1e999}\n',
    "digits": b'{"step": ' + b"9" * 9999 + b"}\n",
    "null": b"null\n" * 50,
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics(place: Place, stopped: Path, name: str) -> None:
    run = RunFolder(copied(stopped, place))
    path = run.path / "metrics.jsonl"
    before = path.read_bytes()
    with path.open("ab") as file:
        file.write(METRICS[name])
    assert all(isinstance(number, (int, float)) for number in run.last_metrics().values())
    run.drop_later_metrics(12, 10)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["no UTF-8", "step of NaN", "control"])
def test_runs_and_reports_of_odd_metrics(place: Place, stopped: Path, name: str) -> None:
    run = copied(stopped, place)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write({**METRICS, "control": b'{"step": 1, "\x1b[2J": 1}\n'}[name])
    place.attack("report", ["--format", "html"], {1}, says="is no line of metrics")
    go_on(place, 0)
    assert json.loads((run / "result.json").read_text())["status"] == "done"


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


def of_each(change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], Any]:
    """Return a function that changes all weights of a model."""
    return lambda weights: {name: change(weight) for name, weight in weights.items()}


NAN = float("nan")
STEP = "trainer/sampler/next_step"
MODEL, BEST = "trainer/model", "trainer/best/model"
GROUP, MOMENTS = "trainer/optimizer/param_groups/0", "trainer/optimizer/state/0"
RANDOM = "trainer/random/0"
Change = tuple[str, Any]
"""What is put at a place of a state; a function gets what was there."""

NO_STATES: Mapping[str, Change] = {
    "interval below zero": ("trainer/interval/steps", -1.0), "interval": ("trainer/interval", {}),
    "step of 400 digits": (STEP, 10**400), "step beyond": (STEP, 2**70), "step": (STEP, -5),
    "step of text": (STEP, "9"), "sampler": ("trainer/sampler", {}),
    "best on meta": (BEST, of_each(lambda w: w.to("meta"))),
    "best sparse": (BEST, of_each(lambda w: w.to_sparse())),
    "best": ("trainer/best", {"model": {}}), "best list": ("trainer/best", [1]),
    "sparse": (MODEL, of_each(lambda w: w.to_sparse() if w.dim() else w)),
    "model list": (MODEL, []), "model of numbers": (MODEL, {"a": 1}),
    "empty": ("", {}), "list": ("", [1, 2]), "none": ("", None), "tensor": ("", torch.ones(3)),
    "no trainer": ("", lambda state: {k: v for k, v in state.items() if k != "trainer"}),
    "no identity": ("", lambda state: {k: v for k, v in state.items() if k != "identity"}),
    "seconds": ("wall_seconds", "x"), "NaN": ("wall_seconds", NAN), "minus": ("wall_seconds", -1.0),
    "device": ("device", 3), "commits": ("commits", [1]), "trainer": ("trainer", []),
    "identity": ("identity", {"a": torch.ones(2)}), "optimizer list": ("trainer/optimizer", [1]),
    "random": ("trainer/random", [{}]), "micro batch": ("trainer/micro_batch", -3),
    "speeds": ("trainer/step_seconds", ["x"]), "speed of zero": ("trainer/step_seconds", [0.0]),
}  # fmt: skip
UNFIT: Mapping[str, Change] = {
    "best complex": (BEST, of_each(lambda w: w.to(torch.complex64))),
    "best weights": (BEST, {"x": torch.ones(1)}),
    "model empty": (MODEL, {}), "other shapes": (MODEL, of_each(lambda w: torch.ones(1))),
    "complex": (MODEL, of_each(lambda w: w.to(torch.complex64))),
    "weights of integers": (MODEL, of_each(lambda w: w.to(torch.int8))),
    "no peak rate": (GROUP, lambda group: {k: v for k, v in group.items() if k != "peak_lr"}),
    "peak rate of text": (f"{GROUP}/peak_lr", "x"), "betas of text": (f"{GROUP}/betas", ("a", "b")),
    "amsgrad": (f"{GROUP}/amsgrad", True), "no decay": (f"{GROUP}/weight_decay", NAN),
    "no moment": (MOMENTS, lambda moments: {k: v for k, v in moments.items() if k != "exp_avg"}),
    "short moment": (f"{MOMENTS}/exp_avg", torch.zeros(3)),
    "expanded moment": (f"{MOMENTS}/exp_avg", lambda w: torch.zeros(1, 1).expand(w.shape)),
    "two steps": (f"{MOMENTS}/step", torch.ones(2)), "optimizer state": (MOMENTS, {"step": "x"}),
    "optimizer empty": ("trainer/optimizer", {}),
    "optimizer groups": ("trainer/optimizer", {"state": {}, "param_groups": []}),
    "random list": ("trainer/random", []), "plateau": ("trainer/plateau", {}),
    "random size": (f"{RANDOM}/torch", torch.zeros(3, dtype=torch.uint8)),
    "random python": (f"{RANDOM}/python", [3, [1], None]),
    "random numpy": (f"{RANDOM}/numpy", ["x", torch.ones(1), 1, 1, 1.0]),
    "deep": ("identity", nested(200)),
}  # fmt: skip
RESUMED: Mapping[str, Change] = {
    "finished without a best": (
        "trainer", lambda trainer: trainer | {
            "sampler": {"seed": 0, "next_step": 20}, "validated_step": 20, "best": None
        },
    ),
    "best of another step": ("trainer/best/step", 3),
    "many": ("x", list(range(100_000))), "micro batch beyond": ("trainer/micro_batch", 10**30),
    "NaN weights": (MODEL, of_each(lambda w: w - w / 0 if w.dim() else w)),
}  # fmt: skip
CODES = {"micro batch beyond": 2, "NaN weights": 4}


def changed(state: Any, place: str, value: Any) -> Any:
    """Copy a state, with a value at a place of keys and indices."""
    if not place:
        return value(state) if callable(value) else value
    name, _, rest = place.partition("/")
    if isinstance(state, list):
        k = int(name)
        return [*state[:k], changed(state[k], rest, value), *state[k + 1 :]]
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


@pytest.mark.parametrize("name", NO_STATES)
def test_what_is_no_state_is_set_aside(place: Place, stopped: Path, name: str) -> None:
    run = copied(stopped, place)
    put_state(run, changed_state(run, NO_STATES[name]))
    limit_flags(Limits(minutes=1.0), RunFolder(run))  # what a sweep asks of every run
    assert load_newest(run / "checkpoints") is None
    assert {path.suffix for path in (run / "checkpoints").iterdir()} == {".damaged"}


@pytest.mark.parametrize("name", UNFIT)
def test_states_of_no_such_run(place: Place, stopped: Path, name: str) -> None:
    run = copied(stopped, place)
    put_state(run, changed_state(run, UNFIT[name]))
    go_on(place, 2, says="--resume never")


@pytest.mark.parametrize("name", RESUMED)
def test_odd_states_of_the_run(place: Place, stopped: Path, name: str) -> None:
    run = copied(stopped, place)
    put_state(run, changed_state(run, RESUMED[name]))
    go_on(place, CODES.get(name, 0))
    limit_flags(Limits(minutes=1.0), RunFolder(run))


CHECKPOINTS: Mapping[str, bytes] = {
    "empty": b"",
    "noise": bytes(range(256)) * 40,
    "text": b"<html>",
    "zip": b"PK\x05\x06" + bytes(18),
    "pickle": pickle.dumps(Attack(os.system, "touch ../executed"), protocol=2),
    "pickle in a zip": saved(Attack(os.system, "touch ../executed")),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_files_of_checkpoints(place: Place, stopped: Path, done: Path, name: str) -> None:
    run = copied(stopped, place)
    put_state(run, CHECKPOINTS[name])
    go_on(place, 0, says="is damaged (")


EVALUATED = {"trainer": 2, "other shapes": 0, "NaN weights": 0, "best weights": 2, "no identity": 2,
             "noise": 2, "pickle in a zip": 2, "finished without a best": 2,
             "best of another step": 2}  # fmt: skip
"""How evaluations end: they take the best weights, which others than the last ones are."""


@pytest.mark.parametrize("name", EVALUATED)
def test_evaluations_of_checkpoints(place: Place, done: Path, name: str) -> None:
    run = copied(done, place)
    changes = {**NO_STATES, **UNFIT, **RESUMED}
    put_state(run, CHECKPOINTS.get(name) or changed_state(run, changes[name]))
    place.attack("lra.evaluate.__main__", ["--run", str(run), "--lengths", "90"], {EVALUATED[name]})


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize(
    "file",
    [
        "result.json", "metrics.jsonl", "predictions.csv", "checkpoint", "lock", "checkpoints",
        "evaluation-0.json", "failure.json",
    ],
)  # fmt: skip
def test_what_is_no_file(place: Place, done: Path, file: str, kind: str) -> None:
    run = copied(done, place)
    path = max((run / "checkpoints").iterdir()) if file == "checkpoint" else run / file
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put(path, kind)
    record, run_task = {"result.json": (1, 2), "evaluation-0.json": (1, 0)}.get(file, (0, 0))
    place.attack(RECORD, ["validate"], {record})
    if kind == "pipe" and file not in {"lock", "checkpoint", "checkpoints", "failure.json"}:
        place.attack("report", ["--format", "csv"], {record})
    go_on(place, run_task)


LINKS = ["config.yaml", "metrics.jsonl", "predictions.csv", "result.json", "evaluation-0.json"]


@pytest.mark.parametrize("file", LINKS)
def test_merges_stay_inside(place: Place, done: Path, file: str) -> None:
    run = copied(done, place)
    path = run / file
    secret = place.outside / "secret"
    if path.exists() and file == "result.json":
        secret.write_bytes(path.read_bytes())
    path.unlink(missing_ok=True)
    path.symlink_to(path if file == "predictions.csv" else secret)
    place.attack(RECORD, ["merge", "results", "--results-dir", "new"], {1})
    assert not [
        p for p in (place.folder / "new").rglob("*") if p.is_file() and "root:" in p.read_text()
    ]
    copy = place.folder / "new" / run.relative_to(place.folder / "results")
    assert copy.exists() == file.startswith("evaluation")
    assert not (copy / file).exists()


@pytest.mark.parametrize("folder", ["runs", "runs/listops", "runs/listops/mean"])
def test_merges_of_linked_folders(place: Place, done: Path, folder: str) -> None:
    copied(done, place)
    path = place.folder / "results" / folder
    path.rename(place.outside / "theirs")
    path.symlink_to(place.outside / "theirs")
    place.attack(RECORD, ["merge", "results", "--results-dir", "new"], {1})
    assert not list((place.folder / "new").rglob("result.json"))


def test_leftovers_of_merges(place: Place, done: Path) -> None:
    run = copied(done, place)
    shutil.copytree(run, run.with_name(".merge-abc"))
    (run / ".result.json.1.tmp").write_bytes(b"{")
    os.utime(run / ".result.json.1.tmp", (0, 0))
    place.attack(RECORD, ["validate"], {0})
    place.attack(RECORD, ["merge", "results", "--results-dir", "results"], {0})
    assert not list((place.folder / "results").rglob(".merge-*"))
    place.attack("report", ["--format", "csv"], {0})


def test_a_folder_that_is_removed_while_its_run_works(place: Place, done: Path) -> None:
    shutil.copytree(done / "data", place.folder / "data")
    runs = place.folder / "results"

    def remove() -> None:
        while not list(runs.rglob("metrics.jsonl")):
            pass
        shutil.rmtree(runs, ignore_errors=True)

    thread = threading.Thread(target=remove)
    thread.start()
    arguments = tiny_arguments(Path(), "--set", "train.steps=100000", mixer=MEAN)
    place.attack("run_task", arguments, says="was removed while the run was at work")
    thread.join()
    assert not list(runs.rglob("result.json"))


def test_a_finished_run_in_a_folder_that_cannot_be_written(place: Place, done: Path) -> None:
    copied(done, place)
    for path in [place.root, *place.root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    place.attack("run_task", tiny_arguments(Path(), mixer=MEAN), {0}, user=65534)
    for path in [place.root, *place.root.rglob("*")]:
        path.chmod(0o755)


def test_code_that_a_record_names_is_not_run(place: Place, done: Path) -> None:
    path = copied(done, place) / "result.json"
    (place.folder / "evil.py").write_text(f"open({str(place.canary)!r}, 'w')\n")
    record = json.loads(path.read_text())
    for code in (None, "", "0" * 16):
        changed = {**record, "mixer_from": "evil.py:Evil", "mixer_code": code}
        path.write_text(json.dumps(changed))
        arguments = ["--run", str(path.parent), "--lengths", "90"]
        place.attack("lra.evaluate.__main__", arguments, says="--trust-code")
    place.attack("report", ["--format", "csv"], {0})


@pytest.mark.parametrize("name", ["metrics.jsonl", "log.txt"])
@pytest.mark.parametrize("kind", ["pipe", "outside", "loop"])
def test_nothing_is_appended_to_what_is_no_file(
    place: Place, stopped: Path, name: str, kind: str
) -> None:
    path = copied(stopped, place) / name
    path.unlink(missing_ok=True)
    if kind == "outside":
        path.symlink_to(place.outside / "new")
    else:
        put(path, kind)
    if name == "metrics.jsonl":
        go_on(place, 2)
    else:
        tiny = tiny_arguments(Path(), mixer=MEAN)
        sweep = ["--tasks", "listops", "--mixers", MEAN, "--device", "cpu"]
        sweep += [*tiny[tiny.index("--preset") : tiny.index("--device")]]
        sweep += [*tiny[tiny.index("--data-dir") :]]
        place.attack("lra.sweep.__main__", sweep, {1})  # this run alone has failed


def test_metrics_of_many_bad_lines(place: Place, done: Path) -> None:
    run = copied(done, place)
    (run / "metrics.jsonl").write_bytes(b"\n" * 200_000)
    place.attack("report", ["--format", "html"], {1}, says="and 199,999 others")
    line = b'{"step": 1, "seconds": 1, "val_accuracy": 50}\n'
    (run / "metrics.jsonl").write_bytes(line * 20_000)
    place.attack("report", ["--format", "html"], {1}, says="more than can be shown")
