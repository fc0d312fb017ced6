"""Contributions to the open leaderboard, made from shipped runs and from runs of a plug-in."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, tiny_arguments
from lra import run_task
from lra.board.contribute import contribute
from lra.board.files import Known, check_files
from lra.record.known_data import KnownData, digest_labels, read_known_data
from lra.record.merge import write_pack
from lra.record.packed import read_pack
from lra.record.run import Runs, read_runs
from lra.record.run_files import read_predictions

SHIPPED = ROOT / "results" / "shipped"
SAID: dict[str, Any] = {
    "title": "A mixer", "authors": ["A. Author"], "paper": "none", "commit": "1234567",
    "code": "https://example.org/code", "settings_tried": 3, "chosen_on": "val",
    "code_license": "Apache-2.0",
}  # fmt: skip

PLUG_IN = '''
import torch
from torch import nn
from helper import SCALE


class OwnMixer(nn.Module):
    """Multiplies positions by a learned scale."""

    def __init__(self, context, *, start: float = 1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.full((context.dim,), start * SCALE))

    def forward(self, x, mask=None):
        return x * self.scale
'''


def train_plug_in(place: Path, seeds: int) -> Runs:
    """Train tiny models of a plug-in that imports a file of its folder, and read their runs."""
    (place / "own_mixer.py").write_text(PLUG_IN)
    (place / "helper.py").write_text("SCALE = 1.0\n")
    mixer = f"{place / 'own_mixer.py'}:OwnMixer"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        for seed in range(seeds):
            assert run_task.main(tiny_arguments(place, "--seed", str(seed), mixer=mixer)) == 0
    return read_runs(place / "results")[0]


def shipped_runs(mixer: str = "s4", task: str = "listops", count: int = 3) -> Runs:
    """Choose shipped runs with the settings of preset budget, seeds from 0 on."""
    runs, _ = read_runs(SHIPPED, task=task)
    own = [
        (path, run)
        for path, run in runs
        if (run.mixer, run.preset) == (mixer, "budget") and not run.row_changes and not run.label
    ]
    return sorted(own, key=lambda item: item[1].seed)[:count]


def known_of(runs: Runs, most_parameters: int = 10**6) -> dict[tuple[str, str], KnownData]:
    """Make the known data of runs, as if they were shipped."""
    path, run = runs[0]
    predictions = read_predictions(run, path / "predictions.csv")
    known = KnownData(
        task=run.task, fingerprint=run.data.fingerprint, source=run.data.source,
        test_examples=len(predictions.merits), labels=digest_labels(predictions),
        baselines=dict(run.result.trivial_scores), most_parameters=most_parameters,
    )  # fmt: skip
    return {(run.task, run.data.fingerprint): known}


def make(folder: Path, runs: Runs, known: Known | None = None, **said: Any) -> list[str]:
    """Make a contribution of all runs that there are of their settings."""
    return contribute(folder, runs, {**SAID, **said}, known or read_known_data())


def edit(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change all packed files of a name."""
    files = dict(read_pack(folder))
    write_pack(folder, {p: change(c) if p.endswith(name) else c for p, c in files.items()})


def edit_record(folder: Path, **fields: Any) -> None:
    """Replace fields of all records; those of the result have names like result__test_correct."""

    def change(content: bytes) -> bytes:
        record = json.loads(content)
        for name, value in fields.items():
            *outer, last = name.split("__")
            target = record
            for key in outer:
                target = target[key]
            target[last] = value
        return json.dumps(record).encode()

    edit(folder, "result.json", change)


def findings_of(folder: Path, known: Known | None = None, **more: Any) -> str:
    """Check a contribution; return its findings, a line each."""
    lines = check_files(folder, known or read_known_data(), **more)
    assert all("\n" not in line and "Traceback" not in line for line in lines), lines
    return "\n".join(lines)
