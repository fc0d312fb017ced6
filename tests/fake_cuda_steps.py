"""Steps, validations and restored checkpoints of a run on the fake device, and what they cost it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fake_cuda_device import DEVICE, Counts, FakeCuda, use_fake_cuda
from lra.classifier.classifier import Classifier
from lra.config.schema import RunConfig
from lra.train.state import capture, restore
from lra.train.trainer import Trainer
from lra.config.registry import MIXERS
from requested import resolve
from tasks.base import Dataset, Split, TaskInfo
from tasks.next_token import NextToken, windows
from tasks.splits import PackedTokens, Pixels, Sequences, scale

BATCHES = 4
"""Batches of a split."""


class MovableClassifier(Classifier):
    """A classifier that keeps parameters shared when it moves to the fake device."""

    def to(self, device: torch.device) -> MovableClassifier:  # pyright: ignore
        """Copy parameters and buffers; `nn.Module.to` would copy a shared one twice."""
        moved: dict[int, Any] = {}
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    if id(parameter) not in moved:
                        copied = nn.Parameter(parameter.detach().to(device), parameter.requires_grad)
                        moved[id(parameter)] = parameter, copied
                    module._parameters[name] = moved[id(parameter)][1]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to(device)
        return self


def random_split(info: TaskInfo, examples: int) -> Split:
    """Draw examples of a task; sequences are a quarter of the longest to the longest."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, info.num_classes, examples).astype(np.uint8)
    if info.grid is not None:
        channels = info.channels or 1
        images = rng.integers(0, 256, (examples, info.max_length, channels), dtype=np.uint8)
        levels = None if info.channels is None else scale([(128.0, 64.0)] * channels)
        return Pixels(images, labels, np.arange(examples), levels)
    assert info.vocab_size is not None
    if info.targets == "position":
        total = examples * info.max_length + 1
        tokens = rng.integers(0, info.vocab_size, total).astype(np.uint16)
        starts, lengths, skipped = windows(total, info.max_length)
        return NextToken(tokens, starts, lengths, skipped=skipped)
    count = examples * info.towers
    lengths = rng.integers(-(-info.max_length // 4), info.max_length + 1, count)
    tokens = rng.integers(1, info.vocab_size, lengths.sum()).astype(np.uint8)
    sequences = Sequences(tokens, np.concatenate([[0], np.cumsum(lengths)]))
    return PackedTokens(sequences, labels, np.arange(count).reshape(examples, info.towers))


def random_dataset(config: RunConfig) -> Dataset:
    """Draw splits train and val of a task, without its files."""
    info = config.build_task().info
    split = random_split(info, BATCHES * config.train.batch_size)
    return Dataset(
        splits={"train": split, "val": split},
        source="generated",
        fingerprint="",
        baselines={},
        folder=Path(),
    )


def build_trainer(config: RunConfig) -> Trainer:
    """Build the trainer of a run on the fake device."""
    return Trainer(
        config, config.build_task().info, random_dataset(config), seed=0, device=DEVICE, classifier=MovableClassifier
    )


def count_run(mode: FakeCuda, config: RunConfig) -> dict[str, Counts]:
    """Count the second training step, a validation of four batches, and a restored checkpoint."""
    trainer = build_trainer(config)
    trainer.train_step()
    found: dict[str, Counts] = {}
    with mode.counting() as found["step"]:
        trainer.train_step()
    with mode.counting() as found["validation"]:
        trainer.validate(lambda: None)
    state = _to_cpu(capture(trainer))
    with mode.counting() as found["restore"]:
        restore(trainer, state)
    trainer.train_step()
    return found


def _to_cpu(state: Any) -> Any:
    """Copy a captured state as saving and loading it does."""
    if isinstance(state, dict):
        return {key: _to_cpu(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_to_cpu(value) for value in state]
    return state.detach().cpu().clone() if isinstance(state, torch.Tensor) else state


def print_table(
    task: str, preset: str, mixers: str | None, overrides: list[str], list_operations: bool
) -> None:
    """Print what steps, validations and restored checkpoints of mixers cost."""
    torch.set_num_threads(1)
    print("mixer         launches  waits      GB  peak GiB | validation     | restore        | seconds")
    print("                                                | launches waits | launches waits |")
    with use_fake_cuda() as mode:
        for mixer in mixers.split(",") if mixers else sorted(MIXERS.classes):
            start = time.monotonic()
            config = resolve(task, mixer, preset=preset, overrides=overrides)
            counts = count_run(mode, config)
            step, others = counts["step"], (counts["validation"], counts["restore"])
            cells = [f"{c.launches:8,} {c.waits:5,}" for c in others]
            print(
                f"{mixer:12} {step.launches:9,} {step.waits:6,} {step.bytes / 1e9:7.1f} {step.peak_bytes / 2**30:9.2f}"
                f" | {' | '.join(cells)} | {time.monotonic() - start:7.1f}",
                flush=True,
            )
            if list_operations:
                for name, found in counts.items():
                    print(f"  {name} launches: {found.operations.most_common(12)}")
                    print(f"  {name} waits: {found.waiting.most_common(12)}")
