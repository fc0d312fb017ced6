"""The benchmark: its rounds, its processes, its records and their commands; never its times."""

import itertools
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tqdm import tqdm

from conftest import ROOT, python_example
from lra.bench import __main__ as bench
from lra.bench import rounds
from lra.bench.case import Case, InOwnProcess, InThisProcess, Subject
from lra.common.errors import UserError
from lra.record.benchmark import BenchRecord, all_bench_records
from made_results import bench_record
from run_checks import next_command

MEMORY: dict[str, float | None] = {"base_memory_mib": 3.0, "peak_memory_mib": 5.0}


class Quick(InThisProcess):
    """A case in this process, as others take seconds to start."""

    def memory(self) -> dict[str, float | None]:
        return MEMORY


@dataclass(frozen=True, kw_only=True)
class Made(Case):
    """A computation that does nothing, or what `how` says."""

    how: str = ""

    def build(self) -> Subject:
        if self.how == "mistaken":
            raise UserError("a mistake")
        runs: list[bytes] = []

        def run() -> None:
            runs.append(b"x" * 2**26 if self.how == "grows" and len(runs) > 3 else b"")
            if self.how == "exits" and len(runs) > 4:
                os._exit(3)
            if self.how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)  # as the system does without memory

        def facts() -> dict[str, Any]:
            spin = float(os.environ.get("GOMP_SPINCOUNT", "0"))
            return {"params": len(runs), "flops_per_step": spin}

        return Subject(run=run, facts=facts)

    def settings(self) -> dict[str, Any]:
        return {
            "mode": "op", "part": "whole", "mixer": self.mixer, "length": 8, "batch_size": 1,
            "precision": "fp32",
        }  # fmt: skip


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "set_up", Quick)


def measure(folder: Path, command: str, changes: Sequence[str] = ()) -> list[BenchRecord]:
    """Measure two rounds and return the records of a folder."""
    words = [*shlex.split(command), *(part for text in changes for part in ("--set", text))]
    assert bench.main([*words, "--repeats", "2", "--out", str(folder / "bench")]) == 0
    records, faults = all_bench_records(folder)
    assert not faults
    return sorted(records, key=lambda r: (r.length, r.mixer))


@pytest.mark.usefixtures("quick")
def test_steps_are_measured_beside_the_reference_for_each_value_of_a_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "step --task lm --preset quick --lengths 16 --mixers fd-tnn --batch-size 1"
    changes = ["model.dim=8", "model.depth=1", "mixer.rpe_dim=4"]
    records = measure(
        tmp_path, f"{command} --vary mixer.rpe_layers=1,2 --compare reference", changes
    )
    assert {str(r.varied_changes) for r in records} == {
        str({"mixer.rpe_layers": count}) for count in (1, 2)
    }
    for r in records:
        assert r.ratio_low_quartile and r.ratio_to_reference and r.ratio_high_quartile
        assert r.ratio_low_quartile <= r.ratio_to_reference <= r.ratio_high_quartile
        assert r.flops_per_step
        assert r.common_changes == {"model.dim": 8, "model.depth": 1, "mixer.rpe_dim": 4}
    text = capsys.readouterr().out.partition("Benchmark, step")[2]
    assert text.index("rpe_layers=1") < text.index("rpe_layers=2")


@pytest.mark.usefixtures("quick")
def test_the_tasks_own_sequences_are_measured(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(bytes(range(256)) * 20)
    changes = ["model.dim=8", f"task.corpus={text}", "task.sequence_length=24"]
    start = "forward --task lm --preset quick --mixers mean --batch-size 2 --lengths task"
    (own,) = measure(tmp_path, f"{start} --data-dir '{tmp_path / 'data'}'", changes)
    assert (own.lengths, own.length, own.repeats) == ("task", 24, 2)
    assert own.steps_per_second


@pytest.mark.usefixtures("quick")
def test_operators_are_measured(tmp_path: Path) -> None:
    plug_in = tmp_path / "gated_mean.py"
    plug_in.write_text(python_example("docs/your_mixer.md"))
    start = "op --dim 4 --lengths 16 --compare reference --mixers"
    measure(tmp_path, f"{start} toeplitz,tnn")
    measure(tmp_path, f"{start} '{plug_in}:GatedMean' --parts whole")
    records = measure(tmp_path, f"{start} s4 --parts mixing,kernel")
    assert {(r.mixer, r.part, r.channels) for r in records} == {
        ("toeplitz", "product", 4), ("tnn", "mixing", 12), ("GatedMean", "whole", 4),
        ("s4", "mixing", 4), ("s4", "kernel", 4),
    }  # fmt: skip
    assert all(r.task is None and r.extra_memory_mib == 2.0 for r in records)
    assert [r.mixer for r in records if r.mixer_code] == ["GatedMean"]


def test_decoding_is_measured_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "my results"
    records = measure(results, "decode --lengths 32,64 --dim 4 --mixers s4d,tnn")
    found = {(r.mixer, r.length, r.part) for r in records}
    assert found == {*itertools.product(("s4d", "tnn"), (32, 64), ("recurrence", "prefix"))}
    assert all(r.steps_per_second and r.peak_memory_mib is None for r in records)
    shown = capsys.readouterr().out
    assert max(map(len, shown.partition("records in")[0].splitlines())) <= 80
    assert next_command(shown) == ["python", "report.py", "--results-dir", str(results)]


def measured(*cases: Made) -> list[BenchRecord]:
    return rounds.measure(cases, 2, compare=True, bar=tqdm(disable=True))


@pytest.mark.parametrize("at", ["start", "seconds", "facts", "reference"])
def test_running_out_of_memory_leaves_the_others_their_times(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference that runs out of memory leaves the mixer itself its times, too."""

    def run_out() -> None:
        raise MemoryError("the system ended the process")

    def set_up(case: Case) -> Quick:
        place = Quick(case)
        if case.mixer == "large" and case.is_reference == (at == "reference"):
            if at == "start":
                run_out()
            monkeypatch.setattr(place, "seconds" if at == "reference" else at, run_out)
        return place

    monkeypatch.setattr(rounds, "set_up", set_up)
    small, large = measured(*(Made(mixer=name, device="cpu") for name in ("small", "large")))
    assert (small.status, small.repeats) == ("done", 2)
    assert small.ratio_to_reference and large.ratio_to_reference is None
    expected = ("done", 2, 5.0) if at == "reference" else ("oom", 0, None)
    assert (large.status, large.repeats, large.peak_memory_mib) == expected


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("times", "sets"), [(1.9, 2), (2.1, 1)])
def test_what_memory_cannot_hold_together_is_measured_in_sets(
    times: float, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "available_memory_mib", lambda _: times * 5.0)
    records = measured(*(Made(mixer=name, device="cpu") for name in ("a", "b")))
    assert len({r.measured_with for r in records}) == sets
    assert {(r.mixer, r.repeats) for r in records} == {("a", 2), ("b", 2)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("decode --mixers mean", "--mixers mean: it has no recurrence, which decoding"),
        ("step --mixers mean --task image --lengths 64", "a grid of 1024 positions"),
        ("step --mixers mean --repeats 1", "--repeats: got 1, expected 2 to"),
    ],
)
def test_mistakes_are_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert bench.main(shlex.split(arguments)) == 2
    except SystemExit as ended:
        assert ended.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_newer_measurement_replaces_that_of_the_same_settings_alone(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {}, {"mode": "forward"}, {"part": "mixing"}, {"lengths": "task"}, {"channels": 3},
        {"overrides": ("mixer.window=3",)}, {"overrides": ("mixer.window=4",)}, {"length": 2048},
    ]  # fmt: skip
    for speed in (1.0, 2.0):
        for change in changes:
            bench_record(steps_per_second=speed, **change).save(tmp_path / "bench")
    records, _ = all_bench_records(tmp_path)
    assert [r.steps_per_second for r in records] == [2.0] * len(changes)


@pytest.mark.thorough
def test_a_case_in_its_own_process_is_timed_twice_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours starts as a run does, and a reference as the user has it."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")
    spins: list[object] = []
    for is_reference in (False, True):
        place = InOwnProcess(Made(mixer="a", device="cpu", how="grows", is_reference=is_reference))
        before, peak = (place.memory()[name] for name in MEMORY)
        assert place.seconds() >= 0
        facts, (base, later_peak) = place.facts(), (place.memory()[name] for name in MEMORY)
        assert facts["params"] == 5, "three runs of warm-up, one that is not timed, one that is"
        assert base == before and later_peak is not None and peak is not None
        assert later_peak > peak + 50
        place.close()
        assert place.process.exitcode is not None
        spins.append(facts["flops_per_step"])
    assert spins == [10000, 0]
    assert os.environ["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.thorough
def test_a_process_that_ends_says_why() -> None:
    place = InOwnProcess(Made(mixer="sum", device="cpu", how="exits"))
    for ask in (place.seconds, place.facts):
        with pytest.raises(UserError, match="sum: the process that measures it ended with exit co"):
            ask()
    place.close()
    with pytest.raises(UserError, match="a mistake"):
        InOwnProcess(Made(mixer="sum", device="cpu", how="mistaken"))
    with pytest.raises(MemoryError):
        InOwnProcess(Made(mixer="sum", device="cpu", how="is killed"))


SCRIPT = """
import time
from test_lra_bench import InOwnProcess, Made
if __name__ == "__main__":
    places = [InOwnProcess(Made(mixer="a", device="cpu")) for _ in range(2)]
    print(*[place.process.pid for place in places], flush=True)
    time.sleep(100)
"""


@pytest.mark.thorough
def test_no_process_stays_when_the_command_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "measures.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as command:  # fmt: skip
        assert command.stdout is not None
        children = [psutil.Process(int(pid)) for pid in command.stdout.readline().split()]
        command.kill()
    assert len(children) == 2
    _, alive = psutil.wait_procs(children, timeout=20)
    for child in alive:
        child.kill()
    assert not alive
