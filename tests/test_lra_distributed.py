"""One run on several processes: the same result as on one, and a line if they cannot train."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_arguments
from lra import run_task
from lra.record.run import RunRecord, load_record
from lra.runtime.distributed import ProcessGroup
from own_tasks import PARITY
from ranks import ends, started


def result(folder: Path) -> tuple[RunRecord, list[dict]]:
    """Read a folder's only run: its record and metrics."""
    (run,) = (folder / "results" / "runs" / "listops").glob("*/*")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return load_record(run / "result.json"), [json.loads(line) for line in lines]


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
    assert (record.steps, record.config_hash) == (other.steps, other.config_hash)


# 200 examples in batches of 27: the last of an epoch holds 11, divided unevenly; of 199, one.
SETTINGS = {
    "batch norm": ["train.batch_size=27", "log.every_steps=1"],
    "a batch for one": ["train.batch_size=199", "train.steps=6"],
    "micro-batches": ["train.batch_size=27", "train.micro_batch=8", "train.steps=6"],
    "random directions": [
        "mixer.feature=favor", "mixer.decay=none", "mixer.redraw_steps=2", "train.steps=6",
        "train.batch_size=64", "train.micro_batch=32",
    ],
}  # fmt: skip
DROPOUT = ("--set", "model.dropout=0.3", "--set", "log.every_steps=1")

SEVERAL = """
import json, os, sys
from lra import run_task
for number, arguments in enumerate(json.loads(sys.argv[1])):
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)  # each has its own part of the store
    try:
        code = run_task.main(arguments)
    except SystemExit as ended:
        code = ended.code
    print(json.dumps(code))
    print(f"end of {number}", file=sys.stderr, flush=True)
"""


def changes_of(name: str) -> list[str]:
    mixer = "linear" if name == "random directions" else "tnn"
    return [*(part for text in SETTINGS[name] for part in ("--set", text)), "--mixer", mixer]


@pytest.mark.thorough
def test_two_processes_train_as_one_and_resume(tmp_path: Path) -> None:
    """Of a run with dropout a part is made first, which two processes then resume bit for bit."""
    script = tmp_path / "several.py"
    script.write_text(SEVERAL)
    two = tmp_path / "two"
    runs = [tiny_arguments(two / name, *changes_of(name)) for name in SETTINGS]
    runs.append(tiny_arguments(two / "whole", *DROPOUT))
    runs.append(tiny_arguments(two / "part", *DROPOUT, "--max-steps", "7"))
    runs.append(tiny_arguments(two / "part", *DROPOUT))
    with started(script, [[json.dumps(runs)]] * 2) as ranks:
        codes, out, err = ends(ranks)
    assert codes == [0, 0], err
    assert [each.splitlines()[-1] for each in out] == ["0", "0"], err
    assert "Warning" not in "".join(err)  # of a dependency
    assert err[0].count("resumed at step 7") == 1 and "resumed" not in err[1]  # one speaks
    for name in SETTINGS:
        assert run_task.main(tiny_arguments(tmp_path / "one" / name, *changes_of(name))) == 0
        assert_same_training(tmp_path / "one" / name, two / name)
    (_, whole), (_, parts) = result(two / "whole"), result(two / "part")
    timed = {"seconds", "steps_per_second"}
    assert [{k: v for k, v in line.items() if k not in timed} for line in whole] == [
        {k: v for k, v in line.items() if k not in timed} for line in parts
    ]
    # A run may go on with another number of processes.
    shutil.rmtree(two / "whole" / "results")
    cut = tiny_arguments(two / "whole", *DROPOUT, "--max-steps", "7")
    with started(script, [[json.dumps([cut])]] * 2) as ranks:
        ends(ranks)
    assert run_task.main(tiny_arguments(two / "whole", *DROPOUT)) == 0
    assert result(two / "whole")[0].steps == 20


NORM = """
import torch
import torch.distributed as dist
from torch import nn
from lra.classifier.norms import BatchNorm

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
whole = BatchNorm(3).double()
nn.init.normal_(whole.weight)
ours = BatchNorm(3).double()
ours.is_synchronized = True
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
dist.destroy_process_group()
"""


@pytest.mark.thorough
def test_synchronized_norm_is_that_of_all_positions(tmp_path: Path) -> None:
    script = tmp_path / "norm.py"
    script.write_text(NORM)
    with started(script, [[], []]) as ranks:
        codes, _, err = ends(ranks)
    assert codes == [0, 0], err


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(("examples", "per_pass"), [(27, 8), (5, 4), (1, 32)])
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
        for start, stop, weight in found:
            for index in own[start:stop].tolist():
                counted[index] = counted.get(index, 0.0) + weight
    assert counted.keys() == set(indices.tolist())
    assert all(total == pytest.approx(1) for total in counted.values())
    assert len(passes) == 1  # or processes would wait for one another


RANKED = PARITY.replace("self.length // 2", 'int(os.environ["RANK"]) + 2').replace(
    "class", "import os\n\n\nclass"
)


@pytest.mark.thorough
def test_ranks_that_differ_or_share_a_mistake_end_with_one_line(tmp_path: Path) -> None:
    tiny = tiny_arguments(tmp_path)
    (tmp_path / "own.py").write_text(RANKED)
    own = ["--task", f"{tmp_path}/own.py:Parity", "--mixer", "mean", "--preset", "quick"]
    own += ["--device", "cpu", "--results-dir", str(tmp_path / "results"), "--data-dir"]
    cases = [
        ([*tiny, "--sed", "1"], [*tiny, "--sed", "1"], "unrecognized arguments: --sed"),
        ([*tiny, "--set", "train.lr=x"], [*tiny, "--set", "train.lr=x"], "train.lr: got 'x'"),
        (tiny, [*tiny, "--set", "log.checkpoint_minutes=3", "--seed", "1"],
         "seed is 0 on rank 0 and 1 on rank 1; log.checkpoint_minutes is 5"),
        ([*own, str(tmp_path / "0")], [*own, str(tmp_path / "1")],
         "the processes of torchrun differ: data fingerprint is "),
    ]  # fmt: skip
    script = tmp_path / "several.py"
    script.write_text(SEVERAL)
    lines = [json.dumps([case[rank] for case in cases]) for rank in range(2)]
    with started(script, [[line] for line in lines]) as ranks:
        codes, out, err = ends(ranks)
    assert codes == [0, 0], err
    assert [each.split() for each in out] == [["2"] * len(cases)] * 2, (out, err)
    parts = [[part.splitlines() for part in each.split("end of ")] for each in err]
    for number, (_, _, says) in enumerate(cases):
        for rank in parts:
            (written,) = (line for line in rank[number] if "error:" in line)
            assert says in written
    assert "Traceback" not in "".join(err)
    assert not list(tmp_path.glob("results/**/result.json"))


STUCK = """
import os, sys, time
from datetime import timedelta
from lra import run_task
from lra.runtime import distributed
from lra.train.trainer import Trainer

distributed.LONGEST_EXCHANGE = timedelta(seconds=8)  # processes may start one after the other
train_step = Trainer.train_step

def slow_step(self):
    if self.step == 3 and os.environ["RANK"] == "1":
        print("stuck", flush=True)
        time.sleep(300)
    return train_step(self)

Trainer.train_step = slow_step
sys.exit(run_task.main())
"""


@pytest.mark.thorough
def test_a_killed_process_and_one_that_hangs_end_the_other(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    for is_killed, fate in ((True, "ended or cannot be reached"), (False, "hangs")):
        with started(script, [tiny_arguments(tmp_path)] * 2) as ranks:
            stdout = ranks[1].stdout
            assert stdout is not None
            assert stdout.readline() == "stuck\n"
            start = time.monotonic()
            if is_killed:
                ranks[1].kill()
            _, err = ranks[0].communicate(timeout=60)
            waited = time.monotonic() - start
        assert ranks[0].returncode == 2, err
        assert "Traceback" not in err
        (line,) = [line for line in err.splitlines() if "error:" in line]
        assert f"another process of this run {fate}" in line
        assert waited < 10 if is_killed else 5 < waited < 30
