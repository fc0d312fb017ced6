"""Timing things in turns in one process, each beside its reference, and memory in another.

Absolute times on a shared machine are noise: what is compared takes turns, and what is reported
are medians with quartiles, of times and of ratios within a turn.
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

WARMUP_TURNS = 3
"""First turns, which are not counted."""


class Subject(abc.ABC):
    """What is timed, set up."""

    repetitions = 1
    """How often `run` does what is counted."""

    @abc.abstractmethod
    def run(self) -> None:
        """Do it once."""

    def facts(self) -> dict[str, Any]:
        """Return fields of the record that only what is set up can tell, after all turns."""
        return {"params": None, "flops_per_step": None}


@dataclass(frozen=True, kw_only=True)
class Case(abc.ABC):
    """What is timed, by its settings."""

    mixer: str
    device: str
    is_reference: bool = False
    """Whether it is done the published code's way, with the allocator as it comes."""

    @property
    def varies(self) -> bool:
        """Whether what is done differs from time to time."""
        return False

    @abc.abstractmethod
    def build(self) -> Subject:
        """Set it up."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the fields of the record that name it."""

    def keeps_memory(self) -> bool:
        """Whether the allocator keeps what is freed, as it does in a run of these settings."""
        return not self.is_reference

    def reference(self) -> Case:
        """Return the same, done the published code's way."""
        return dataclasses.replace(self, is_reference=True)


@dataclass(frozen=True)
class Memory:
    """Of a process of its own, in MiB."""

    base: float
    peak: float
    reserved: float | None


@dataclass
class Measurement:
    """One case in measurement, and its reference, if it is compared."""

    case: Case
    memory: Memory | None
    """None where it did not suffice."""
    reference: Case | None
    reference_memory: Memory | None = None
    subject: Subject | None = None
    reference_subject: Subject | None = None
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def turn(self) -> None:
        """Time it once, and its reference."""
        if self.subject is None:
            return
        compared = self.reference is not None and self.reference_subject is not None
        seconds = _timed(self.case, self.subject, settle=compared)
        self.seconds.append(seconds)
        if self.reference is not None and self.reference_subject is not None:
            reference = _timed(self.reference, self.reference_subject, settle=True)
            self.ratios.append(reference / seconds)

    def record(self, turns: tuple[str, ...]) -> BenchRecord:
        """Make the record; without times, of a want of memory."""
        memory, compared = self.memory, self.reference_memory
        times = self.subject.repetitions if self.subject is not None else 1
        slow, middle, fast = quartiles([times / seconds for seconds in self.seconds])
        low, ratio, high = quartiles(self.ratios)
        if self.case.varies and self.seconds:
            # What counts is how long all of them take: a median is of none in particular.
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
            measured_with=turns,
            versions=versions(),
            git=git_state(),
        )


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the first, second and third; of nothing, None."""
    if len(values) < 2:  # noqa: PLR2004
        only = values[0] if values else None
        return only, only, only
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _timed(case: Case, subject: Subject, *, settle: bool) -> float:
    """Return the seconds of doing it once, with the allocator that belongs to it.

    Args:
        settle: whether it is first done untimed, so that memory is as it leaves it itself.
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
    """Wait for what a GPU still does."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(case: Case, threads: int) -> Memory | None:
    """Do it some times and return its memory; None if it does not suffice."""
    torch.set_num_threads(threads)
    device = choose_device(case.device)
    if device.type == "cpu" and case.keeps_memory():
        keep_freed_memory()
    try:
        subject = case.build()
        base = memory_mib(device)
        reset_peak_memory(device)
        for _ in range(WARMUP_TURNS):
            subject.run()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return Memory(base, peak_memory_mib(device), reserved_memory_mib(device))


def memory_of(case: Case) -> Memory | None:
    """Measure memory in a process of its own; None if it does not suffice."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(peak_memory, case, torch.get_num_threads()).result()
        except BrokenProcessPool:  # the system ended it
            return None


def measure(
    cases: Sequence[Case], repeats: int, *, compare: bool, bar: tqdm[Any]
) -> list[BenchRecord]:
    """Measure cases in turns.

    Args:
        compare: whether each takes its turn beside its reference.
        bar: goes on by `units` for all.
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
    for turn in range(WARMUP_TURNS + repeats):
        for measured in measurements:
            if turn == WARMUP_TURNS:
                measured.seconds.clear()
                measured.ratios.clear()
            measured.turn()
            bar.update()
    turns = tuple(case.mixer for case in cases)
    return [measured.record(turns) for measured in measurements]


def units(repeats: int) -> int:
    """Return how far `measure` moves its bar for each case."""
    return 1 + WARMUP_TURNS + repeats
