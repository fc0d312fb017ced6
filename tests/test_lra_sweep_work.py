"""The work of a sweep, with workers that are made up: no process is started."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from lra.sweep.launcher import AGAIN

from lra.runtime.cli import HELD, OUT_OF_MEMORY
from lra.runtime.errors import HeldError, UserError
from lra.sweep.plan import Failure, Limits, PlannedRun, plan
from lra.sweep.work import Work
from lra.train.stopping import StopRequest
from made_results import record as made_record
from test_lra_sweep import sweep_options

End = Callable[[PlannedRun], int | None]


def finish(run: PlannedRun) -> int:
    made_record(run_id=run.folder.path.name, mixer=run.config.mixer_name).save(run.folder.path)
    return 0


def save_step(step: int) -> End:
    """Make the end of a run that was interrupted after it had saved a step."""

    def interrupt(run: PlannedRun) -> int:
        run.folder.checkpoints.mkdir(exist_ok=True)
        (run.folder.checkpoints / f"step-{step:09}-0123456789abcdef.pt").write_bytes(b"")
        return AGAIN

    return interrupt


class MadeUpAttempt:
    def __init__(self, run: PlannedRun, end: End) -> None:
        self.run, self.end = run, end
        self.polls = 0
        self.asked: list[str] = []

    def poll(self) -> int | None:
        self.polls += 1
        return self.end(self.run) if self.polls > 1 else None

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")


class MadeUpWorkers:
    """Lets every run end as it is told: by the number of the attempt, the last for all others."""

    def __init__(self, *ends: End, capacity: int = 2) -> None:
        self.ends = ends
        self.capacity = capacity
        self.attempts: list[MadeUpAttempt] = []
        self.most = 0

    def start(self, run: PlannedRun) -> MadeUpAttempt:
        number = sum(attempt.run is run for attempt in self.attempts)
        end = self.ends[min(number, len(self.ends) - 1)]
        self.attempts.append(MadeUpAttempt(run, end))
        if end is refuse:
            raise HeldError("held")
        return self.attempts[-1]


def refuse(run: PlannedRun) -> int:
    """Stand for a run that cannot be started, because another process holds it."""
    raise AssertionError


def find_held(run: PlannedRun) -> int:
    """End like a run that found its folder held."""
    return HELD


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lra.sweep.work.SECONDS_BETWEEN_POLLS", 0.001)
    monkeypatch.setattr("lra.sweep.work.SECONDS_BETWEEN_TRIES", 0.001)


def work(folder: Path, workers: MadeUpWorkers) -> tuple[list[PlannedRun], str | None]:
    runs = plan(sweep_options(folder))
    stopped = Work(runs, Limits(), workers, StopRequest()).execute()
    return runs, stopped


def states(runs: list[PlannedRun]) -> list[str]:
    return [run.state(Limits())[0] for run in runs]


def test_every_run_is_made_once(tmp_path: Path) -> None:
    workers = MadeUpWorkers(finish)
    runs, stopped = work(tmp_path, workers)
    assert stopped is None
    assert [attempt.run for attempt in workers.attempts] == runs
    assert states(runs) == ["done"] * 4


@pytest.mark.parametrize("first", [save_step(3), refuse, find_held])
def test_runs_that_are_interrupted_or_held_are_started_again(tmp_path: Path, first: End) -> None:
    workers = MadeUpWorkers(first, finish)
    runs, _ = work(tmp_path, workers)
    assert len(workers.attempts) == 2 * len(runs)
    assert states(runs) == ["done"] * 4


def test_a_run_may_be_interrupted_often_if_it_gets_on(tmp_path: Path) -> None:
    workers = MadeUpWorkers(*(save_step(step) for step in range(10)), finish)
    runs, _ = work(tmp_path, workers)
    assert states(runs) == ["done"] * 4


def test_a_run_that_is_interrupted_without_getting_on_has_failed(tmp_path: Path) -> None:
    workers = MadeUpWorkers(save_step(1), save_step(2), lambda run: AGAIN)
    runs, _ = work(tmp_path, workers)
    assert len(workers.attempts) == 4 * len(runs)
    state, note = runs[0].state(Limits())
    assert state == "failed"
    assert "3 times in a row without a new checkpoint" in note


def test_a_run_at_its_limit_is_not_started_again(tmp_path: Path) -> None:
    def stop(run: PlannedRun) -> int:
        made_record(
            run_id=run.folder.path.name, mixer=run.config.mixer_name, status="stopped", steps=12
        ).save(run.folder.path)
        return AGAIN

    workers = MadeUpWorkers(stop)
    runs = plan(sweep_options(tmp_path))
    Work(runs, Limits(max_steps=12), workers, StopRequest()).execute()
    assert len(workers.attempts) == len(runs)


def test_a_failure_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def fail(run: PlannedRun) -> int:
        if run.config.mixer_name == "mean":
            run.log.write_text("run_task.py: error: no such thing\ntorchrun says more\n")
            return OUT_OF_MEMORY
        return finish(run)

    runs, _ = work(tmp_path, MadeUpWorkers(fail))
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
    Work(runs, Limits(), workers, StopRequest()).execute()
    assert [attempt.run for attempt in workers.attempts] == runs[1:]
    assert states(runs) == ["done"] * 4


class Patient(MadeUpWorkers):
    """Starts runs that work until they are asked to stop, and then end as if they had failed."""

    def __init__(self, stop: StopRequest) -> None:
        super().__init__(finish)
        self.stop = stop

    def start(self, run: PlannedRun) -> MadeUpAttempt:
        attempt = MadeUpAttempt(run, lambda run: 1 if attempt.asked else self._ask())
        self.attempts.append(attempt)
        return attempt

    def _ask(self) -> int | None:
        self.stop.signal = "SIGTERM"
        return None


class OneBadWorker(Patient):
    """Can make no run at the first of its places; runs elsewhere work until they are to stop."""

    def start(self, run: PlannedRun) -> MadeUpAttempt:
        attempt = super().start(run)
        if len(self.attempts) == 1:
            attempt.end = self._refuse
        return attempt

    def _ask(self) -> None:
        return None

    def _refuse(self, run: PlannedRun) -> int:
        raise UserError("this node has other code")


def test_a_worker_that_can_make_no_run_lets_the_others_save(tmp_path: Path) -> None:
    workers = OneBadWorker(StopRequest())
    with pytest.raises(UserError, match="this node has other code"):
        Work(plan(sweep_options(tmp_path)), Limits(), workers, StopRequest()).execute()
    assert [attempt.asked for attempt in workers.attempts] == [[], ["stop"]]


def test_a_request_to_stop_reaches_every_run_and_notes_no_failure(tmp_path: Path) -> None:
    stop = StopRequest()
    workers = Patient(stop)
    runs = plan(sweep_options(tmp_path))
    assert Work(runs, Limits(), workers, stop).execute() == "SIGTERM"
    assert [attempt.asked for attempt in workers.attempts] == [["stop"]] * 2
    assert states(runs) == ["new"] * 4


@pytest.mark.parametrize("can_note", [True, False])
@pytest.mark.parametrize("when", ["start", "poll", "end"])
def test_a_folder_that_cannot_be_written_fails_one_run_alone(
    tmp_path: Path, when: str, can_note: bool
) -> None:
    """Of a full disk, for example, on which the failure itself may not be noted, either."""
    runs = plan(sweep_options(tmp_path))
    broken = runs[1]
    broken.folder.path.mkdir(parents=True)
    if not can_note:
        (broken.folder.path / Failure.FILE / "x").mkdir(parents=True)

    def fill_disk(run: PlannedRun) -> int:
        if run is not broken:
            return finish(run)
        if when == "end":
            return OUT_OF_MEMORY  # and there is no log to find a reason in
        raise OSError(errno.ENOSPC, "No space left on device", str(run.log))

    class Workers(MadeUpWorkers):
        def start(self, run: PlannedRun) -> MadeUpAttempt:
            if when == "start" and run is broken:
                fill_disk(run)
            return super().start(run)

    assert Work(runs, Limits(), Workers(fill_disk), StopRequest()).execute() is None
    assert states(runs) == ["done", "failed", "done", "done"]
    note = "No such file" if when == "end" else "No space left on device"
    assert (note if can_note else "cannot be read") in broken.state(Limits())[1]
