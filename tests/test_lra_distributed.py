"""One run on several processes: the same result as on one, nothing twice, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import run_task
from conftest import PATIENCE, ROOT, tiny_arguments
from lra.record.run import RunRecord, load_record
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from ranks import ends, started

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CPU = torch.device("cpu")


def launch(script: Path, *arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    """Start a script on two processes."""
    return subprocess.Popen(
        [*TORCHRUN, "--max-restarts", str(restarts), str(script), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def start(folder: Path, *more: str, restarts: int = 0) -> subprocess.Popen[str]:
    """Start a tiny run on two processes."""
    return launch(ROOT / "run_task.py", *tiny_arguments(folder, *more), restarts=restarts)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        raise AssertionError(f"it hangs: {process.communicate()}") from None
    assert process.returncode == 0, err
    return out, err


def result(folder: Path) -> tuple[RunRecord, list[dict]]:
    """Read a folder's only run: its record and metrics."""
    (run,) = (folder / "results" / "runs" / "listops").glob("*/*")
    metrics = run / "metrics.jsonl"
    text = metrics.read_text() if metrics.exists() else ""
    return load_record(run / "result.json"), [json.loads(line) for line in text.splitlines()]


# A bias before a norm has no gradient but rounding, which Adam blows up to whole steps; the norm
# takes it out again in training, but its running mean lags behind.
TOLERANCES = {"loss": 1e-4, "lr": 0, "grad_norm": 1e-3, "accuracy": 1e-9, "val_loss": 1e-3}


def assert_same_training(one: Path, two: Path) -> None:
    record, lines = result(one)
    other, other_lines = result(two)
    assert [line["step"] for line in lines] == [line["step"] for line in other_lines]
    for line, other_line in zip(lines, other_lines, strict=True):
        for key in line.keys() & TOLERANCES.keys():
            near = pytest.approx(other_line[key], rel=TOLERANCES[key])
            assert line[key] == near, (line["step"], key)
    assert (record.steps, record.total_steps, record.config_hash) == (
        other.steps, other.total_steps, other.config_hash,
    )  # fmt: skip


# 200 examples in batches of 27: the last of an epoch holds 11, divided unevenly; of 199, one.
SETTINGS = {
    "batch norm": ["train.batch_size=27", "log.every_steps=1"],
    "a batch for one": ["train.batch_size=199", "train.steps=6"],
    "micro-batches": ["train.batch_size=27", "train.micro_batch=8", "train.steps=6"],
    "two to a pass": ["train.micro_batch=3", "train.steps=6"],
    "random directions": [
        "mixer.feature=favor", "mixer.decay=none", "mixer.redraw_steps=2", "train.steps=6",
        "train.batch_size=64", "train.micro_batch=32",
    ],
}  # fmt: skip
DROPOUT = ("--set", "model.dropout=0.3", "--set", "log.every_steps=1")


SEVERAL = """
import json, os, sys
import run_task
for number, arguments in enumerate(json.loads(sys.argv[1])):
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)  # each has its own part of the store
    run_task.main(arguments)
"""


def changes_of(name: str) -> list[str]:
    mixer = "linear" if name == "random directions" else "tnn"
    return [*(part for text in SETTINGS[name] for part in ("--set", text)), "--mixer", mixer]


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the same two processes: of each of SETTINGS; with dropout a whole one and a part."""
    folder = tmp_path_factory.mktemp("on_two")
    script = folder / "several.py"
    script.write_text(SEVERAL)
    runs = [tiny_arguments(folder / name, *changes_of(name)) for name in SETTINGS]
    runs.append(tiny_arguments(folder / "whole", *DROPOUT))
    runs.append(tiny_arguments(folder / "part", *DROPOUT, "--max-steps", "7"))
    _, err = finish(launch(script, json.dumps(runs)))
    assert "Warning" not in err  # of a dependency
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_train_as_one(tmp_path: Path, on_two: Path, name: str) -> None:
    assert run_task.main(tiny_arguments(tmp_path, *changes_of(name))) == 0
    assert_same_training(tmp_path, on_two / name)


NORM = """
import torch
import torch.distributed as dist
from torch import nn
from lra.runtime.distributed import ProcessGroup
from lra.runtime.synchronized_norm import SynchronizedBatchNorm
from models.layers.norms import BatchNorm

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
whole = BatchNorm(3).double()
nn.init.normal_(whole.weight)
ours = SynchronizedBatchNorm(3).double()
ours.load_state_dict(whole.state_dict())
x = (torch.randn(11, 3).double() * 5 + 100).requires_grad_()
pull = torch.randn(11, 3).double()
(whole(x) * pull).sum().backward()
rows = slice(0, 4) if rank == 0 else slice(4, 11)
own = x.detach()[rows].requires_grad_()
(ours(own) * pull[rows]).sum().backward()
torch.testing.assert_close(own.grad, x.grad[rows])
torch.testing.assert_close(ours(own).detach(), whole(x)[rows].detach())
for name in ("weight", "bias"):
    gradient = getattr(ours, name).grad
    dist.all_reduce(gradient)
    torch.testing.assert_close(gradient, getattr(whole, name).grad)
for name, buffer in whole.named_buffers():
    torch.testing.assert_close(getattr(ours, name), buffer)
torch.testing.assert_close(ours.eval()(own), whole.eval()(own))
for norm in (ours.train(), whole.train()):
    for all_have in (x.detach(), x.detach()[:1]):  # what is too little to divide
        with ProcessGroup(rank, 2).gradients_synchronized(norm, True, is_divided=False):
            norm(all_have)
for name, buffer in whole.named_buffers():
    torch.testing.assert_close(getattr(ours, name), buffer)
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_synchronized_norm_is_that_of_all_positions(tmp_path: Path) -> None:
    script = tmp_path / "norm.py"
    script.write_text(NORM)
    with started(script, [[], []]) as ranks:
        codes, _, err = ends(ranks)
    assert codes == [0, 0], err


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(("examples", "per_pass"), [(27, 27), (27, 8), (5, 4), (1, 32), (16, 16)])
def test_every_example_is_computed_once(size: int, examples: int, per_pass: int) -> None:
    """What is too little for all processes each of them computes, for a part of the loss."""
    indices = np.arange(100, 100 + examples)
    counted: dict[int, float] = {}
    passes: set[int] = set()
    for rank in range(size):
        group = ProcessGroup(rank, size)
        own = group.local_indices(indices, per_pass)
        found = list(group.local_passes(examples, per_pass))
        passes.add(len(found))
        assert [start for start, _, _ in found] == [0, *(stop for _, stop, _ in found[:-1])]
        assert found[-1][1] == len(own)
        assert all(stop > start for start, stop, _ in found)
        for start, stop, weight in found:
            for index in own[start:stop].tolist():
                counted[index] = counted.get(index, 0.0) + weight
    assert counted.keys() == set(indices.tolist())
    assert all(total == pytest.approx(1) for total in counted.values())
    assert len(passes) == 1  # or processes would wait for one another


def test_alone_nothing_is_exchanged() -> None:
    numbers = torch.ones(3)
    assert SINGLE_PROCESS.all_reduce_sum(numbers) is numbers
    assert SINGLE_PROCESS.first_reason(None) is None
    assert SINGLE_PROCESS.first_reason("SIGTERM") == "SIGTERM"
    assert (
        SINGLE_PROCESS.broadcast(2.0),
        SINGLE_PROCESS.all_reduce_max(3.0),
        SINGLE_PROCESS.sums_of([4.0, 0.1]),
    ) == (2.0, 3.0, [4.0, 0.1])
    assert SINGLE_PROCESS.on_main_process(lambda: "made") == "made"


LONG = ("--set", "train.steps=100000", "--set", "log.checkpoint_minutes=0.005")


def wait_for_checkpoint(folder: Path, than: int = 0) -> int:
    """Wait for a checkpoint after a step, and return its step."""
    for _ in range(10 * PATIENCE):
        found = folder.glob("results/runs/*/*/*/checkpoints/step-*.pt")
        newest = max((int(path.name[5:14]) for path in found), default=0)
        if newest > than:
            return newest
        time.sleep(0.1)
    raise AssertionError("no checkpoint came")


@pytest.mark.thorough
def test_a_signal_stops_all_processes_at_one_step(tmp_path: Path) -> None:
    process = start(tmp_path, *LONG)
    step = wait_for_checkpoint(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    record, _ = result(tmp_path)
    assert record.status == "stopped"
    assert record.steps >= step
    more = record.steps + 1
    run_task.main(tiny_arguments(tmp_path, *LONG, "--max-steps", str(more)))
    assert result(tmp_path)[0].steps == more


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, on_two: Path) -> Path:
    """Runs that two processes resume: after two, and after one that resumed after two."""
    folder = tmp_path_factory.mktemp("resumed")
    for name in ("after two", "after one"):
        shutil.copytree(on_two / "part", folder / name)
    run_task.main(tiny_arguments(folder / "after one", *DROPOUT, "--max-steps", "12"))
    runs = [tiny_arguments(folder / name, *DROPOUT) for name in ("after two", "after one")]
    _, err = finish(launch(on_two / "several.py", json.dumps(runs)))
    assert err.count("resumed at step 7") == 1  # one process speaks
    assert err.count("resumed at step 12") == 1
    return folder


@pytest.mark.thorough
def test_a_resume_is_bit_exact_with_dropout_on_every_process(on_two: Path, resumed: Path) -> None:
    (_, whole), (_, parts) = result(on_two / "whole"), result(resumed / "after two")
    timed = {"seconds", "steps_per_second"}
    assert [{k: v for k, v in line.items() if k not in timed} for line in whole] == [
        {k: v for k, v in line.items() if k not in timed} for line in parts
    ]
    saved = [
        torch.load(path, weights_only=True)["trainer"]
        for folder in (on_two / "whole", resumed / "after two")
        for path in folder.glob("results/runs/*/*/*/checkpoints/step-000000020-*.pt")
    ]
    for one, other in zip(saved[0]["random"], saved[-1]["random"], strict=True):
        assert torch.equal(one["torch"], other["torch"])
    assert len(saved[0]["random"]) == 2
    assert all(torch.equal(v, saved[-1]["model"][k]) for k, v in saved[0]["model"].items())


@pytest.mark.thorough
def test_a_run_may_go_on_with_another_number_of_processes(resumed: Path) -> None:
    assert result(resumed / "after one")[0].steps == 20


@pytest.mark.thorough
def test_a_killed_process_is_started_again_and_resumes(tmp_path: Path) -> None:
    """torchrun's elastic restart: all processes begin again at the last checkpoint."""
    process = start(tmp_path, *LONG, "--set", "train.steps=150", restarts=1)
    step = wait_for_checkpoint(tmp_path)
    psutil.Process(process.pid).children()[-1].kill()
    _, err = finish(process)
    assert "resumed at step" in err
    assert "Traceback" not in err
    # torchrun may end the other process before that one has noticed the loss.
    assert err.count("another process of this run ended") == err.count("run_task.py: error:") <= 1
    record, _ = result(tmp_path)
    assert (record.status, record.steps) == ("done", 150)
    assert 0 < step < 150
