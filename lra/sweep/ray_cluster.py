"""Runs as actors of Ray, on this machine or a cluster (an extra: `pip install ray`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import open_to_append
from lra.runtime.cli import STOPPED
from lra.runtime.repository import ROOT, code_digest
from lra.sweep.data import SweepData
from lra.sweep.plan import PlannedRun, SweepOptions
from lra.sweep.ray_connection import (
    choose_needs,
    connected,
    describe_error,
    import_ray,
    read_needs,
)
from lra.sweep.work import AGAIN, Work

logger = logging.getLogger(__name__)

MESSAGES = "ray.log"
"""File in the results folder for what Ray prints: hundreds of lines if a node is lost."""
SECONDS_BETWEEN_POLLS = 0.5
MOST_QUEUED = 8
"""Most runs in Ray's queue, from which a cluster that grows by need sees what it lacks."""


def _make_actor() -> type:
    """Make the class of actors, sent by value, as it looks for the suite on its node first."""

    class RunOnNode:
        def start(self, root: str, code: str, folder: str, run: dict[str, Any]) -> str | None:
            """Start the process of a run; return why this node can make no run, if it cannot."""
            import os
            import pathlib
            import platform
            import sys

            if not (pathlib.Path(root) / "lra" / "sweep").is_dir():
                return f"{platform.node()} has no copy of the suite in {root}"
            sys.path.insert(0, root)
            from lra.runtime.repository import code_digest
            from lra.sweep.run_process import start_run, write_command

            if (found := code_digest()) != code:
                return (
                    f"{platform.node()} has another version of the suite's code ({found}) in "
                    f"{root} than the sweep ({code}); copy the same version there"
                )
            if not pathlib.Path(folder).is_dir():  # which the sweep has made
                return f"{platform.node()} does not share {folder} with the sweep: mount it there"
            variables = {}
            if run["processes"] > 1 and (threads := os.environ.get("OMP_NUM_THREADS")):
                variables["OMP_NUM_THREADS"] = str(max(1, int(threads) // run["processes"]))
            here = pathlib.Path(run["working_folder"])  # which paths of the user's files refer to
            self.process = start_run(
                write_command(run["words"], run["processes"]),
                pathlib.Path(folder, "log.txt"), variables, here if here.is_dir() else None,
            )  # fmt: skip
            return None

        def poll(self) -> int | None:
            return self.process.poll()

        def stop(self) -> None:
            self.process.terminate()

    return RunOnNode


class RayAttempt:
    """An actor that works on a run.

    Args:
        run: the run.
        actor: of the class that `_make_actor` makes.
        started: what its method start returns.
    """

    def __init__(self, run: PlannedRun, actor: Any, started: Any) -> None:
        self.ray = import_ray()
        self.run = run
        self.actor = actor
        self.pending = started
        self.is_working = self.is_stopped = False
        self._next_poll = 0.0

    def poll(self) -> int | None:
        """Return the exit code of the run, or `AGAIN` if it was lost; None while it works.

        Raises: UserError if a node cannot make any run of the sweep; OSError if the log of this one
            cannot be written.
        """
        if time.monotonic() < self._next_poll or not self.ray.wait([self.pending], timeout=0)[0]:
            return None
        try:
            answer = self.ray.get(self.pending)
        except self.ray.exceptions.RayError as error:
            self.kill()
            if not self.is_stopped:
                self._note_loss(describe_error(error))
            return AGAIN
        self._next_poll = time.monotonic() + SECONDS_BETWEEN_POLLS
        if isinstance(answer, str):
            self.kill()
            raise UserError(f"a node of the Ray cluster cannot make runs: {answer}")
        if answer is not None:
            self.kill()
            return AGAIN if answer == STOPPED else answer
        self.is_working = True
        self.pending = self.actor.poll.remote()
        return None

    def _note_loss(self, reason: str) -> None:
        logger.warning(f"{self.run.name}: lost: {reason}")
        with open_to_append(self.run.log) as file:
            file.write(f"lost: {reason}\n".encode())

    def stop(self) -> None:
        """Ask the run to save and to end; one in Ray's queue leaves the queue."""
        self.is_stopped = True
        if self.is_working:
            self.actor.stop.remote()
        else:
            self.kill()

    def kill(self) -> None:
        """End the process that watches over the run, with which the run ends."""
        self.is_working = False
        self.ray.kill(self.actor)


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
        """What a run requests from its node, as options of an actor."""
        self.attempts: list[RayAttempt] = []

    def carry_out(self, runs: Sequence[PlannedRun], data: SweepData) -> str | None:
        """Connect to the cluster, and carry out runs; see `Launcher`."""
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
            return Work(data.ready(runs), self, options).execute()

    @property
    def capacity(self) -> int:
        """How many runs may be at work or in Ray's queue now."""
        return MOST_QUEUED + sum(attempt.is_working for attempt in self.attempts)

    def start(self, run: PlannedRun) -> RayAttempt:
        """Put a run into the queue of Ray."""
        options = self.options
        device = "cuda" if self.needs.get("num_gpus") else "cpu"
        words = [*run.arguments(), "--device", device, *options.limits.flags(run.folder)]
        order = {
            "words": words, "processes": options.gpus_per_run, "working_folder": str(Path.cwd()),
        }  # fmt: skip
        actor = import_ray().remote(_make_actor()).options(**self.needs).remote()
        started = actor.start.remote(str(ROOT), self.code, str(run.folder.path), order)
        self.attempts.append(attempt := RayAttempt(run, actor, started))
        return attempt
