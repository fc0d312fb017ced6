"""Twenty minutes of a GPU: the plan, a session that is cut off, and what it brings back."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path

import pytest

import run_task
from common.errors import UserError
from conftest import tiny_settings
from lra.record.benchmark import all_bench_records
from lra.record.merge import write_pack
from lra.record.packed import read_pack
from lra.record.run import load_record
from lra.train.run_folder import RunFolder
from lra.train.stopping import StopRequest
from made_results import record as made_record
from results.gpu import packs
from results.gpu.plan import ARENA, GROUPS, Item, Places, list_items
from results.gpu.run import Session, carry_out, main

CUT = """
import pathlib, signal, sys, time
place = pathlib.Path({place!r})
def save(*_):
    (place / "saved").touch()
    sys.exit(3)
if (place / "saved").exists():
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(place / "started").touch()
time.sleep(600)
"""
"""A run that saves when it is asked to end, and is done the second time."""


class StopAfter(StopRequest):
    """Stops a session as soon as a file is there."""

    def __init__(self, path: Path) -> None:
        super().__init__(600)
        self.path = path

    def reason(self, step: int, made: int, seconds: float) -> str | None:
        return "the test" if self.path.exists() else None


def item(name: str, code: str, folder: Path | None = None) -> Item:
    return Item(
        name=name, group="tests", command=["-c", code], minutes=0.1,
        folder=folder and RunFolder(folder),
    )  # fmt: skip


def places(folder: Path, *settings: str) -> Places:
    return Places(
        device="cpu", data_dir=folder / "data", results_dir=folder / "results",
        preset="quick" if settings else "paper", overrides=settings,
    )  # fmt: skip


def test_the_plan_has_all_groups_by_worth_and_commands_that_are_understood(tmp_path: Path) -> None:
    items = list_items(places(tmp_path))
    assert tuple(dict.fromkeys(one.group for one in items)) == GROUPS
    assert len({one.name for one in items}) == len(items)
    assert sum(one.group == "listops" for one in items) == len(ARENA) == 11
    chosen = list_items(places(tmp_path), ["text", "listops-performer-s0", "image"])
    assert [one.minutes for one in chosen] == pytest.approx([26.3, 26.3, 26.3, 5, 15], abs=0.1)
    for one in chosen:
        config = run_task.configure(run_task.parse_arguments([*one.command[1:]]))
        assert one.folder is not None
        assert one.folder.path.name.startswith(config.hash[:8])


def test_an_item_that_fails_is_named_and_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    items = [item("bad", "print('why'); raise SystemExit(2)"), item("good", "print('fine')")]
    assert carry_out(Session(tmp_path, StopRequest(9)), items, 9, tmp_path / "out") == 1
    out = capsys.readouterr().out
    assert "failed: bad: failed with exit code 2: why; see " in out
    assert "1 of 2 items are over" in out
    assert b"fine" in read_pack(tmp_path / "out")["gpu/good.log"]
    mended = [item("bad", ""), items[1], item("new", "")]
    with caplog.at_level(logging.INFO):
        assert carry_out(Session(tmp_path, StopRequest(9)), mended, 9, tmp_path / "out") == 0
    started = [r.message.partition(":")[0] for r in caplog.records if ": about " in r.message]
    assert started == ["new", "bad"], "what failed before is tried last, what is done never again"


def test_what_the_time_cut_off_goes_on_elsewhere(tmp_path: Path) -> None:
    items = [item("done", ""), item("cut", CUT.format(place=str(tmp_path)), tmp_path / "run")]
    items += [item("later", "")]
    first, out, second = (tmp_path / name for name in ("first", "out", "second"))
    stop = StopAfter(tmp_path / "started")
    assert carry_out(Session(first, stop), items, 10, out) == 3
    assert (tmp_path / "saved").exists()
    assert json.loads(read_pack(out)["gpu/ended.json"]) == {"done": 0}
    packs.unpack_results(out, second)
    session = Session(second, StopRequest(9))
    assert [one.name for one in session.open_items(items)] == ["cut", "later"]
    assert carry_out(session, items, 9, out) == 0


def test_an_item_that_hangs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.gpu.run.PATIENCE", 0)
    session = Session(tmp_path, StopRequest(9))
    failed = session.carry_out([item("hangs", "import time; time.sleep(600)")])
    assert "exit code -15" in failed["hangs"]


def test_what_cannot_be_cut_off_waits_for_a_time_that_is_long_enough(tmp_path: Path) -> None:
    session = Session(tmp_path, StopRequest(0.1))
    long = Item(name="long", group="tests", command=["-c", ""], minutes=1)
    assert session.carry_out([long]) == {} and not session.ended


def test_small_checkpoints_travel_and_unfinished_runs_without_one_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, target = (tmp_path / name for name in ("source", "out", "target"))
    runs = {"small": "stopped", "large": "stopped", "whole": "done"}
    for name, status in runs.items():
        folder = source / "runs" / "listops" / "tnn" / name
        (folder / "checkpoints").mkdir(parents=True)
        end = {} if status == "done" else {"test_correct": None, "test_accuracy": None}
        made_record(run_id=name, mixer="tnn", status=status, **end).save(folder)
        content = b"x" * (2000 if name == "large" else 20)
        (folder / "checkpoints" / f"step-{7:09}-{0:016x}.pt").write_bytes(content)
    monkeypatch.setattr(packs, "LARGEST", 1000 * 100)
    monkeypatch.setattr(packs, "MOST", 1000)
    assert packs.pack_results(source, out) == ["listops/tnn/large"]
    packs.unpack_results(out, target)
    found = {path.relative_to(target / "runs/listops/tnn").as_posix() for path in
             target.rglob("*") if path.is_file()}  # fmt: skip
    checkpoint = f"checkpoints/step-{7:09}-{0:016x}.pt"
    assert found == {
        "small/result.json", f"small/{checkpoint}", "whole/result.json", f"whole/{checkpoint}",
    }  # fmt: skip
    write_pack(out, {"runs/../../evil": b""})
    with pytest.raises(UserError, match="evil"):
        packs.unpack_results(out, target)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--minutes -1", "expected a finite number of at least 0"),
        ("--minutes 1 --only txt", "did you mean text?"),
        ("--minutes 1 --set train.step=3", "train.step"),
        ("--minutes 1 --from nowhere", "there is no runs.parquet"),
        ("--minutes 1 --device cuda:9", "no device 'cuda:9' here"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, words: str
) -> None:
    places = ["--device", "cpu", "--results-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    try:
        code = main([*places, *shlex.split(flags)])
    except SystemExit as end:
        code = end.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.thorough
def test_in_small_a_run_resumes_and_steps_are_measured(tmp_path: Path) -> None:
    changes = tiny_settings("train.steps=400", "train.evaluate_every=400", "log.every_steps=1")
    first = places(tmp_path, *changes)
    name, out = "listops-tnn-tnn-s0", tmp_path / "out"
    (run,) = list_items(first, [name])
    assert run.folder is not None
    session = Session(first.results_dir, StopAfter(run.folder.path / "metrics.jsonl"))
    assert carry_out(session, [run], 10, out) == 3
    place = run.folder.path.relative_to(first.results_dir)
    stopped = load_record(out / place / "result.json")
    assert stopped.status == "stopped" and stopped.steps < 400
    flags = ["--minutes", "10", "--device", "cpu", "--preset", "quick", "--out", str(out)]
    flags += ["--from", str(out), "--data-dir", str(first.data_dir)]
    flags += ["--results-dir", str(tmp_path / "second")]
    flags += [part for text in changes for part in ("--set", text)]
    assert main([*flags, "--only", name, "steps-mean"]) == 0
    log = (tmp_path / "second" / "gpu" / f"{name}.log").read_text()
    assert f"resumed at step {stopped.steps} of 400" in log
    records, faults = all_bench_records(tmp_path / "second")
    assert not faults
    assert sorted(one.precision for one in records) == ["bf16", "bf16", "fp32", "fp32"]
    assert all(one.ratio_to_reference for one in records)
