"""What a training step, a validation and a restored checkpoint ask of the fake device."""

from __future__ import annotations

import dataclasses
import gc
import json
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import torch
from torch import nn

from fake_cuda_device import DEVICE, Counts, FakeCuda
from fake_cuda_torch import FakeGraph, use_fake_cuda
from lra.classifier.classifier import Classifier
from lra.config.registry import MIXERS
from lra.config.schema import RunConfig
from lra.train.state import capture, restore
from lra.train.trainer import Trainer
from requested import resolve
from tasks.base import Dataset, Split, TaskInfo
from tasks.next_token import NextToken, windows
from tasks.splits import PackedTokens, Pixels, Sequences, scale

BATCHES = 2
"""Batches of the training split, and of the validation split."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run whose work for the device is counted."""

    task: str
    mixer: str
    preset: str = "quick"
    protocol: str = "s4"
    overrides: Sequence[str] = ()
    is_step_only: bool = False
    """Whether the validation and the checkpoint are left out."""
    is_first_step: bool = False
    """Whether the first step is counted, and nothing after it."""
    forgotten: str = ""
    """A part of the model that is left on the CPU by mistake, like `embedding.learned`."""

    def config(self) -> RunConfig:
        """Compose the settings."""
        return resolve(
            self.task,
            self.mixer,
            preset=self.preset,
            protocol=self.protocol,
            overrides=self.overrides,
        )


class MovableClassifier(Classifier):
    """A classifier whose parameters are still shared after it was moved to the fake device."""

    forgotten = ""

    def to(self, device: torch.device) -> MovableClassifier:  # pyright: ignore
        """Copy parameters and buffers; `nn.Module.to` would copy a shared one twice."""
        moved: dict[nn.Parameter, nn.Parameter] = {}
        for place, module in self.named_modules():
            if self.forgotten and f"{place}.".startswith(f"{self.forgotten}."):
                continue
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter not in moved:
                    copied = parameter.detach().to(device)
                    moved[parameter] = nn.Parameter(copied, parameter.requires_grad)
                module._parameters[name] = parameter if parameter is None else moved[parameter]
            for name, buffer in module._buffers.items():
                module._buffers[name] = buffer if buffer is None else buffer.to(device)
        return self


def random_split(info: TaskInfo, examples: int) -> Split:
    """Draw examples of a task; a sequence has a quarter of the most positions, or more."""
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


def build_trainer(case: Case) -> Trainer:
    """Build the trainer of a case on the fake device, with random data of the task's shape."""
    config = case.config()
    info = config.build_task().info
    split = random_split(info, BATCHES * config.train.batch_size)
    dataset = Dataset(
        splits={"train": split, "val": split},
        source="generated",
        fingerprint="",
        baselines={},
        folder=Path(),
    )
    classifier = type("OfCase", (MovableClassifier,), {"forgotten": case.forgotten})
    return Trainer(config, info, dataset, seed=0, device=DEVICE, classifier=classifier)


def count_case(mode: FakeCuda, case: Case) -> dict[str, Counts]:
    """Count the second step, the validation after it, and a checkpoint that is restored then.

    Where steps are a CUDA graph, count the capture, and the step that is a replay.

    Raises: RuntimeError if tensors of an operation are on different devices.
    """
    gc.collect()  # of the cases before, nothing is to count as memory
    gc.freeze()  # what is left, like torch's caches, is not looked through before every case
    mode.forget_held()
    trainer = build_trainer(case)
    found: dict[str, Counts] = {}
    if case.is_first_step:
        with mode.counting() as found["step"]:
            trainer.train_step()
        return found
    trainer.train_step()
    if trainer.step_graph is not None:
        with mode.counting() as found["replay"]:
            trainer.train_step()
        found["capture"] = cast(FakeGraph, trainer.step_graph.graph).counts
        return found
    with mode.counting() as found["step"]:
        trainer.train_step()
    if case.is_step_only:
        return found
    with mode.counting() as found["validation"]:
        trainer.validate(lambda: None)
    state = _saved(capture(trainer))
    with mode.counting() as found["restore"]:
        restore(trainer, state)
    return found


def _saved(state: Any) -> Any:
    """Copy a captured state to the CPU, as writing and reading a file do."""
    if isinstance(state, dict):
        return {key: _saved(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_saved(value) for value in state]
    return state.detach().cpu().clone() if isinstance(state, torch.Tensor) else state


def answer_lines(lines: Iterable[str], out: TextIO) -> None:
    """Count the cases of each line, a JSON list, and write the results as a line of JSON."""
    torch.set_num_threads(1)
    with use_fake_cuda() as mode:
        for line in lines:
            results = [_summarize(mode, Case(**case)) for case in json.loads(line)]
            out.write(f"{json.dumps(results)}\n")
            out.flush()


def _summarize(mode: FakeCuda, case: Case) -> dict[str, Any]:
    """Return the numbers of a case by what was counted, or the traceback of its error."""
    try:
        return {name: counts.summary() for name, counts in count_case(mode, case).items()}
    except Exception:
        return {"error": traceback.format_exc()}


def format_table(case: Case, mixers: Sequence[str] | None, list_operations: bool) -> Iterator[str]:
    """Count a case with each mixer, and write a line of a table each time."""
    torch.set_num_threads(1)
    yield "              training step                         | validation     | checkpoint"
    yield "mixer         launches  waits      GB  peak GiB     | launches waits | launches waits"
    with use_fake_cuda() as mode:
        for mixer in mixers or sorted(MIXERS.classes):
            found = count_case(mode, dataclasses.replace(case, mixer=mixer))
            step, *others = found.values()
            cells = [f"{counts.launches:8,} {counts.waits:5,}" for counts in others]
            numbers = f"{step.bytes / 1e9:7.1f} {step.peak_bytes / 2**30:9.2f}    "
            yield " | ".join([f"{mixer:12} {step.launches:9,} {step.waits:6,} {numbers}", *cells])
            if list_operations:
                for name, counts in found.items():
                    yield f"  {name}: {counts.operations.most_common(12)}"
                    yield f"  {name}, waits: {counts.waiting.most_common(12)}"
