"""Records and the tables made from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lra.config.registry import MIXERS
from lra.record.benchmark import all_bench_records
from lra.record.evaluation import evaluations_of
from lra.record.run import load_record
from lra.record.table import read_runs
from lra.report.published import published_rows, rows_of
from lra.runtime.errors import UserError
from made_results import bench_record, record, save, save_evaluation


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
        lambda values: values.update(steps_per_second=0),
        lambda values: values.update(peak_memory_mib=float("inf")),
        lambda values: values.update(test_accuracy=float("nan")),
        lambda values: values.update(test_accuracy=41.0),
        lambda values: values.update(test_total=-2000),
        lambda values: values.update(val_accuracy=101),
        lambda values: values.update(length=0),
        lambda values: values.update(baselines={"majority class": 150}),
        lambda values: values.update(status="stopped"),
        lambda values: values.update(test_correct=None),
        lambda values: values.update(preset="../../escaped"),
        lambda values: values.update(run_id='"><script>'),
    ],
)
def test_records_out_of_the_schema_are_refused(tmp_path: Path, damage) -> None:
    path = save(tmp_path, record())
    values = json.loads(path.read_text())
    damage(values)
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="not a record of schema 2"):
        load_record(path)


def test_unreadable_records_are_named_and_left_out(tmp_path: Path) -> None:
    save(tmp_path, record())
    broken = save(tmp_path, record(run_id="other"))
    broken.write_text('{"half')
    records, faults = read_runs(tmp_path)
    assert len(records) == 1
    assert str(broken) in faults[0]


def test_a_record_in_another_runs_folder_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, record())
    path.parent.rename(path.parent.with_name("abc-s1"))
    records, faults = read_runs(tmp_path)
    assert not records
    assert "move it to" in faults[0]


def test_an_evaluation_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    save_evaluation(tmp_path, record(), 4096, 2.0)
    (path,) = tmp_path.rglob("evaluation-*.json")
    path.rename(path.with_name("evaluation-00000000.json"))
    records, faults = evaluations_of(path.parent)
    assert not records
    assert f"move it to {path}" in faults[0]


def test_published_methods_stand_beside_their_mixer() -> None:
    mixer_of = {row.method: row.mixer for row in published_rows()}
    assert set(mixer_of.values()) - {""} <= MIXERS.classes.keys()
    for method, mixer in {
        "S4 (v1)": "s4", "S4D-LegS": "s4d", "TNN (rerun by SKI authors)": "tnn",
        "SKI-TNN": "ski-tnn", "Transformer (Mega rerun)": "transformer",
        "Sparse Transformer": "sparse",
        "SGConv": "long-conv", "Mamba": "mamba2", "LION-S": "linear", "Liquid-S4": "",
    }.items():  # fmt: skip
        assert mixer_of[method] == mixer
    assert {row.method for row in rows_of({"s4", "mean"})} == {"S4 (v1)", "S4-LegS", "S4-FouT"}


def test_results_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    """What is left out is what a killed merge has copied, and nothing else."""
    results = tmp_path / ".results"
    run = save(results, record())
    measured = bench_record()
    measured.save(results / "bench")
    shutil.copytree(run.parent, run.parent.with_name(".merge-abc"))
    assert read_runs(results) == ([(run.parent, record())], [])
    assert all_bench_records(results) == ([measured], [])
