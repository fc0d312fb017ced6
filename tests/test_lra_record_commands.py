"""python -m lra.record: validate, list, merge, export, remove."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from filelock import FileLock

import lra
from conftest import ROOT
from lra.record.__main__ import main
from lra.record.run import all_records, folder_of
from lra.runtime.cli import HELD
from lra.runtime.console import csv_table
from made_results import made_records, record, save, save_all, write_predictions


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    save(tmp_path, record())
    done = subprocess.run(
        [sys.executable, "-m", "lra.record", "validate", "--results-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "valid records: 1; invalid files: 0" in done.stdout


def test_unreadable_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, record())
    broken = save(tmp_path, record(run_id="b"))
    broken.write_text("{}")
    for command in ("validate", "list", "export"):
        assert main([command, "--results-dir", str(tmp_path)]) == 1
        assert str(broken) in capsys.readouterr().err


def test_the_list_has_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = made_records(30)
    save_all(tmp_path, records)
    assert main(["list", "--results-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 31 and max(map(len, lines)) <= 80
    for one in records:
        assert any(one.run_id in line and one.status in line for line in lines)


def test_the_export_has_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_all(tmp_path, [record(overrides=["train.lr=1", "model.dim=8"]), record(mixer="s4")])
    assert main(["export", "--results-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    frame = pd.read_csv(io.StringIO(text))
    assert set(frame["overrides"].fillna("")) == {"train.lr=1; model.dim=8", ""}
    assert frame["data.source"].tolist() == ["generated"] * 2
    assert frame["baselines.majority class"].tolist() == [17.0] * 2
    assert main(["export", "--results-dir", str(tmp_path), "--csv", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text() == text


def test_merging_copies_runs_whole_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = save_all(tmp_path / "ours", [record()])
    theirs = save_all(tmp_path / "theirs", [record(), record(mixer="s4", run_id="x-s0")])
    write_predictions(theirs, record(mixer="s4", run_id="x-s0"), [(0, 0, 1)])
    (theirs / "runs" / "listops" / "s4" / "x-s0" / "checkpoints").mkdir()
    command = ["merge", str(theirs), "--results-dir", str(ours)]
    assert main(command) == 0
    assert "1 records copied" in capsys.readouterr().out
    folder = ours / "runs" / "listops" / "s4" / "x-s0"
    assert {path.name for path in folder.iterdir()} == {"result.json", "predictions.csv"}
    assert main(command) == 0
    assert "0 records copied" in capsys.readouterr().out
    assert len(all_records(ours)[0]) == 2
    assert not list(ours.rglob(".merge-*"))


def test_conflicts_are_refused_and_nothing_is_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = save_all(tmp_path / "ours", [record()])
    theirs = save_all(tmp_path / "theirs", [record(test_accuracy=41.0), record(mixer="s4")])
    before = {path: path.read_bytes() for path in ours.rglob("*") if path.is_file()}
    assert main(["merge", str(theirs), "--results-dir", str(ours)]) == 2
    error = capsys.readouterr().err
    assert "nothing was merged" in error
    assert str(theirs / "runs" / "listops" / "tnn" / "abc-s0") in error
    assert {path: path.read_bytes() for path in ours.rglob("*") if path.is_file()} == before


def test_two_sources_in_conflict_are_refused(tmp_path: Path) -> None:
    sources = [
        save_all(tmp_path / name, [record(test_accuracy=accuracy)])
        for name, accuracy in (("a", 40.0), ("b", 41.0))
    ]
    target = tmp_path / "new"
    assert main(["merge", *map(str, sources), "--results-dir", str(target)]) == 2
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate", "--results-dir", "nowhere"], "there is no folder nowhere"),
        (["merge", "nowhere"], "merge: there is no folder nowhere"),
        (["export", "--csv", "no/folder/x.csv", "--results-dir", "."], "no/folder"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_the_export_has_every_setting_and_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record(settings={"train.lr": 1e-3, "train.steps": None})
    second = record(
        mixer="s4", settings={"train.lr": 0.5, "mixer.sizes": [1, 2], "mixer.kind": "=a"}
    )
    save_all(tmp_path, [first, second])
    assert main(["export", "--results-dir", str(tmp_path)]) == 0
    lines = csv.DictReader(io.StringIO(capsys.readouterr().out))
    rows = {row["mixer"]: row for row in lines}
    assert {name: float(row["train.lr"]) for name, row in rows.items()} == {"tnn": 0.001, "s4": 0.5}
    assert [rows[n]["mixer.sizes"] for n in ("tnn", "s4")] == ["", "[1, 2]"]
    assert rows["s4"]["mixer.kind"] == "'=a"
    assert {row["train.steps"] for row in rows.values()} == {""}
    for run in (first, second):
        assert rows[run.mixer]["path"] == str(folder_of(tmp_path, run))


def test_shipped_runs_are_exported_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the unfinished run of one's own beside the shipped result, each with its folder."""
    mine, shipped = record(status="stopped"), [record(), record(mixer="s4")]
    save_all(tmp_path / "shipped", shipped)
    save_all(tmp_path, [mine])
    own = [(tmp_path, mine)]
    every = [*own, *((tmp_path / "shipped", run) for run in shipped)]
    for flags, expected in (([], own), (["--with-shipped"], every)):
        assert main(["export", "--results-dir", str(tmp_path), *flags]) == 0
        frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
        found = zip(frame["path"], frame["status"], strict=True)
        assert sorted(found) == sorted((str(folder_of(d, r)), r.status) for d, r in expected)
    assert len(lra.records(tmp_path)) == 1
    assert len(lra.records(tmp_path, with_shipped=True)) == 3


def test_the_frame_of_python_code_is_that_of_the_export(tmp_path: Path) -> None:
    save_all(tmp_path, [record(overrides=["train.lr=0.5"]), record(mixer="s4")])
    file = tmp_path / "x.csv"
    assert main(["export", "--results-dir", str(tmp_path), "--csv", str(file)]) == 0
    assert csv_table(lra.records(str(tmp_path))) == file.read_text()
    with pytest.raises(lra.UserError, match="results_dir: there is no folder nowhere"):
        lra.records("nowhere")
    with pytest.raises(lra.UserError, match="results_dir: there is no folder nowhere"):
        lra.records("nowhere", with_shipped=True)


def test_a_frame_of_no_runs(tmp_path: Path) -> None:
    assert len(lra.records(tmp_path)) == 0


def test_removed_runs_are_moved_and_can_be_moved_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = save_all(tmp_path / "my results", [record(), record(mixer="s4")])
    run = folder_of(results, record())
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "step").touch()
    before = sorted(path.relative_to(results) for path in results.rglob("*") if path.is_file())
    name = str(run.relative_to(results / "runs"))
    assert main(["remove", name, str(run), "--results-dir", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "1 run removed from the results" in shown
    assert not run.exists()
    target = tmp_path / "merged"
    assert main(["merge", str(results), "--results-dir", str(target)]) == 0
    for folder in (results, target):
        found, faults = all_records(folder)
        assert [one.mixer for one in found] == ["s4"] and not faults
    undo = shown.partition("To undo it:")[2].replace("\\\n", "")
    subprocess.run(undo, shell=True, check=True)
    assert before == sorted(p.relative_to(results) for p in results.rglob("*") if p.is_file())


def test_a_run_may_be_removed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter("12")
    monkeypatch.setattr("lra.record.remove_runs.time.strftime", lambda _: next(moments))
    for _ in range(2):
        save(tmp_path, record())
        assert main(["remove", str(folder_of(tmp_path, record()))]) == 0
    assert len(list((tmp_path / "removed").glob("*/runs/*/*/*/result.json"))) == 2


def test_nothing_is_removed_if_one_run_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_all(tmp_path, [record(), record(mixer="s4")])
    save_all(tmp_path / "shipped", [record(mixer="mega")])
    own, held, shipped = (
        str(folder_of(Path(), record(mixer=m)).relative_to("runs")) for m in ("tnn", "s4", "mega")
    )
    lock = FileLock(tmp_path / "runs" / held / "lock")
    for other, code, part in (
        (held, HELD, "a process is at work on"),
        (shipped, 2, f"came with the repository; to remove it, give its folder {tmp_path}/shipped"),
        ("listops/tnn", 2, "there is no run"),
        ("../runs", 2, "there is no run"),
        ("", 2, "there is no run"),
        ("listops/s4/../tnn", 2, "there is no run"),
    ):
        with lock:
            assert main(["remove", own, other, "--results-dir", str(tmp_path)]) == code
        assert part in capsys.readouterr().err
    assert not (tmp_path / "removed").exists()
    assert main(["remove", str(tmp_path / "shipped" / "runs" / shipped)]) == 0
