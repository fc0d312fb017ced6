"""What processes that train together exchange: little, and not forever."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from conftest import tiny_arguments
from lra.runtime.distributed import SINGLE_PROCESS, ProcessGroup
from ranks import ends, started

COUNTING = """
import collections, json, sys
import torch.distributed as dist
import run_task
from lra.train.trainer import Trainer

counts = collections.Counter()

def counted(name, function):
    def call(*arguments, **options):
        counts[name] += 1
        return function(*arguments, **options)
    return call

for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast",
             "broadcast_object_list", "_broadcast_coalesced"):
    setattr(dist, name, counted(name, getattr(dist, name)))
train_step, steps = Trainer.train_step, []

def noted_step(self):
    steps.append(dict(counts))
    return train_step(self)

Trainer.train_step = noted_step
code = run_task.main()
steps.append(dict(counts))
print(json.dumps(steps))
sys.exit(code)
"""

STUCK = """
import os, sys, time
import run_task
from lra.runtime import distributed
from lra.train.trainer import Trainer

distributed.LONGEST_EXCHANGE = 8.0  # processes may start one after the other on a busy machine
train_step = Trainer.train_step

def slow_step(self):
    if self.step == 3 and os.environ["RANK"] == "1":
        print("stuck", flush=True)
        time.sleep(300)
    return train_step(self)

Trainer.train_step = slow_step
sys.exit(run_task.main())
"""

REDRAWN = [
    "mixer.feature=favor", "mixer.decay=none", "mixer.redraw_steps=4", "model.norm=layer",
    "model.depth=2", "train.steps=9", "train.evaluate_every=9", "log.every_steps=100",
]  # fmt: skip


def added(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: n for name in after if (n := after[name] - before.get(name, 0))}


@pytest.mark.thorough
def test_a_step_has_two_exchanges_and_directions_are_sent_when_drawn(tmp_path: Path) -> None:
    """Besides that of the gradients; the sums of a batch norm are another matter."""
    script = tmp_path / "counting.py"
    script.write_text(COUNTING)
    command = tiny_arguments(tmp_path, mixer="linear", settings=REDRAWN)
    with started(script, [command] * 2) as ranks:
        codes, out, err = ends(ranks)
    assert codes == [0, 0], err
    for written in out:
        steps = json.loads(written.splitlines()[-1])
        *made, last = [added(*pair) for pair in itertools.pairwise(steps)]
        buffers = 2 * 2 + 1  # of each layer directions and their age; the table of positions
        for number, found in enumerate(made, start=1):
            drawn = {"broadcast": buffers} if number in {5, 9} else {}
            assert found == {"all_reduce": 2, **drawn}, number
        assert last["broadcast"] == buffers


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
        assert line.endswith("The same command resumes the run from its last checkpoint")
        assert waited < 10 if is_killed else 5 < waited < 30


class TwoProcesses(ProcessGroup):
    """This process's view of two, of which the other one adds numbers of its own."""

    def __init__(self, other: Sequence[float]) -> None:
        super().__init__(0, 2)
        self.other = other

    def sums_of(self, numbers: Sequence[float]) -> list[float]:
        return (np.array(numbers) + self.other).tolist()


def test_what_one_process_wishes_all_do() -> None:
    assert TwoProcesses([1.0, 0.0]).any_of(False, False) == [True, False]
    assert SINGLE_PROCESS.any_of(True, False) == [True, False]
