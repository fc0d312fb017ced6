"""Measured training steps and their records."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import record_function

from conftest import python_example
from lra.bench import __main__ as bench
from lra.bench import rounds
from lra.bench.case import Case
from lra.bench.own_process import Here, Memory
from lra.bench.time_breakdown import profile_steps
from lra.config.registry import MIXERS
from lra.record.benchmark import BenchRecord, all_bench_records
from lra.report.boards.benchmarks import bench_boards
from lra.report.page.commands import bench_command
from lra.report.tables.benchmarks import against_reference, benchmark_tables
from made_results import bench_record

MEMORY = Memory(base=3.0, peak=5.0, reserved=None)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set cases up in this process, as others take seconds to start."""
    monkeypatch.setattr(rounds, "set_up", _Here)


class _Here(Here):
    def memory(self) -> Memory:
        return MEMORY


@pytest.mark.slow
def test_steps_are_measured_in_interleaved_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["step", "--preset", "quick", "--mixers", "tnn,mean"]
    arguments += ["--lengths", "32", "--repeats", "2", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    records, faults = all_bench_records(tmp_path)
    assert not faults
    assert sorted((r.mixer, r.length) for r in records) == [("mean", 32), ("tnn", 32)]
    for record in records:
        assert record.low_quartile and record.steps_per_second and record.high_quartile
        assert record.low_quartile <= record.steps_per_second <= record.high_quartile
        assert record.peak_memory_mib is not None
        assert record.measured_with == ("tnn", "mean")
        assert record.flops_per_step
    assert "(1.00 x)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "purpose"), [("data", "data"), ("kernel 1", "kernels")])
def test_time_in_a_marked_range_has_its_purpose(name: str, purpose: str) -> None:
    def step() -> None:
        with record_function(name):
            torch.rand(500_000).sort()
        torch.ones(8).add_(1)

    shares = profile_steps(step, torch.device("cpu"))
    assert shares[purpose] > 90
    assert sum(shares.values()) == pytest.approx(100, abs=1)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.slow
def test_steps_stand_beside_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["step", "--preset", "quick", "--mixers", "tnn", "--batch-size", "2"]
    arguments += ["--lengths", "16,32", "--repeats", "2", "--set", "train.precision=bf16"]
    assert bench.main([*arguments, "--compare", "reference", "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    shorter, record = sorted(records, key=lambda record: record.length)
    assert (shorter.length, record.length) == (16, 32)
    assert (record.precision, record.batch_size) == ("bf16", 2)
    assert record.ratio_low_quartile and record.ratio_to_reference and record.ratio_high_quartile
    assert record.ratio_low_quartile <= record.ratio_to_reference <= record.ratio_high_quartile
    assert record.changes == {}
    assert record.time_breakdown is not None
    assert sum(record.time_breakdown.values()) == pytest.approx(100, abs=1)
    assert "data" in record.time_breakdown
    for name in ("kernels", "Fourier transforms", "matrix products", "optimizer"):
        assert record.time_breakdown[name] > 0
    shown = capsys.readouterr().out
    assert "speed relative to the reference" in shown
    assert "parts of a training step's time" in shown


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.slow
def test_the_tasks_own_lengths(tmp_path: Path) -> None:
    small = ["train=40", "val=20", "test=20", "min_length=8", "max_length=20", "sequence_length=24"]
    changes = [word for change in small for word in ("--set", f"task.{change}")]
    arguments = ["--preset", "quick", "--mixers", "tnn", "--lengths", "task", "--batch-size", "4"]
    arguments += [*changes, "--repeats", "2", "--data-dir", str(tmp_path / "data")]
    for mode in ("step", "forward"):
        assert bench.main([mode, *arguments, "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert sorted((r.mode, r.lengths, r.length) for r in records) == [
        ("forward", "task", 24), ("step", "task", 24),
    ]  # fmt: skip
    assert all(len(r.changes) == 6 for r in records)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("mode", ["step", "forward"])
def test_positions_are_targets(mode: str, tmp_path: Path) -> None:
    """Those of synthetic sequences, beside the reference, and those of a text."""
    text = tmp_path / "own.txt"
    text.write_bytes(bytes(range(256)) * 20)
    arguments = [mode, "--task", "lm", "--preset", "quick", "--mixers", "tnn", "--batch-size", "2"]
    for change in (
        "model.dim=8",
        "model.depth=1",
        f"task.corpus={text}",
        "task.sequence_length=24",
    ):
        arguments += ["--set", change]
    arguments += ["--repeats", "2", "--out", str(tmp_path / "bench")]
    assert bench.main([*arguments, "--lengths", "16", "--compare", "reference"]) == 0
    assert bench.main([*arguments, "--lengths", "task", "--data-dir", str(tmp_path / "data")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert sorted((r.lengths, r.length) for r in records) == [("full", 16), ("task", 24)]
    assert all(r.status == "done" and r.steps_per_second for r in records)
    assert {r.ratio_to_reference is not None for r in records} == {True, False}


@pytest.mark.usefixtures("in_this_process")
def test_a_setting_is_varied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["step", "--task", "lm", "--preset", "quick", "--lengths", "16"]
    arguments += ["--vary", "mixer.rpe_layers=2,10", "--mixers", "fd-tnn", "--batch-size", "1"]
    for change in ("model.dim=8", "model.depth=1", "mixer.rpe_dim=4"):
        arguments += ["--set", change]
    arguments += ["--repeats", "2", "--compare", "reference", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    records, faults = all_bench_records(tmp_path)
    assert not faults
    assert [r.varied_changes for r in records] == [{"mixer.rpe_layers": n} for n in (2, 10)]
    for r in records:
        assert r.ratio_to_reference and r.time_breakdown and r.flops_per_step
        assert (r.mode, r.task, r.batch_size) == ("step", "lm", 1)
        assert r.common_changes == {"model.dim": 8, "model.depth": 1, "mixer.rpe_dim": 4}
        assert "--vary mixer.rpe_layers=2,10" in bench_command(r)
        assert bench_command(r).count("rpe_layers") == 1
    shown = capsys.readouterr().out
    assert "lm 16 (batch 1), mixer.rpe_layers=2 " in shown
    order = re.findall(r"mixer\.rpe_layers=(\d+)", shown)
    assert order.index("2") < order.index("10")
    (board,) = bench_boards(records)
    assert "mixer.rpe_layers" not in board.title


def _pretraining(objective: str, mixer: str, layers: int, **changes: object) -> BenchRecord:
    """Make a record whose speed falls with the layers, by less for fd-tnn."""
    speed = 12 / (1 + layers * (1 if mixer == "tnn" else 0.5))
    values: dict[str, object] = {
        "mode": "pretraining", "task": "lm", "length": 512, "batch_size": 1, "mixer": mixer,
        "objective": objective, "rpe_layers": layers, "rounds_rpe_layers": (3, 6),
        "measured_with": ("tnn", "fd-tnn"), "steps_per_second": speed, "low_quartile": speed,
        "high_quartile": speed,
    }  # fmt: skip
    return bench_record(**{**values, **changes})


def _all_pretraining(**changes: object) -> list[BenchRecord]:
    every = itertools.product(("masked", "next"), ("tnn", "fd-tnn"), (6, 3))
    return [_pretraining(*one, **changes) for one in every]


def test_how_much_faster_pretraining_is_stands_at_each_number_of_layers() -> None:
    causal, bidirectional = bench_boards(_all_pretraining())
    assert "causal, next tokens" in causal.title
    assert "bidirectional, masked tokens" in bidirectional.title
    (speeds, memory) = benchmark_tables(causal, "tnn")
    assert speeds.headings == [
        "mixer", "lm 512 (batch 1), 3 encoder layers", "lm 512 (batch 1), 6 encoder layers",
    ]  # fmt: skip
    assert [list(row) for row in speeds.rows] == [
        ["fd-tnn", "4.80 (1.60 x)", "3.00 (1.75 x)"],
        ["tnn", "3.00 (1.00 x)", "1.71 (1.00 x)"],
    ]
    assert [fact["rpe_layers"] for fact in speeds.facts] == [3, 6, 3, 6]
    assert memory.facts
    alone = _pretraining("next", "tnn", 6, rounds_rpe_layers=(6,))
    assert len(bench_boards([_pretraining("next", "tnn", 3), alone])) == 2


@pytest.mark.usefixtures("in_this_process")
def test_operators_are_measured(tmp_path: Path) -> None:
    arguments = ["op", "--dim", "4", "--lengths", "16,32", "--repeats", "2"]
    arguments += ["--compare", "reference", "--out", str(tmp_path / "bench")]
    assert bench.main([*arguments, "--mixers", "toeplitz,tnn,ski-tnn", "--set",
                       "mixer.expand_ratio=2"]) == 2  # fmt: skip
    assert bench.main([*arguments, "--mixers", "toeplitz,tnn,fd-tnn"]) == 0
    assert bench.main([*arguments, "--mixers", "s4,s4d", "--parts", "mixing,kernel"]) == 0
    records, _ = all_bench_records(tmp_path)
    found = {(r.mixer, r.part, r.channels) for r in records}
    assert found == {
        ("toeplitz", "product", 4), ("tnn", "mixing", 12), ("fd-tnn", "mixing", 12),
        ("s4", "mixing", 4), ("s4", "kernel", 4), ("s4d", "mixing", 4), ("s4d", "kernel", 4),
    }  # fmt: skip
    assert all(r.task is None and r.extra_memory_mib == 2.0 for r in records)
    assert all(r.flops_per_step for r in records if r.part != "kernel")
    assert all("lra.bench op" in bench_command(r) for r in records)


def test_what_was_compared_is_one_table() -> None:
    ratio = {"ratio_to_reference": 2.0, "ratio_low_quartile": 1.9, "ratio_high_quartile": 2.1}
    memory = {"base_memory_mib": 300.0, "reference_peak_memory_mib": 900.0,
              "reference_base_memory_mib": 300.0}  # fmt: skip
    step = bench_record(**ratio, **memory)
    alone = {"task": None, "preset": None, "protocol": None, "channels": 4}
    op = bench_record(mode="op", part="mixing", **alone, **ratio, **memory)
    table = against_reference([step, op, bench_record(length=7)])
    assert table is not None
    assert [list(row) for row in table.rows] == [
        ["step, listops", "tnn", "8 x 1,024", "full", "fp32", "2.00 (1.90 to 2.10)", "56%"],
        ["mixing alone", "tnn", "8 x 1,024 x 4", "full", "fp32", "2.00 (1.90 to 2.10)", "33%"],
    ]
    assert against_reference([bench_record()]) is None


def test_measurements_of_other_settings_have_files_of_their_own() -> None:
    changes: list[dict[str, object]] = [
        {}, {"mode": "forward"}, {"part": "mixing"}, {"lengths": "task"}, {"channels": 3},
        {"overrides": ("mixer.window=3",)}, {"overrides": ("mixer.window=4",)},
        {"objective": "next"}, {"objective": "masked"},
        *({"objective": "next", "rpe_layers": count} for count in (0, 1, 2)),
    ]  # fmt: skip
    assert len({bench_record(**change).name for change in changes}) == len(changes)


def test_a_newer_measurement_takes_the_place_of_the_older(tmp_path: Path) -> None:
    paths = {bench_record(steps_per_second=speed).save(tmp_path / "bench") for speed in (1.0, 2.0)}
    paths.add(bench_record(length=2048).save(tmp_path / "bench"))
    assert len(paths) == 2
    records, _ = all_bench_records(tmp_path)
    assert sorted((r.length, r.steps_per_second) for r in records) == [(1024, 2.0), (2048, 2.0)]


def test_running_out_of_memory_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rounds, "set_up", lambda case: None if case.mixer == "tnn" else _Here(case))
    arguments = ["step", "--preset", "quick", "--mixers", "mean,tnn", "--lengths", "16"]
    assert bench.main([*arguments, "--repeats", "2", "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert {r.mixer: r.status for r in records} == {"mean": "done", "tnn": "oom"}
    assert "oom" in capsys.readouterr().out


@pytest.mark.parametrize("at", ["seconds", "facts"])
def test_running_out_of_memory_later_leaves_the_others_their_times(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out() -> None:
        raise MemoryError("the system ended the process")

    def set_up(case: Case) -> Here:
        here = _Here(case)
        if case.mixer == "tnn":
            monkeypatch.setattr(here, at, run_out)
        return here

    monkeypatch.setattr(rounds, "set_up", set_up)
    arguments = ["step", "--preset", "quick", "--mixers", "mean,tnn", "--lengths", "16"]
    assert bench.main([*arguments, "--repeats", "2", "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert {r.mixer: (r.status, r.repeats) for r in records} == {
        "mean": ("done", 2),
        "tnn": ("oom", 0),
    }


@pytest.mark.parametrize("times, sets", [(1.9, 2), (2.1, 1)])
def test_what_memory_does_not_hold_at_a_time_is_measured_in_sets(
    times: float, sets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "set_up", _Here)
    monkeypatch.setattr(rounds, "available_memory_mib", lambda _: times * MEMORY.peak)
    arguments = ["step", "--preset", "quick", "--mixers", "mean,tnn", "--lengths", "16"]
    assert bench.main([*arguments, "--repeats", "2", "--out", str(tmp_path / "bench")]) == 0
    records, _ = all_bench_records(tmp_path)
    assert len({record.measured_with for record in records}) == sets
    assert {(record.mixer, record.repeats) for record in records} == {("mean", 2), ("tnn", 2)}


def test_a_reference_that_runs_out_of_memory_is_not_ours() -> None:
    class Place:
        repetitions = 1

        def __init__(self, seconds: float | None) -> None:
            self.spent = seconds

        def seconds(self) -> float:
            if self.spent is None:
                raise MemoryError("the system ended the process")
            return self.spent

        def memory(self) -> Memory:
            return MEMORY

        def facts(self) -> dict[str, Any]:
            return {"params": 1, "flops_per_step": None}

        def close(self) -> None: ...

    (case,) = bench.list_classifiers(
        bench.parse_arguments(["step", "--preset", "quick", "--mixers", "mean", "--lengths", "16"])
    )[0]
    measured = rounds.Measurement(case, Place(0.5), Place(None))
    measured.time_round()
    done = measured.record(("mean",))
    assert (done.status, done.steps_per_second, done.ratio_to_reference) == ("done", 2.0, None)


def test_all_mixers_can_be_measured() -> None:
    (cases,) = bench.list_classifiers(bench.parse_arguments(["step", "--mixers", "all"]))
    assert [case.mixer for case in cases] == sorted(MIXERS.classes)


@pytest.mark.usefixtures("in_this_process")
def test_a_plug_in_has_a_digest_in_its_record(tmp_path: Path) -> None:
    plug_in = tmp_path / "gated_mean.py"
    plug_in.write_text(python_example("docs/your_mixer.md"))
    arguments = ["step", "--preset", "quick", "--mixers", f"{plug_in}:GatedMean"]
    arguments += ["--lengths", "16", "--repeats", "2", "--out", str(tmp_path / "bench")]
    assert bench.main(arguments) == 0
    ((record,), _) = all_bench_records(tmp_path)
    assert record.mixer_code is not None
    assert record.method == f"GatedMean ({record.mixer_code[:8]})"


def test_measurements_of_other_rounds_are_not_compared() -> None:
    alone = bench_record(mixer="s4", measured_with=("s4",))
    assert len(bench_boards([bench_record(), alone])) == 2


def test_unreadable_measurements_are_named(tmp_path: Path) -> None:
    bench_record().save(tmp_path / "bench").write_text("{")
    records, faults = all_bench_records(tmp_path)
    assert not records
    assert "not a record of schema 2" in faults[0]


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
    start = ["step", "--preset", "quick", "--mixers", "mean", "--lengths", "16"]
    code = bench.main([*start, "--out", str(tmp_path / "bench"), *arguments])
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_command_repeats_the_rounds_of_all_layers() -> None:
    record = _pretraining("next", "fd-tnn", 3, overrides=("mixer.decay=0.9",), repeats=7)
    program, *arguments = shlex.split(bench_command(record))[2:]
    options = bench.parse_arguments(arguments)
    assert (program, options.command, options.task) == ("lra.bench", "step", "lm")
    assert options.vary == ["mixer.rpe_layers=3,6"]
    assert (options.mixers, options.lengths, options.repeats) == ("tnn,fd-tnn", "512", 7)
    assert (options.batch_size, options.preset) == (1, "paper")
    assert options.overrides == ["mixer.decay=0.9"]
    assert bench_command(_pretraining("masked", "tnn", 3)).startswith("# ")


@pytest.mark.parametrize("mode", ["step", "forward", "op", "decode"])
def test_a_command_repeats_what_was_measured(mode: str) -> None:
    alone = {"task": None, "preset": None, "protocol": None, "channels": 4, "part": "kernel"}
    record = bench_record(
        mode=mode, overrides=("mixer.decay=0.9",), measured_with=("tnn", "s4"), repeats=7,
        **(alone if mode in ("op", "decode") else {}),
    )  # fmt: skip
    program, *arguments = shlex.split(bench_command(record))[2:]
    options = bench.parse_arguments(arguments)
    assert (program, options.command) == ("lra.bench", mode)
    assert (options.mixers, options.lengths, options.repeats) == ("tnn,s4", "1024", 7)
    assert options.overrides == ["mixer.decay=0.9"]
    if mode != "decode":
        assert options.batch_size == 8
    if mode in ("op", "decode"):
        assert options.dim == 4
    if mode == "op":
        assert options.parts == "kernel"
