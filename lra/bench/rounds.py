"""Timing cases in interleaved rounds in one process, each beside its reference.

Absolute times on a machine with other users are noise. Cases that are compared are therefore
timed one after the other in each of several rounds. Reported are the median and quartiles over
rounds, of times and of the ratios within a round. Memory is measured in a separate process.
"""

from __future__ import annotations

import abc
import dataclasses
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from lra.record.benchmark import BenchRecord
from lra.runtime.allocator import keep_freed_memory, return_freed_memory
from lra.runtime.console import show_messages
from lra.runtime.environment import (
    choose_device,
    device_name,
    git_state,
    is_out_of_memory,
    memory_mib,
    peak_memory_mib,
    reserved_memory_mib,
    reset_peak_memory,
    versions,
)

WARMUP_ROUNDS = 3
"""Number of rounds at the start that are not counted."""


class Subject(abc.ABC):
    """A computation that is set up and ready to be timed."""

    repetitions = 1
    """Number of counted units, such as steps or batches, that one `run` computes."""

    @abc.abstractmethod
    def run(self) -> None:
        """Run the computation once."""

    def facts(self) -> dict[str, Any]:
        """Return fields of the record that are known only once all rounds are timed."""
        return {"params": None, "flops_per_step": None}


@dataclass(frozen=True, kw_only=True)
class Case(abc.ABC):
    """The settings of a computation that is to be timed."""

    mixer: str
    device: str
    is_reference: bool = False
    """Whether this is the reference: written as published code is, with the default allocator."""

    @property
    def varies(self) -> bool:
        """Whether the amount of work differs from one run to the next."""
        return False

    @abc.abstractmethod
    def build(self) -> Subject:
        """Set up the computation."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the fields of the record that identify this case."""

    def keeps_memory(self) -> bool:
        """Whether the allocator keeps what is freed, as it does in a run of these settings."""
        return not self.is_reference

    def reference(self) -> Case:
        """Return the reference of this case."""
        return dataclasses.replace(self, is_reference=True)


@dataclass(frozen=True)
class Memory:
    """Memory of a separate process that runs a case, in MiB."""

    base: float
    peak: float
    reserved: float | None


@dataclass
class Measurement:
    """One case, and its reference if the two are compared, with their measurements so far."""

    case: Case
    memory: Memory | None
    """None if memory ran out."""
    reference: Case | None
    reference_memory: Memory | None = None
    subject: Subject | None = None
    reference_subject: Subject | None = None
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def time_round(self) -> None:
        """Time the case once, and its reference."""
        if self.subject is None:
            return
        compared = self.reference is not None and self.reference_subject is not None
        seconds = _timed(self.case, self.subject, settle=compared)
        self.seconds.append(seconds)
        if self.reference is not None and self.reference_subject is not None:
            reference = _timed(self.reference, self.reference_subject, settle=True)
            self.ratios.append(reference / seconds)

    def record(self, mixers: tuple[str, ...]) -> BenchRecord:
        """Make the record; if memory ran out, it has no times.

        Args:
            mixers: names of the mixers measured in the same rounds.
        """
        memory, compared = self.memory, self.reference_memory
        times = self.subject.repetitions if self.subject is not None else 1
        slow, middle, fast = quartiles([times / seconds for seconds in self.seconds])
        low, ratio, high = quartiles(self.ratios)
        if self.case.varies and self.seconds:
            # Runs of different work have no typical time, so their total time counts.
            middle = times * len(self.seconds) / sum(self.seconds)
            if self.ratios:
                paired = zip(self.ratios, self.seconds, strict=True)
                ratio = sum(r * seconds for r, seconds in paired) / sum(self.seconds)
        facts: dict[str, Any] = {"params": None, "flops_per_step": None}
        if self.subject is not None:
            facts = self.subject.facts()
        return BenchRecord(
            **self.case.settings(),
            **facts,
            status="oom" if memory is None else "done",
            device=device_name(choose_device(self.case.device)),
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
            reference_peak_memory_mib=compared.peak if compared else None,
            reference_base_memory_mib=compared.base if compared else None,
            measured_with=mixers,
            versions=versions(),
            git=git_state(),
        )


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the first, second and third quartile; None for each if there are no values."""
    if len(values) < 2:  # noqa: PLR2004
        only = values[0] if values else None
        return only, only, only
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _timed(case: Case, subject: Subject, *, settle: bool) -> float:
    """Return the seconds of running a case once, with the allocator set as the case needs it.

    Args:
        case: settings of the computation.
        subject: the computation, set up.
        settle: whether to run once untimed before, so that other cases leave no trace in memory.
    """
    device = choose_device(case.device)
    if device.type == "cpu":
        (keep_freed_memory if case.keeps_memory() else return_freed_memory)()
    if settle:
        subject.run()
    synchronize(device)
    start = time.perf_counter()
    subject.run()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(case: Case, threads: int) -> Memory | None:
    """Run a case a few times and return its memory; None if memory runs out."""
    torch.set_num_threads(threads)
    device = choose_device(case.device)
    if device.type == "cpu" and case.keeps_memory():
        keep_freed_memory()
    try:
        subject = case.build()
        base = memory_mib(device)
        reset_peak_memory(device)
        for _ in range(WARMUP_ROUNDS):
            subject.run()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return Memory(base, peak_memory_mib(device), reserved_memory_mib(device))


def memory_of(case: Case) -> Memory | None:
    """Measure the memory of a case in a separate process; None if memory runs out."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=show_messages) as pool:
        try:
            return pool.submit(peak_memory, case, torch.get_num_threads()).result()
        except BrokenProcessPool:  # the system ended it
            return None


def measure(
    cases: Sequence[Case], repeats: int, *, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure cases in interleaved rounds.

    Args:
        cases: the computations to be timed.
        repeats: number of rounds that count.
        compare: whether each case is timed beside its reference.
        bar: progress bar that moves by `units(repeats)` for each case.
    """
    measurements = []
    for case in cases:  # before anything here takes memory
        reference = case.reference() if compare else None
        measured = Measurement(case, memory_of(case), reference)
        if reference is not None:
            measured.reference_memory = memory_of(reference)
        measurements.append(measured)
        bar.update()
    for measured in measurements:
        if measured.memory is not None:
            measured.subject = measured.case.build()
        if measured.reference is not None and measured.reference_memory is not None:
            measured.reference_subject = measured.reference.build()
    for number in range(WARMUP_ROUNDS + repeats):
        for measured in measurements:
            if number == WARMUP_ROUNDS:
                measured.seconds.clear()
                measured.ratios.clear()
            measured.time_round()
            bar.update()
    mixers = tuple(case.mixer for case in cases)
    return [measured.record(mixers) for measured in measurements]


def units(repeats: int) -> int:
    """Return how far `measure` moves its bar for each case."""
    return 1 + WARMUP_ROUNDS + repeats
