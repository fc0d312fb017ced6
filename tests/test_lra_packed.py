"""Packed runs, and records of earlier versions: they are read as others are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lra
from common.errors import DataError
from conftest import ROOT
from lra.record.__main__ import main
from lra.record.packed import PACK, list_files_of, read_file, read_pack, unpack, write_pack
from lra.record.run import folder_of, load_record
from lra.record.table import read_runs
from lra.report.data import Data
from lra.runtime.errors import UserError
from made_results import (
    bench_record,
    record,
    save,
    save_all,
    save_evaluation,
    write_as_schema_1,
    write_metrics,
    write_predictions,
)

RUN = record(overrides=["train.lr=0.5"], settings={"train.steps": 3}, test_accuracy=40.0)
NAME = f"{RUN.task}/{RUN.mixer}/{RUN.run_id}"


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """A results folder with two runs, a measurement, an evaluation, metrics and predictions."""
    results = save_all(tmp_path / "loose", [RUN, record(mixer="s4")])
    write_metrics(results, RUN, [10.0, 20.0])
    write_predictions(results, RUN, [(0, 0, 1)] * 800 + [(0, 1, 1)] * 1200)
    save_evaluation(results, RUN, 4096, 2.0)
    bench_record().save(results / "bench")
    (folder_of(results, RUN) / "checkpoints").mkdir()
    return results


def shipped(loose: Path, *names: str) -> Path:
    target = loose.with_name("packed")
    assert main(["ship", *names, "--results-dir", str(loose), "--to", str(target)]) == 0
    return target


def test_packed_runs_are_read_as_others(loose: Path) -> None:
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
    listed = [[path.name for path in list_files_of(place, "e*.json")] for place in places]
    assert listed[0] == listed[1] != []


def test_a_round_trip_is_byte_equal(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = shipped(loose)
    again = loose.with_name("again")
    assert main(["unpack", "--results-dir", str(packed), "--to", str(again)]) == 0
    files = {path.relative_to(loose) for path in loose.rglob("*") if path.is_file()}
    assert {path.relative_to(again) for path in again.rglob("*") if path.is_file()} == files
    assert all((again / file).read_bytes() == (loose / file).read_bytes() for file in files)
    packed.rename(packed.with_name("before"))
    shipped(again)
    assert (packed / PACK).read_bytes() == (packed.with_name("before") / PACK).read_bytes()
    capsys.readouterr()
    assert main(["validate", "--results-dir", str(packed)]) == 0
    assert "valid records: 4; invalid files: 0" in capsys.readouterr().out


def test_one_run_is_shipped_and_unpacked(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = shipped(loose, NAME)
    assert [run.mixer for _, run in read_runs(packed)[0]] == [RUN.mixer]
    assert main(["ship", NAME, "--results-dir", str(loose), "--to", str(packed)]) == 0
    assert "0 records added" in capsys.readouterr().out
    assert main(["unpack", NAME, "--results-dir", str(packed)]) == 0
    assert load_record(folder_of(packed, RUN) / "result.json") == RUN
    for command in ("ship", "unpack"):
        assert main([command, "listops/tnn/x", "--results-dir", str(packed)]) == 2
        assert "listops/tnn/x" in capsys.readouterr().err


def test_another_record_of_the_name_is_not_shipped(
    loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = shipped(loose)
    before = (packed / PACK).read_bytes()
    other = save_all(loose.with_name("other"), [record(test_accuracy=41.0)])
    assert main(["ship", "--results-dir", str(other), "--to", str(packed)]) == 2
    assert "keep one of each" in capsys.readouterr().err
    assert (packed / PACK).read_bytes() == before


def test_packed_runs_are_merged(loose: Path) -> None:
    packed, target = shipped(loose), loose.with_name("target")
    assert main(["merge", str(packed), "--results-dir", str(target)]) == 0
    assert [run for _, run in read_runs(target)[0]] == [run for _, run in read_runs(loose)[0]]
    assert (folder_of(target, RUN) / "metrics.jsonl").is_file()


def test_ones_own_run_counts_before_a_packed_one(loose: Path) -> None:
    packed = shipped(loose)
    results = packed.with_name("results")
    results.mkdir()
    packed.rename(results / "shipped")
    save(results, RUN.model_copy(update={"device": "mine"}))
    frame = lra.records(results, with_shipped=True)
    rows = zip(frame["mixer"], frame["is_own"], frame["device"], strict=True)
    found = {mixer: values for mixer, *values in rows}
    assert found["tnn"] == [True, "mine"]
    assert found["s4"] == [False, "CPU"]
    assert frame["train.lr"].tolist().count(0.5) == 1
    assert set(frame["overrides"]) == {"train.lr=0.5", ""}
    low, high = frame[["test_low", "test_high"]].iloc[0]
    assert low < 40 < high


@pytest.mark.parametrize("name", ["../escaped", "runs/..", "a/b/c/d/e/f", "/etc", ""])
def test_paths_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    write_pack(tmp_path, {f"{name}/result.json": b"{}"})
    with pytest.raises(DataError, match="is no path of a file of results"):
        unpack(tmp_path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1" + b"\0" * 99, b"text"])
def test_a_damaged_pack_is_one_line(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / PACK).write_bytes(content)
    assert main(["validate", "--results-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / PACK} is damaged or incomplete" in said
    assert said.count("\n") == 1


def test_another_table_is_no_pack(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / PACK)
    with pytest.raises(DataError, match="damaged or incomplete"):
        read_pack(tmp_path)


def test_a_changed_pack_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "runs/a/b/c/x.json"
    for content in (b"first", b"another"):
        write_pack(tmp_path, {"runs/a/b/c/x.json": content})
        assert read_file(path) == content


def test_the_shipped_runs_can_be_packed_again(tmp_path: Path) -> None:
    packs = sorted((ROOT / "results").rglob(PACK))
    assert len(packs) > 5
    for pack in packs:
        write_pack(tmp_path, read_pack(pack.parent))
        assert (tmp_path / PACK).read_bytes() == pack.read_bytes()


OLD_CONFIG = """\
# task_name: listops
task:
  source: auto                 # configs/tasks/listops.yaml
mixer:
train:
  steps: 20      # configs/tasks/listops.yaml (presets.quick), in place of train.epochs
  lr: 0.5                      # --set train.lr=0.5
  epochs: null                 # default
"""


def old_run(results: Path, config: str) -> Path:
    settings = {"task.source": "auto", "train.steps": 20, "train.epochs": None}
    path = save(results, record(overrides=["train.lr=0.5"], settings=settings))
    write_as_schema_1(path.parent)
    path.with_name("config.yaml").write_text(config)
    return path


def test_a_record_of_schema_1_gets_its_settings_from_the_file_beside_it(tmp_path: Path) -> None:
    path = old_run(tmp_path, OLD_CONFIG)
    assert json.loads(path.read_text())["overrides"] == ["train.lr=0.5"]
    found = load_record(path)
    assert found.settings == {
        "task.source": "auto", "train.steps": 20, "train.lr": 0.5, "train.epochs": None,
    }  # fmt: skip
    assert found.changed == ["train.lr"]
    assert found.origins == {
        "task.source": "configs/tasks/listops.yaml",
        "train.steps": "configs/tasks/listops.yaml (presets.quick), in place of train.epochs",
        "train.lr": "--set train.lr=0.5",
    }
    shutil.copytree(path.parent, path.parent.with_name("copy"))
    found.save(path.parent)
    assert load_record(path) == found


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (OLD_CONFIG.replace("lr: 0.5", "lr: 0.4"), "config.yaml has train.lr=0.4, and the run had"),
        ("- 1\n", "config.yaml has no settings of a run"),
        ("train: [", "not valid YAML"),
        ("a b:\n  x: 1\ntrain:\n  lr: 0.5\n", "settings"),
    ],
)
def test_settings_that_are_not_those_of_an_old_run_are_refused(
    tmp_path: Path, config: str, fault: str
) -> None:
    path = old_run(tmp_path, config)
    with pytest.raises(UserError, match=fault):
        load_record(path)


def test_an_old_run_without_settings_is_refused(tmp_path: Path) -> None:
    path = old_run(tmp_path, "")
    path.with_name("config.yaml").unlink()
    with pytest.raises(UserError, match=r"config\.yaml"):
        load_record(path)
