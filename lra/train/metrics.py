"""The numbers of training steps: left on the device until they are read, and added up."""

import math
import statistics
import time
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import TypedDict

from lra.common.errors import KnownError
from lra.runtime.distributed import ProcessGroup
from lra.schema import Amount, Positive

WARMUP_STEPS = 3
"""First steps of a session, which are left out of the measured speed."""
READ_SECONDS = 0.5
"""Time after which a single process reads the numbers of its steps."""


class Step(NamedTuple):
    """A step whose numbers are still on the device."""

    number: int
    """Counted from 1."""
    rate: float
    targets: int
    """Targets of its batch."""
    numbers: Tensor
    """(3,) this process's part of the loss and of the right predictions; norm of the gradient."""
    flops: float | None
    """This process's part of the arithmetic; None where it is not counted."""


class Diverged(KnownError):
    """The loss or the gradient is no longer finite."""


Loss = Annotated[float, Field(ge=0)]
"""In nats. A diverging run keeps its checkpoints with any finite loss; records have a bound."""
Sums = Annotated[
    dict[Literal["loss", "correct", "seen", "steps", "seconds"], Loss], Field(min_length=5)
]
"""Sums over the steps since the last line of metrics; losses in nats."""


class MetricsState(TypedDict):
    """The state of a `StepMetrics`."""

    seconds: Amount
    sums: Sums
    step_seconds: list[Positive]
    step_flops: list[Amount]


class StepMetrics:
    """The sums of training steps, their durations and their arithmetic, over all processes."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.seconds = 0.0
        """Time of all steps that were read."""
        self.step_seconds: list[float] = []
        self.step_flops: list[float] = []
        self.rate, self.grad_norm = 0.0, 0.0
        """Learning rate, and norm of the gradient, of the last step that was read."""
        self._unread: list[Step] = []
        self._unread_since = 0.0
        self._session_steps = 0
        self.clear()

    def clear(self) -> None:
        """Begin a new line of metrics."""
        self.sums: Sums = {"loss": 0.0, "correct": 0.0, "seen": 0.0, "steps": 0.0, "seconds": 0.0}

    def state_dict(self) -> MetricsState:
        """Return what later lines of metrics and the record depend on; every step must be read."""
        return {
            "seconds": self.seconds,
            "sums": self.sums,
            "step_seconds": self.step_seconds,
            "step_flops": self.step_flops,
        }

    def load_state_dict(self, state: MetricsState) -> None:
        """Go on with a state of `state_dict`."""
        self.seconds, self.sums = state["seconds"], state["sums"]
        self.step_seconds, self.step_flops = state["step_seconds"], state["step_flops"]

    def start_clock(self) -> None:
        """Start the clock if no step is under way."""
        if not self._unread:
            self._unread_since = time.perf_counter()

    def add(self, step: Step) -> None:
        """Take in a step, whose numbers stay on the device until `read`."""
        self._session_steps += 1
        self._unread.append(step)

    def read_is_due(self) -> bool:
        """Whether to read the numbers of the steps now; several processes do so at every step."""
        if self.group.world_size > 1 or self._session_steps <= WARMUP_STEPS:
            return True
        return time.perf_counter() - self._unread_since >= READ_SECONDS

    def read(self) -> Step | None:
        """Read the numbers of the steps since the last call, which waits for a GPU.

        All processes must call this at the same steps.

        Returns: the first step whose loss or gradient is not finite, which is not added, nor are
            those after it; None if there is none.
        """
        steps, self._unread = self._unread, []
        if not steps:
            return None
        rows = torch.stack([step.numbers for step in steps]).tolist()
        seconds = (time.perf_counter() - self._unread_since) / len(steps)
        clock = seconds * self.group.is_main_process
        parts = [
            [loss, correct, step.flops or 0.0, clock]
            for (loss, correct, _), step in zip(rows, steps, strict=True)
        ]
        sums = self.group.all_reduce_sum(torch.tensor(parts, dtype=torch.float64))
        sums[:, :2] = sums[:, :2].float()  # as precise as those of one process
        for step, numbers, (*_, norm) in zip(steps, sums.tolist(), rows, strict=True):
            loss, correct, flops, seconds = numbers
            if not math.isfinite(loss) or not math.isfinite(norm):
                return step
            if step.flops is not None:
                self.step_flops.append(flops)
            self.sums["loss"] += loss
            self.sums["correct"] += round(correct)
            self.sums["seen"] += step.targets
            self.sums["steps"] += 1
            self.sums["seconds"] += seconds
            self.rate, self.grad_norm = step.rate, norm
        self.seconds += seconds * len(steps)
        if self._session_steps > WARMUP_STEPS:
            self.step_seconds += [seconds] * len(steps)
        return None

    def means(self) -> dict[str, float]:
        """Return the means over the steps read since the last `clear`, and the last rate."""
        steps = self.sums["steps"]
        return {
            "loss": self.sums["loss"] / steps,
            "accuracy": 100.0 * self.sums["correct"] / max(1.0, self.sums["seen"]),
            "steps_per_second": steps / self.sums["seconds"],
            "lr": self.rate,
            "grad_norm": self.grad_norm,
        }

    @property
    def steps_per_second(self) -> float | None:
        """One over the median duration of a step; None before the first measured one."""
        return 1.0 / statistics.median(self.step_seconds) if self.step_seconds else None

    @property
    def flops_per_step(self) -> float | None:
        """Mean over the first steps, whose lengths are random; None before the first one."""
        return statistics.mean(self.step_flops) if self.step_flops else None
