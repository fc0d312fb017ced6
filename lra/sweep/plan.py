"""The plan of a sweep: its runs, how far each of them is, and their processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lra.common.errors import DataError, UserError
from lra.common.files import open_to_append, write_atomically
from lra.common.progress import progress
from lra.common.untrusted import open_regular, read_regular
from lra.config.request import Change, RunRequest, combine, parse_alternatives, parse_changes
from lra.config.schema import RunConfig
from lra.record.run import RunRecord
from lra.resolve import resolve
from lra.runtime.cli import DIVERGED, HELD, OUT_OF_MEMORY, STOPPED
from lra.runtime.repository import ROOT
from lra.train.checkpoint import read_newest
from lra.train.run_folder import RunFolder, choose_folder

State = Literal[
    "new", "unfinished", "running", "done", "at its limit", "diverged", "out of memory", "failed"
]
"""How far a run is; a running one is carried out by another process."""
OPEN: tuple[State, ...] = ("new", "unfinished")
"""States of the runs that a sweep carries out."""
RETRIED: tuple[State, ...] = ("out of memory", "failed")
"""States of the runs that a sweep carries out again only with --retry-failed."""

RECORDED = (0, STOPPED, DIVERGED, HELD)
"""Exit codes of runs that left a record of how they ended, or that another process carries out."""
FAILURE = "failure.txt"
"""File in a run's folder that says how its process ended, if that left no record of it."""
LOG = "log.txt"
"""File in a run's folder with the output of its processes."""
TAIL = 2000
"""Bytes at the end of a log in which the reason of a failure is searched for."""
ERROR = "run_task.py: error: "
"""Start of the last line in the log of a run that failed."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
"""Starts several processes of one run, from Python; the number of processes follows."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits at which an unfinished run is stopped, so that it can be resumed later."""

    max_steps: int | None = None
    """Most steps of the whole run."""
    minutes: float | None = None
    """Most minutes of the whole run, training and evaluation."""

    def flags(self, folder: RunFolder) -> list[str]:
        """Write the flags of run_task.py for the steps and the time that a run has left."""
        flags = [] if self.max_steps is None else ["--max-steps", str(self.max_steps)]
        if self.minutes is not None:
            made = 0.0
            with contextlib.suppress(UserError):  # of another version, as the run itself will say
                if (state := read_newest(folder.checkpoints)) is not None:
                    made = state["session"]["wall_seconds"] / 60
            flags += ["--max-minutes", str(max(0.0, self.minutes - made))]
        return flags

    def are_reached(self, record: RunRecord) -> bool:
        """Whether a run that was stopped has no steps or no time left."""
        has_all_steps = self.max_steps is not None and record.steps >= self.max_steps
        has_all_time = self.minutes is not None and record.wall_seconds >= 60 * self.minutes
        return has_all_steps or has_all_time


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What the command line of a sweep says; its help explains each flag."""

    tasks: Sequence[str]
    mixers: Sequence[str]
    seeds: Sequence[int]
    preset: str
    protocol: str
    overrides: Sequence[str] = ()
    grid: Sequence[str] = ()
    listed: Sequence[tuple[RunRequest, int]] | None = None
    """Runs of a file with their seeds, in its order, in place of every combination."""
    data_dir: Path
    results_dir: Path
    limits: Limits = Limits()
    """Limits of each run."""
    total_minutes: float | None = None
    retry_failed: bool = False
    dry_run: bool = False
    print_commands: bool = False
    launcher: str = "local"
    device: str = "auto"
    per_device: int = 1
    gpus_per_run: int = 1
    cluster: Mapping[str, Any] = field(default_factory=dict)

    @property
    def states(self) -> tuple[State, ...]:
        """States of the runs to carry out; other runs are left alone."""
        return (*OPEN, *RETRIED) if self.retry_failed else OPEN


def write_failure(folder: Path, message: str) -> None:
    """Note in a run's folder how its process ended."""
    write_atomically(folder / FAILURE, f"{message}\n".encode(errors="backslashreplace"))


def note_failure(folder: RunFolder, code: int) -> None:
    """Note in a run's folder how its process ended, unless that left a record of it."""
    log = folder.path / LOG
    if code in RECORDED:
        return
    if code == OUT_OF_MEMORY:
        with contextlib.suppress(UserError):
            if (record := folder.record()) is not None and record.status == "oom":
                return
    if code < 0:
        name = signal.Signals(-code).name
        reason = " (by the system if memory ran out)" if name == "SIGKILL" else ""
        message = f"killed by {name}{reason}"
    else:
        with open_regular(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").split("\n")
        written = [line.strip() for line in lines if line.strip()]
        errors = [line for line in written if line.startswith(ERROR)]  # torchrun says more
        message = (errors or written or [f"exit code {code}"])[-1].removeprefix(ERROR)
    write_failure(folder.path, f"{message}; see {log}")


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a plan."""

    config: RunConfig
    mixer: str
    """Argument of --mixer: a name, or the file and class of a user's own mixer."""
    seed: int
    changes: tuple[Change, ...]
    folder: RunFolder
    data_dir: Path
    results_dir: Path

    @property
    def name(self) -> str:
        """Name of the run: its task, mixer and folder."""
        return f"{self.config.task_name}/{self.config.mixer_name}/{self.folder.path.name}"

    @property
    def log(self) -> Path:
        """File with the output of the run's processes."""
        return self.folder.path / LOG

    def arguments(self, device: str, limits: Limits = Limits()) -> list[str]:
        """Write the arguments of run_task.py, with what the limits leave of the run."""
        config = self.config
        line = ["--task", config.task_component.spec, "--mixer", self.mixer]
        line += ["--preset", config.preset_from or config.preset]
        line += ["--protocol", config.protocol, "--seed", str(self.seed)]
        line += ["--data-dir", str(self.data_dir), "--results-dir", str(self.results_dir)]
        line += [part for change in self.changes for part in ("--set", change.text)]
        return [*line, "--device", device, *limits.flags(self.folder)]

    def command(self, device: str, processes: int, limits: Limits = Limits()) -> list[str]:
        """Write the command of the run with this Python; torchrun divides it between processes."""
        start = [*TORCHRUN, str(processes)] if processes > 1 else []
        script = ROOT / "run_task.py"
        module = [str(script)] if script.is_file() else ["-m", "lra.run_task"]
        return [sys.executable, *start, *module, *self.arguments(device, limits)]

    def failure(self) -> str | None:
        """Read how the run failed; None if it did not fail or has gone on since."""
        path, result = self.folder.path / FAILURE, self.folder.path / "result.json"
        try:
            if result.exists() and result.stat().st_mtime_ns > path.stat().st_mtime_ns:
                return None
            return " ".join(read_regular(path).decode(errors="replace").split())
        except FileNotFoundError:
            return None
        except DataError as error:
            return str(error)

    def forget_failure(self) -> None:
        """Remove the note of a failure, so that the run is tried again."""
        (self.folder.path / FAILURE).unlink(missing_ok=True)

    def state(self, limits: Limits) -> tuple[State, str]:
        """Return how far the run is, and a note that explains it."""
        if self.folder.is_held():
            return "running", "in another process"
        try:
            record, failure = self.folder.record(), self.failure()
        except UserError as error:
            record, failure = None, str(error)
        if record is not None and record.status in ("done", "diverged"):
            return record.status, record.message or ""
        if failure is not None:
            return "failed", failure
        if record is None:
            return ("unfinished" if self.folder.has_checkpoint() else "new"), ""
        if record.status == "oom":
            return "out of memory", record.message or ""
        state: State = "at its limit" if limits.are_reached(record) else "unfinished"
        return state, f"step {record.steps:,} of {record.total_steps:,}"


def start_run(
    command: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the process of a run, which stops when this process has ended.

    Args:
        command: see `PlannedRun.command`.
        log: file that the output is appended to.
        variables: variables of its environment that differ from those of this process.
    """
    with open_to_append(log) as file:
        # In a session of its own: Ctrl-C reaches only this process, which asks the run to stop.
        return subprocess.Popen(
            [*command, "--stop-with", str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, **(variables or {})},
        )  # fmt: skip


def plan(options: SweepOptions) -> list[PlannedRun]:
    """List the runs of a file in its order, or of every task, mixer, seed and combination of
    settings, each once.

    Two runs are the same if their settings and seeds are. All runs of one seed come before those
    of the next, so that a table has a number in every cell early.

    Raises: UserError naming a run that is not possible, and for too many runs.
    """
    requested = list(_combinations(options)) if options.listed is None else options.listed
    requests = list({str(request): request for request, _ in requested}.values())
    resolved: dict[str, RunConfig] = {}
    for request in progress("planning", requests, unit="configuration"):
        try:
            resolved[str(request)] = resolve(request)
        except UserError as error:
            raise UserError(f"{request.task}, {request.mixer}: {error}") from None
    runs: dict[tuple[str, int], PlannedRun] = {}
    for request, seed in requested:
        config = resolved[str(request)]
        if (config.hash, seed) not in runs:
            runs[config.hash, seed] = PlannedRun(
                config=config,
                mixer=request.mixer,
                seed=seed,
                changes=request.changes,
                folder=choose_folder(options.results_dir, config, seed, "auto"),
                data_dir=options.data_dir,
                results_dir=options.results_dir,
            )
    return list(runs.values())


def _combinations(options: SweepOptions) -> Iterator[tuple[RunRequest, int]]:
    """List every combination of seeds, tasks, mixers and settings."""
    common = parse_changes(options.overrides)
    choices = [parse_alternatives(text, "--grid") for text in options.grid]
    every = combine("runs", options.seeds, options.tasks, options.mixers, *choices)
    for seed, task, mixer, *chosen in every:
        request = RunRequest(
            task=task,
            mixer=mixer,
            preset=options.preset,
            protocol=options.protocol,
            changes=(*common, *chosen),
        )
        yield request, seed


def varied_settings(runs: Sequence[PlannedRun], start: str = "") -> list[str]:
    """Write the settings of each run that not all runs have, those of --grid for instance.

    Args:
        start: of the names of the only settings, "task." for instance.
    """
    written = [
        [change.text for change in run.changes if change.text.startswith(start)] for run in runs
    ]
    common = set.intersection(*map(set, written)) if written else set()
    return [" ".join(text for text in texts if text not in common) for texts in written]
