"""Timing cases in interleaved rounds, each beside its reference.

Absolute times on a machine with other users are noise. Cases that are compared are therefore
timed one after the other in each of several rounds, each in a process of its own, where nothing is
left of the others. Reported are the median and quartiles over rounds, of times and of the ratios
within a round.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tqdm import tqdm

from lra.bench.case import WARMUP_ROUNDS, Case, InOwnProcess, InThisProcess, Memory, Place
from lra.record.benchmark import BenchRecord
from lra.record.schema import ThreadsRecord
from lra.runtime.environment import (
    available_memory_mib,
    choose_device,
    device_name,
    is_gpu_shared,
    is_out_of_memory,
    versions,
)
from lra.runtime.repository import git_state

ROOM = 2
"""Times the memory of the largest case that must be left for one more case."""


class TimedCase:
    """A case that is set up, with its times so far. If memory runs out, it has none."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.seconds: list[float] = []
        self.memory: Memory | None = None
        self.facts: dict[str, Any] = {"params": None, "flops_per_step": None}
        self.place: Place | None = None
        with self._give_up_without_memory():
            self.place = set_up(case)

    def time(self) -> None:
        """Time the case once."""
        if self.place is not None:
            with self._give_up_without_memory():
                self.seconds.append(self.place.seconds())

    def finish(self) -> None:
        """Read what is known only once all rounds are timed."""
        if self.place is not None:
            with self._give_up_without_memory():
                facts = self.place.facts()
                self.memory = self.place.memory() if self.case.has_own_process else None
                self.facts = facts

    def close(self) -> None:
        """Give back what the case holds."""
        if self.place is not None:
            self.place.close()
        self.place = None

    @contextmanager
    def _give_up_without_memory(self) -> Iterator[None]:
        """Give the case up where it has no more memory, and let the others go on."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self.close()
            self.seconds.clear()


def set_up(case: Case) -> Place:
    """Set a case up where it is measured."""
    return InOwnProcess(case) if case.has_own_process else InThisProcess(case)


def make_record(
    mixers: tuple[str, ...], timed: TimedCase, reference: TimedCase | None = None
) -> BenchRecord:
    """Describe a case that was timed with some mixers, beside its reference if it has one."""
    repetitions = timed.place.repetitions if timed.place else 1
    slow, middle, fast = quartiles([repetitions / seconds for seconds in timed.seconds])
    pairs = list(zip(reference.seconds if reference else (), timed.seconds, strict=False))
    low, ratio, high = quartiles([theirs / ours for theirs, ours in pairs])
    if timed.case.varies and timed.seconds:
        # Runs of different work have no typical time, so their total time counts.
        middle = repetitions * len(timed.seconds) / sum(timed.seconds)
        if pairs:
            ratio = sum(theirs for theirs, _ in pairs) / sum(ours for _, ours in pairs)
    device, memory = choose_device(timed.case.device), timed.memory
    compared = reference.memory if reference and memory else None
    return BenchRecord(
        **timed.case.settings(),
        **timed.facts,
        status="oom" if timed.place is None else "done",
        device=device_name(device),
        threads=ThreadsRecord.now(torch.get_num_threads(), device.type),
        gpu_shared=is_gpu_shared(device),
        repeats=len(timed.seconds),
        steps_per_second=middle,
        low_quartile=slow,
        high_quartile=fast,
        ratio_to_reference=ratio,
        ratio_low_quartile=low,
        ratio_high_quartile=high,
        peak_memory_mib=memory.peak if memory else None,
        base_memory_mib=memory.base if memory else None,
        reserved_memory_mib=memory.reserved if memory else None,
        reference_peak_memory_mib=compared.peak if compared else None,
        reference_base_memory_mib=compared.base if compared else None,
        measured_with=mixers,
        versions=versions(),
        git=git_state(),
    )


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the first, second and third quartile; None for each if there are no values."""
    if not values:
        return None, None, None
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


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
        records += _measure_together(cases[len(records) :], repeats, compare, bar)
    return records


def _measure_together(
    cases: Sequence[Case], repeats: int, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure as many of the first cases as memory holds; arguments as for `measure`."""
    pairs: list[list[TimedCase]] = []

    def time_pair(pair: list[TimedCase]) -> None:
        for timed in pair:
            timed.time()
        bar.update()

    try:
        for case in cases:
            if pairs and not _has_room(pairs):
                break
            pairs.append(pair := [TimedCase(case)])
            if compare and pair[0].place is not None:
                pair.append(TimedCase(dataclasses.replace(case, is_reference=True)))
            time_pair(pair)
        every = [timed for pair in pairs for timed in pair]
        for number in range(1, WARMUP_ROUNDS + repeats):
            if number == WARMUP_ROUNDS:
                for timed in every:
                    timed.seconds.clear()
            for pair in pairs:
                time_pair(pair)
        for timed in every:
            timed.finish()
        mixers = tuple(dict.fromkeys(timed.case.mixer for timed, *_ in pairs))
        return [make_record(mixers, *pair) for pair in pairs]
    finally:
        for pair in pairs:
            for timed in pair:
                timed.close()


def _has_room(pairs: Sequence[Sequence[TimedCase]]) -> bool:
    """Whether memory holds one more case as large as the largest one, each with its reference."""
    case = pairs[0][0].case
    places = [timed.place for pair in pairs for timed in pair if timed.place]
    largest = max((place.memory().peak for place in places), default=0.0)
    is_enough = available_memory_mib(choose_device(case.device)) > ROOM * largest
    return is_enough or not case.has_own_process
