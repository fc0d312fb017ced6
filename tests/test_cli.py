"""The commands, as a user types them."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import report
import run_task
from conftest import ROOT, tiny_arguments
from lra import prepare
from lra.config.registry import MIXERS
from lra.record.run import load_record

FIELDS = {
    *("schema_version", "task", "mixer", "preset", "protocol", "seed", "status"),
    *("test_accuracy", "test_correct", "test_total", "val_accuracy", "selected_on", "best_step"),
    *("steps", "steps_per_second", "peak_memory_mib", "params", "wall_seconds", "device"),
    *("precision", "versions", "git", "config_hash", "baselines", "data", "length", "batch_size"),
    "flops_per_step",
}
"""What every record must have."""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("mixer", "protocol"),
    [(name, ("s4", "lra")[number % 2]) for number, name in enumerate(sorted(MIXERS.classes))],
)
def test_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mixer: str, protocol: str
) -> None:
    more = ("--protocol", protocol)
    assert run_task.main(tiny_arguments(tmp_path, *more, mixer=mixer)) == 0
    captured = capsys.readouterr()
    assert f"listops / {mixer} (" in captured.out
    assert "trivial baseline, root operator: " in captured.err
    (path,) = (tmp_path / "results").glob(f"runs/listops/{mixer}/*/result.json")
    record = load_record(path)
    assert set(json.loads(path.read_text())) >= FIELDS
    assert (record.status, record.task, record.mixer) == ("done", "listops", mixer)
    assert (record.protocol, record.preset, record.seed) == (protocol, "quick", 0)
    assert record.steps == record.total_steps == 20
    assert record.test_total == 50
    assert record.test_correct is not None
    assert record.test_accuracy == pytest.approx(100 * record.test_correct / 50)
    assert record.steps_per_second is not None
    assert record.largest_class is not None
    assert record.largest_class >= record.baselines["majority class"]
    assert record.data.sizes == {"train": 200, "val": 40, "test": 50}
    assert record.git["commit"] is None or len(record.git["commit"]) == 40
    assert (path.parent / "config.yaml").read_text().count(record.config_hash) == 1
    lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 20]
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    with (path.parent / "predictions.csv").open() as file:
        predictions = list(csv.DictReader(file))
    assert len(predictions) == 50
    assert sum(row["label"] == row["prediction"] for row in predictions) == record.test_correct
    assert {row["root operator"] for row in predictions} <= {"MIN", "MAX", "MED", "SM"}


def test_a_run_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    capsys.readouterr()
    assert report.main(["--results-dir", str(tmp_path / "results")]) == 0
    assert "tnn (" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "results" / "report").iterdir()}
    assert {"index.html", "runs.csv", "results.csv"} <= names


def test_seeds_differ_and_repeat(tmp_path: Path) -> None:
    for place, seed in (("a", 0), ("a", 1), ("b", 0)):
        assert run_task.main(tiny_arguments(tmp_path / place, "--seed", str(seed))) == 0

    def losses(place: str, seed: int) -> list[float]:
        (path,) = (tmp_path / place / "results").glob(f"runs/*/*/*-s{seed}/metrics.jsonl")
        return [json.loads(line).get("loss") for line in path.read_text().splitlines()]

    assert losses("a", 0) == losses("b", 0)
    assert losses("a", 0) != losses("a", 1)


def test_bfloat16_trains(tmp_path: Path) -> None:
    assert run_task.main(tiny_arguments(tmp_path, "--precision", "bf16")) == 0
    (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
    record = load_record(path)
    assert record.precision == "bf16"
    assert record.overrides[-1] == "train.precision=bf16"


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gpu_trains(tmp_path: Path, precision: str) -> None:
    arguments = tiny_arguments(tmp_path, "--device", "cuda", "--precision", precision)
    assert run_task.main(arguments) == 0


def test_a_label_names_a_run_and_renames_a_finished_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def label_after(*more: str, code: int = 0) -> str | None:
        assert run_task.main(tiny_arguments(tmp_path, *more)) == code
        (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
        return load_record(path).label

    assert label_after("--label", "wide", "--max-steps", "5", code=3) == "wide"
    assert label_after("--max-steps", "6", code=3) == "wide"
    capsys.readouterr()
    assert label_after() == "wide"
    assert "listops / tnn: wide / " in capsys.readouterr().out
    assert label_after("--label", "wider") == "wider"
    assert "listops / tnn: wider / " in capsys.readouterr().out
    assert label_after() == "wider"
    (config,) = (tmp_path / "results").glob("runs/*/*/*/config.yaml")
    assert "wide" not in config.read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--task", "listop"], "did you mean listops?"),
        (["--mixer", "tn"], "did you mean tnn?"),
        (["--preset", "quik"], "did you mean quick?"),
        (["--set", "train.lr=fast"], "got 'fast'"),
        (["--set", "mixer.rpe_layer=2"], "did you mean rpe_layers?"),
        (["--device", "cuda:99"], "no device 'cuda:99' here (valid: auto, cpu"),
        (["--precision", "fp8"], "--precision train.precision=fp8: unknown value"),
        (["--max-minutes", "soon"], "got 'soon', expected a number"),
        (["--resume", "maybe"], "invalid choice: 'maybe'"),
        (["--seed", "-1"], "--seed: got -1, expected 0 to"),
        (["--seed", "99999999999999999999"], "--seed: got 99999999999999999999, expected 0 to"),
        (["--max-steps", "-3"], "--max-steps: got -3, expected 1 to"),
        (["--precision", ""], "train.precision"),
        (["--set", "model.norm=a\nb"], "unknown value of model.norm"),
        (["--label", "a\nb"], "--label 'a\\nb': no name of a row in tables: Value error, holds"),
        (["--label", ""], "is empty"),
        (["--unknown"], "unknown flag --unknown"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    try:
        code = run_task.main([*tiny_arguments(tmp_path), *arguments])
    except SystemExit as exit_:
        code = exit_.code
    message = capsys.readouterr().err
    assert code == 2
    assert part in message
    assert message.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_seeds_may_be_large(tmp_path: Path) -> None:
    assert run_task.main(tiny_arguments(tmp_path, "--seed", str(2**63 - 1))) == 0


def test_a_model_that_cannot_fit_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_task.main(tiny_arguments(tmp_path, "--set", "model.dim=10000000", "--show-config"))
    message = capsys.readouterr().err
    assert code == run_task.EXIT_CODES["oom"]
    assert message.startswith("run_task.py: error: out of memory")
    assert message.count("\n") == 1


def test_report_minds_its_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--results-dir", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    arguments = f"--results-dir {shlex.quote(str(tmp_path))} --format csv"
    line = f"{sys.executable} report.py {arguments} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_show_config_prints_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path, "--show-config")) == 0
    shown = capsys.readouterr().out
    assert "# hash: " in shown
    assert "steps: 20" in shown
    assert not list(tmp_path.iterdir())


def test_unwritable_places_are_users_mistakes(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    assert run_task.main(tiny_arguments(tmp_path)) == 2


def test_prepare_verifies_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--task", "listops", "--data-dir", str(tmp_path), "--preset", "quick"]
    more = ["--examples", "500", "--verify", "--export", str(tmp_path / "out")]
    assert prepare.main([*base, *more]) == 0
    message = capsys.readouterr().err
    assert "--set task.train=480 --set task.val=10 --set task.test=10" in message
    assert "verified: 500 answers" in message
    lines = (tmp_path / "out" / "basic_train.tsv").read_bytes().splitlines()
    assert len(lines) == 481


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--task", "lisstops"], "did you mean listops?"),
        (["--source", "offical"], "did you mean official?"),
        (["--source", "official"], "no official files of listops"),
        (["--set", "train.lr=1"], "has no effect on the data"),
        (["--examples", "0"], "--examples: got 0, expected 1 to"),
        (["--examples", "2"], "got 2 examples, expected at least 3"),
        (["--source", ""], "task.source"),
    ],
)
def test_prepare_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    base = ["--task", "listops", "--data-dir", str(tmp_path)]
    try:
        code = prepare.main([*base, *arguments])
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert part in capsys.readouterr().err


def test_python_m_works() -> None:
    done = command("-m", "lra.prepare", "--help")
    assert done.returncode == 0
    assert "--export" in done.stdout


def test_an_interrupt_is_a_line_before_torch_is_there_too() -> None:
    """Importing torch takes seconds, in which Ctrl-C is likely."""
    code = (
        "import sys\n"
        "from lra.runtime.cli import run_command\n"
        "def interrupt():\n"
        "    raise KeyboardInterrupt\n"
        "code = run_command('program', interrupt)\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    ended = command("-c", code)
    assert ended.returncode == 130
    assert ended.stderr == "program: error: interrupted\n"
