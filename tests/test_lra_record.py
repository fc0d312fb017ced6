"""Records, loose and packed, and the commands on them: python -m lra.record."""

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import lra
from lra.common.errors import UserError
from lra.common.spreadsheets import write_csv
from lra.goals.result import AccuracyResult
from lra.record.__main__ import main
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.merge import write_pack
from lra.record.packed import PACK, list_files, read_file
from lra.record.run import folder_of, load_record, read_runs
from lra.report.data import Data
from made_results import (
    bench_record,
    next_token_run,
    record,
    save,
    save_all,
    save_evaluation,
    write_metrics,
    write_predictions,
)

RUN = record(overrides=["train.lr=0.5"], settings={"train.steps": 3, "mixer.kind": "=a"})
NAME = f"{RUN.task}/{RUN.mixer}/{RUN.run_id}"


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """A results folder with two runs, a measurement, an evaluation, metrics and predictions."""
    results = save_all(tmp_path / "loose", [RUN, record(mixer="s4")])
    write_metrics(results, RUN, [10.0, 20.0])
    write_predictions(results, RUN, [(0, 0, 1)] * 800 + [(0, 1, 1)] * 1200)
    save_evaluation(results, RUN, 4096, 2.0)
    bench_record().save(results / "bench")
    return results


def shipped(loose: Path, *names: str) -> Path:
    target = loose.with_name("packed")
    assert main(["ship", *names, "--results-dir", str(loose), "--to", str(target)]) == 0
    return target


def contents(folder: Path) -> dict[Path, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".merge.lock"]
    return {path.relative_to(folder): path.read_bytes() for path in files}


TESTED = {"goal": "class", "test_accuracy": 40.0, "test_correct": 800, "test_total": 2000}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": "many"},
        {"extra": 1},
        {"schema_version": 1},
        {"peak_memory_mib": float("inf")},
        {"result": {"goal": "votes"}},
        {"result": TESTED | {"test_accuracy": 41.0}},
        {"result": TESTED | {"test_non_finite": 1201}},
        {"result": TESTED | {"test_correct": None}},
        {"status": "stopped"},
        {"changed": ["train.lrr"]},
        {"run_id": "../../escaped"},
        {"git": {"commit": "\x1b[2J"}},
    ],
)
def test_records_out_of_the_schema_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = save(tmp_path, record())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match="not a record of schema 3"):
        load_record(path)


def test_records_of_schema_2_are_read(tmp_path: Path) -> None:
    """Their results stood beside other fields, and told their goal by what was there."""
    for number, run in enumerate((record(), next_token_run(1.5), record(status="stopped"))):
        path = save(tmp_path / str(number), run)
        now = json.loads(path.read_text())
        result = now.pop("result")
        shared = {name: result.pop(name) for name in AccuracyResult.model_fields}
        positions = result if result.pop("goal") == "next token" else None
        path.write_text(json.dumps({**now, **shared, "positions": positions, "schema_version": 2}))
        assert load_record(path) == run


def test_a_table_of_runs_names_goals_in_one_column(tmp_path: Path) -> None:
    """What one goal alone measures has a column of its own."""
    for number, run in enumerate((record(), next_token_run(1.5))):
        save(tmp_path, run.model_copy(update={"run_id": f"{number}-s0"}))
    frame = lra.records(tmp_path)
    assert frame.set_index("goal")["positions.bits_per_byte"].dropna().to_dict() == {
        "next token": 1.5
    }


def test_damaged_and_misplaced_records_are_named_and_left_out(
    loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (measured,) = (loose / "bench").rglob("*.json")
    (evaluated,) = loose.rglob("evaluation-*.json")
    measured.with_name("mine.json").write_bytes(measured.read_bytes())
    evaluated.with_name("evaluation-00000000.json").write_text('{"half')
    (folder_of(loose, record(mixer="s4")) / "result.json").write_text("{}")
    folder_of(loose, RUN).rename(folder_of(loose, RUN).with_name("abc-s1"))
    evaluated = folder_of(loose, RUN).with_name("abc-s1") / evaluated.name
    runs, faults = read_runs(loose)
    assert not runs
    assert [fault.partition(": ")[0] for fault in faults] == [
        str(loose / "runs/listops/s4/abc-s0/result.json"),
        str(loose / "runs/listops/tnn/abc-s1/result.json"),
    ]
    assert f"move it to {folder_of(loose, RUN)}" in faults[1]
    found, faults = evaluations_of(evaluated.parent)
    assert (len(found), len(faults)) == (1, 1)
    found, faults = all_bench_records(loose)
    assert len(found) == 1
    assert f"move it to {measured}" in faults[0]
    for command in ("validate", "list", "export"):
        assert main([command, "--results-dir", str(loose)]) == 1
        assert str(loose / "runs/listops/s4/abc-s0/result.json") in capsys.readouterr().err


def test_the_list_is_cut_on_a_terminal_alone_and_has_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ["model.dim=8", "model.depth=9", "train.lr=0.25", "train.epsilon=0.5"]
    save_all(tmp_path, [record(run_id="a"), record(run_id="b", label="wide", overrides=many)])
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda value=is_terminal: value)
        assert main(["list", "--results-dir", str(tmp_path)]) == 0
        heading, *lines = capsys.readouterr().out.splitlines()
        assert heading.split()[-1] == "label" and lines[-1].split()[-1] == "wide"
        assert is_terminal != (", ".join(many) in lines[-1])


def test_the_list_has_every_run(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--results-dir", str(loose)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["listops/s4/abc-s0", "paper", "done", "40.00"],
        ["listops/tnn/abc-s0", "paper", "done", "40.00", "train.lr=0.5"],
    ]


def test_the_export_has_every_field_and_setting(
    loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as the frame of Python code, but for the rows of a leaderboard."""
    file, link = loose / "x.csv", loose / "link"
    link.symlink_to(file)
    assert main(["export", "--results-dir", str(loose), "--csv", str(link)]) == 0
    assert main(["export", "--results-dir", str(loose)]) == 0
    text = capsys.readouterr().out
    frame = lra.records(loose).drop(columns="leaderboard_row")
    assert file.read_text() == text == write_csv(frame)
    rows = {row["mixer"]: row for row in csv.DictReader(io.StringIO(text))}
    assert rows["tnn"]["overrides"] == "train.lr=0.5"
    assert [rows[name]["train.lr"] for name in ("tnn", "s4")] == ["0.5", ""]
    assert rows["tnn"]["mixer.kind"] == "'=a"
    assert {row["data.source"] for row in rows.values()} == {"generated"}
    assert {row["baselines.majority class"] for row in rows.values()} == {"17.0"}
    assert rows["tnn"]["path"] == str(folder_of(loose, RUN))
    low, high = (float(rows["tnn"][name]) for name in ("test_low", "test_high"))
    assert 37 < low < 40 < high < 43
    with pytest.raises(UserError, match="results_dir: there is no folder nowhere"):
        lra.records("nowhere")


def test_shipped_runs_are_exported_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of one's own replaces the shipped one; without a result it is beside it."""
    save_all(tmp_path / "shipped", [RUN, record(mixer="s4"), record(mixer="mega")])
    save_all(tmp_path, [record(status="stopped"), record(mixer="s4", device="mine")])
    assert len(lra.records(tmp_path)) == 2
    assert main(["export", "--results-dir", str(tmp_path), "--with-shipped"]) == 0
    frame = pd.read_csv(io.StringIO(capsys.readouterr().out))
    rows = zip(frame["mixer"], frame["status"], frame["is_own"], frame["device"], strict=True)
    assert set(rows) == {
        ("tnn", "stopped", True, "CPU"), ("tnn", "done", False, "CPU"),
        ("s4", "done", True, "mine"), ("mega", "done", False, "CPU"),
    }  # fmt: skip


def test_packed_runs_are_read_as_others(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = shipped(loose)
    assert {path.name for path in packed.iterdir()} == {PACK, ".merge.lock"}
    one, other = Data(loose), Data(packed)
    assert (one.records, one.bench, other.faults) == (other.records, other.bench, [])
    run = next(run for run in one.records if run.mixer == RUN.mixer)
    assert one.metrics(run) == other.metrics(run) != []
    assert one.evaluations(run) == other.evaluations(run) != []
    first, second = one.predictions(run), other.predictions(run)
    assert first is not None and second is not None and first.same_examples(second)
    places = [folder_of(folder, RUN) for folder in (loose, packed)]
    listed = [[path.name for path in list_files(place, "e*.json")] for place in places]
    assert listed[0] == listed[1] != []
    capsys.readouterr()
    assert main(["validate", "--results-dir", str(packed)]) == 0
    assert "valid records: 4; invalid files: 0" in capsys.readouterr().out


def test_merging_copies_whole_runs_once_packed_or_not(
    loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what was packed is byte-equal."""
    (folder_of(loose, RUN) / "checkpoints").mkdir()
    packed, target = shipped(loose), loose.with_name("target")
    command = ["merge", str(packed), str(loose), "--results-dir", str(target)]
    assert main(command) == 0
    assert "4 records copied" in capsys.readouterr().out
    assert contents(target) == contents(loose)
    assert not list(target.rglob("checkpoints"))
    assert main(command) == 0
    assert "0 records copied" in capsys.readouterr().out
    before = (packed / PACK).read_bytes()
    (packed / PACK).unlink()
    assert (shipped(target) / PACK).read_bytes() == before


def test_one_run_is_shipped(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = shipped(loose, NAME)
    assert [run for _, run in read_runs(packed)[0]] == [RUN]
    assert main(["ship", "a/b/c", "--results-dir", str(loose), "--to", str(packed)]) == 2
    assert "there is no run" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["merge", "ship"])
def test_conflicts_are_refused_and_nothing_is_copied(
    command: str, loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = save_all(loose.with_name("theirs"), [record(test_accuracy=41.0), record(mixer="x")])
    target = shipped(loose) if command == "ship" else loose
    before = contents(target)
    folders = ["--results-dir", str(theirs), "--to", str(target)]
    merged = [str(theirs), "--results-dir", str(target)]
    assert main([command, *(folders if command == "ship" else merged)]) == 2
    error = capsys.readouterr().err
    assert "nothing was merged" in error
    assert str(folder_of(theirs, RUN)) in error
    assert contents(target) == before
    new = loose.with_name("new")
    assert main(["merge", str(loose), str(theirs), "--results-dir", str(new)]) == 2
    assert not new.exists()
    write_pack(target, {f"{folder_of(Path(), record(mixer='x'))}/config.yaml": b"other"})
    (folder_of(theirs, RUN) / "result.json").unlink()
    (folder_of(theirs, record(mixer="x")) / "config.yaml").touch()
    assert main([command, *(folders if command == "ship" else merged)]) == 2 * (command == "ship")


def test_a_changed_pack_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "runs/a/b/c/x.json"
    for content in (b"first", b"another"):
        write_pack(tmp_path, {"runs/a/b/c/x.json": content})
        assert read_file(path) == content
