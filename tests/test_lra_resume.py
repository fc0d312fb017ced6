"""Runs that are stopped, killed or damaged, and go on exactly."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import run_task
from conftest import ROOT, tiny_arguments
from lra.record.run import RunRecord, load_record
from lra.runtime.cli import HELD, USER_ERROR
from lra.train.checkpoint import KEPT, load_newest, save_checkpoint
from lra.train.run_folder import choose_folder
from lra.train.stopping import Stopped, StopRequest
from requested import resolve
from run_checks import assert_same_run, final_state, timeless_metrics

STOPPED = run_task.EXIT_CODES["stopped"]


def only_folder(results: Path) -> Path:
    (folder,) = (results / "results" / "runs" / "listops").glob("*/*")
    return folder


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of 20 steps with dropout, made at one go."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert run_task.main(tiny_arguments(folder, *DROPOUT)) == 0
    return only_folder(folder)


DROPOUT = ("--set", "model.dropout=0.2", "--set", "model.embedding_dropout=0.1")


@pytest.mark.parametrize("stops", [[10], [1, 9, 17, 20]], ids=str)
def test_stops_change_nothing(tmp_path: Path, unbroken: Path, stops: list[int]) -> None:
    for stop in stops:
        arguments = tiny_arguments(tmp_path, *DROPOUT, "--max-steps", str(stop))
        assert run_task.main(arguments) == (STOPPED if stop < 20 else 0)
    assert run_task.main(tiny_arguments(tmp_path, *DROPOUT)) == 0
    assert_same_run(only_folder(tmp_path), unbroken)


def test_a_stopped_run_says_so_and_is_not_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, "--max-steps", "12"))
    record = load_record(only_folder(tmp_path) / "result.json")
    assert (record.status, record.steps, record.total_steps) == ("stopped", 12, 20)
    assert record.test_accuracy is None
    assert record.val_accuracy is not None
    assert record.best_step == 10
    assert "stopped by --max-steps at step 12 of 20" in capsys.readouterr().err


def test_max_minutes_stops_after_a_step_and_always_goes_on(tmp_path: Path) -> None:
    """A limit shorter than the start of a session must not keep a chain where it is."""
    for session in range(1, 4):
        assert run_task.main(tiny_arguments(tmp_path, "--max-minutes", "0")) == STOPPED
        assert load_record(only_folder(tmp_path) / "result.json").steps == session
    assert run_task.main(tiny_arguments(tmp_path)) == 0


def test_time_never_interrupts_an_evaluation(tmp_path: Path, unbroken: Path) -> None:
    run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-steps", "8"))
    for _ in range(30):
        code = run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-minutes", "0"))
        if code == 0:
            break
    assert_same_run(only_folder(tmp_path), unbroken)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--max-steps", "3"], "the same command with a higher limit or none resumes it"),
        (["--max-minutes", "0"], "the same command resumes it"),
    ],
)
def test_the_advice_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], advice: str
) -> None:
    run_task.main(tiny_arguments(tmp_path, *arguments))
    assert advice in capsys.readouterr().err
    run_task.main(tiny_arguments(tmp_path, *arguments, "--resume", "never"))
    assert "the same command without --resume never" in capsys.readouterr().err
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    assert "resumed at step" in capsys.readouterr().err


def test_attempts_are_numbered_on(tmp_path: Path) -> None:
    config = resolve("listops", "tnn", preset="quick")

    def choose(resume: str) -> str:
        return choose_folder(tmp_path, config, 5, resume).path.name

    name = choose("auto")
    assert name == choose("never") == f"{config.hash[:8]}-s5"
    parent = tmp_path / "runs/listops/tnn"
    (parent / f"{name}-r3").mkdir(parents=True)
    (parent / f"{name}-r3.bak").mkdir()
    (parent / f"{name}0").mkdir()
    assert choose("auto") == f"{name}-r3"
    assert choose("never") == f"{name}-r4"


def test_an_unfinished_run_without_checkpoints_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a clone: records come along, checkpoints do not."""
    run_task.main(tiny_arguments(tmp_path, "--max-steps", "12"))
    folder = only_folder(tmp_path)
    shutil.rmtree(folder / "checkpoints")
    kept = [(folder / name).read_bytes() for name in ("result.json", "metrics.jsonl")]
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    assert "without its checkpoints; use --resume never" in capsys.readouterr().err
    assert [(folder / name).read_bytes() for name in ("result.json", "metrics.jsonl")] == kept
    assert run_task.main(tiny_arguments(tmp_path, "--resume", "never")) == 0


def test_another_device_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, "--max-steps", "15"))
    monkeypatch.setattr("lra.train.session.device_name", lambda device: "another device")
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    assert "its speed and memory are measured again" in capsys.readouterr().err
    assert len(final_state(only_folder(tmp_path))["step_seconds"]) == 2  # of 5, 3 to warm up


def test_a_closed_pipe_does_not_end_training(tmp_path: Path) -> None:
    line = f"{sys.executable} run_task.py {shlex.join(tiny_arguments(tmp_path))} 2>&1 | head -1"
    subprocess.run(["bash", "-c", line], cwd=ROOT, check=True, capture_output=True)
    assert load_record(only_folder(tmp_path) / "result.json").status == "done"


def test_a_finished_run_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    before = (only_folder(tmp_path) / "result.json").read_bytes()
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    assert "this run is done already" in capsys.readouterr().err
    assert (only_folder(tmp_path) / "result.json").read_bytes() == before
    assert run_task.main(tiny_arguments(tmp_path, "--resume", "never")) == 0
    folders = sorted((tmp_path / "results/runs/listops/tnn").iterdir())
    assert [folder.name for folder in folders] == [folders[0].name, f"{folders[0].name}-r2"]
    assert_same_run(*folders)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        content[len(content) // 2] ^= 255
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("how", ["truncated", "empty", "corrupt"])
def test_damaged_checkpoints_fall_back(
    tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-steps", "7"))
    run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-steps", "13"))
    newest = max((only_folder(tmp_path) / "checkpoints").iterdir())
    damage(newest, how)
    capsys.readouterr()
    assert run_task.main(tiny_arguments(tmp_path, *DROPOUT)) == 0
    shown = capsys.readouterr().err
    assert "is damaged (its content does not have the checksum in its name)" in shown
    assert "resumed at step 10 of 20" in shown
    assert_same_run(only_folder(tmp_path), unbroken)


def test_other_settings_or_data_refuse_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, "--max-steps", "3"))
    checkpoints = only_folder(tmp_path) / "checkpoints"
    state = load_newest(checkpoints)
    assert state is not None
    state["identity"]["train"]["lr"] = 0.125
    state["identity"]["data"]["fingerprint"] = "0123"
    save_checkpoint(checkpoints, 4, state)
    capsys.readouterr()
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    message = capsys.readouterr().err
    assert "data.fingerprint was '0123', is '" in message
    assert "train.lr was 0.125, is 0.002" in message
    assert "--resume never" in message


def test_a_finished_run_of_other_data_is_not_shown_as_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    path = only_folder(tmp_path) / "result.json"
    record = load_record(path)
    other = record.data.model_copy(update={"fingerprint": "0123"})
    record.model_copy(update={"data": other}).save(path.parent)
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    assert "fingerprint was '0123', is '" in capsys.readouterr().err


def test_a_run_without_whole_checkpoints_says_that_it_starts_anew(
    tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-steps", "5"))
    for path in (only_folder(tmp_path) / "checkpoints").iterdir():
        damage(path, "truncated")
    assert run_task.main(tiny_arguments(tmp_path, *DROPOUT)) == 0
    assert "all checkpoints are damaged; the run starts again at step 0" in capsys.readouterr().err
    assert_same_run(only_folder(tmp_path), unbroken)


def test_two_processes_do_not_share_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from filelock import FileLock

    run_task.main(tiny_arguments(tmp_path, "--max-steps", "3"))
    with FileLock(only_folder(tmp_path) / "lock"):
        assert run_task.main(tiny_arguments(tmp_path)) == HELD
    assert "another process is at work on" in capsys.readouterr().err


def test_a_diverging_run_stops_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    norm = ("--set", "model.norm=layer", "--set", "train.warmup_steps=0")
    more = (*norm, "--set", "train.schedule=constant", "--set", "train.lr=1e30")
    assert run_task.main(tiny_arguments(tmp_path, *more)) == run_task.EXIT_CODES["diverged"]
    message = capsys.readouterr().err
    assert "is not finite (task listops, mixer tnn, learning rate 1e+30)" in message
    record = load_record(only_folder(tmp_path) / "result.json")
    assert record.status == "diverged"
    assert record.test_accuracy is None
    assert "not finite" in (record.message or "")
    assert run_task.main(tiny_arguments(tmp_path, *more)) == run_task.EXIT_CODES["diverged"]


@pytest.mark.parametrize("message", ["CUDA", "CPU"])
def test_out_of_memory_names_a_batch_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    message: str,
) -> None:
    from lra.train.gradient import Gradient

    def fail(self: Gradient, *_: object) -> None:
        if message == "CUDA":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(Gradient, "backward", fail)
        assert run_task.main(tiny_arguments(tmp_path)) == run_task.EXIT_CODES["oom"]
    assert "--set train.micro_batch=8" in capsys.readouterr().err
    assert load_record(only_folder(tmp_path) / "result.json").status == "oom"
    assert run_task.main(tiny_arguments(tmp_path)) == 0


def test_micro_batches_accumulate_the_same_gradient(tmp_path: Path) -> None:
    norm = ("--set", "model.norm=layer")
    assert run_task.main(tiny_arguments(tmp_path / "a", *norm)) == 0
    micro = ("--set", "train.micro_batch=5")
    assert run_task.main(tiny_arguments(tmp_path / "b", *norm, *micro)) == 0
    whole, parts = (final_state(only_folder(tmp_path / name)) for name in "ab")
    for key, tensor in whole["model"].items():
        torch.testing.assert_close(parts["model"][key], tensor, rtol=2e-2, atol=2e-3)


def test_test_set_is_measured_at_the_best_step(tmp_path: Path) -> None:
    """A rate that ruins the model late must not ruin the result."""
    assert run_task.main(tiny_arguments(tmp_path, "--set", "train.evaluate_every=1")) == 0
    folder = only_folder(tmp_path)
    values = {
        line["step"]: line["val_accuracy"]
        for line in timeless_metrics(folder)
        if "val_accuracy" in line
    }
    record = load_record(folder / "result.json")
    assert len(values) == 20
    assert record.val_accuracy == max(values.values())
    assert record.best_step == min(s for s, v in values.items() if v == record.val_accuracy)
    assert record.selected_on == "val"


def test_only_plain_values_are_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    save_checkpoint(tmp_path, 1, {"bad": RunRecord})
    assert load_newest(tmp_path) is None
    assert "weights_only" in caplog.text.lower().replace("weights only", "weights_only")


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("lra.train.session.device_name", "this run could not be recorded: device: Value error, "),
        ("tasks.listops.task.PackedExpressions.metadata", "the metadata of listops is damaged"),
    ],
)
def test_what_could_not_be_recorded_ends_a_run_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    where: str, part: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(where, lambda *_: "x\x1b" if "device" in where else int("x"))
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    told = capsys.readouterr().err
    assert part in told
    assert "validation accuracy" not in told


def test_checkpoints_kept(tmp_path: Path) -> None:
    for step in range(5):
        save_checkpoint(tmp_path, step, {"step": step})
    names = sorted(path.name[:14] for path in tmp_path.iterdir())
    assert names == ["step-000000003", "step-000000004"]
    assert len(names) == KEPT
    assert load_newest(tmp_path / "nowhere") is None


def test_stop_request_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped, match="SIGTERM"):
            stop.check_signal()
    assert signal.getsignal(signal.SIGTERM) == before
