"""Training on a fake CUDA device: devices agree, and launches and waits do not grow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fake_cuda

SMALL = ["model.depth=1", "train.checkpoint_activations=false"]
"""One block of each mixer, and no pass beforehand that finds out whether activations fit."""

COSTS = {
    ("listops", "tnn", "step"): (271, 0),
    ("listops", "tnn", "validation"): (207, 7),
    ("listops", "delta", "step"): (339, 0),
    ("listops", "delta", "validation"): (278, 7),
    ("image", "tnn", "graphed"): (11, 0),
    ("image", "delta", "graphed"): (11, 0),
}
"""Launches and waits, by task and mixer."""


@pytest.mark.thorough
@pytest.mark.skipif(fake_cuda.find_compiler() is None, reason="needs a C++ compiler")
def test_devices_agree_and_costs_do_not_grow() -> None:
    cases = list(dict.fromkeys((task, mixer) for task, mixer, _ in COSTS))
    done = subprocess.run(
        [sys.executable, "-W", "error", fake_cuda.__file__],
        input=json.dumps([[*case, SMALL] for case in cases]),
        cwd=Path(__file__).parent, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counted = dict(zip(cases, json.loads(done.stdout), strict=True))
    for (task, mixer, part), limits in COSTS.items():
        costs = tuple(counted[task, mixer][part].values())
        assert all(x <= 1.05 * most for x, most in zip(costs, limits, strict=True)), (
            task, mixer, part, costs, limits,
        )  # fmt: skip
