"""Trained models out of distribution: longer, deeper, harder data."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import TINY, tiny_arguments
from lra import run_task
from lra.api.trained import TrainedRun, load
from lra.classifier.classifier import Classifier
from lra.common.errors import DataError, UserError
from lra.config.registry import MIXERS, TASKS
from lra.config.request import parse_changes
from lra.evaluate import OtherData, compose_other, main
from lra.record.evaluation import evaluations_of
from lra.report.data import Data
from lra.report.tables.evaluations import evaluation_tables
from lra.runtime.cli import STOPPED, USER_ERROR
from lra.train.checkpoint import save_checkpoint
from made_results import record as made_record
from requested import resolve
from run_checks import next_command, state_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tiny runs on ListOps."""
    folder = tmp_path_factory.mktemp("trained")
    for mixer in ("tnn", "fd-tnn"):
        assert run_task.main(tiny_arguments(folder, mixer=mixer)) == 0
    return folder


def run_of(folder: Path, mixer: str = "tnn") -> Path:
    (run,) = folder.glob(f"results/runs/listops/{mixer}/*")
    return run


def command(folder: Path, *more: str) -> list[str]:
    return ["--data-dir", str(folder / "data"), "--device", "cpu", "--examples", "30", *more]


def test_lengths_are_evaluated_and_recorded(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "a run"
    shutil.copytree(trained, copy)
    run = run_of(copy)
    arguments = command(copy, "--run", str(run), "--lengths", "40,160")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "160 positions" in shown
    report = ["python", "report.py", "--results-dir", str(copy / "results")]
    assert next_command(shown) == report
    found, faults = evaluations_of(run)
    assert not faults
    assert [(one.length, one.result.test_total, one.trained_length) for one in found] == [
        (40, 30, 80), (160, 30, 80),
    ]  # fmt: skip
    assert all(
        one.result.trivial_scores.keys() == {"majority class", "root operator"} for one in found
    )
    data = Data(copy / "results")
    (table,) = evaluation_tables(data, data.boards[0])
    assert table.headings == ["mixer", "as trained", "40 positions", "160 positions"]
    ((_, *cells),) = (row for row in table.rows if not row[0].startswith("trivial baseline"))
    scored = [load(run).record, *found]
    assert all(f"{one.test_accuracy:.2f}" in cell for one, cell in zip(scored, cells, strict=True))
    files = {path: path.stat().st_mtime_ns for path in run.glob("evaluation-*.json")}
    assert main(arguments) == 0
    assert files == {path: path.stat().st_mtime_ns for path in run.glob("evaluation-*.json")}
    assert main([*arguments, "--again"]) == 0
    again = {path: path.stat().st_mtime_ns for path in run.glob("evaluation-*.json")}
    assert again.keys() == files.keys()
    assert all(again[path] > files[path] for path in files)


def test_the_number_is_that_of_the_best_model_on_the_fresh_test_set(trained: Path) -> None:
    run = run_of(trained)
    loaded = load(run)
    other_data = OtherData(length=120, changes=parse_changes(["task.max_depth=4"]), examples=30)
    config = compose_other(loaded, other_data)
    model = loaded.load_model(config.build_task().info)
    split = config.build_task().prepare(trained / "data").splits["test"]
    with torch.no_grad():
        predictions = []
        for i in range(len(split)):
            batch = split.batch(np.array([i]))
            predictions.append(int(model(batch.inputs, batch.lengths).argmax()))
    right = int((np.array(predictions) == split.labels).sum())
    assert main(
        command(trained, "--run", str(run), "--lengths", "120", "--vary", "task.max_depth=4")
    ) == 0  # fmt: skip
    (found,) = [one for one in evaluations_of(run)[0] if one.length == 120]
    assert (found.result.model_dump()["test_correct"], found.result.test_total) == (right, 30)
    assert found.changes == {"task.max_depth": 4}
    assert found.label == "120 positions, max_depth=4"


def test_fresh_expressions_are_of_the_length_and_new(trained: Path) -> None:
    run = load(run_of(trained), data_dir=trained / "data")
    own = run.dataset
    seen = {bytes(_tokens(split, i)) for split in own.splits.values() for i in range(len(split))}
    for length in (None, 100):
        config = compose_other(run, OtherData(length=length, changes=(), examples=30))
        fresh = config.build_task().prepare(trained / "data").splits["test"]
        assert len(fresh) == 30
        if length is not None:
            assert fresh.lengths.min() >= 75
            assert fresh.lengths.max() <= 101
            assert not {bytes(_tokens(fresh, i)) for i in range(30)} & seen


def _tokens(split: object, index: int) -> np.ndarray:
    return split.batch(np.array([index])).inputs.numpy().astype(np.uint8)  # type: ignore[attr-defined]


class Overflowing(nn.Module):
    """Gives class 0 logits that overflow where a sequence is longer than 60."""

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.where(lengths > 60, torch.inf, torch.eye(10)[0])


def test_what_overflows_is_wrong_and_has_no_loss(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    run = run_of(copy)
    monkeypatch.setattr(TrainedRun, "load_model", lambda *_: Overflowing())
    assert main(command(copy, "--run", str(run), "--lengths", "64,120")) == 0
    mixed, lost = (one for one in evaluations_of(run)[0] if not one.changes)
    config = compose_other(load(run), OtherData(length=64, changes=(), examples=30))
    split = config.build_task().prepare(copy / "data").splits["test"]
    right = int(((split.lengths <= 60) & (split.labels == 0)).sum())
    assert mixed.result.model_dump()["test_correct"] == right > 0
    assert (lost.result.model_dump()["test_correct"], lost.loss) == (0, None)
    assert mixed.result.test_non_finite == int((split.lengths > 60).sum()) > 0
    assert lost.result.test_non_finite == 30
    told = capsys.readouterr().err
    assert "loss not finite" in told
    assert "the logits of 30 of 30 examples are not finite; they count as wrong" in told


def test_tasks_say_what_other_data_they_have() -> None:
    with pytest.raises(DataError, match="characters are numbered"):
        TASKS.classes["text"].fresh({"unit": "characters"}, length=20, examples=5)
    fresh = TASKS.classes["pathfinder"].fresh
    options = {"data_seed": 3, "size": 32, "contour": 6, "permutation": None}
    assert fresh(options, length=None, examples=20) == {
        "source": "generate", "data_seed": 4, "examples": 200,
    }  # fmt: skip
    assert fresh(options, length=4096, examples=20)["size"] == 64
    with pytest.raises(DataError, match="images of 1024, 4096, 16384, 65536 pixels"):
        fresh(options, length=2000, examples=20)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ([], "expected at least one of --lengths"),
        (["--vary", "train.lr=1"], "only options of the task can differ"),
        (["--vary", "task.train=9"], "its own train; leave it out"),
    ],
)
def test_mistakes_are_one_line(
    trained: Path, capsys: pytest.CaptureFixture[str], more: list[str], part: str
) -> None:
    assert main(command(trained, "--run", str(run_of(trained)), *more)) == USER_ERROR
    err = capsys.readouterr().err
    assert part in err
    assert "Traceback" not in err


def test_runs_that_cannot_be_evaluated(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = ("--lengths", "40")
    assert main(command(trained, "--run", str(tmp_path), *lengths)) == USER_ERROR
    assert "expected the folder of a run" in capsys.readouterr().err
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "5")) == STOPPED
    assert main(command(trained, "--run", str(run_of(tmp_path)), *lengths)) == USER_ERROR
    assert "the run is stopped, expected a finished one" in capsys.readouterr().err
    shutil.copy(run_of(trained) / "result.json", tmp_path)
    assert main(command(trained, "--run", str(tmp_path), *lengths)) == USER_ERROR
    assert "no checkpoint of this run" in capsys.readouterr().err


@pytest.mark.parametrize("mixer", [*sorted(MIXERS.classes), "mean with learned positions"])
def test_mixers_out_of_distribution_are_those_of_the_training(tmp_path: Path, mixer: str) -> None:
    """On shorter data a model gives what it gave in training: its kernels are those of then.

    Longer data is evaluated, or refused in one line if the mixer has parameters for positions.
    """
    mixer, _, learned = mixer.partition(" with ")
    more = ["model.positions=learned"] if learned else []
    config = resolve("listops", mixer, preset="quick", overrides=[*TINY, *more])
    info = config.build_task().info
    model = Classifier(config, info).eval()
    save_checkpoint(tmp_path / "checkpoints", 1, state_of(model))
    tokens = torch.randint(0, 15, (60,))
    lengths = torch.tensor([[25], [35]])
    run = TrainedRun(tmp_path, made_record(best_step=None), config, tmp_path, torch.device("cpu"))
    for longest in (40, 80):
        other = run.load_model(replace(info, max_length=longest))
        with torch.no_grad():
            torch.testing.assert_close(other(tokens, lengths), model(tokens, lengths))
    larger = replace(info, max_length=333)
    if learned or not MIXERS.classes[mixer].takes_longer:
        with pytest.raises(UserError, match="parameters for 80 positions"):
            run.load_model(larger)
        return
    other = run.load_model(larger)
    with torch.no_grad():
        torch.testing.assert_close(other(tokens, lengths), model(tokens, lengths))
        longer = other(torch.randint(0, 15, (333,)), torch.tensor([[333]]))
    assert longer.isfinite().all()


SCALE = """from torch import nn


class Scale(nn.Module):
    def __init__(self, context, *, by: float = 1.0):
        super().__init__()
        self.by, self.linear = by, nn.Linear(context.dim, context.dim)

    def forward(self, x, mask=None):
        return self.linear(x) * self.by
"""


@pytest.fixture
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a mixer of one's own, in the folder that its file is in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("own.py").write_text(SCALE)
    assert run_task.main(tiny_arguments(Path(), mixer="own.py:Scale")) == 0
    (run,) = Path("results/runs/listops/Scale").glob("*")
    return run


def test_changed_code_is_named_and_on_request_run_and_marked(
    own_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = command(Path(), "--run", str(own_run), "--lengths", "90")
    assert main(asked) == 0
    Path("own.py").write_text(SCALE.replace("* self.by", "+ self.by"))
    assert main([*asked, "--again"]) == 2
    shown = capsys.readouterr().err
    assert f"own.py is not the code that the run was made with (that is in {own_run}" in shown
    assert "--trust-code runs it as it is now" in shown
    assert main([*asked, "--again", "--trust-code"]) == 0
    assert "90 positions, code changed since training" in capsys.readouterr().out
    found, faults = evaluations_of(own_run)
    assert not faults
    assert sorted(one.has_changed_code for one in found) == [False, True]


def test_a_run_keeps_its_settings(own_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = command(Path(), "--run", str(own_run), "--lengths", "90", "--trust-code")
    Path("own.py").write_text(SCALE.replace("by: float = 1.0", "by: float = 2.0"))
    assert main(asked) == 0
    Path("own.py").write_text(SCALE.replace("by", "factor"))
    assert main([*asked, "--again"]) == 2
    shown = capsys.readouterr().err
    assert "the run's record: unknown option of Scale 'by' (valid: factor)" in shown
