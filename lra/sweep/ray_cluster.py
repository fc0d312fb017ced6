"""Runs as tasks of Ray, on this machine or a cluster (an extra: `pip install ray`)."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from common.errors import UserError
from common.files import open_to_append
from common.threads import core_count
from lra.runtime.cli import STOPPED
from lra.runtime.repository import ROOT, code_digest
from lra.sweep.data import SweepData
from lra.sweep.plan import PlannedRun, SweepOptions
from lra.sweep.work import AGAIN, Work

logger = logging.getLogger(__name__)

MESSAGES = "ray.log"
"""File in the results folder for what Ray prints: hundreds of lines if a node is lost."""
SECONDS_TO_ANSWER = 60
"""Time in which a cluster has to accept a connection."""
OBJECT_STORE_BYTES = 256 * 2**20
"""Memory of Ray for what processes exchange, where it is started on this machine."""
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Settings of Ray: it sends no statistics, and runs have the usual priority of processes."""


def import_ray() -> ModuleType:
    """Import Ray, with its `SETTINGS`.

    Raises: UserError if it is not installed.
    """
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        import ray
    except ImportError:
        raise UserError("--launcher ray needs ray: pip install ray") from None
    return ray


def read_needs(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the values of --cluster into options of a task of Ray.

    Raises: UserError if Ray refuses them, without a cluster.
    """
    own = {name: value for name, value in cluster.items() if name.startswith("resources.")}
    needs: dict[str, Any] = {name: cluster[name] for name in cluster.keys() - own.keys()}
    needs["resources"] = {name.partition(".")[2]: value for name, value in own.items()}
    try:
        import_ray().remote(lambda: None).options(**needs)
    except (ValueError, TypeError) as error:
        raise UserError(f"--cluster: {error}") from None
    return needs


def choose_needs(options: SweepOptions, nodes: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Choose what a run requests: GPUs, or a share of one, where nodes have any; else CPUs.

    Args:
        options: device cuda requests a GPU also where no node has one yet.
        nodes: resources of each node.
    Returns: options of a task of Ray.
    """
    needs: dict[str, Any] = {"num_cpus": 1}
    has_gpu = options.device == "auto" and any(node.get("GPU") for node in nodes)
    if options.device == "cuda" or has_gpu:
        # Ray counts shares in units of 0.0001.
        share = (10_000 // options.per_device) / 10_000
        needs["num_gpus"] = options.gpus_per_run if options.gpus_per_run > 1 else share
    else:
        cpus = min((node["CPU"] for node in nodes if node.get("CPU")), default=1)
        needs["num_cpus"] = max(1, int(cpus) // options.per_device)
    return needs | read_needs(options.cluster)


@contextlib.contextmanager
def connected(address: str | None, messages: Path) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray on this machine.

    Args:
        messages: file for what Ray prints.
    Raises: UserError if there is no cluster at the address, or Ray does not start.
    """
    ray = import_ray()
    settings: dict[str, Any] = {"address": address}
    if address is None:
        settings = {
            "address": "local", "num_cpus": core_count(), "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }  # fmt: skip
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of tokens before each sweep
    try:
        with messages.open("a") as file, contextlib.redirect_stdout(file):
            if address and ":" in address:  # no signal ends an attempt of Ray to connect
                host, _, port = address.rpartition("/")[2].rpartition(":")
                socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()
            ray.init(
                **settings, log_to_driver=False, logging_level=logging.ERROR,
                configure_logging=False,
            )  # fmt: skip
            yield
    except (OSError, RuntimeError, ValueError) as error:
        if ray.is_initialized():
            raise
        if address is None:
            raise UserError(f"Ray does not start: {describe_error(error)}") from None
        raise UserError(
            f"--ray-address {address}: no Ray cluster answered ({describe_error(error)}); start "
            f"one with ray start --head, or give the HOST:PORT of its head node, or auto on a "
            f"machine of the cluster"
        ) from None
    finally:
        ray.shutdown()


def describe_error(error: BaseException) -> str:
    """Return the line of Ray's message that says what happened: of a traceback the last."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if "Traceback" in str(error) or "ray::" in lines[0] else 0].strip()


def _make_task() -> Callable[..., int | str]:
    """Make the function that nodes call, sent by value, as it looks for the suite there first."""

    def work_on(
        root: str, code: str, folder: str, here: str, *words: str, processes: int
    ) -> int | str:
        """Make a run; return its exit code, or why this node can make no run."""
        import os
        import pathlib
        import platform
        import sys
        import time

        if not (pathlib.Path(root) / "lra" / "sweep").is_dir():
            return f"{platform.node()} has no copy of the suite in {root}"
        sys.path.insert(0, root)
        from lra.runtime.repository import code_digest
        from lra.sweep.run_process import start_run, write_command

        if (found := code_digest()) != code:
            return (
                f"{platform.node()} has another version of the suite's code ({found}) in {root} "
                f"than the sweep ({code}); copy the same version there"
            )
        if not pathlib.Path(folder).is_dir():  # which the sweep has made
            return f"{platform.node()} does not share {folder} with the sweep: mount it there"
        # Ray sets the variable to the CPUs that the run has requested.
        threads = max(1, int(os.environ.get("OMP_NUM_THREADS", "1")) // processes)
        command, log = write_command(words, processes), pathlib.Path(folder, "log.txt")
        place = pathlib.Path(here)  # to which paths of the user's files refer
        variables = {"OMP_NUM_THREADS": str(threads)}
        process = start_run(command, log, variables, place if place.is_dir() else None)
        try:
            while process.poll() is None:
                time.sleep(0.5)
        except KeyboardInterrupt:  # ray.cancel
            process.terminate()
        return process.wait()

    return work_on


class RayAttempt:
    """A task of Ray that works on a run, or waits until a node has room for it."""

    def __init__(self, run: PlannedRun, task: Any) -> None:
        self.run = run
        self.task = task
        self.ray = import_ray()

    def poll(self) -> int | None:
        """Return the exit code of the run, or `AGAIN` if it was lost; None while it works.

        Raises: UserError if a node cannot make any run of the sweep; OSError if the log of this one
            cannot be written.
        """
        if not self.ray.wait([self.task], timeout=0)[0]:
            return None
        try:
            answer = self.ray.get(self.task)
        except self.ray.exceptions.TaskCancelledError:
            return AGAIN
        except self.ray.exceptions.RayError as error:
            reason = f"lost: {describe_error(error)}"
            logger.warning(f"{self.run.name}: {reason}")
            with open_to_append(self.run.log) as file:
                file.write(f"{reason}\n".encode())
            return AGAIN
        if isinstance(answer, str):
            raise UserError(f"a node of the Ray cluster cannot make runs: {answer}")
        return AGAIN if answer == STOPPED else answer

    def terminate(self) -> None:
        """Ask the run to save and to end; one in Ray's queue leaves the queue."""
        self.ray.cancel(self.task)

    def kill(self) -> None:
        """End the process that watches over the run, with which the run ends."""
        self.ray.cancel(self.task, force=True)


class RayLauncher:
    """Carries out runs on a Ray cluster, or on this machine through Ray.

    Nodes may come and go while runs are at work.
    """

    def __init__(self, options: SweepOptions) -> None:
        read_needs(options.cluster)
        if options.device not in ("auto", "cpu", "cuda"):
            raise UserError(
                f"--device {options.device}: Ray chooses the GPU of each run; give auto, cpu or "
                f"cuda"
            )
        if options.gpus_per_run > 1 and options.per_device > 1:
            raise UserError("--launcher ray takes --gpus-per-run or --per-device, not both")
        self.options = options
        self.code = code_digest()
        self.needs: dict[str, Any] = {}
        """What a run requests from its node, as options of a task of Ray."""

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Connect to the cluster, and carry out runs; return what stopped the sweep early."""
        options = self.options
        options.results_dir.mkdir(parents=True, exist_ok=True)
        with connected(options.ray_address, options.results_dir / MESSAGES):
            nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
            self.needs = choose_needs(options, nodes)
            if options.ray_address is None:
                data.prepare()
            asked = ", ".join(f"{name}={value}" for name, value in self.needs.items() if value)
            logger.info(
                f"Ray cluster of {len(nodes)} nodes; a run takes {asked}, and waits until a node "
                f"has room for it"
            )
            return Work(data.ready(runs), self.start, sys.maxsize, options).execute()

    def start(self, run: PlannedRun) -> RayAttempt:
        """Put a run into the queue of Ray."""
        options = self.options
        device = "cuda" if self.needs.get("num_gpus") else "cpu"
        words = run.arguments(device, options.limits)
        task = import_ray().remote(_make_task()).options(**self.needs, max_retries=0)
        folder, here = str(run.folder.path), str(Path.cwd())
        count = options.gpus_per_run
        started = task.remote(str(ROOT), self.code, folder, here, *words, processes=count)
        return RayAttempt(run, started)
