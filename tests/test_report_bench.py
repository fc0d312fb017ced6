"""Measured training steps and their records."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import readme_example
from lra.bench import __main__ as bench
from lra.bench import turns
from lra.bench.record import BenchRecord, all_bench_records
from lra.report.benchmarks import bench_boards

VALUES = {
    "mode": "step", "mixer": "tnn", "task": "listops", "preset": "paper", "protocol": "s4",
    "length": 1024, "batch_size": 8, "device": "CPU", "precision": "fp32", "repeats": 5,
    "steps_per_second": 2.0, "low_quartile": 1.9, "high_quartile": 2.1, "peak_memory_mib": 500.0,
    "params": 10, "flops_per_step": 1e9, "measured_with": ("tnn",), "versions": {}, "git": {},
}  # fmt: skip


MEMORY = turns.Memory(base=3.0, peak=5.0, reserved=None)


def bench_record(**changes: object) -> BenchRecord:
    return BenchRecord.model_validate({**VALUES, **changes})


@pytest.mark.slow
def test_steps_are_measured_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--mode", "step", "--preset", "quick", "--mixers", "tnn,mean"]
    arguments += ["--lengths", "16,32", "--repeats", "2", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    records, faults = all_bench_records(tmp_path)
    assert not faults
    assert sorted((r.mixer, r.length) for r in records) == [
        ("mean", 16), ("mean", 32), ("tnn", 16), ("tnn", 32),
    ]  # fmt: skip
    for record in records:
        assert record.low_quartile and record.steps_per_second and record.high_quartile
        assert record.low_quartile <= record.steps_per_second <= record.high_quartile
        assert record.peak_memory_mib is not None
        assert record.measured_with == ("tnn", "mean")
        assert record.flops_per_step
    assert "(1.00 x)" in capsys.readouterr().out


def test_a_newer_measurement_takes_the_place_of_the_older(tmp_path: Path) -> None:
    paths = {bench_record(steps_per_second=speed).save(tmp_path / "bench") for speed in (1.0, 2.0)}
    paths.add(bench_record(length=2048).save(tmp_path / "bench"))
    assert len(paths) == 2
    records, _ = all_bench_records(tmp_path)
    assert sorted((r.length, r.steps_per_second) for r in records) == [(1024, 2.0), (2048, 2.0)]


def test_a_want_of_memory_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turns, "memory_of", lambda case: None if case.mixer == "tnn" else MEMORY)
    arguments = ["--mode", "step", "--preset", "quick", "--mixers", "mean,tnn", "--lengths", "16"]
    assert bench.main([*arguments, "--repeats", "2", "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert {r.mixer: r.status for r in records} == {"mean": "done", "tnn": "oom"}
    assert "oom" in capsys.readouterr().out


def test_a_plug_in_has_a_digest_in_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in = tmp_path / "gated_mean.py"
    plug_in.write_text(readme_example())
    monkeypatch.setattr(turns, "memory_of", lambda case: MEMORY)
    arguments = ["--mode", "step", "--preset", "quick", "--mixers", f"{plug_in}:GatedMean"]
    arguments += ["--lengths", "16", "--repeats", "2", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    ((record,), _) = all_bench_records(tmp_path)
    assert record.mixer_code is not None
    assert record.method == f"GatedMean ({record.mixer_code[:8]})"


def test_measurements_of_other_turns_are_not_compared() -> None:
    alone = bench_record(mixer="s4", measured_with=("s4",))
    assert len(bench_boards([bench_record(), alone])) == 2


def test_unreadable_measurements_are_named(tmp_path: Path) -> None:
    bench_record().save(tmp_path / "bench").write_text("{")
    records, faults = all_bench_records(tmp_path)
    assert not records
    assert "not a record of schema 1" in faults[0]


def test_a_measurement_under_another_name_is_refused(tmp_path: Path) -> None:
    path = bench_record().save(tmp_path / "bench")
    path.rename(path.with_name("mine.json"))
    records, faults = all_bench_records(tmp_path)
    assert not records
    assert f"move it to {path}" in faults[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "image", "--lengths", "64"], "a grid of 1024 positions"),
        (["--repeats", "1"], "at least 2"),
        (["--mixers", "tnm"], "did you mean"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--mode", "step", "--preset", "quick", "--mixers", "mean", "--lengths", "16"]
    code = bench.main([*start, "--out", str(tmp_path / "bench"), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err
