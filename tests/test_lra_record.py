"""Records and the tables made from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import report
from lra.errors import UserError
from lra.record import RunRecord, all_records, load_record
from lra.tables import (
    PUBLISHED,
    _is_variant,
    accuracy_table,
    counted,
    outcome,
    published_rows,
    runs_table,
    task_table,
)


def record(**changes: object) -> RunRecord:
    values = {
        "run_id": "abc-s0", "task": "listops", "mixer": "tnn", "preset": "paper",
        "protocol": "s4", "overrides": [], "seed": 0, "status": "done", "message": None,
        "test_accuracy": 40.0, "test_correct": 800, "test_total": 2000, "val_accuracy": 41.0,
        "selected_on": "val", "best_step": 10, "steps": 20, "total_steps": 20, "epochs": 1.0,
        "steps_per_second": 2.5, "flops_per_step": 1e9, "peak_memory_mib": 100.0, "params": 1000,
        "length": 2048, "batch_size": 32, "wall_seconds": 9.0,
        "device": "CPU", "precision": "fp32", "versions": {}, "git": {}, "config_hash": "abc",
        "baselines": {"majority class": 17.0}, "data": {
            "source": "generated", "fingerprint": "f", "sizes": {"train": 1}},
    }  # fmt: skip
    return RunRecord.model_validate({**values, **changes})


NOT_DONE = {"test_accuracy": None, "test_correct": None, "test_total": None}


def save(results: Path, saved: RunRecord) -> Path:
    folder = results / "runs" / saved.task / saved.mixer / saved.run_id
    folder.mkdir(parents=True)
    saved.save(folder)
    return folder / "result.json"


def test_records_survive_a_round_trip(tmp_path: Path) -> None:
    assert load_record(save(tmp_path, record())) == record()


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values.pop("steps"),
        lambda values: values.update(extra=1),
        lambda values: values.update(schema_version=99),
        lambda values: values.update(status="fine"),
        lambda values: values.update(steps="many"),
    ],
)
def test_records_out_of_the_schema_are_refused(tmp_path: Path, damage) -> None:
    path = save(tmp_path, record())
    values = json.loads(path.read_text())
    damage(values)
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="not a record of schema 1"):
        load_record(path)


def test_unreadable_records_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, record())
    broken = save(tmp_path, record(run_id="other"))
    broken.write_text('{"half')
    records, faults = all_records(tmp_path)
    assert len(records) == 1
    assert str(broken) in faults[0]
    assert report.main(["--results-dir", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "left out" in captured.err
    assert "| tnn" in captured.out


def test_outcomes() -> None:
    assert outcome([]) == "-"
    assert outcome([record()]) == "40.00 (n=1)"
    assert outcome([record(), record(seed=1, test_accuracy=44.0)]) == "42.00 ± 2.83 (n=2)"
    stopped = record(seed=1, status="stopped", **NOT_DONE)
    assert outcome([stopped]) == "stopped"
    assert outcome([record(), stopped]) == "40.00 (n=1), stopped"
    assert outcome([record(status="oom", **NOT_DONE)]) == "oom"


def test_a_seed_counts_once() -> None:
    repeat = record(run_id="abc-s0-r2", test_accuracy=44.0)
    assert outcome(counted([repeat, record()])) == "44.00 (n=1)"
    unfinished = record(run_id="abc-s0-r10", status="stopped", **NOT_DONE)
    assert outcome(counted([unfinished, repeat, record()])) == "44.00 (n=1)"


def cells(table: str) -> list[dict[str, str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def test_measured_and_published_never_share_a_column() -> None:
    rows = cells(accuracy_table([record(), record(preset="quick", test_accuracy=60.0)]))
    ours = [row for row in rows if row["method"] == "tnn"]
    assert [row["listops, measured"] for row in ours] == ["40.00 (n=1)", "60.00 (n=1)"]
    assert {row["listops, published"] for row in ours} == {"-"}
    theirs = {row["method"]: row for row in rows if row["method"] != "tnn"}
    assert theirs["TNN"]["listops, published"] == "61.04"
    assert theirs["TNN (rerun by SKI authors)"]["pathx, published"] == "-"
    assert theirs["Transformer"]["pathx, published"] == "FAIL"
    assert {row["listops, measured"] for row in theirs.values()} == {"-"}
    assert "text, measured" not in rows[0]


@pytest.mark.parametrize(
    "change",
    [
        {"preset": "quick"},
        {"protocol": "lra"},
        {"overrides": ["train.lr=1"]},
        {"data": {"source": "official", "fingerprint": "g", "sizes": {}}},
    ],
)
def test_runs_of_different_settings_never_share_a_row(change: dict[str, object]) -> None:
    rows = cells(accuracy_table([record(), record(seed=1, **change)]))
    assert [row["listops, measured"] for row in rows if row["method"] == "tnn"] == [
        "40.00 (n=1)", "40.00 (n=1)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"config_hash": "other"},
        {"data": {"source": "generated", "fingerprint": "g", "sizes": {}}},
    ],
)
def test_a_changed_file_parts_rows_that_read_the_same(change: dict[str, object]) -> None:
    rows = cells(accuracy_table([record(), record(seed=1, test_accuracy=44.0, **change)]))
    ours = [row for row in rows if row["method"] == "tnn"]
    assert [row["listops, measured"] for row in ours] == ["40.00 (n=1)", "44.00 (n=1)"]
    assert len({row["setting"] for row in ours}) == 2


def test_a_task_of_ones_own_gets_its_column(tmp_path: Path) -> None:
    own = record(task="adding")
    save(tmp_path, own)
    (row,) = [row for row in cells(accuracy_table([own])) if row["method"] == "tnn"]
    assert row["adding, measured"] == "40.00 (n=1)"
    assert "| tnn" in task_table(tmp_path, own)


def test_task_table_shows_the_run_guesses_and_published(tmp_path: Path) -> None:
    save(tmp_path, record())
    save(tmp_path, record(run_id="q", preset="quick", test_accuracy=60.0))
    rows = {row["method"]: row for row in cells(task_table(tmp_path, record()))}
    assert rows["tnn"]["measured, %"] == "40.00 (n=1)"
    assert rows["guess: majority class"]["measured, %"] == "17.00"
    assert rows["TNN"]["published, %"] == "61.04"
    assert "not with published" not in task_table(tmp_path, record())
    assert "not with published" in task_table(tmp_path, record(preset="quick"))


def test_runs_table_has_a_dash_for_what_was_not_measured() -> None:
    unknown = record(steps_per_second=None, val_accuracy=None, status="diverged", **NOT_DONE)
    (row,) = cells(runs_table([unknown]))
    assert (row["steps/s"], row["test %"], row["val %"]) == ("-", "-", "-")
    assert row["status"] == "diverged"


def test_published_rows_have_sources() -> None:
    import yaml

    sources = yaml.safe_load((PUBLISHED.parent / "sources.yaml").read_text())
    keys = {row["source"] for row in published_rows()} - {"chance level"}
    assert keys == sources.keys()
    for row in published_rows():
        for task in ("listops", "text", "retrieval", "image", "pathfinder", "pathx"):
            assert row[task] in ("", "FAIL") or 0 < float(row[task]) < 100


def test_plug_ins_of_one_name_have_rows_of_their_own() -> None:
    first = record(mixer="M", mixer_code="0a139417" * 2)
    second = record(mixer="M", mixer_code="9f3881d9" * 2, task="text")
    table = accuracy_table([first, second, record(mixer="tnn")])
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert {"M (0a139417)", "M (9f3881d9)", "tnn"} <= set(rows)


@pytest.mark.parametrize(
    ("mixer", "method", "belongs"),
    [
        ("s4", "S4 (v1)", True), ("s4", "S4-LegS", True), ("s4", "S4D-LegS", False),
        ("s4d", "S4D-LegS", True), ("tnn", "TNN (rerun by SKI authors)", True),
        ("tnn", "SKI-TNN", False), ("transformer", "Transformer (Mega rerun)", True),
        ("transformer", "Sparse Transformer", False),
    ],
)  # fmt: skip
def test_published_variants_stand_beside_their_mixer(
    mixer: str, method: str, belongs: bool
) -> None:
    assert _is_variant(method, {mixer, "mean"}) == belongs
