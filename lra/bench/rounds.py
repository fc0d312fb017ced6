"""Timing cases in interleaved rounds, each beside its reference.

Absolute times on a machine with other users are noise. Cases that are compared are therefore
timed one after the other in each of several rounds, each in a process of its own, where nothing is
left of the others. Reported are the median and quartiles over rounds, of times and of the ratios
within a round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from tqdm import tqdm

from lra.bench.case import WARMUP_ROUNDS, Case, InOwnProcess, InThisProcess, Setup
from lra.record.benchmark import BenchRecord
from lra.runtime.environment import choose_device, describe_machine, is_out_of_memory
from lra.runtime.repository import git_state

ROOM = 2
"""Times the memory of the largest case that must be left for one more case."""
CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where Linux says how much memory a container may take, in bytes."""


class TimedCase:
    """A case that is set up, with its times so far. If memory runs out, it has none."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.seconds: list[float] = []
        self.facts: dict[str, Any] = dict.fromkeys(("params", "flops_per_step", "peak_memory_mib"))
        """Fields of its record."""
        self.setup: Setup | None = None
        with self._give_up_without_memory():
            self.setup = set_up(case)

    def time(self) -> None:
        """Time the case once."""
        if self.setup is not None:
            with self._give_up_without_memory():
                self.seconds.append(self.setup.seconds())

    def finish(self) -> None:
        """Forget the rounds of the warm-up, and read what is known only after all rounds."""
        del self.seconds[:WARMUP_ROUNDS]
        if self.setup is not None:
            with self._give_up_without_memory():
                facts = self.setup.facts()
                self.facts |= facts | (self.setup.memory() if self.case.has_own_process else {})

    def close(self) -> None:
        """Give back what the case holds."""
        if self.setup is not None:
            self.setup.close()
        self.setup = None

    @contextlib.contextmanager
    def _give_up_without_memory(self) -> Iterator[None]:
        """Give the case up where it has no more memory, and let the others go on."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.close()
            self.seconds.clear()


def set_up(case: Case) -> Setup:
    """Set a case up where it is measured."""
    return InOwnProcess(case) if case.has_own_process else InThisProcess(case)


def measure(
    cases: Sequence[Case], repeats: int, *, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure cases in interleaved rounds; in several sets, if memory does not hold all at a time.

    Args:
        cases: the computations to be timed.
        repeats: number of rounds that count, at least 2.
        compare: whether each case is timed beside its reference.
        bar: progress bar that moves by `WARMUP_ROUNDS + repeats` for each case.
    """
    records: list[BenchRecord] = []
    while len(records) < len(cases):
        with contextlib.ExitStack() as stack:
            pairs = _set_up_pairs(cases[len(records) :], compare, bar, stack)
            for _ in range(1, WARMUP_ROUNDS + repeats):
                _time_round(pairs, bar)
            for pair in pairs:
                for timed in pair:
                    timed.finish()
            mixers = tuple(dict.fromkeys(timed.case.mixer for timed, *_ in pairs))
            records += [make_record(mixers, *pair) for pair in pairs]
    return records


def _set_up_pairs(
    cases: Sequence[Case], compare: bool, bar: tqdm[Any], stack: contextlib.ExitStack
) -> list[list[TimedCase]]:
    """Set up as many of the first cases as memory holds, each with its reference, and time them."""
    pairs: list[list[TimedCase]] = []
    for case in cases:
        if pairs and not _has_room(pairs):
            break
        pairs.append(pair := [TimedCase(case)])
        stack.callback(pair[0].close)
        if compare and pair[0].setup is not None:
            pair.append(TimedCase(dataclasses.replace(case, is_reference=True)))
            stack.callback(pair[1].close)
        _time_round([pair], bar)
    return pairs


def _time_round(pairs: Sequence[Sequence[TimedCase]], bar: tqdm[Any]) -> None:
    """Time each case and its reference once."""
    for pair in pairs:
        for timed in pair:
            timed.time()
        bar.update()


def _has_room(pairs: Sequence[Sequence[TimedCase]]) -> bool:
    """Whether memory holds one more case as large as the largest one, each with its reference."""
    case = pairs[0][0].case
    setups = [timed.setup for pair in pairs for timed in pair if timed.setup]
    largest = max((setup.memory()["peak_memory_mib"] or 0.0 for setup in setups), default=0.0)
    is_enough = available_memory_mib(choose_device(case.device)) > ROOM * largest
    return is_enough or not case.has_own_process


def available_memory_mib(device: torch.device) -> float:
    """Return the memory that could still be taken, within the limit of a container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2**20
    left = psutil.virtual_memory().available
    for path in CONTAINER_LIMITS:
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            left = min(left, int(text) - psutil.Process().memory_info().rss)
    return left / 2**20


def make_record(
    mixers: tuple[str, ...], timed: TimedCase, reference: TimedCase | None = None
) -> BenchRecord:
    """Describe a case that was timed with some mixers, beside its reference if it has one."""
    slow, middle, fast = quartiles([1 / seconds for seconds in timed.seconds])
    pairs = list(zip(reference.seconds if reference else (), timed.seconds, strict=False))
    low, ratio, high = quartiles([theirs / ours for theirs, ours in pairs])
    settings = timed.case.settings()
    if settings.get("lengths") == "task" and timed.seconds:
        # Batches of different work have no typical time, so their total time counts.
        middle = len(timed.seconds) / sum(timed.seconds)
        if pairs:
            ratio = sum(theirs for theirs, _ in pairs) / sum(ours for _, ours in pairs)
    compared = reference.facts if reference and timed.facts["peak_memory_mib"] else {}
    return BenchRecord(
        **settings,
        **timed.facts,
        status="oom" if timed.setup is None else "done",
        **describe_machine(choose_device(timed.case.device)),
        repeats=len(timed.seconds),
        steps_per_second=middle,
        low_quartile=slow,
        high_quartile=fast,
        ratio_to_reference=ratio,
        ratio_low_quartile=low,
        ratio_high_quartile=high,
        reference_peak_memory_mib=compared.get("peak_memory_mib"),
        reference_base_memory_mib=compared.get("base_memory_mib"),
        measured_with=mixers,
        git=git_state(),
    )


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the first, second and third quartile; None for each if there are no values."""
    if not values:
        return None, None, None
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
