"""What a run says before its first step, and what commands say of flags that they do not have."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import run_task
from conftest import tiny_arguments
from lra import prepare
from lra.bench import __main__ as bench
from lra.config.schema import RunConfig
from lra.runtime.cli import report_error
from lra.runtime.console import LONGEST_MESSAGE, in_one_line
from lra.runtime.foreign_flags import TRAINING_FLAGS
from lra.runtime.progress import Progress, duration
from lra.sweep import __main__ as sweep
from lra.train.checkpoint import describe_missing
from lra.train.run_folder import RunFolder
from lra.train.stopping import StopRequest
from lra.train.time_estimates import ESTIMATE_AT_STEP, TimeEstimates
from lra.train.training_time import Timings, TrainingTime
from made_results import record
from requested import compose

CPU = "CPU A, 2 threads"
PAPER = compose("listops", "s4")
DATA = {"source": "generated", "fingerprint": "f", "sizes": {"train": 96_000}}


def phases(step: int = 0, total: int = 120_000, *, is_of_time: bool = False) -> Any:
    """Make what a run knows of itself before its first step."""
    trainer = SimpleNamespace(
        num_parameters=815_186, seconds=0.0, total_steps=total, step=step, config=PAPER,
        length=SimpleNamespace(limit=600.0 if is_of_time else None),
    )  # fmt: skip
    return SimpleNamespace(trainer=trainer, step=step, total_steps=total, is_pretraining=False)


def estimates(
    config: RunConfig,
    speed: float | None,
    max_minutes: float | None = None,
    max_steps: int | None = None,
) -> TimeEstimates:
    """Estimate a run's time from an earlier run of this speed; None: there is none."""
    run = record(mixer="s4", device=CPU, steps_per_second=speed, batch_size=32, length=2048,
                 preset=config.preset, data=DATA)  # fmt: skip
    timings = Timings([run] if speed else [], [])
    stop = StopRequest(max_minutes, max_steps)
    time = TrainingTime(config, timings, CPU, stop)
    return TimeEstimates(config, torch.device("cpu"), time, stop)


def test_a_known_time_is_said_before_the_first_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    estimates(PAPER, 2.0).announce(phases())
    assert caplog.messages == [
        "120,000 steps, 815,186 parameters",
        "estimated time: 16.7 h of training on this CPU "
        "(120,000 steps at 2 steps/s; source: a run)",
    ]


def test_a_run_of_more_than_a_day_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = estimates(PAPER, 0.0579)
    made.announce(phases())
    made.update(phases(5), 0.0579)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning == (
        "this run trains for about 24.0 days; --preset quick trains a small model in minutes, "
        "--preset budget one in minutes to hours"
    )
    assert "estimated time: 24.0 days of training on this CPU" in caplog.text
    assert "about 24.0 days of training left at 0.0579 steps/s" in caplog.messages
    caplog.clear()
    quick = estimates(compose("listops", "s4", preset="quick"), 0.0001)
    quick.announce(phases(total=1500))
    assert "--preset" not in caplog.text, "there is no smaller one"


def test_where_no_time_is_known_it_follows_within_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = estimates(PAPER, None)
    made.announce(phases())
    assert caplog.messages[-1] == "estimated time: not known yet; it follows within 5 steps"
    assert [step for step in range(20) if made.is_due(step, 1.0)] == [ESTIMATE_AT_STEP]
    assert [step for step in range(20) if made.is_due(step, 25.0)] == [1, 2, 3, 4, 5]
    caplog.clear()
    made.update(phases(total=100), 2.0)
    assert caplog.messages == ["about 50 s of training left at 2 steps/s"]
    caplog.clear()
    made.update(phases(total=100), 2.0)
    assert caplog.messages == [], "progress lines say it from now on"
    TimeEstimates(PAPER, torch.device("cpu"), None, StopRequest()).announce(phases())
    assert "not known yet" in caplog.text


def test_times_end_where_the_run_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = estimates(PAPER, 0.5, max_steps=4000)
    made.announce(phases())
    made.update(phases(5), 0.5)
    assert caplog.messages == [
        "4,000 of 120,000 steps, 815,186 parameters",
        "estimated time: 2.2 h of training on this CPU "
        "(4,000 of 120,000 steps at 0.5 steps/s; source: a run)",
        "about 2.2 h of training left at 0.5 steps/s; --preset quick trains a small model in "
        "minutes, --preset budget one in minutes to hours",
    ]
    caplog.clear()
    limited = estimates(PAPER, 0.5, max_minutes=2)
    limited.announce(phases())
    limited.update(phases(5), 0.5)
    assert caplog.messages[1:] == ["estimated time: 2 min of training, as --max-minutes says"]
    caplog.clear()
    unknown = estimates(PAPER, None, max_steps=4000)
    unknown.update(phases(), 2.0)
    assert caplog.messages == ["about 33 min of training left at 2 steps/s"]


def test_a_run_of_minutes_has_no_number_of_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    estimates(compose("listops", "s4", overrides=["train.minutes=10"]), None).announce(
        phases(is_of_time=True)
    )
    assert caplog.messages == [
        "815,186 parameters",
        "estimated time: 10 min of training, as train.minutes says",
    ]


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
    assert after.startswith("estimated time: not known yet; it follows within 5 steps\n")
    assert re.search(r"about \d+ s of training left at [\d.]+ steps/s\n", after)
    assert "allocator" not in err
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "7", "--verbose")) == 3
    assert "data fingerprint: " in capsys.readouterr().err


@pytest.mark.parametrize("flag", TRAINING_FLAGS)
@pytest.mark.parametrize("program", [run_task, sweep])
def test_flags_of_other_tools_get_a_hint(
    capsys: pytest.CaptureFixture[str], program: Any, flag: str
) -> None:
    if program is sweep and flag == "--seeds":
        return  # which it has
    start = ["--task", "listops", "--mixer", "tnn"] if program is run_task else []
    for given in ([flag, "3"], [f"{flag}=3"], [flag.replace("-b", "_b")]):
        with pytest.raises(SystemExit) as ended:
            program.parse_arguments([*start, *given])
        assert ended.value.code == 2
        message = capsys.readouterr().err
        name = given[0].partition("=")[0]
        assert f"error: unknown flag {name}; {TRAINING_FLAGS[flag]} (see --help)\n" in message
        assert message.count("\n") == 1


@pytest.mark.parametrize("preset", ["paper", "quick", "budget"])
def test_hints_name_settings_and_flags_that_exist(preset: str) -> None:
    text = " ".join(TRAINING_FLAGS.values())
    for setting in re.findall(r"--set (\S+?)[;,]?(?= |$)", text):
        compose("listops", "tnn", preset=preset, overrides=[setting])
    base = ["--task", "listops", "--mixer", "tnn"]
    for flags in (["--device", "cuda:0"], ["--seed", "0"], ["--max-steps", "1000"]):
        assert " ".join(flags) in text
        run_task.parse_arguments([*base, *flags])
    sweep.parse_arguments(["--seeds", "0,1,2"])


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
