"""Whether two runs computed the same."""

import json
import shlex
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lra.record.run import load_record
from lra.runtime.distributed import SINGLE_PROCESS
from lra.runtime.environment import random_state
from lra.train.checkpoint import RunState, load_newest
from lra.train.metrics import StepMetrics
from lra.train.trainer import TrainerState


def next_command(shown: str) -> list[str]:
    """Read the command that a command's output ends with, as a shell would."""
    _, _, command = shown.rpartition("next:")
    return shlex.split(command.replace("\\\n", ""))


def final_state(folder: Path) -> TrainerState:
    state = load_newest(folder / "checkpoints")
    assert state is not None
    return state["trainer"]


def state_of(model: nn.Module) -> RunState:
    """Make the state of a run that has trained a model for a step."""
    generators = random_state(torch.device("cpu"))
    return {
        "identity": {"hash": "", "seed": 0, "source": "", "data": ""},
        "label": None,
        "metrics_bytes": 0,
        "internals_bytes": 0,
        "pretraining": None,
        "trainer": {
            "step": 1,
            "validated_step": 0,
            "validated_seconds": 0.0,
            "best": None,
            "model": model.state_dict(),
            "moments": [],
            "metrics": StepMetrics(SINGLE_PROCESS).state_dict(),
            "plateau": {"factor": 1.0, "best": None, "waited": 0},
            "random": [generators],
        },
        "session": {"wall_seconds": 1.0, "peak_memory_mib": 1.0, "device": "CPU", "commits": ["0"]},
    }


def assert_same(a: object, b: object, path: str = "") -> None:
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor)
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert isinstance(b, dict)
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert isinstance(b, (list, tuple))
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    else:
        assert a == b, path


def timeless(state: TrainerState) -> dict[str, Any]:
    """Drop what a clock measured."""
    sums = {**state["metrics"]["sums"], "seconds": 0.0}
    metrics = {**state["metrics"], "seconds": 0.0, "step_seconds": [], "sums": sums}
    return {**state, "validated_seconds": 0.0, "metrics": metrics}


def timeless_metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = {"seconds", "steps_per_second", "pretrain_steps_per_second"}
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


RESULT = ("result", "best_step", "steps", "params", "data")


def assert_same_run(a: Path, b: Path) -> None:
    """Compare weights, optimizer, random states, best model, metrics and result, bit for bit."""
    assert_same(timeless(final_state(a)), timeless(final_state(b)))
    assert timeless_metrics(a) == timeless_metrics(b)
    one, two = load_record(a / "result.json"), load_record(b / "result.json")
    for field in RESULT:
        assert getattr(one, field) == getattr(two, field), field
