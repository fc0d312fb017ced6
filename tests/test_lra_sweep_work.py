"""The work of a sweep, with workers that are made up: no process is started."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from lra.runtime.cli import HELD, OUT_OF_MEMORY, STOPPED
from lra.sweep.local import LocalLauncher, Slot
from lra.sweep.plan import FAILURE, Limits, PlannedRun, plan
from lra.train.stopping import StopRequest
from made_results import record as made_record
from test_lra_sweep import sweep_options

End = Callable[[PlannedRun], int | None]


def finish(run: PlannedRun) -> int:
    made_record(run_id=run.folder.path.name, mixer=run.config.mixer_name).save(run.folder.path)
    return 0


def save_step(step: int) -> End:
    """Make the end of a run that was asked to stop, and has saved a step."""

    def interrupt(run: PlannedRun) -> int:
        run.folder.checkpoints.mkdir(exist_ok=True)
        (run.folder.checkpoints / f"step-{step:09}-0123456789abcdef.pt").write_bytes(b"")
        return STOPPED

    return interrupt


def find_held(run: PlannedRun) -> int:
    """End like a run that found its folder held."""
    return HELD


class MadeUpAttempt:
    def __init__(self, run: PlannedRun, end: End) -> None:
        self.run, self.end = run, end
        self.polls = 0
        self.asked: list[str] = []

    def poll(self) -> int | None:
        self.polls += 1
        return self.end(self.run) if self.polls > 1 else None

    def terminate(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")


class MadeUpWorkers:
    """Lets every run end as it is told: by the number of the attempt, the last for all others."""

    def __init__(self, *ends: End) -> None:
        self.ends = ends
        self.attempts: list[MadeUpAttempt] = []

    def start(self, run: PlannedRun, slot: Slot) -> Any:  # in place of a process
        number = sum(attempt.run is run for attempt in self.attempts)
        end = self.ends[min(number, len(self.ends) - 1)]
        self.attempts.append(MadeUpAttempt(run, end))
        return self.attempts[-1]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lra.sweep.local.SECONDS_BETWEEN_POLLS", 0.001)
    monkeypatch.setattr("lra.sweep.local.SECONDS_BETWEEN_TRIES", 0.001)


def work(
    runs: list[PlannedRun],
    workers: MadeUpWorkers,
    stop: StopRequest | None = None,
    limits: Limits | None = None,
) -> str | None:
    options = sweep_options(Path(), limits=limits or Limits())
    made = LocalLauncher(options)
    made.start, made.slots = workers.start, [Slot("cpu"), Slot("cpu")]
    made.stop = stop or made.stop
    return made.execute(runs)


def states(runs: list[PlannedRun]) -> list[str]:
    return [run.state(Limits())[0] for run in runs]


@pytest.mark.parametrize("first", [finish, find_held])
def test_every_run_is_made_once_also_if_it_was_held(tmp_path: Path, first: End) -> None:
    workers = MadeUpWorkers(first, finish)
    runs = plan(sweep_options(tmp_path))
    assert work(runs, workers) is None
    assert len(workers.attempts) == (1 if first is finish else 2) * len(runs)
    assert states(runs) == ["done"] * 4


def test_an_interrupted_sweep_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    """Asked to stop, it asks its runs; the next one resumes these, and makes what is left."""
    stop = StopRequest()
    runs = plan(sweep_options(tmp_path))

    class Patient(MadeUpWorkers):
        def start(self, run: PlannedRun, slot: Slot) -> Any:
            attempt = super().start(run, slot)
            if run is runs[0]:
                return attempt
            attempt.end = lambda run: save_step(5)(run) if attempt.asked else self.interrupt()
            return attempt

        def interrupt(self) -> None:
            stop.signal = "SIGINT"

    first, second = Patient(finish), MadeUpWorkers(finish)
    assert work(runs, first, stop) == "SIGINT"
    assert [attempt.asked for attempt in first.attempts] == [[], ["stop"]]
    assert states(runs) == ["done", "unfinished", "new", "new"]
    assert work(plan(sweep_options(tmp_path)), second) is None
    assert [attempt.run.name for attempt in second.attempts] == [run.name for run in runs[1:]]
    assert states(runs) == ["done"] * 4


def test_a_run_at_its_limit_is_not_started_again(tmp_path: Path) -> None:
    def stop(run: PlannedRun) -> int:
        made_record(
            run_id=run.folder.path.name, mixer=run.config.mixer_name, status="stopped", steps=12
        ).save(run.folder.path)
        return STOPPED

    workers = MadeUpWorkers(stop)
    runs = plan(sweep_options(tmp_path))
    work(runs, workers, limits=Limits(max_steps=12))
    assert len(workers.attempts) == len(runs)


def test_a_failure_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def fail(run: PlannedRun) -> int:
        if run.config.mixer_name == "mean":
            run.log.write_text("run_task.py: error: no such thing\ntorchrun says more\n")
            return OUT_OF_MEMORY
        return finish(run)

    runs = plan(sweep_options(tmp_path))
    work(runs, MadeUpWorkers(fail))
    assert states(runs) == ["failed", "done"] * 2
    assert "no such thing; see" in runs[0].state(Limits())[1]


def test_a_run_of_another_process_is_waited_for(tmp_path: Path) -> None:
    runs = plan(sweep_options(tmp_path))
    runs[0].folder.path.mkdir(parents=True)
    lock = FileLock(runs[0].folder.path / "lock")
    lock.acquire()

    def finish_and_release(run: PlannedRun) -> int:
        if run is runs[-1]:
            finish(runs[0])
            lock.release()
        return finish(run)

    workers = MadeUpWorkers(finish_and_release)
    work(runs, workers)
    assert [attempt.run for attempt in workers.attempts] == runs[1:]
    assert states(runs) == ["done"] * 4


def test_a_second_ctrl_c_kills_the_runs(tmp_path: Path) -> None:
    def interrupt(run: PlannedRun) -> int:
        raise KeyboardInterrupt

    workers = MadeUpWorkers(interrupt)
    runs = plan(sweep_options(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        work(runs, workers)
    assert [attempt.asked for attempt in workers.attempts] == [["kill"], ["kill"]]
    assert states(runs) == ["new"] * 4


def test_a_folder_that_cannot_be_written_fails_one_run_alone(tmp_path: Path) -> None:
    """Of a full disk, for example, on which the failure itself may not be noted, either."""
    runs = plan(sweep_options(tmp_path))
    broken = runs[1]
    (broken.folder.path / FAILURE / "x").mkdir(parents=True)

    def fill_disk(run: PlannedRun) -> int:
        return 1 if run is broken else finish(run)

    assert work(runs, MadeUpWorkers(fill_disk)) is None
    assert states(runs) == ["done", "failed", "done", "done"]
