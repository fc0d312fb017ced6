"""The commands, as a user types them."""

import csv
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, tiny_arguments, tiny_sections
from lra import __main__ as all_commands
from lra import prepare, run_task
from lra.api.training import build
from lra.record.run import load_record
from lra.report import __main__ as report
from lra.runtime.cli import SCRIPTS, report_error
from lra.runtime.console import (
    LONGEST_MESSAGE,
    absolute_path,
    as_typed,
    display_messages,
    wrap_message,
)


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start Python in another folder, with the suite installed as it is by `pip install -e`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment | variables, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


# Runs


def test_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixer, protocol = "transformer", "lra"
    more = ("--protocol", protocol, "--seed", "3")
    assert run_task.main(tiny_arguments(tmp_path, *more, mixer=mixer)) == 0
    captured = capsys.readouterr()
    assert f"listops / {mixer} (" in captured.out
    (folder,) = (tmp_path / "results").glob(f"runs/listops/{mixer}/*")
    assert f"listops / {mixer} / quick, seed 3, on CPU " in captured.err
    assert f"saved in {folder}\n" in captured.err
    assert "data: 200 train, 40 val, 50 test examples, generated, in " in captured.err
    assert "estimated time: " in captured.err
    assert "trivial baseline, root operator: " in captured.err
    assert re.search(r"step 20/20  loss \d\.\d+  accuracy [\d.]+ %  [\d.]+ steps/s", captured.err)
    record = load_record(folder / "result.json")
    assert (record.status, record.task, record.mixer) == ("done", "listops", mixer)
    assert (record.protocol, record.preset, record.seed) == (protocol, "quick", 3)
    assert record.steps == record.total_steps == 20
    assert record.result.test_total == 50
    assert record.result.model_dump()["test_correct"] is not None
    assert record.test_accuracy == pytest.approx(
        100 * record.result.model_dump()["test_correct"] / 50
    )
    assert record.data.sizes == {"train": 200, "val": 40, "test": 50}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 20]
    with (folder / "predictions.csv").open() as file:
        predictions = list(csv.DictReader(file))
    assert len(predictions) == 50
    assert (
        sum(row["label"] == row["prediction"] for row in predictions)
        == record.result.model_dump()["test_correct"]
    )
    assert report.main(["--results-dir", str(tmp_path / "results")]) == 0
    assert f"{mixer} (" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "results" / "report").iterdir()}
    assert {"index.html", "runs.csv", "results.csv"} <= names


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gpu_trains(tmp_path: Path, precision: str) -> None:
    arguments = tiny_arguments(tmp_path, "--device", "cuda", "--precision", precision)
    assert run_task.main(arguments) == 0


def test_seeds_differ_and_repeat(tmp_path: Path) -> None:
    largest = 2**63 - 1
    for place, seed in (("a", 0), ("a", largest), ("b", 0)):
        assert run_task.main(tiny_arguments(tmp_path / place, "--seed", str(seed))) == 0

    def losses(place: str, seed: int) -> list[float]:
        (path,) = (tmp_path / place / "results").glob(f"runs/*/*/*-s{seed}/metrics.jsonl")
        return [json.loads(line).get("loss") for line in path.read_text().splitlines()]

    assert losses("a", 0) == losses("b", 0)
    assert losses("a", 0) != losses("a", largest)


def test_a_label_names_a_run_and_renames_a_finished_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def label_after(*more: str, code: int = 0) -> str | None:
        assert run_task.main(tiny_arguments(tmp_path, *more)) == code
        (path,) = (tmp_path / "results").glob("runs/*/*/*/result.json")
        return load_record(path).label

    assert label_after("--label", "wide", "--max-steps", "5", code=3) == "wide"
    assert label_after() == "wide"
    assert "listops / tnn: wide / " in capsys.readouterr().out
    assert label_after("--label", "wider") == "wider"
    assert label_after() == "wider"
    assert "listops / tnn: wider / " in capsys.readouterr().out


def test_show_config_prints_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path, "--show-config")) == 0
    shown = capsys.readouterr().out
    assert "# hash: " in shown
    assert "steps: 20" in shown
    assert not list(tmp_path.iterdir())


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--task", "listop"], "did you mean listops?"),
        (["--mixr", "x"], "--mixr x; did you mean --mixer? (see --help)"),
        (["--lr", "1e-3"], "--lr 1e-3; did you mean --set train.lr=1e-3? (see --help)"),
        (["--steps=9"], "--steps=9; did you mean --set train.steps=9? (see --help)"),
        (["--stop-with", str(2**63 - 1)], "expected 1 to 2147483647"),
        (["--set", "log.wandb=true"], "log.wandb=true needs the package: pip install wandb"),
        (["--set", "train.lr=fast"], "got 'fast'"),
        (["--precision", "bf16", "--set", "train.precision=fp32"],
         "--set train.precision=fp32 and --precision bf16 contradict each other"),
        (["--pretrain", "masked", "--set", "pretrain.objective=none"], "contradict each other"),
        (["--match-params", "s4"], "s4 chooses model.dim, and --set model.dim=16 sets it"),
        (["--device", "cuda:99"], "no device 'cuda:99' here (valid: auto, cpu"),
        (["--seed", "99999999999999999999"], "--seed: got 99999999999999999999, expected 0 to"),
    ],
)  # fmt: skip
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
    assert message.count("\n") == 1 + ("wandb" in part)  # what runs is said first
    assert not list(tmp_path.iterdir())


def test_a_link_that_leads_nowhere_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "nowhere")
    assert run_task.main(tiny_arguments(tmp_path)) == 2
    assert f"data: a link to {tmp_path / 'nowhere'}, expected one to" in capsys.readouterr().err


def test_errors_name_the_command_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = (["-m", "lra"], "lra "), (["/bin/lra"], "lra "), (["-m", "lra.bench"], "lra.")
    for words, start in starts:
        monkeypatch.setattr("sys.orig_argv", ["python", *words, "x"])
        for program in ("lra.sweep", "python -m lra.bench op", "run_task.py", "runs.txt, line 3"):
            report_error(program, "a fault")
        expected = [f"{start}sweep", f"{start}bench op", f"{start}run", "runs.txt, line 3"]
        if start == "lra.":
            expected = ["lra.sweep", "python -m lra.bench op", "run_task.py", "runs.txt, line 3"]
        lines = capsys.readouterr().err.splitlines()
        assert [line.removesuffix(": error: a fault") for line in lines] == expected


def test_a_model_that_cannot_fit_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_task.main(tiny_arguments(tmp_path, "--set", "model.dim=10000000", "--show-config"))
    message = capsys.readouterr().err
    assert code == run_task.EXIT_CODES["oom"]
    assert message.startswith("run_task.py: error: out of memory")
    assert message.count("\n") == 1


def test_prepare_verifies_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--task", "listops", "--data-dir", str(tmp_path), "--preset", "quick"]
    sizes = ["task.train=480", "task.val=10", "task.test=10"]
    base += [part for size in sizes for part in ("--set", size)]
    more = ["--verify", "--export", str(tmp_path / "out")]
    assert prepare.main([*base, *more]) == 0
    message = capsys.readouterr().err
    assert "verified: 500 answers" in message
    lines = (tmp_path / "out" / "basic_train.tsv").read_bytes().splitlines()
    assert len(lines) == 481
    for mistake, part in (
        (["--source", "offical"], "did you mean official?"),
        (["--set", "train.lr=1"], "unknown section 'train' (valid: task)"),
    ):
        assert prepare.main([*base, *mistake]) == 2
        assert part in capsys.readouterr().err


# `lra COMMAND`


def test_every_command_of_the_suite_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """A module is one if it can be run."""
    sources = [*(ROOT / "lra").rglob("*.py"), ROOT / "run_task.py", ROOT / "report.py"]
    starts = {
        str(path.relative_to(ROOT)) for path in sources
        if '\nif __name__ == "__main__":\n' in path.read_text()
    }  # fmt: skip
    places = {p for n in all_commands.COMMANDS for p in (f"lra/{n}/__main__.py", f"lra/{n}.py")}
    listed = {place for place in places if (ROOT / place).is_file()} | {*SCRIPTS.values()}
    listed.add("lra/run_task.py")
    assert starts - {"lra/__main__.py"} == listed
    shown = all_commands.describe_commands().splitlines()
    assert all(len(line) <= 80 for line in shown)
    names = [line.split()[0] for line in shown if line.startswith("  ")]
    assert names == list(all_commands.COMMANDS)


@pytest.mark.thorough
def test_commands_start_from_any_folder(tmp_path: Path) -> None:
    """Beside files of the user's own that have the names of ours; Ctrl-C is met before torch."""
    (tmp_path / "report.py").write_text("raise SystemExit('not ours')")
    arguments = tiny_arguments(Path(), "--threads", "1", mixer="mean")
    done = start(tmp_path, "-m", "lra", "run", *arguments)
    assert done.returncode == 0, done.stderr
    assert "next: python -m lra report" in done.stdout
    (path,) = tmp_path.glob("results/runs/listops/mean/*/result.json")
    record = load_record(path)
    assert record.threads is not None and record.threads["count"] == 1
    assert start(tmp_path, "-m", "lra", "report", "--format", "csv").returncode == 0
    shown = " ".join(start(tmp_path, "-m", "lra", "prepare", "--help").stdout.split())
    assert re.search(r" --task TASK .*listops.* or your own: file.py:ClassName.* --preset ", shown)
    code = (
        "import sys\n"
        "from lra.runtime.cli import run_command\n"
        "def interrupt(): raise KeyboardInterrupt\n"
        "code = run_command('program', interrupt)\n"
        "assert 'torch' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    ended = start(tmp_path, "-c", code)
    assert (ended.returncode, ended.stderr) == (130, "program: error: interrupted\n")


def test_settings_load_no_library_that_only_some_runs_need(tmp_path: Path) -> None:
    """All tasks and mixers are known then; numba alone takes 60 MiB of each process."""
    code = (
        "import sys\n"
        "from lra.config.compose import compose\n"
        "from lra.config.request import RunRequest\n"
        "compose(RunRequest(task='listops', mixer='tnn'))\n"
        "heavy = {'numba', 'scipy', 'sklearn', 'pandas', 'pyarrow', 'matplotlib'}\n"
        "print(*heavy & sys.modules.keys())\n"
    )
    ended = start(tmp_path, "-c", code)
    assert (ended.returncode, ended.stdout) == (0, "\n")


@pytest.mark.thorough
@pytest.mark.parametrize("is_package", [True, False])
def test_a_project_may_have_folders_of_the_same_names(tmp_path: Path, is_package: bool) -> None:
    """Its plug-in imports its own; what the suite has in a folder beside `lra` is never found."""
    for name in ("models", "tasks", "common", "configs", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text("scale = 2.0")
        if is_package:
            (tmp_path / name / "__init__.py").touch()
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "from common.helper import scale\nfrom models.helper import scale\n"
        "from tasks.helper import scale\n"
        "class Own(nn.Module):\n"
        "    def __init__(self, context, *, power: int = 1):\n        super().__init__()\n"
        "    def forward(self, x, mask=None):\n        return x * scale\n"
    )
    arguments = tiny_arguments(Path(), "--show-config", mixer="own.py:Own")
    module = ["-m", "lra.run_task", *arguments]
    for command in ([str(ROOT / "run_task.py"), *arguments], module):
        ended = start(tmp_path, *command)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
        assert "# mixer_name: Own" in ended.stdout
    (tmp_path / "old.py").write_text("from models.base import Mixer\nclass Old(Mixer): ...\n")
    arguments = tiny_arguments(Path(), "--show-config", mixer="old.py:Old")
    ended = start(tmp_path, str(ROOT / "run_task.py"), *arguments)
    assert ended.returncode == 2
    assert "the suite's models are lra.models now" in ended.stderr


def test_a_package_of_the_suite_has_one_name(tmp_path: Path) -> None:
    ended = start(tmp_path, "-c", "import lra.tasks.base, models.base")
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: the suite's models are lra.models now: from lra.models.base import Mixer"
    )


# Messages


def test_messages_are_one_line_and_wrapped_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(wrap_message("x\n" * 5000)) <= LONGEST_MESSAGE
    monkeypatch.setenv("COLUMNS", "30")
    with display_messages():
        logging.getLogger("lra").warning("one two three four five six seven")
    assert capsys.readouterr().err == "warning: one two three four five six seven\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    report_error("run_task.py", "a fault that is longer than this terminal is wide")
    assert capsys.readouterr().err.splitlines() == [
        "run_task.py: error: a fault",
        "    that is longer than this",
        "    terminal is wide",
    ]


@pytest.mark.usefixtures("own_folder")
def test_paths_are_shown_as_typed_and_stay_where_they_were(tmp_path: Path) -> None:
    assert absolute_path("results") == tmp_path / "results"
    shown = as_typed(f"{tmp_path}/results/a, /data{tmp_path}/results and {tmp_path}.")
    assert shown == f"results/a, /data{tmp_path}/results and {tmp_path}."
    (tmp_path / "other").mkdir()
    Path("own.py").write_text(
        f"import os, torch\n\nclass Own(torch.nn.Module):\n    def __init__(self, context):\n"
        f"        super().__init__()\n        os.chdir({str(tmp_path / 'other')!r})\n"
        f"        self.scale = torch.nn.Parameter(torch.ones(context.dim))\n\n"
        f"    def forward(self, x, mask=None):\n        return x * self.scale\n"
    )
    built = build("listops", "own.py:Own", preset="quick", **tiny_sections())
    assert built.dataset.folder.is_relative_to(tmp_path / "data")
    assert not list((tmp_path / "other").iterdir())
