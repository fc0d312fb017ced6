"""Timing cases in interleaved rounds, each beside its reference.

Absolute times on a machine with other users are noise. Cases that are compared are therefore
timed one after the other in each of several rounds, each in a process of its own, where nothing is
left of the others. Reported are the median and quartiles over rounds, of times and of the ratios
within a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from lra.bench.case import Case
from lra.bench.own_process import WARMUP_ROUNDS, Place, set_up
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


@dataclass
class Measurement:
    """One case, and its reference if the two are compared, with their measurements so far."""

    case: Case
    place: Place | None
    """Where it is set up; None if memory ran out."""
    reference: Place | None = None
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def time_round(self) -> None:
        """Time the case once, and its reference."""
        if self.place is None:
            return
        with _if_memory_runs_out(self.close):
            self.seconds.append(self.place.seconds())
        if self.reference is not None:
            with _if_memory_runs_out(self.close_reference):
                self.ratios.append(self.reference.seconds() / self.seconds[-1])

    def close(self) -> None:
        """Give back what the case and its reference hold, and forget their times."""
        self.close_reference()
        if self.place is not None:
            self.place.close()
        self.place = None
        self.seconds.clear()

    def close_reference(self) -> None:
        """Give back what the reference holds, and forget its times."""
        if self.reference is not None:
            self.reference.close()
        self.reference = None
        self.ratios.clear()

    def record(self, mixers: tuple[str, ...]) -> BenchRecord:
        """Make the record; if memory ran out, it has no times.

        Args:
            mixers: names of the mixers measured in the same rounds.
        """
        times, memory, compared = 1, None, None
        facts: dict[str, Any] = {"params": None, "flops_per_step": None}
        if self.reference is not None:
            with _if_memory_runs_out(self.close_reference):
                compared = self.reference.memory()
        if self.place is not None:
            times = self.place.repetitions
            with _if_memory_runs_out(self.close):
                memory, facts = self.place.memory(), self.place.facts()
        slow, middle, fast = quartiles([times / seconds for seconds in self.seconds])
        low, ratio, high = quartiles(self.ratios)
        if self.case.varies and self.seconds:
            # Runs of different work have no typical time, so their total time counts.
            middle = times * len(self.seconds) / sum(self.seconds)
            if self.ratios:
                paired = zip(self.ratios, self.seconds, strict=True)
                ratio = sum(r * seconds for r, seconds in paired) / sum(self.seconds)
        device = choose_device(self.case.device)
        return BenchRecord(
            **self.case.settings(),
            **facts,
            status="oom" if memory is None else "done",
            device=device_name(device),
            threads=ThreadsRecord.now(torch.get_num_threads(), device.type),
            gpu_shared=is_gpu_shared(device),
            repeats=len(self.seconds),
            steps_per_second=middle,
            low_quartile=slow,
            high_quartile=fast,
            ratio_to_reference=ratio,
            ratio_low_quartile=low,
            ratio_high_quartile=high,
            peak_memory_mib=memory.peak if memory else None,
            base_memory_mib=memory.base if memory else None,
            reserved_memory_mib=memory.reserved if memory else None,
            reference_peak_memory_mib=compared.peak if memory and compared else None,
            reference_base_memory_mib=compared.base if memory and compared else None,
            measured_with=mixers,
            versions=versions(),
            git=git_state(),
        )


@contextmanager
def _if_memory_runs_out(give_up: Callable[[], None]) -> Iterator[None]:
    """Give one case up where it has no more memory, and let the others go on."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        give_up()


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the first, second and third quartile; None for each if there are no values."""
    if len(values) < 2:  # noqa: PLR2004
        only = values[0] if values else None
        return only, only, only
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def measure(
    cases: Sequence[Case], repeats: int, *, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure cases in interleaved rounds; in several sets, if memory does not hold all at a time.

    Args:
        cases: the computations to be timed.
        repeats: number of rounds that count.
        compare: whether each case is timed beside its reference.
        bar: progress bar that moves by `units(repeats)` for each case.
    """
    records: list[BenchRecord] = []
    while len(records) < len(cases):
        records += _measure_together(cases[len(records) :], repeats, compare, bar)
    return records


def _measure_together(
    cases: Sequence[Case], repeats: int, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure as many of the first cases as memory holds; arguments as for `measure`."""
    measurements: list[Measurement] = []
    try:
        for case in cases:
            if measurements and not _has_room(measurements):
                break
            measured = Measurement(case, set_up(case))
            measurements.append(measured)
            if compare and measured.place is not None:
                measured.reference = set_up(case.reference())
            bar.update()
            measured.time_round()
            bar.update()
        for number in range(1, WARMUP_ROUNDS + repeats):
            for measured in measurements:
                if number == WARMUP_ROUNDS:
                    measured.seconds.clear()
                    measured.ratios.clear()
                measured.time_round()
                bar.update()
        mixers = tuple(measured.case.mixer for measured in measurements)
        return [measured.record(mixers) for measured in measurements]
    finally:
        for measured in measurements:
            measured.close()


def _has_room(measurements: Sequence[Measurement]) -> bool:
    """Whether memory holds one more case as large as the largest one, each with its reference."""
    places = [place for one in measurements for place in (one.place, one.reference) if place]
    largest = max((place.memory().peak for place in places), default=0.0)
    return available_memory_mib(choose_device(measurements[0].case.device)) > ROOM * largest


def units(repeats: int) -> int:
    """Return how far `measure` moves its bar for each case."""
    return 1 + WARMUP_ROUNDS + repeats
