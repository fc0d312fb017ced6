"""Measured training steps, their records and the commands that repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

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
from lra.report.commands import bench_command
from made_results import bench_record

MEMORY = Memory(base=3.0, peak=5.0, reserved=None)
SHORT = "step --preset quick --mixers mean,tnn --lengths 16"
SMALL = ("model.dim=8", "model.depth=1")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set cases up in this process, as others take seconds to start."""
    monkeypatch.setattr(rounds, "set_up", _Here)


class _Here(Here):
    def memory(self) -> Memory:
        return MEMORY


def measure(folder: Path, command: str, changes: Sequence[str] = ()) -> list[BenchRecord]:
    """Measure two rounds and return the records of a folder."""
    words = [*shlex.split(command), *(part for text in changes for part in ("--set", text))]
    assert bench.main([*words, "--repeats", "2", "--out", str(folder / "bench")]) == 0
    records, faults = all_bench_records(folder)
    assert not faults
    return sorted(records, key=lambda r: (r.length, r.mixer))


@pytest.mark.thorough
def test_steps_are_measured_in_interleaved_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = measure(tmp_path, "step --preset quick --mixers tnn,mean --lengths 32")
    assert [(r.mixer, r.length) for r in records] == [("mean", 32), ("tnn", 32)]
    for r in records:
        assert r.low_quartile and r.steps_per_second and r.high_quartile
        assert r.low_quartile <= r.steps_per_second <= r.high_quartile
        assert r.peak_memory_mib and r.flops_per_step
        assert r.measured_with == ("tnn", "mean")
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
@pytest.mark.thorough
def test_steps_are_compared_with_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "step --preset quick --mixers tnn --batch-size 2 --lengths 16,32 --compare reference"
    shorter, r = measure(tmp_path, command, ["train.precision=bf16"])
    assert (shorter.length, r.length, r.precision, r.batch_size) == (16, 32, "bf16", 2)
    assert r.ratio_low_quartile and r.ratio_to_reference and r.ratio_high_quartile
    assert r.ratio_low_quartile <= r.ratio_to_reference <= r.ratio_high_quartile
    assert r.changes == {}
    assert r.time_breakdown is not None
    assert sum(r.time_breakdown.values()) == pytest.approx(100, abs=1)
    for name in ("kernels", "Fourier transforms", "matrix products", "optimizer"):
        assert r.time_breakdown[name] > 0
    shown = capsys.readouterr().out
    assert "listops 16 (batch 2): against the reference" in shown
    assert "parts of a training step's time" in " ".join(shown.split())


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.thorough
def test_the_tasks_own_lengths(tmp_path: Path) -> None:
    small = ["train=40", "val=20", "test=20", "min_length=8", "max_length=20", "sequence_length=24"]
    start = "--preset quick --mixers tnn --lengths task --batch-size 4"
    for mode in ("step", "forward"):
        command = f"{mode} {start} --data-dir '{tmp_path / 'data'}'"
        records = measure(tmp_path, command, [f"task.{change}" for change in small])
    assert {(r.mode, r.lengths, r.length) for r in records} == {
        ("forward", "task", 24), ("step", "task", 24),
    }  # fmt: skip
    assert all(len(r.changes) == 6 for r in records)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("mode", ["step", "forward"])
def test_positions_are_targets_of_synthetic_sequences_and_of_a_text(
    mode: str, tmp_path: Path
) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(bytes(range(256)) * 20)
    changes = [*SMALL, f"task.corpus={text}", "task.sequence_length=24"]
    start = f"{mode} --task lm --preset quick --mixers tnn --batch-size 2 --lengths"
    measure(tmp_path, f"{start} 16 --compare reference", changes)
    full, own = measure(tmp_path, f"{start} task --data-dir '{tmp_path / 'data'}'", changes)
    assert (full.lengths, full.length, own.lengths, own.length) == ("full", 16, "task", 24)
    assert full.ratio_to_reference and own.ratio_to_reference is None
    assert full.steps_per_second and own.steps_per_second


@pytest.mark.usefixtures("in_this_process")
def test_a_setting_is_varied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "step --task lm --preset quick --lengths 16 --mixers fd-tnn --batch-size 1"
    varied = "--vary mixer.rpe_layers=2,10"
    records = measure(
        tmp_path, f"{command} {varied} --compare reference", [*SMALL, "mixer.rpe_dim=4"]
    )
    assert [r.varied_changes for r in records] == [{"mixer.rpe_layers": n} for n in (2, 10)]
    for r in records:
        assert r.ratio_to_reference and r.time_breakdown and r.flops_per_step
        assert r.common_changes == {"model.dim": 8, "model.depth": 1, "mixer.rpe_dim": 4}
        assert varied in bench_command(r)
        assert bench_command(r).count("rpe_layers") == 1
    title, *rows = capsys.readouterr().out.partition("Benchmark, step")[2].splitlines()
    assert "rpe_layers" not in title
    text = "\n".join(rows)
    assert text.index("rpe_layers=2") < text.index("rpe_layers=10")


@pytest.mark.usefixtures("in_this_process")
def test_operators_are_measured(tmp_path: Path) -> None:
    start = "op --dim 4 --lengths 16,32 --compare reference --mixers"
    wrong = shlex.split(f"{start} toeplitz,tnn,ski-tnn --set mixer.expand_ratio=2")
    assert bench.main([*wrong, "--out", str(tmp_path / "bench")]) == 2
    measure(tmp_path, f"{start} toeplitz,tnn,fd-tnn")
    records = measure(tmp_path, f"{start} s4,s4d --parts mixing,kernel")
    assert {(r.mixer, r.part, r.channels) for r in records} == {
        ("toeplitz", "product", 4), ("tnn", "mixing", 12), ("fd-tnn", "mixing", 12),
        ("s4", "mixing", 4), ("s4", "kernel", 4), ("s4d", "mixing", 4), ("s4d", "kernel", 4),
    }  # fmt: skip
    assert all(r.task is None and r.extra_memory_mib == 2.0 for r in records)
    assert all(r.flops_per_step for r in records if r.part != "kernel")


def test_a_newer_measurement_replaces_that_of_the_same_settings_alone(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {}, {"mode": "forward"}, {"part": "mixing"}, {"lengths": "task"}, {"channels": 3},
        {"overrides": ("mixer.window=3",)}, {"overrides": ("mixer.window=4",)}, {"length": 2048},
        {"objective": "next"}, {"objective": "masked"},
        *({"objective": "next", "rpe_layers": count} for count in (0, 1, 2)),
    ]  # fmt: skip
    for speed in (1.0, 2.0):
        for change in changes:
            bench_record(steps_per_second=speed, **change).save(tmp_path / "bench")
    records, _ = all_bench_records(tmp_path)
    assert [r.steps_per_second for r in records] == [2.0] * len(changes)


@pytest.mark.parametrize("at", ["start", "seconds", "facts", "reference"])
def test_running_out_of_memory_leaves_the_others_their_times(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reference that runs out of memory leaves the mixer itself its times, too."""

    def run_out() -> None:
        raise MemoryError("the system ended the process")

    def set_up(case: Case) -> Here | None:
        here = _Here(case)
        if case.mixer == "tnn" and case.is_reference == (at == "reference"):
            if at == "start":
                return None
            monkeypatch.setattr(here, "seconds" if at == "reference" else at, run_out)
        return here

    monkeypatch.setattr(rounds, "set_up", set_up)
    mean, tnn = measure(tmp_path, f"{SHORT} --compare reference")
    assert (mean.status, mean.repeats) == ("done", 2)
    assert mean.ratio_to_reference and tnn.ratio_to_reference is None
    is_done = at == "reference"
    assert (tnn.status, tnn.repeats) == (("done", 2) if is_done else ("oom", 0))
    assert ("oom" in capsys.readouterr().out) != is_done


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("times", "sets"), [(1.9, 2), (2.1, 1)])
def test_models_that_memory_cannot_hold_together_are_measured_in_sets(
    times: float, sets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "available_memory_mib", lambda _: times * MEMORY.peak)
    records = measure(tmp_path, SHORT)
    assert len({r.measured_with for r in records}) == sets
    assert {(r.mixer, r.repeats) for r in records} == {("mean", 2), ("tnn", 2)}


def test_all_mixers_can_be_measured() -> None:
    (cases,) = bench.list_classifiers(bench.parse_arguments(["step", "--mixers", "all"]))
    assert [case.mixer for case in cases] == sorted(MIXERS.classes)


@pytest.mark.usefixtures("in_this_process")
def test_a_plug_in_has_a_digest_in_its_record(tmp_path: Path) -> None:
    plug_in = tmp_path / "gated_mean.py"
    plug_in.write_text(python_example("docs/your_mixer.md"))
    (r,) = measure(tmp_path, f"step --preset quick --lengths 16 --mixers '{plug_in}:GatedMean'")
    assert r.mixer_code is not None
    assert r.method == f"GatedMean ({r.mixer_code[:8]})"


def test_a_file_that_is_no_measurement_or_has_another_name_is_named(tmp_path: Path) -> None:
    path = bench_record().save(tmp_path / "bench")
    moved = path.rename(path.with_name("mine.json"))
    assert f"move it to {path}" in all_bench_records(tmp_path)[1][0]
    moved.rename(path).write_text("{")
    records, (fault,) = all_bench_records(tmp_path)
    assert not records
    assert "not a record of schema 2" in fault


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task image --lengths 64", "a grid of 1024 positions"),
        ("--repeats 1", "at least 2"),
        ("--mixers tnm", "did you mean"),
    ],
)
def test_mistakes_are_one_line(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main([*shlex.split(f"{SHORT} {arguments}"), "--out", str(tmp_path / "bench")]) == 2
    assert message in capsys.readouterr().err


ALONE = {"task": None, "preset": None, "protocol": None, "channels": 4, "part": "kernel"}
PRETRAINING = {"task": "lm", "objective": "next", "rpe_layers": 3, "rounds_rpe_layers": (3, 6)}


@pytest.mark.parametrize(
    ("mode", "facts", "meant"),
    [
        ("step", {}, {"batch_size": 8, "preset": "paper", "protocol": "s4", "vary": []}),
        ("forward", {}, {"batch_size": 8}),
        ("op", ALONE, {"batch_size": 8, "dim": 4, "parts": "kernel"}),
        ("decode", ALONE, {"dim": 4}),
        ("pretraining", PRETRAINING, {"task": "lm", "vary": ["mixer.rpe_layers=3,6"]}),
    ],
)
def test_a_command_repeats_what_was_measured(
    mode: str, facts: dict[str, object], meant: dict[str, object]
) -> None:
    record = bench_record(
        mode=mode, overrides=("mixer.decay=0.9",), measured_with=("tnn", "s4"), repeats=7, **facts
    )
    program, *arguments = shlex.split(bench_command(record))[2:]
    options = vars(bench.parse_arguments(arguments))
    always = {
        "command": mode.replace("pretraining", "step"), "mixers": "tnn,s4", "lengths": "1024",
        "repeats": 7, "overrides": ["mixer.decay=0.9"],
    }  # fmt: skip
    assert program == "lra.bench"
    assert {**options, **always, **meant} == options


def test_a_measurement_that_is_no_longer_made_has_no_command() -> None:
    record = bench_record(mode="pretraining", **{**PRETRAINING, "objective": "masked"})
    assert bench_command(record).startswith("# ")
