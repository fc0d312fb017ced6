"""Runs of a sweep as jobs of Slurm, through submitit (an extra: `pip install submitit`)."""

import contextlib
import json
import logging
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from lra.common.errors import DataError, UserError
from lra.common.files import write_atomically
from lra.common.untrusted import read_regular
from lra.sweep.data import SweepData
from lra.sweep.plan import LOG, Limits, PlannedRun, SweepOptions, note_failure, start_run
from lra.train.run_folder import RunFolder

logger = logging.getLogger(__name__)

JOB = "job.json"
"""File in a run's folder that names the job which carries the run out."""


@dataclass
class ClusterRun:
    """A job that carries out one run; if it is preempted or out of time, it is queued again."""

    command: Sequence[str]
    """Command line of run_task.py, without limits and --stop-with."""
    folder: Path
    """The run's folder, to whose log.txt the output is appended."""
    limits: Limits
    """Limits of the run, over all of its jobs together."""
    process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Make the run, and return the exit code of its process."""
        folder = RunFolder(self.folder)
        # A preemption signal may reach all processes of a job, but only this one answers it.
        handler = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        command = [*self.command, *self.limits.flags(folder)]
        self.process = start_run(command, self.folder / LOG)
        signal.signal(signal.SIGUSR2, handler)
        code = self.process.wait()
        if not folder.is_held():  # torchrun hides the exit code of a run that found it held
            note_failure(folder, code)
        return code

    def checkpoint(self) -> Any:
        """Let the run save, and ask for the job to be queued again; submitit calls this."""
        # The signal interrupts the wait in __call__, which holds Popen's lock: psutil needs none.
        if self.process is not None and psutil.pid_exists(self.process.pid):
            run = psutil.Process(self.process.pid)
            run.terminate()
            run.wait()
        return _import_submitit().helpers.DelayedSubmission(replace(self, process=None))


def _import_submitit() -> ModuleType:
    try:
        import submitit
    except ImportError:
        raise UserError("--launcher slurm needs submitit: pip install submitit") from None
    return submitit


def make_executor(cluster: str, folder: Path, parameters: Mapping[str, Any]) -> Any:
    """Make the executor that submits jobs.

    Args:
        cluster: slurm; local for processes of this machine; debug to check the parameters alone.
        folder: folder for submitit's files.
        parameters: arguments of submitit.AutoExecutor.update_parameters.
    Raises: UserError if submitit or the cluster is missing, or a parameter is wrong.
    """
    submitit = _import_submitit()
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**parameters)
    except (AssertionError, NameError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"--launcher slurm: {error}") from None
    return executor


def submit(
    runs: Sequence[PlannedRun], options: SweepOptions, executor: Any
) -> list[tuple[PlannedRun, Any]]:
    """Submit a job for every run that no job holds yet, as one array.

    Returns: the submitted runs, each with its job.
    Raises: UserError if the cluster refuses them.
    """
    free = [run for run in runs if not is_queued(run)]
    jobs: list[Any] = []
    try:
        with executor.batch() if free else contextlib.nullcontext():
            for run in free:
                path = run.folder.path
                path.mkdir(parents=True, exist_ok=True)
                command = run.command(options.device, options.gpus_per_run)
                jobs.append(executor.submit(ClusterRun(command, path, options.limits)))
    except RuntimeError as error:
        raise UserError(f"the cluster refused the jobs: {error}") from None
    submitted = list(zip(free, jobs, strict=True))
    for run, job in submitted:
        logger.info(f"{run.name}: job {job.job_id}")
        facts = {"id": job.job_id, "folder": str(executor.folder)}
        write_atomically(run.folder.path / JOB, (json.dumps(facts) + "\n").encode())
    return submitted


def is_queued(run: PlannedRun) -> bool:
    """Whether a job that was submitted for a run is waiting or at work."""
    try:
        facts = json.loads(read_regular(run.folder.path / JOB))
        job = _import_submitit().SlurmJob(folder=facts["folder"], job_id=facts["id"])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return False
    return job.state != "UNKNOWN" and not job.done(force_check=True)  # unknown: long forgotten


class SlurmLauncher:
    """Submits runs as jobs of Slurm, and does not wait for them."""

    def __init__(self, options: SweepOptions) -> None:
        self.options = options
        needs_gpus = options.gpus_per_run > 1 and options.device != "cpu"
        gpus = {"gpus_per_node": options.gpus_per_run} if needs_gpus else {}
        self.parameters = {**gpus, **options.cluster}
        make_executor("debug", options.results_dir / "jobs", self.parameters)

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> None:
        """Submit the runs that no process is at work on."""
        options = self.options
        executor = make_executor("slurm", options.results_dir / "jobs", self.parameters)
        for name, what in data.check().items():
            if what:
                logger.info(f"data of {name}: the first job will {what}")
        free = [run for run in runs if run.state(options.limits)[0] in options.states]
        count = len(submit(free, options, executor))
        logger.info(f"{count} jobs submitted; {len(free) - count} runs were in the queue already")
