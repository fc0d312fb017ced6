"""Runs as tasks of Ray, on this machine or a cluster (an extra: `pip install ray`)."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from filelock import FileLock

from common.errors import DataError
from common.files import is_locked, open_to_append
from lra.runtime.cli import STOPPED
from lra.runtime.errors import UserError
from lra.runtime.repository import ROOT, code_digest
from lra.sweep.data import SweepData
from lra.sweep.launcher import AGAIN, LaunchOptions
from lra.sweep.parcel import pack, unpack
from lra.sweep.plan import PlannedRun, limit_flags
from lra.sweep.ray_connection import connected, describe_error, import_ray
from lra.sweep.ray_needs import Needs, read_parameters
from lra.sweep.ray_node import Order, file_times
from lra.sweep.work import Work
from lra.train.stopping import StopRequest

logger = logging.getLogger(__name__)

PROOF = ".shared-"
"""Start of the names of files by which nodes see that they share the results folder."""
MESSAGES = "ray.log"
"""File in the results folder for what Ray prints: hundreds of lines if a node is lost."""
SECONDS_BETWEEN_COUNTS = 2.0
"""Time between two looks at the nodes of the cluster."""


def _make_task() -> Any:
    """Make the function that nodes carry out.

    Ray sends a function within a function by value, so that it can look for the suite first.
    """

    def carry_out(root: str, code: str, order: dict[str, Any], stopping: Any) -> Iterator[Any]:
        import pathlib
        import platform
        import sys

        import ray
        from ray.exceptions import RayError

        if not (pathlib.Path(root) / "lra" / "sweep").is_dir():
            yield f"{platform.node()} has no copy of the suite in {root}"
            return
        if root not in sys.path:
            sys.path.insert(0, root)
        from lra.runtime.repository import code_digest

        if (found := code_digest()) != code:
            yield (
                f"{platform.node()} has another version of the suite's code ({found}) in {root} "
                f"than the sweep ({code}); copy the same version there"
            )
            return
        from lra.sweep.ray_node import Order, make_run

        def is_stopped() -> bool:
            try:
                return ray.get(stopping.is_asked.remote())
            except RayError:  # it is being started again
                return False

        yield from make_run(Order(**order), is_stopped)

    return carry_out


def _make_actor() -> type:
    """Make the class of the actor that tells nodes whether runs are to stop; sent by value, too."""

    class Stopping:
        def __init__(self) -> None:
            self.asked = False

        def ask(self) -> None:
            self.asked = True

        def is_asked(self) -> bool:
            return self.asked

    return Stopping


class RayAttempt:
    """A task of Ray that works on a run.

    Args:
        run: the run.
        reports: what the task yields.
        stopping: actor that tells nodes whether to stop, see `_make_actor`.
        held: lock on the run's folder that this process holds while the run is at work on a node
            that does not share the folder.
    """

    def __init__(
        self, run: PlannedRun, reports: Any, stopping: Any, held: contextlib.ExitStack
    ) -> None:
        self.ray = import_ray()
        self.run = run
        self.reports = reports
        self.stopping = stopping
        self.held = held
        self.has_started = False

    def poll(self) -> int | None:
        """Return the exit code of the run, or `AGAIN` if it was lost; None while it works.

        Raises: UserError if a node cannot make any run of the sweep; OSError or DataError if its
            folder cannot be written.
        """
        ready, _ = self.ray.wait([self.reports], timeout=0)
        if not ready:
            return None
        try:
            report = self.ray.get(next(self.reports))
        except (StopIteration, self.ray.exceptions.RayError) as error:
            self._note_loss(error)
            return self._end(AGAIN)
        self.has_started = True
        if isinstance(report, str):
            self._end(AGAIN)
            raise UserError(f"a node of the Ray cluster cannot make runs: {report}")
        if report.parcel is not None:
            try:
                unpack(report.parcel, self.run.folder.path)
            except (OSError, DataError):
                self.ray.cancel(self.reports)  # so that its node ends the run
                self._end(AGAIN)
                raise
        if report.exit_code is None:
            return None
        return self._end(AGAIN if report.exit_code == STOPPED else report.exit_code)

    def _note_loss(self, error: BaseException) -> None:
        if isinstance(error, self.ray.exceptions.TaskCancelledError):
            return  # by `stop`
        reason = describe_error(error)
        logger.warning(f"{self.run.name}: lost: {reason}")
        with open_to_append(self.run.log) as file:
            file.write(f"lost: {reason}\n".encode())

    def _end(self, code: int) -> int:
        self.held.close()
        return code

    def stop(self) -> None:
        """Ask all runs of the sweep to save and to end; one in Ray's queue leaves the queue."""
        self.stopping.ask.remote()
        if not self.has_started:
            self.ray.cancel(self.reports)

    def kill(self) -> None:
        """End the process that watches over the run, with which the run ends."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            self.ray.cancel(self.reports, force=True)
        self.held.close()


class RayWorkers:
    """The nodes of a Ray cluster; they may come and go while runs are at work.

    Args:
        options: what the command line says.
    """

    def __init__(self, options: LaunchOptions) -> None:
        self.ray = import_ray()
        self.options = options
        self.needs = Needs.choose(options, self.nodes())
        self.code = code_digest()
        self.working_folder = Path.cwd()
        self._room = 0
        self._next_count = 0.0
        self.proof = f"{PROOF}{uuid.uuid4().hex[:16]}"
        """File in the results folder by which nodes see that they share it."""
        here = self.ray.get_runtime_context().get_node_id()
        beside = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            here, soft=False
        )
        actor = self.ray.remote(num_cpus=0, max_restarts=-1)(_make_actor())
        self.stopping = actor.options(scheduling_strategy=beside).remote()
        self.task = self.ray.remote(max_retries=0)(_make_task())

    def nodes(self) -> list[dict[str, float]]:
        """Return the resources of each node."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    @property
    def capacity(self) -> int:
        """How many runs may be started now: twice as many as nodes have room for.

        Those beyond the room wait in Ray's queue, so that a cluster that grows by need can see it.
        """
        if time.monotonic() >= self._next_count:
            self._next_count = time.monotonic() + SECONDS_BETWEEN_COUNTS
            self._room = sum(map(self.needs.count, self.nodes()))
        return max(1, 2 * self._room)

    def describe(self) -> str:
        """Describe the cluster, and what a run requests from it."""
        nodes = self.nodes()
        room = sum(map(self.needs.count, nodes))
        count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
        text = f"Ray cluster of {count}; a run takes {self.needs.describe()}"
        if not room:
            return (
                f"{text}. No node is large enough for one: runs start when such a node joins. "
                f"Ctrl-C ends the sweep, and --total-minutes limits how long it waits"
            )
        return f"{text}: {room} at a time"

    def start(self, run: PlannedRun) -> RayAttempt:
        """Put a run into the queue of Ray.

        Raises: HeldError if another process is at work on it.
        """
        options = self.options
        is_shared = options.hand_back_minutes is None
        with contextlib.ExitStack() as held:
            if not is_shared:
                held.enter_context(run.folder.locked())
            limits = limit_flags(options.limits, run.folder)
            order = Order(
                arguments=(*run.arguments(), "--device", self.needs.device, *limits),
                processes=options.gpus_per_run,
                working_folder=self.working_folder,
                place=run.folder.path.relative_to(run.results_dir),
                results_dir=run.results_dir,
                proof=self.proof,
                ends=file_times(run.folder.path),
                hand_back_minutes=options.hand_back_minutes,
                parcel=None if is_shared else pack(run.folder.path),
                data_dir=run.data_dir,
                data_from=options.data_from,
            )
            task = self.task.options(name=run.name, **self.needs.options)
            reports = task.remote(str(ROOT), self.code, vars(order), self.stopping)
            return RayAttempt(run, reports, self.stopping, held.pop_all())


class RayLauncher:
    """Carries out runs on a Ray cluster, or on this machine through Ray."""

    def __init__(self, options: LaunchOptions) -> None:
        import_ray()
        read_parameters(options.parameters)
        if options.device not in ("auto", "cpu", "cuda"):
            raise UserError(
                f"--device {options.device}: Ray chooses the GPU of each run; give auto, cpu or "
                f"cuda"
            )
        if options.gpus_per_run > 1 and options.per_device > 1:
            raise UserError("--launcher ray takes --gpus-per-run or --per-device, not both")
        self.options = options

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Connect to the cluster, and carry out runs; see `Launcher`."""
        options = self.options
        options.results_dir.mkdir(parents=True, exist_ok=True)
        messages = options.results_dir / MESSAGES
        with messages.open("a") as file, redirect_stdout(file), connected(options.address):
            workers = RayWorkers(options)
            if options.address is None:
                workers.needs.refuse_too_much(workers.nodes())
                data.prepare()
            logger.info(workers.describe())
            stop = StopRequest(options.total_minutes, time_flag="--total-minutes")
            with shared_folder(options.results_dir / workers.proof):
                ready = data.ready(runs)
                return Work(ready, options.limits, workers, stop, options.states).execute()


@contextlib.contextmanager
def shared_folder(proof: Path) -> Iterator[None]:
    """Leave a file in the results folder that nodes see if they share the folder.

    It is locked, so that later sweeps can remove what a sweep that was killed has left.
    """
    for path in proof.parent.glob(f"{PROOF}*"):
        if not is_locked(path):
            path.unlink(missing_ok=True)
    try:
        with FileLock(proof):
            yield
    finally:
        proof.unlink(missing_ok=True)


def make_launcher(options: LaunchOptions) -> RayLauncher:
    """Make the launcher.

    Raises: UserError if ray is missing, or an option is wrong.
    """
    return RayLauncher(options)
