"""Measuring whole training steps: the classifier of a run on a synthetic batch."""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

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

    def trainer(self) -> Trainer:
        """Build the classifier and its optimizer.

        Raises: UserError for a length that the task's grid does not have.
        """
        config = self.config()
        info = config.build_task().info
        if info.grid is not None and self.length != info.max_length:
            raise UserError(
                f"--lengths {self.length}: {self.task} is a grid of {info.max_length} positions"
            )
        info = dataclasses.replace(info, max_length=self.length)
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

    def record(self, measured_with: tuple[str, ...], memory: float | None) -> BenchRecord:
        """Make the record of what was measured."""
        low, middle, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        case, config = self.case, self.trainer.config
        return BenchRecord(
            mode="step",
            mixer=case.mixer,
            task=case.task,
            preset=case.preset,
            protocol=case.protocol,
            length=case.length,
            batch_size=config.train.batch_size,
            device=device_name(self.trainer.device),
            precision=config.train.precision,
            repeats=len(self.seconds),
            steps_per_second=1 / middle,
            low_quartile=1 / high,
            high_quartile=1 / low,
            peak_memory_mib=memory,
            params=self.trainer.num_parameters,
            flops_per_step=self.trainer.flops_per_step or 0.0,
            measured_with=measured_with,
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
    with (
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
        progress("measuring", total=turns, unit="steps") as bar,
    ):
        for length in lengths:
            cases = [
                Case(options.task, name, options.preset, options.protocol, length, options.device)
                for name in mixers
            ]
            memory = []
            for case in cases:  # in a process of its own, before anything here takes memory
                memory.append(pool.apply(peak_memory, (case, torch.get_num_threads())))
                bar.update()
            fitting = [(c, m) for c, m in zip(cases, memory, strict=True) if m is not None]
            for case in {*cases} - {case for case, _ in fitting}:
                say(f"{case.mixer} at {case.length}: out of memory")
            steppings = [Stepping(case, case.trainer()) for case, _ in fitting]
            for turn in range(WARMUP_STEPS + options.repeats):
                for stepping in steppings:
                    stepping.measure()
                    bar.update()
                if turn + 1 == WARMUP_STEPS:
                    for stepping in steppings:
                        stepping.seconds.clear()
            names = tuple(case.mixer for case, _ in fitting)
            for stepping, (_, peak) in zip(steppings, fitting, strict=True):
                records.append(stepping.record(names, peak))
                records[-1].save(options.results_dir)
    for board in bench_boards(records):
        for table in (speed_table(board, mixers[0], "speed"), memory_table(board, mixers[0], "m")):
            write_out(f"\n{table.title}\n\n{table.caption}\n\n{table.markdown()}")
    say(f"{len(records)} records in {options.results_dir / 'bench'}")
    return 0
