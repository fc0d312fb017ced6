"""Sweeps: planned once, made once, whatever happens on the way."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

import run_task
from conftest import PATIENCE, ROOT, TINY
from lra.classifier.resolve import resolve
from lra.config.request import RunRequest
from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.record.table import read_runs
from lra.runtime.cli import HELD, INCOMPLETE, OUT_OF_MEMORY, STOPPED, USER_ERROR
from lra.runtime.errors import UserError
from lra.sweep.__main__ import main
from lra.sweep.local import make_slots
from lra.sweep.plan import (
    Failure,
    Limits,
    PlannedRun,
    SweepOptions,
    limit_flags,
    note_failure,
    plan,
)
from made_results import record as made_record
from run_checks import assert_same_run, next_command

FREE = Limits()


def arguments(folder: Path, *more: str, mixers: str = "mean,fnet", seeds: str = "0,1") -> list[str]:
    """Write the command line of a sweep of tiny runs."""
    changes = [part for text in TINY for part in ("--set", text)]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    start = ["--tasks", "listops", "--mixers", mixers, "--seeds", seeds, "--preset", "quick"]
    return [*start, "--device", "cpu", *places, *changes, *more]


def sweep_options(folder: Path, **changes: object) -> SweepOptions:
    values: dict[str, object] = {
        "tasks": ["listops"], "mixers": ["mean", "fnet"], "seeds": [0, 1], "preset": "quick",
        "protocol": "s4", "overrides": list(TINY), "grid": [], "max_runs": 10_000,
        "data_dir": folder / "data",
        "results_dir": folder / "results",
    }  # fmt: skip
    return SweepOptions(**{**values, **changes})  # pyright: ignore[reportArgumentType]


def one_run(folder: Path) -> PlannedRun:
    (run,) = plan(sweep_options(folder, mixers=["mean"], seeds=[0]))
    return run


def records_of(folder: Path) -> list[RunRecord]:
    runs, faults = read_runs(folder / "results")
    records = [record for _, record in runs]
    assert not faults
    return records


def test_all_tasks_are_those_that_have_the_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--results-dir", str(tmp_path), "--mixers", "mean", "--print-commands"]
    assert main(["--preset", "budget", *places]) == 0
    found = capsys.readouterr()
    tasks = [line.split()[line.split().index("--task") + 1] for line in found.out.splitlines()]
    assert tasks == ["listops", "text", "retrieval", "image", "pathfinder"]
    assert "without pathx, which has no preset budget" in found.err
    assert main(["--preset", "budget", *places, "--tasks", "pathx"]) == USER_ERROR
    assert main(["--preset", "bugdet", *places]) == USER_ERROR
    assert "unknown preset 'bugdet'" in capsys.readouterr().err


def test_a_plan_is_every_combination_once(tmp_path: Path) -> None:
    grid = ["train.lr=1e-3,2e-3", "model.depth=1,2"]
    runs = plan(sweep_options(tmp_path, grid=grid))
    assert len(runs) == len({(run.config.hash, run.seed) for run in runs}) == 16
    assert {run.config.train.lr for run in runs} == {1e-3, 2e-3}
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8


def test_runs_of_the_same_settings_are_one(tmp_path: Path) -> None:
    """Settings are compared as they act: 0.001 is 1e-3, and the preset's own value no change."""
    (run,) = plan(sweep_options(tmp_path, mixers=["mean"], seeds=[0], grid=["train.lr=1e-3,0.001"]))
    assert run.config.train.lr == 1e-3
    runs = plan(sweep_options(tmp_path, mixers=["mean", "mean"], grid=["model.dim=16,8,16"]))
    assert len(runs) == 4


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"grid": ["train.lr"]}, ["--grid train.lr", "section.key=value,value"]),
        ({"grid": ["train.lr=1e-3,"]}, ["--grid train.lr=1e-3,", "empty value"]),
        ({"mixers": ["tnm"]}, ["listops, tnm", "did you mean tnn?"]),
        ({"tasks": ["listop"]}, ["did you mean listops?"]),
        ({"grid": ["mixer.decay=0.9"]}, ["listops, mean", "mixer.decay", "decay"]),
    ],
)
def test_a_plan_that_cannot_be_names_the_run(
    tmp_path: Path, change: dict, parts: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        plan(sweep_options(tmp_path, **change))
    for part in parts:
        assert part in str(caught.value)


def test_states(tmp_path: Path) -> None:
    run = one_run(tmp_path)
    path = run.folder.path
    assert run.state(FREE) == ("new", "")
    path.mkdir(parents=True)
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "step-000000004-0123456789abcdef.pt").write_bytes(b"")
    assert run.state(FREE) == ("unfinished", "")
    Failure(exit_code=-9, message="killed").save(path)
    assert run.state(FREE) == ("failed", "killed")
    run.forget_failure()
    stopped = made_record(
        run_id=path.name, mixer="mean", status="stopped", message="stopped by SIGINT", steps=12,
        wall_seconds=120.0,
    )  # fmt: skip
    stopped.save(path)
    assert run.state(FREE) == ("unfinished", "step 12 of 20")
    assert run.state(Limits(max_steps=12))[0] == "at its limit"
    assert run.state(Limits(max_steps=13))[0] == "unfinished"
    assert run.state(Limits(minutes=2.0))[0] == "at its limit"
    assert run.state(Limits(minutes=2.1))[0] == "unfinished"
    stopped.model_copy(update={"status": "oom", "message": "too much"}).save(path)
    assert run.state(FREE) == ("out of memory", "too much")
    stopped.model_copy(update={"status": "diverged", "message": "nan"}).save(path)
    assert run.state(FREE) == ("diverged", "nan")
    made_record(run_id=path.name, mixer="mean").save(path)
    assert run.state(FREE) == ("done", "")
    with FileLock(path / "lock"):
        assert run.state(FREE)[0] == "running"
    (path / "result.json").write_text("{")
    state, message = run.state(FREE)
    assert state == "failed"
    assert "result.json" in message


def test_what_ended_a_run_is_noted_unless_its_record_says_it(tmp_path: Path) -> None:
    run = one_run(tmp_path)
    path = run.folder.path
    path.mkdir(parents=True)
    run.log.write_text("first\nrun_task.py: error: out of memory: while preparing\n")
    for code in (0, STOPPED, 4, HELD):
        note_failure(run.folder, run.log, code)
        assert run.state(FREE)[0] == "new"
    note_failure(run.folder, run.log, OUT_OF_MEMORY)  # before there was anything to record
    assert "while preparing; see" in run.state(FREE)[1]
    made_record(run_id=path.name, mixer="mean", status="oom", message="full").save(path)
    assert run.state(FREE) == ("out of memory", "full")  # the record is the newer
    run.forget_failure()
    note_failure(run.folder, run.log, OUT_OF_MEMORY)
    assert run.failure() is None
    note_failure(run.folder, run.log, 1)
    assert run.state(FREE)[0] == "failed"


def test_the_command_line_of_a_run_resolves_to_its_settings(tmp_path: Path) -> None:
    run = one_run(tmp_path)
    limits = limit_flags(Limits(max_steps=3, minutes=2.0), run.folder)
    options = run_task.parse_arguments([*run.arguments(), *limits])
    assert run_task.configure(options).hash == run.config.hash
    assert (options.seed, options.max_steps, options.max_minutes) == (0, 3, 2.0)


@pytest.mark.parametrize(
    ("device", "gpus", "gpus_per_run", "expected"),
    [
        ("cuda:1", 2, 1, ["cuda:1", "cuda:1"]),
        ("auto", 0, 1, ["cpu", "cpu"]),
        ("auto", 2, 1, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("cpu", 2, 2, ["cpu", "cpu"]),
        ("auto", 5, 2, ["auto 4,5", "auto 6,7", "auto 4,5", "auto 6,7"]),
    ],
)
def test_slots(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, gpus_per_run: int, expected: list[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    slots = make_slots(device, 2, gpus_per_run)
    assert [f"{slot.device} {slot.gpus or ''}".rstrip() for slot in slots] == expected


def test_commands_are_printed_for_other_systems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = runs = plan(sweep_options(tmp_path))
    made_record(run_id=first.folder.path.name, mixer="mean").save(first.folder.path)
    assert main(arguments(tmp_path, "--print-commands", "--max-steps", "3")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(runs) - 1
    python, script, *words = shlex.split(lines[0])
    assert (python, Path(script).name) == (sys.executable, "run_task.py")
    options = run_task.parse_arguments(words)
    assert run_task.configure(options).hash == runs[1].config.hash
    assert (options.seed, options.max_steps, options.device) == (0, 3, "cpu")
    assert main(arguments(tmp_path, "--print-commands", "--gpus-per-run", "2")) == 0
    assert "torch.distributed.run --standalone --nproc-per-node 2" in capsys.readouterr().out


def test_printed_commands_work_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "own.py").write_text(
        "from torch import nn\n\n\nclass Own(nn.Module):\n    def __init__(self, context):\n"
        "        super().__init__()\n\n    def forward(self, x, mask):\n        return x\n"
    )
    found: list[Path] = []
    for mixer in ("own.py:Own", f"{folder}/own.py:Own"):
        monkeypatch.chdir(folder)
        assert main(arguments(Path(), "--print-commands", mixers=mixer, seeds="0")) == 0
        monkeypatch.chdir(tmp_path)
        _, _, *words = shlex.split(capsys.readouterr().out)
        options = run_task.parse_arguments(words)
        assert options.mixer == f"{folder}/own.py:Own"
        found += [options.data_dir, options.results_dir]
    assert found == [folder / "data", folder / "results"] * 2


def test_the_next_command_names_the_folders_of_the_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's mine"
    for run in plan(sweep_options(folder)):
        made_record(run_id=run.folder.path.name, mixer=run.config.mixer_name).save(run.folder.path)
    assert main(arguments(folder)) == 0
    report = ["python", "report.py", "--preset", "quick", "--results-dir", f"{folder}/results"]
    assert next_command(capsys.readouterr().out) == report


@pytest.mark.parametrize("flag", ["--per-device", "--gpus-per-run"])
def test_no_list_of_millions_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    with pytest.raises(SystemExit):
        main(arguments(tmp_path, flag, "99999999"))
    assert f"{flag}: got 99999999, expected 1 to 1000" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_may_have_several_processes(tmp_path: Path) -> None:
    """As on several GPUs; it stops when the sweep has gone, although torchrun stands between."""
    one = ("--gpus-per-run", "2", "--seeds", "0", "--mixers", "mean")
    process = start(tmp_path, *one, "--set", "train.steps=100000")
    wait_for_step(tmp_path)
    runs = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    psutil.wait_procs(runs, timeout=60)
    (record,) = records_of(tmp_path)
    assert record.message == "stopped by the end of what started it"
    process = start(tmp_path, *one, "--set", "train.steps=100000", "--max-steps", "5")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_dry_run_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, "--dry-run")) == 0
    output = capsys.readouterr()
    assert output.out.count("\nlistops/mean/") == 2
    assert "unknown" in output.out
    assert "data of listops: generate 290 examples" in output.out
    assert "4 runs to carry out" in output.out
    assert not list(tmp_path.iterdir())
    folder = tmp_path / "results" / "runs" / "listops" / "mean" / "abc-s0"
    folder.mkdir(parents=True)
    of_tiny_runs = {"batch_size": 16, "length": 80}
    made_record(
        mixer="mean", preset="quick", device="CPU A", steps_per_second=10.0, **of_tiny_runs
    ).save(folder)
    main(arguments(tmp_path, "--dry-run"))
    shown = capsys.readouterr().out
    assert "about 2 s" in shown  # 20 steps
    assert "device-hours" not in shown  # fnet was not timed
    main(arguments(tmp_path, "--dry-run", mixers="mean"))
    heading, row = capsys.readouterr().out.partition("device ")[2].splitlines()[:2]
    assert heading.split() == ["device-hours", "on", "4", "on", "8", "on", "32"]
    assert row.split() == ["CPU", "A", "0.00", "2", "s", "2", "s", "2", "s"]


GRID_OF_A_BILLION = [
    part
    for key in ("lr", "weight_decay", "clip_norm")
    for part in ("--grid", f"train.{key}={','.join(map(str, range(1, 1001)))}")
]


@pytest.mark.parametrize(
    ("more", "count"),
    [
        (GRID_OF_A_BILLION, "4,000,000,000 runs (2 mixers x 2 seeds x 1,000,000,000 combinations"),
        (["--seeds", ",".join(map(str, range(30_000)))], "60,000 runs (2 mixers x 30,000 seeds)"),
        (["--max-runs", "3"], "4 runs (2 mixers x 2 seeds), expected at most 3"),
    ],
)
def test_a_plan_of_too_many_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], count: str
) -> None:
    start = time.monotonic()
    assert main(arguments(tmp_path, "--dry-run", *more)) == USER_ERROR
    assert time.monotonic() - start < 5
    shown = capsys.readouterr().err
    assert count in shown
    assert "--max-runs" in shown


def test_a_plan_resolves_each_configuration_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[RunConfig] = []

    def counted(request: RunRequest) -> RunConfig:
        resolved.append(resolve(request))
        return resolved[-1]

    monkeypatch.setattr("lra.sweep.plan.resolve", counted)
    runs = plan(sweep_options(tmp_path, seeds=range(400), grid=["train.lr=1e-3,2e-3"]))
    assert len(runs) == 2 * 400 * 2
    assert len(resolved) == 4


def test_a_plan_goes_on_with_the_newest_attempt_of_each_run(tmp_path: Path) -> None:
    options = sweep_options(tmp_path, mixers=["mean"], seeds=[1, 11])
    first, second = (run.folder.path for run in plan(options))
    for name in (f"{first.name}", f"{first.name}-r2", f"{first.name}-r10", f"{second.name}-rx"):
        (first.parent / name).mkdir(parents=True)
    assert [run.folder.path for run in plan(options)] == [
        first.with_name(f"{first.name}-r10"),
        second,
    ]


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--seeds", "a"], "--seeds a: expected whole numbers"),
        (["--seeds", "-1"], "expected 0 to"),
        (["--mixers", "tnn,,mean"], "an empty name"),
        (["--cluster", "timeout_min=3"], "--cluster has no effect with --launcher local"),
        (["--launcher", "slurm", "--per-device", "2"], "--per-device has no effect"),
        (["--device", "cuda:77"], "no device 'cuda:77'"),
        (["--device", "auto", "--gpus-per-run", "2"], "--gpus-per-run 2: this machine has 0 GPUs"),
        (["--hand-back", "5"], "--hand-back has no effect with --launcher local"),
        (["--launcher", "slurm", "--ray-address", "auto"], "--ray-address has no effect"),
        (["--launcher", "slurm", "--dry-run", "--cluster", "slurm_partitoin=gpu"],
         "did you mean slurm_partition? (all are listed above)"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], part: str
) -> None:
    assert main(arguments(tmp_path, *more)) == USER_ERROR
    err = capsys.readouterr().err
    assert part in err
    assert "Traceback" not in err


@pytest.mark.thorough
def test_a_sweep_makes_every_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ("--per-device", "2", "--seeds", "0")
    assert main(arguments(tmp_path, *two, "--max-steps", "11")) == 0
    assert {(r.status, r.steps) for r in records_of(tmp_path)} == {("stopped", 11)}
    assert "2 runs: 2 at its limit" in capsys.readouterr().out
    assert main(arguments(tmp_path, *two)) == 0
    records = records_of(tmp_path)
    assert sorted((r.mixer, r.status) for r in records) == [("fnet", "done"), ("mean", "done")]
    output = capsys.readouterr()
    for record in records:
        assert f"{record.test_accuracy:.2f} %" in output.out
        log = tmp_path / "results" / "runs" / "listops" / record.mixer / record.run_id / "log.txt"
        assert "resumed at step 11" in log.read_text()
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert main(arguments(tmp_path, *two)) == 0
    assert "2 runs planned, 0 to carry out" in capsys.readouterr().err
    assert files == {path: path.stat().st_mtime_ns for path in files}


CRASHING = """
import os
import torch
from torch import nn

class Crashing(nn.Module):
    '''how: what happens soon, but not in the trial of a plug-in.'''
    def __init__(self, context, *, how: str = "exit"):
        super().__init__()
        self.how, self.calls = how, 0
        self.scale = nn.Parameter(torch.ones(context.dim))

    def forward(self, x, mask=None):
        self.calls += self.training
        if self.calls > 12 and not os.path.exists("mended"):
            if self.how == "oom":
                raise torch.OutOfMemoryError("out of memory")
            if self.how == "error":
                raise KeyError("broken")
            os.kill(os.getpid(), 9)
        return x * self.scale
"""


@pytest.mark.thorough
def test_one_that_fails_touches_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("crashing.py").write_text(CRASHING)
    grid = ("--grid", "mixer.how=kill,error,oom")
    crashing = arguments(tmp_path, *grid, mixers="crashing.py:Crashing", seeds="0")
    assert main([*crashing, "--per-device", "2"]) == INCOMPLETE
    out = capsys.readouterr().out
    assert "killed by SIGKILL" in out
    assert "KeyError: 'broken'" in out
    assert "out of memory on cpu" in out
    assert main(arguments(tmp_path, seeds="0", mixers="mean")) == 0
    assert main(crashing) == INCOMPLETE  # at once: nothing is tried again
    assert "3 runs planned, 0 to carry out" in capsys.readouterr().err
    Path("mended").touch()
    assert main([*crashing, "--per-device", "2", "--retry-failed"]) == 0
    assert [r.status for r in records_of(tmp_path)] == ["done"] * 4


SLOW = ("--set", "train.steps=60", "--set", "log.checkpoint_minutes=0.001")


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lra.sweep", *arguments(folder, *SLOW, *more)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_step(folder: Path, count: int = 1) -> None:
    """Wait until some runs have checkpoints."""
    for _ in range(10 * PATIENCE):
        if len({p.parent for p in folder.glob("results/runs/*/*/*/checkpoints/step-*")}) >= count:
            return
        time.sleep(0.1)
    raise AssertionError("no checkpoint came")


@pytest.mark.thorough
def test_ctrl_c_stops_all_runs_and_the_same_command_goes_on(tmp_path: Path) -> None:
    endless = ("--per-device", "2", "--seeds", "0", "--set", "train.steps=100000")
    process = start(tmp_path, *endless)
    wait_for_step(tmp_path, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED, err
    assert "stopped by SIGINT" in err
    assert "next: the same command continues with the unfinished runs" in out
    assert not list(tmp_path.rglob("failure.json"))
    records = records_of(tmp_path)
    assert [r.status for r in records] == ["stopped", "stopped"]
    most = str(max(r.steps for r in records) + 5)
    for run in plan(sweep_options(tmp_path, seeds=[0], overrides=[*TINY, endless[-1], SLOW[3]])):
        assert run_task.main([*run.arguments(), "--device", "cpu", "--max-steps", most]) == STOPPED
    assert {r.steps for r in records_of(tmp_path)} == {int(most)}


@pytest.mark.thorough
def test_a_run_that_is_stopped_while_it_starts_has_not_failed(tmp_path: Path) -> None:
    process = start(tmp_path)
    for _ in range(20 * PATIENCE):
        if list(tmp_path.rglob("log.txt")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED, err
    assert not list(tmp_path.rglob("failure.json"))


@pytest.mark.thorough
def test_killed_ten_times_it_ends_with_exactly_the_planned_records(tmp_path: Path) -> None:
    """The sweep alone or its runs, too, at random moments; the results are those of no kill."""
    moments = random.Random(7)
    kills = 0
    while kills < 10:
        process = start(tmp_path, "--per-device", "2")
        try:
            process.wait(moments.uniform(0.5, 6.0))
        except subprocess.TimeoutExpired:
            runs = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for run in runs if moments.random() < 0.5 else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    run.kill()
            kills += 1
        else:
            break
        process.communicate()
    out, err = start(tmp_path, "--per-device", "2").communicate(timeout=PATIENCE)
    assert "4 runs: 4 done" in out, (out, err)
    records = records_of(tmp_path)
    assert {(r.mixer, r.seed, r.status, r.steps) for r in records} == {
        (mixer, seed, "done", 60) for mixer in ("mean", "fnet") for seed in (0, 1)
    }
    assert len(records) == 4
    assert kills > 2
    unbroken = tmp_path / "unbroken"
    for run in plan(sweep_options(unbroken, overrides=[*TINY, SLOW[1], SLOW[3]])):
        assert run_task.main([*run.arguments(), "--device", "cpu", "--threads", "1"]) == 0
    for record in records:
        place = Path("results", "runs", "listops", record.mixer, record.run_id)
        assert_same_run(tmp_path / place, unbroken / place)


@pytest.mark.thorough
def test_runs_that_another_process_makes_are_waited_for(tmp_path: Path) -> None:
    """Two sweeps of the same plan divide its runs."""
    first, second = (start(tmp_path, "--seeds", "0") for _ in range(2))
    outputs = [process.communicate(timeout=PATIENCE) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    logs = [path.read_text() for path in tmp_path.glob("results/runs/*/*/*/log.txt")]
    assert [log.count("step 60: validation") for log in logs] == [1] * 2


@pytest.mark.thorough
def test_a_run_stops_when_what_started_it_is_gone(tmp_path: Path) -> None:
    process = start(tmp_path, "--set", "train.steps=100000")
    wait_for_step(tmp_path)
    (run,) = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    run.wait(timeout=30)
    (record,) = records_of(tmp_path)
    assert record.message == "stopped by the end of what started it"


@pytest.mark.thorough
def test_cluster_jobs_make_runs_and_are_queued_again_when_preempted(tmp_path: Path) -> None:
    """Through submitit's executor for processes of this machine."""
    from lra.sweep.slurm import make_executor, submit

    overrides = [*TINY, SLOW[3], "train.steps=150"]
    runs = plan(sweep_options(tmp_path, overrides=overrides, mixers=["mean"], seeds=[0]))
    executor = make_executor("local", tmp_path / "jobs", ["timeout_min=5"])
    jobs = submit(runs, FREE, "cpu", executor)
    assert [run for run, _ in jobs] == runs
    for run in runs:
        facts = json.loads((run.folder.path / "job.json").read_text())
        assert facts["cluster"] == "local"
    wait_for_step(tmp_path)
    for _, job in jobs:
        (task,) = psutil.Process(job._process.pid).children()
        task.send_signal(signal.SIGUSR2)  # as Slurm does before it preempts
    assert [job.result() for _, job in jobs] == [0]
    assert [(r.status, r.steps) for r in records_of(tmp_path)] == [("done", 150)]
    for run in runs:
        log = run.log.read_text()
        assert log.count("; everything is saved") == log.count("resumed at step") == 1
        assert "stopped by SIGTERM" in log


@pytest.mark.parametrize(
    ("cluster", "parameters", "part"),
    [
        ("local", ["timeout_min"], "--cluster timeout_min: expected NAME=VALUE"),
        ("local", ["colour=red"], "colour"),
        ("slurm", [], "slurm"),
        ("slurm", ["timeout=3"], "no parameter 'timeout'; did you mean timeout_min?"),
        ("slurm", ["partition=gpu"], "did you mean slurm_partition?"),
        ("slurm", ["timeout_min=soon"], "expected a value of type int"),
    ],
)
def test_mistakes_about_the_cluster_are_one_line(
    tmp_path: Path, cluster: str, parameters: list[str], part: str
) -> None:
    from lra.sweep.slurm import make_executor

    with pytest.raises(UserError) as caught:
        make_executor(cluster, tmp_path, parameters)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_grid_is_named_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "--grid", "train.weight_decoy=1,2")) == 2
    shown = capsys.readouterr().err
    assert "--grid train.weight_decoy=1: unknown option of train" in shown
    assert "did you mean weight_decay?" in shown
