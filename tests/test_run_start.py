"""What a run says before its first step, and what commands say of flags that they do not have."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import run_task
from conftest import tiny_arguments
from lra import prepare
from lra.bench import __main__ as bench
from lra.runtime.cli import report_error
from lra.runtime.console import LONGEST_MESSAGE, in_one_line
from lra.runtime.progress import Progress, duration
from lra.train.checkpoint import describe_missing
from lra.train.run_folder import RunFolder


def test_the_start_says_what_will_happen_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "6", "--seed", "3")) == 3
    err = capsys.readouterr().err
    before, _, after = err.partition("6 of 20 steps, 12,986 parameters\n")
    (run,) = (tmp_path / "results/runs/listops/tnn").iterdir()
    assert "listops / tnn / quick, seed 3, on CPU " in before
    assert f"saved in {run}\n" in before
    assert "data: 200 train, 40 val, 50 test examples, generated, in " in before
    assert after.startswith("estimated time: ")
    assert "allocator" not in err
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "7", "--verbose")) == 3
    assert "data fingerprint: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "command"), [(run_task.main, []), (prepare.main, []), (bench.main, ["step"])]
)
def test_the_help_of_task_names_files(
    main: Callable[[list[str]], int], command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r" --task TASK .*?or your own: file.py:ClassName.* --preset ", shown)


def test_an_unknown_flag_gets_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    for given, hint in ((["--mixr", "x"], "; did you mean --mixer?"), (["-x"], " (see")):
        with pytest.raises(SystemExit):
            run_task.parse_arguments(["--task", "listops", "--mixer", "tnn", *given])
        assert f"unknown flag {given[0]}{hint}" in capsys.readouterr().err


def test_paths_in_messages_are_whole() -> None:
    path = "/data/" + "a-long-folder/" * 20 + "file.csv"
    message = f"no official data in {path}; looked for: {'x.tar.gz (the archive), ' * 8}end"
    assert in_one_line(message) == message, "as long as data errors are"
    for before in range(0, LONGEST_MESSAGE, 7):
        long = f"{'word ' * (before // 5)}{path} {'word ' * 300}end"
        line = in_one_line(long)
        assert len(line) <= LONGEST_MESSAGE
        assert path in line or "a-long-folder" not in line, "whole, or left out"
        assert line.endswith(" end")
    assert len(in_one_line("x" * 5000)) <= LONGEST_MESSAGE


def test_messages_are_wrapped_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lra.runtime.console import show_messages

    show_messages()
    monkeypatch.setenv("COLUMNS", "30")
    logging.getLogger("lra").warning("one two three four five six seven")
    assert capsys.readouterr().err == "warning: one two three four five six seven\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    report_error("run_task.py", "a fault that is longer than this terminal is wide")
    assert capsys.readouterr().err.splitlines() == [
        "run_task.py: error: a fault",
        "    that is longer than this",
        "    terminal is wide",
    ]
    logging.getLogger("lra").warning("one two three four five six seven")
    assert capsys.readouterr().err == "warning: one two three four\n    five six seven\n"


def test_missing_and_damaged_checkpoints_are_told_apart(tmp_path: Path) -> None:
    assert describe_missing(tmp_path) == "there is no checkpoint of this run"
    damaged = tmp_path / "step-000000012-0123456789abcdef.pt"
    damaged.write_bytes(b"half")
    assert describe_missing(tmp_path).startswith(f"the checkpoint {damaged} is damaged; train ")
    renamed = damaged.rename(tmp_path / f"{damaged.name}.damaged")
    assert f"the checkpoint {renamed} is damaged" in describe_missing(tmp_path)


def test_a_damaged_checkpoint_is_named_with_its_new_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoints.mkdir()
    path = folder.checkpoints / "step-000000012-0123456789abcdef.pt"
    path.write_bytes(b"half")
    assert folder.resume({}) is None
    first, second = caplog.messages
    assert first == (
        f"checkpoint {path} is damaged (its content does not have the checksum in its name); it is "
        f"now called {path.name}.damaged, and the run resumes from an earlier one if there is one"
    )
    assert second == "all checkpoints are damaged; the run starts again at step 0"


def test_durations_have_two_digits() -> None:
    shown = [duration(seconds) for seconds in (45, 384, 1500, 5399, 18_720, 2_073_600)]
    assert shown == ["45 s", "6.4 min", "25 min", "90 min", "5.2 h", "24.0 days"]


def test_progress_lines_have_step_loss_accuracy_speed_and_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress(0, 1500)
    progress.live = False
    monkeypatch.setattr("lra.runtime.progress.SECONDS_BETWEEN_LINES", 0.0)
    progress.start -= 10.0
    progress.step(50, 1500, 2.1234, 23.44)
    (line,) = caplog.messages
    assert re.fullmatch(
        r"step 50/1500  loss 2\.123  accuracy 23\.4 %  \d\.\d\d steps/s  [\d.]+ min left", line
    )
    assert len(line) <= 80
    progress.close()
