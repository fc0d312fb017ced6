"""Cases whose work for the fake CUDA device is counted, and the process that counts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_cuda
from lra.config.registry import MIXERS


def case(task: str, mixer: str, *overrides: str, **others: Any) -> dict[str, Any]:
    """Describe a case of `fake_cuda_steps`."""
    return {"task": task, "mixer": mixer, "overrides": overrides, **others}


SMALL = ("model.depth=1", "train.checkpoint_activations=false")
"""One block of each mixer, because launches are proportional to blocks, and no pass beforehand that
finds out whether activations fit into memory; the cases without these settings make it."""

SHAPES = [
    case("listops", "transformer", protocol="lra"),  # CLS and learned positions
    case("retrieval", "s4d"),
    case("retrieval", "toroidal", protocol="lra"),
    case("image", "toroidal", "model.depth=2"),  # a native grid
    case("image", "tnn", "model.depth=2", "model.axes=native"),
    case("lm", "tnn", "model.tied_embeddings=true"),
    case("lm", "mega"),
    case("pathx", "tnn", *SMALL, preset="paper", is_step_only=True),
    case("pathx", "transformer", *SMALL, preset="paper", is_step_only=True),
]

GROUPS = {
    "quick": [case("listops", mixer, *SMALL) for mixer in sorted(MIXERS.classes)],
    # One for each kind of operator; all other casts are those of linear maps.
    "bf16": [
        case("listops", mixer, *SMALL, "train.precision=bf16", preset="budget")
        for mixer in ("delta", "hgrn", "linear", "mamba2", "s4", "tnn", "toroidal", "transformer")
    ],
    # Those whose forms depend on the length.
    "paper": [
        case("listops", mixer, *SMALL, preset="paper", is_step_only=True)
        for mixer in (
            "delta",
            "hgrn",
            "linear",
            "lru",
            "mamba2",
            "mega",
            "s4",
            "s5",
            "tnn",
            "toroidal",
        )
    ],
    "shapes": SHAPES,
    # Those that hold most; the last two compute their blocks again to fit into 80 GiB.
    "memory": [
        case("pathx", mixer, preset="paper", is_step_only=True)
        for mixer in ("tnn", "mamba2", "linear", "delta")
    ],
}


class CountingProcess:
    """A process with the fake device, which takes seconds to start; it counts a case once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", fake_cuda.__file__, "--json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._counted: dict[str, str] = {}

    def count(self, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Count cases; see `fake_cuda_steps.Case`.

        Returns: for each the numbers by what was counted, or the traceback of its error.
        """
        request = json.dumps(cases)
        if request not in self._counted:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            self._counted[request] = self._process.stdout.readline()
        assert self._counted[request], "the process with the fake device has died"
        return json.loads(self._counted[request])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
