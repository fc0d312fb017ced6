"""Measuring whole training steps: the classifier of a run on a synthetic batch."""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from lra.allocator import keep_freed_memory
from lra.bench_record import BenchRecord
from lra.cli import write_out
from lra.config import RunConfig
from lra.environment import (
    choose_device,
    device_name,
    git_state,
    is_out_of_memory,
    peak_memory_mib,
    reset_peak_memory,
    versions,
)
from lra.errors import UserError
from lra.resolve import resolve
from lra.trainer import WARMUP_STEPS, Trainer
from tasks.base import Batch, Dataset, Split, TaskInfo
from tasks.progress import progress, say


class SyntheticSplit(Split):
    """Random sequences that are all of one length."""

    def __init__(self, info: TaskInfo, examples: int) -> None:
        rng = np.random.default_rng(0)
        self.info = info
        self.lengths = np.full(examples, info.max_length, dtype=np.int64)
        self.labels = rng.integers(0, info.num_classes, size=examples)

    def batch(self, indices: np.ndarray) -> Batch:
        """See `Split.batch`."""
        info = self.info
        positions = len(indices) * info.towers * info.max_length
        if info.vocab_size is not None:
            values = torch.randint(1, info.vocab_size, (positions,))
        else:
            values = torch.randn(positions, info.channels or 1)
        lengths = torch.full((len(indices), info.towers), info.max_length)
        return Batch(values, lengths, torch.from_numpy(self.labels[indices]))


@dataclass(frozen=True)
class Case:
    """What is measured: one mixer at one length."""

    task: str
    mixer: str
    preset: str
    protocol: str
    length: int
    device: str

    def config(self) -> RunConfig:
        """Lay up the settings."""
        return resolve(self.task, self.mixer, preset=self.preset, protocol=self.protocol)

    def check(self) -> TaskInfo:
        """Return the task with sequences of this length.

        Raises: UserError for a length that the task's grid does not have.
        """
        info = self.config().build_task().info
        if info.grid is not None and self.length != info.max_length:
            raise UserError(
                f"--lengths {self.length}: {self.task} is a grid of {info.max_length} positions"
            )
        return dataclasses.replace(info, max_length=self.length)

    def trainer(self) -> Trainer:
        """Build the classifier and its optimizer."""
        config, info = self.config(), self.check()
        split = SyntheticSplit(info, config.train.batch_size)
        dataset = Dataset(
            splits={"train": split, "val": split},
            source="synthetic",
            fingerprint="",
            baselines={},
            folder=Path(),
        )
        return Trainer(config, info, dataset, seed=0, device=choose_device(self.device))


@dataclass
class Stepping:
    """One case in measurement."""

    case: Case
    trainer: Trainer
    seconds: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Time one step."""
        self._synchronize()
        start = time.perf_counter()
        self.trainer.train_step()
        self._synchronize()
        self.seconds.append(time.perf_counter() - start)

    def _synchronize(self) -> None:
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize(self.trainer.device)


def record_of(
    case: Case, stepping: Stepping | None, memory: float | None, turns: tuple[str, ...]
) -> BenchRecord:
    """Make the record of a case; without a measurement, of a want of memory."""
    config = case.config()
    speeds: list[float | None] = [None, None, None]
    if stepping is not None:
        speeds = [1 / seconds for seconds in statistics.quantiles(
            stepping.seconds, n=4, method="inclusive")]  # fmt: skip
    return BenchRecord(
        mode="step",
        status="oom" if stepping is None else "done",
        mixer=config.mixer_name,
        mixer_code=config.mixer_code,
        task=case.task,
        preset=case.preset,
        protocol=case.protocol,
        length=case.length,
        batch_size=config.train.batch_size,
        device=device_name(choose_device(case.device)),
        precision=config.train.precision,
        repeats=len(stepping.seconds) if stepping else 0,
        steps_per_second=speeds[1],
        low_quartile=speeds[2],
        high_quartile=speeds[0],
        peak_memory_mib=memory,
        params=stepping.trainer.num_parameters if stepping else None,
        flops_per_step=stepping.trainer.flops_per_step if stepping else None,
        measured_with=turns,
        versions=versions(),
        git=git_state(),
    )


def peak_memory(case: Case, threads: int) -> float | None:
    """Make some steps and return their peak memory in MiB; None if it does not suffice."""
    torch.set_num_threads(threads)
    device = choose_device(case.device)
    if device.type == "cpu":
        keep_freed_memory()
    reset_peak_memory(device)
    try:
        trainer = case.trainer()
        for _ in range(WARMUP_STEPS):
            trainer.train_step()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return peak_memory_mib(device)


def memory_of(case: Case) -> float | None:
    """Measure peak memory in a process of its own; None if memory does not suffice."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(peak_memory, case, torch.get_num_threads()).result()
        except BrokenProcessPool:  # the system ended it
            return None


def measure(cases: Sequence[Case], repeats: int, bar: tqdm[Any]) -> list[BenchRecord]:
    """Measure cases in turns."""
    memory = {}
    for case in cases:  # before anything here takes memory
        memory[case] = memory_of(case)
        bar.update()
    steppings = {case: Stepping(case, case.trainer()) for case in cases if memory[case] is not None}
    for turn in range(WARMUP_STEPS + repeats):
        for stepping in steppings.values():
            if turn == WARMUP_STEPS:
                stepping.seconds.clear()
            stepping.measure()
            bar.update()
    turns = tuple(case.mixer for case in cases)
    return [record_of(case, steppings.get(case), memory[case], turns) for case in cases]


def step(options: argparse.Namespace, mixers: list[str], lengths: list[int]) -> int:
    """Measure steps, write their records and tabulate them; return the exit code."""
    from lra.report.speed import bench_boards, memory_table, speed_table

    if options.repeats < 2:  # noqa: PLR2004
        raise UserError(f"--repeats {options.repeats}: expected at least 2, for quartiles")
    device = choose_device(options.device)
    if device.type == "cpu" and keep_freed_memory():
        say("allocator: freed memory is kept for the next step")
    records: list[BenchRecord] = []
    turns = len(lengths) * len(mixers) * (WARMUP_STEPS + options.repeats + 1)
    with progress("measuring", total=turns, unit="steps") as bar:
        for length in lengths:
            cases = [
                Case(options.task, name, options.preset, options.protocol, length, options.device)
                for name in mixers
            ]
            for case in cases:
                case.check()
            for record in measure(cases, options.repeats, bar):
                record.save(options.results_dir)
                records.append(record)
    for board in bench_boards(records):
        baseline = records[0].method
        for table in (speed_table(board, baseline, "speed"), memory_table(board, baseline, "m")):
            write_out(f"\n{table.title}\n\n{table.caption}\n\n{table.markdown()}")
    say(f"{len(records)} records in {options.results_dir / 'bench'}")
    return 0
