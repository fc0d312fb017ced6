"""Sweeps: planned once, made once, whatever happens on the way."""

import contextlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from conftest import PATIENCE, ROOT, TINY
from lra import run_task
from lra.record.run import RunRecord, read_runs
from lra.runtime.cli import HELD, INCOMPLETE, OUT_OF_MEMORY, STOPPED, USER_ERROR
from lra.runtime.tables import cut, plain_matrix, plain_table
from lra.sweep.__main__ import LAUNCHERS, main
from lra.sweep.arguments import parse_arguments
from lra.sweep.data import SweepData
from lra.sweep.local import make_slots
from lra.sweep.plan import (
    FAILURE,
    Limits,
    PlannedRun,
    SweepOptions,
    note_failure,
    plan,
    write_failure,
)
from lra.sweep.slurm import make_executor, submit
from lra.sweep.summary import RunState, runs_table
from made_results import record as made_record
from run_checks import assert_same_run, next_command

FREE = Limits()
MANY = ",".join(map(str, range(1, 1001)))
SLOW = ("--set", "train.steps=60", "--set", "log.checkpoint_minutes=0.001")


def arguments(folder: Path, *more: str, mixers: str = "mean,fnet", seeds: str = "0,1") -> list[str]:
    """Write the command line of a sweep of tiny runs."""
    changes = [part for text in TINY for part in ("--set", text)]
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    start = ["--tasks", "listops", "--mixers", mixers, "--seeds", seeds, "--preset", "quick"]
    return [*start, "--device", "cpu", *places, *changes, *more]


def sweep_options(folder: Path, **changes: object) -> SweepOptions:
    values: dict[str, object] = {
        "tasks": ["listops"], "mixers": ["mean", "fnet"], "seeds": [0, 1], "preset": "quick",
        "protocol": "s4", "overrides": list(TINY),
        "data_dir": folder / "data", "results_dir": folder / "results",
    }  # fmt: skip
    return SweepOptions(**{**values, **changes})  # pyright: ignore[reportArgumentType]


def records_of(folder: Path) -> list[RunRecord]:
    runs, faults = read_runs(folder / "results")
    assert not faults
    return [record for _, record in runs]


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


# The plan


def test_a_plan_has_every_combination_of_equal_settings_once(tmp_path: Path) -> None:
    """Settings are compared as they act: 0.001 is 1e-3, and the preset's own value no change."""
    grid = ["train.lr=1e-3,0.001,2e-3", "train.beta1=0.8,0.9"]
    runs = plan(sweep_options(tmp_path, mixers=["mean", "fnet", "mean"], grid=grid))
    assert len(runs) == len({(run.config.hash, run.seed) for run in runs}) == 16
    assert {run.config.train.lr for run in runs} == {1e-3, 2e-3}
    assert [run.seed for run in runs] == [0] * 8 + [1] * 8


def test_a_file_of_runs_is_a_plan_in_its_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.txt"
    lines = ["--task listops --mixer fnet --preset quick --seed 1  # the first one", "",
             "--task image --mixer mean --set train.lr=1e-2 --protocol lra",
             "--mixer fnet --task listops --preset quick --seed 1"]  # fmt: skip
    file.write_text("\n".join(lines))
    places = ["--data-dir", str(tmp_path), "--results-dir", str(tmp_path)]
    runs = plan(parse_arguments(["--runs", str(file), *places]))
    found = [(run.config.task_name, run.config.mixer_name, run.seed) for run in runs]
    assert found == [("listops", "fnet", 1), ("image", "mean", 0)]
    config = runs[1].config
    assert (config.protocol, config.preset, config.train.lr) == ("lra", "paper", 1e-2)
    mistakes = {
        "# nothing": "has no runs", "--task listops": "line 1: error: the following arguments",
        "--task listops --mixer mean '": "line 1: No closing quotation",
        "--task listops --mixer mean --set train.lr=x": "line 1: --set train.lr=x: train.lr",
    }  # fmt: skip
    for text, part in mistakes.items():
        file.write_text(text)
        with contextlib.suppress(SystemExit):
            assert main(["--runs", str(file), *places, "--dry-run"]) == USER_ERROR
        assert part in " ".join(capsys.readouterr().err.split()), text
    assert main(["--runs", str(file), "--seeds", "1"]) == USER_ERROR
    assert "--seeds has no effect with --runs" in capsys.readouterr().err


def test_a_plan_goes_on_with_the_newest_attempt_of_each_run(tmp_path: Path) -> None:
    options = sweep_options(tmp_path, mixers=["mean"], seeds=[1, 11])
    first, second = (run.folder.path for run in plan(options))
    for name in (first.name, f"{first.name}-r2", f"{first.name}-r10", f"{second.name}-rx"):
        (first.parent / name).mkdir(parents=True)
    expected = [first.with_name(f"{first.name}-r10"), second]
    assert [run.folder.path for run in plan(options)] == expected


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--grid", "train.lr"], "section.key=value,value"),
        (["--mixers", "tnm"], "listops, tnm: "),
        (["--grid", f"train.lr={MANY}", "--grid", f"train.epsilon={MANY}"],
         "2 x 2 x 1,000 x 1,000 choices are 4,000,000 runs, expected at most 10,000; leave"),
        (["--grid", "model.dim=4,8"], "model.dim=16 and --grid model.dim=4 contradict each other"),
        (["--grid", "train.lr=1", "--grid", "train.lr=2"], "contradict each other; leave one out"),
        (["--device", "auto", "--gpus-per-run", "2"], "--gpus-per-run 2: this machine has 0 GPUs"),
        (["--cluster", "timeout_min=9"], "--cluster has no effect with --launcher local"),
        (["--launcher", "slurm", "--cluster", "slurm_partitoin=gpu"], "'partitoin'"),
        (["--launcher", "slurm", "--cluster", "timeout_min"], "expected NAME=VALUE"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], part: str
) -> None:
    assert main(arguments(tmp_path, "--dry-run", *more)) == USER_ERROR
    err = capsys.readouterr().err
    assert part in err
    assert "Traceback" not in err


def test_states(tmp_path: Path) -> None:
    (run,) = plan(sweep_options(tmp_path, mixers=["mean"], seeds=[0]))
    path = run.folder.path
    assert run.state(FREE) == ("new", "")
    run.folder.checkpoints.mkdir(parents=True)
    (run.folder.checkpoints / "step-000000004-0123456789abcdef.pt").write_bytes(b"")
    assert run.state(FREE) == ("unfinished", "")
    write_failure(path, "killed")
    assert run.state(FREE) == ("failed", "killed")
    run.forget_failure()
    stopped = made_record(
        run_id=path.name, mixer="mean", status="stopped", steps=12, wall_seconds=120.0
    )
    stopped.save(path)
    assert run.state(FREE) == ("unfinished", "step 12 of 20")
    assert run.state(Limits(max_steps=12))[0] == run.state(Limits(minutes=2.0))[0] == "at its limit"
    assert run.state(Limits(max_steps=13, minutes=2.1))[0] == "unfinished"
    stopped.model_copy(update={"status": "oom", "message": "too much"}).save(path)
    assert run.state(FREE) == ("out of memory", "too much")
    made_record(run_id=path.name, mixer="mean").save(path)
    assert run.state(FREE) == ("done", "")
    with FileLock(path / "lock"):
        assert run.state(FREE)[0] == "running"
    (path / "result.json").write_text("{")
    assert run.state(FREE)[0] == "failed"


def test_what_ended_a_run_is_noted_unless_its_record_says_it(tmp_path: Path) -> None:
    (run,) = plan(sweep_options(tmp_path, mixers=["mean"], seeds=[0]))
    run.folder.path.mkdir(parents=True)
    run.log.write_text("first\nrun_task.py: error: out of memory: while preparing\n")
    for code in (0, STOPPED, 4, HELD):
        note_failure(run.folder, code)
        assert run.state(FREE)[0] == "new"
    note_failure(run.folder, OUT_OF_MEMORY)  # before there was anything to record
    assert "while preparing; see" in run.state(FREE)[1]
    oom = made_record(run_id=run.folder.path.name, mixer="mean", status="oom", message="full")
    oom.save(run.folder.path)
    assert run.state(FREE) == ("out of memory", "full")  # the record is the newer
    note_failure(run.folder, 1)
    assert run.state(FREE)[0] == "failed"


@pytest.mark.parametrize(
    ("gpus", "gpus_per_run", "expected"),
    [(0, 1, ["cpu", "cpu"]), (5, 2, ["auto 4,5", "auto 6,7", "auto 4,5", "auto 6,7"])],
)
def test_slots(
    monkeypatch: pytest.MonkeyPatch, gpus: int, gpus_per_run: int, expected: list[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    slots = make_slots("auto", 2, gpus_per_run)
    assert [f"{slot.device} {slot.gpus or ''}".rstrip() for slot in slots] == expected


def test_printed_commands_make_the_open_runs_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = runs = plan(sweep_options(tmp_path, mixers=["mean"]))
    made_record(run_id=first.folder.path.name, mixer="mean").save(first.folder.path)
    monkeypatch.chdir(tmp_path)
    assert main(arguments(Path(), "--print-commands", "--max-steps", "3", mixers="mean")) == 0
    (line,) = capsys.readouterr().out.splitlines()
    python, script, *words = shlex.split(line)
    assert (python, Path(script).name) == (sys.executable, "run_task.py")
    options = run_task.parse_arguments(words)
    assert run_task.configure(options).hash == runs[1].config.hash
    assert (options.seed, options.max_steps, options.device) == (1, 3, "cpu")
    assert (options.data_dir, options.results_dir) == (tmp_path / "data", tmp_path / "results")


# What is shown


def test_tables_fit_the_terminal(tmp_path: Path) -> None:
    options = sweep_options(tmp_path, mixers=["mean"], seeds=[0], grid=["train.lr=0.1,0.2,0.3"])
    runs = plan(options)
    states = [
        RunState(runs[0], "failed", "KeyError: 'broken'; see " + "x" * 100, None),
        RunState(runs[1], "unfinished", "step 1 of 2", None),
        RunState(runs[2], "done", "", made_record()),
    ]
    lines = runs_table(states, 77)
    assert max(map(len, lines)) == 77
    assert [line.split() for line in lines] == [
        ["run", "settings", "state", "validation", "test"],
        [runs[0].name, "train.lr=0.1", "failed", "-", "-"],
        ["KeyError:", "'broken';", "see", "x" * 50 + "…"],
        [runs[1].name, "train.lr=0.2", "unfinished", "-", "-"],
        ["step", "1", "of", "2"],
        [runs[2].name, "train.lr=0.3", "done", "41.00", "%", "40.00", "%"],
    ]
    rows = [{"a name": "x" * 50, "b": "1", "c": "y" * 20}, {"a name": "z", "b": "\x1b[0m"}]
    for lines in (plain_table(rows, 20), plain_matrix(rows, 20), runs_table(states, 20)):
        assert max(map(len, lines)) <= 20
        assert "\x1b" not in "".join(lines)
    assert cut("abcdef", 4) == "abc…" and cut("abcd", 4) == "abcd"


def test_a_dry_run_makes_nothing_and_estimates_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert shown.count("\nlistops/mean/") == 2
    assert "data of listops: generate 290 examples" in shown
    assert "4 runs to carry out" in shown
    assert not list(tmp_path.iterdir())
    assert "about 0 s" in shown  # the 20 steps of mean
    assert "nothing like 2 of them was timed" in " ".join(shown.split())


# Data


class MadeRuns:
    """A launcher that prepares the data of a sweep, and makes up the results of its runs."""

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> None:
        data.prepare()
        for run in data.ready(runs):
            run_id, task = run.folder.path.name, run.config.task_name
            made_record(run_id=run_id, task=task, mixer="mean", test_accuracy=17.1).save(
                run.folder.path
            )


OWN_TASK = """
class Small:
    def examples(self, split, rng):
        return rng.integers(0, 9, (20, 5)), [i % 2 for i in range(20)]
"""


def test_runs_without_data_are_left_out_and_the_others_are_carried_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LAUNCHERS, "local", lambda _: MadeRuns())
    (tmp_path / "own.py").write_text(OWN_TASK)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "aclImdb_v1.tar.gz").write_bytes(b"no archive")
    places = ["--data-dir", str(tmp_path / "data"), "--results-dir", str(tmp_path / "it's mine")]
    command = ["--mixers", "mean", "--preset", "quick", *places, "--tasks"]
    tasks = f"retrieval,{tmp_path / 'own.py'}:Small,text"
    shown = capsys.readouterr()
    for _ in range(2):  # all that is left of the second sweep is without data
        assert main([*command, tasks]) == INCOMPLETE
        shown = capsys.readouterr()
        assert "left out: retrieval: no official files of retrieval in " in shown.err
        assert "left out: text: " in shown.err
        assert "Preset paper, protocol s4: test accuracy in percent" in shown.out
        assert "\n1 run: 1 done\nleft out: retrieval (1 run), until" in shown.out
    report = ["python", "report.py", "--preset", "quick", "--results-dir", f"{tmp_path}/it's mine"]
    assert next_command(shown.out) == report
    assert [path.name for path in (tmp_path / "it's mine" / "runs").iterdir()] == ["Small"]
    assert main([*command, "retrieval"]) == USER_ERROR
    assert "no data of retrieval (the reasons are above), so no run" in capsys.readouterr().err
    grid = ["--grid", "task.data_seed=1,2", "--dry-run"]
    assert main([*command, f"retrieval,{tmp_path / 'own.py'}:Small", *grid]) == INCOMPLETE
    shown = capsys.readouterr()
    both = " ".join((shown.out + shown.err).split())
    assert both.count("no official files") == both.count("make its examples") == 1
    assert "left out: retrieval task.data_seed=2: for the same reason\n" in shown.err


# Processes


@pytest.mark.thorough
def test_ctrl_c_stops_all_runs(tmp_path: Path) -> None:
    process = start(tmp_path, "--per-device", "2", "--seeds", "0", "--set", "train.steps=100000")
    wait_for_step(tmp_path, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED, err
    assert "stopped by SIGINT" in err
    assert "next: the same command continues with the unfinished runs" in out
    assert not list(tmp_path.rglob(FAILURE))
    assert [r.status for r in records_of(tmp_path)] == ["stopped", "stopped"]


@pytest.mark.thorough
def test_killed_again_and_again_it_ends_with_exactly_the_planned_records(tmp_path: Path) -> None:
    """The sweep alone or its runs, too, at random moments; the results are those of no kill."""
    moments = random.Random(7)
    for _ in range(6):
        process = start(tmp_path, "--per-device", "2")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.5, 8.0))
            break
        runs = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for run in runs if moments.random() < 0.5 else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                run.kill()
        process.communicate()
    both = [start(tmp_path, "--per-device", "2") for _ in range(2)]  # which divide the runs
    for out, err in [process.communicate(timeout=PATIENCE) for process in both]:
        assert "4 runs: 4 done" in out, (out, err)
    records = records_of(tmp_path)
    assert {(r.mixer, r.seed, r.status, r.steps) for r in records} == {
        (mixer, seed, "done", 60) for mixer in ("mean", "fnet") for seed in (0, 1)
    }
    for run in plan(sweep_options(tmp_path / "unbroken", overrides=[*TINY, SLOW[1], SLOW[3]])):
        assert run_task.main([*run.arguments("cpu"), "--threads", "1"]) == 0
        place = run.folder.path.relative_to(tmp_path / "unbroken")
        assert_same_run(tmp_path / place, run.folder.path)


@pytest.mark.thorough
def test_runs_stop_when_the_sweep_is_gone_even_behind_torchrun(tmp_path: Path) -> None:
    endless = ("--seeds", "0", "--mixers", "mean", "--set", "train.steps=100000")
    process = start(tmp_path, "--gpus-per-run", "2", *endless)
    wait_for_step(tmp_path)
    runs = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    psutil.wait_procs(runs, timeout=60)
    (record,) = records_of(tmp_path)
    assert record.message == "stopped by the end of what started it"


@pytest.mark.thorough
def test_cluster_jobs_make_runs_and_are_queued_again_when_preempted(tmp_path: Path) -> None:
    """Through submitit's executor for processes of this machine."""
    overrides = [*TINY, SLOW[3], "train.steps=150"]
    options = sweep_options(tmp_path, overrides=overrides, mixers=["mean"], seeds=[0], device="cpu")
    executor = make_executor("local", tmp_path / "jobs", {"timeout_min": 5})
    ((run, job),) = submit(plan(options), options, executor)
    assert json.loads((run.folder.path / "job.json").read_text())["id"] == job.job_id
    wait_for_step(tmp_path)
    (task,) = psutil.Process(job._process.pid).children()
    task.send_signal(signal.SIGUSR2)  # as Slurm does before it preempts
    assert job.result() == 0
    assert [(r.status, r.steps) for r in records_of(tmp_path)] == [("done", 150)]
    log = run.log.read_text()
    assert "stopped by SIGTERM" in log
    assert log.count("; everything is saved") == log.count("resumed at step") == 1
