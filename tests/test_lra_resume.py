"""Runs that are stopped, killed or damaged, and go on exactly."""

import shutil
from pathlib import Path

import pytest

from conftest import tiny_arguments
from lra import run_task
from lra.record.run import load_record
from lra.runtime.cli import USER_ERROR
from lra.train.checkpoint import load_newest, save_checkpoint
from run_checks import assert_same_run

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


def test_stops_change_nothing(tmp_path: Path, unbroken: Path) -> None:
    for stop in (1, 9, 10, 20):
        arguments = tiny_arguments(tmp_path, *DROPOUT, "--max-steps", str(stop))
        assert run_task.main(arguments) == (STOPPED if stop < 20 else 0)
    assert run_task.main(tiny_arguments(tmp_path, *DROPOUT)) == 0
    assert_same_run(only_folder(tmp_path), unbroken)


def test_a_stopped_run_goes_on_where_a_limit_is_shorter_than_the_start_of_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for session in (1, 2):
        assert run_task.main(tiny_arguments(tmp_path, "--max-minutes", "0")) == STOPPED
        record = load_record(only_folder(tmp_path) / "result.json")
        assert (record.status, record.steps, record.total_steps) == ("stopped", session, 20)
    assert "stopped by --max-minutes at step 1 of 20;" in capsys.readouterr().err


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
    # Nor is one of other data shown as this one.
    record = load_record(folders[1] / "result.json")
    other = record.data.model_copy(update={"fingerprint": "0123"})
    record.model_copy(update={"data": other}).save(folders[1])
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    assert "data was '0123', is '" in capsys.readouterr().err


@pytest.mark.parametrize("both", [False, True])
def test_damaged_checkpoints_fall_back(
    tmp_path: Path, unbroken: Path, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    run_task.main(tiny_arguments(tmp_path, *DROPOUT, "--max-steps", "13"))
    newest_first = sorted((only_folder(tmp_path) / "checkpoints").iterdir(), reverse=True)
    for path in newest_first if both else newest_first[:1]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(bytes(content))
    assert run_task.main(tiny_arguments(tmp_path, *DROPOUT)) == 0
    shown = capsys.readouterr().err
    assert "is damaged (its content does not have the checksum in its name)" in shown
    assert ("the run starts again at step 0" if both else "resumed at step 10 of 20") in shown
    assert_same_run(only_folder(tmp_path), unbroken)


def test_other_settings_or_data_refuse_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task.main(tiny_arguments(tmp_path, "--max-steps", "3"))
    checkpoints = only_folder(tmp_path) / "checkpoints"
    state = load_newest(checkpoints)
    assert state is not None
    state["identity"]["hash"], state["identity"]["data"] = "89ab", "0123"
    save_checkpoint(checkpoints, 3, state)
    assert run_task.main(tiny_arguments(tmp_path)) == USER_ERROR
    message = capsys.readouterr().err
    assert "hash was '89ab', is '" in message and "data was '0123', is '" in message


def test_out_of_memory_names_a_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("lra.train.gradient.Gradient.backward", fail)
        assert run_task.main(tiny_arguments(tmp_path)) == run_task.EXIT_CODES["oom"]
    advice = "--set train.micro_batch=8, which keeps the batch size, but not what a batch norm"
    assert advice in capsys.readouterr().err
    assert load_record(only_folder(tmp_path) / "result.json").status == "oom"
    assert run_task.main(tiny_arguments(tmp_path)) == 0


def test_a_diverging_run_stops_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    norm = ("--set", "model.norm=layer", "--set", "train.warmup_steps=0")
    more = (*norm, "--set", "train.schedule=constant", "--set", "train.lr=1e30")
    assert run_task.main(tiny_arguments(tmp_path, *more)) == run_task.EXIT_CODES["diverged"]
    message = capsys.readouterr().err
    assert "is not finite (learning rate 1e+30)" in message
    record = load_record(only_folder(tmp_path) / "result.json")
    assert (record.status, record.test_accuracy) == ("diverged", None)
    assert run_task.main(tiny_arguments(tmp_path, *more)) == run_task.EXIT_CODES["diverged"]


@pytest.mark.parametrize(
    ("where", "part"),
    [
        (
            "lra.train.run_record.device_name",
            "this run could not be recorded: device: holds control characters",
        ),
        ("lra.tasks.listops.task.PackedExpressions.metadata", "the metadata of listops is damaged"),
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
