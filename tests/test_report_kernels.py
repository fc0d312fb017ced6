"""Learned kernels, from checkpoints."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import run_task
from conftest import tiny_arguments
from figure_checks import overlaps
from lra.record.run import RunRecord
from lra.report.boards.board import boards
from lra.report.boards.results import Results
from lra.report.figures.drawing import style
from lra.report.figures.kernels import (
    Kernel,
    by_distance,
    kernel_figures,
    learned_kernels,
    trained_model,
)
from lra.train.checkpoint import read_newest, save_checkpoint


def kernels_of(results: Results, run: RunRecord) -> list[Kernel]:
    found = trained_model(results, run)
    assert found is not None
    return learned_kernels(found)


@pytest.mark.parametrize("mixer", ["tnn", "ski-tnn", "fd-tnn", "s4", "s4d", "dss"])
def test_kernels_come_from_the_checkpoint(tmp_path: Path, mixer: str) -> None:
    assert run_task.main(tiny_arguments(tmp_path, mixer=mixer)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    before = sorted(path.name for path in (results.path(run) / "checkpoints").iterdir())
    kernels = kernels_of(results, run)
    assert [kernel.name for kernel in kernels] == ["layer 1", "layer 2"]
    for kernel in kernels:
        length = kernel.matrices.shape[-1]
        assert kernel.by_lag.shape == (len(kernel.matrices), 2 * length - 1)
        middle = list(kernel.lags).index(0)
        assert np.array_equal(kernel.by_lag[:, middle], kernel.matrices[:, 0, 0])
        assert np.array_equal(kernel.by_lag[:, middle + 3], kernel.matrices[:, 3, 0])
        assert np.array_equal(kernel.by_lag[:, middle - 3], kernel.matrices[:, 0, 3])
    (board,) = boards(results.records)
    (drawn,) = kernel_figures(results, board, "k")
    with style():
        assert overlaps(drawn.draw()) == []
    assert sorted(p.name for p in (results.path(run) / "checkpoints").iterdir()) == before


def test_kernels_of_other_settings_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    (board,) = boards([run.model_copy(update={"config_hash": "0" * 16})])
    assert kernel_figures(results, board, "k") == []
    assert "settings files have changed" in capsys.readouterr().err
    (board,) = boards([run.model_copy(update={"mixer_code": "0" * 16, "mixer_from": "evil.py:X"})])
    assert kernel_figures(results, board, "k") == []
    (board,) = boards([run])
    for path in (results.path(run) / "checkpoints").iterdir():
        content = b"no checkpoint"
        path.rename(path.with_name(f"step-000000020-{hashlib.sha256(content).hexdigest()[:16]}.pt"))
    for path in (results.path(run) / "checkpoints").iterdir():
        path.write_bytes(b"no checkpoint")
    assert kernel_figures(results, board, "k") == []


def test_decay_is_the_larger_of_both_sides() -> None:
    assert by_distance(np.array([-5.0, 1.0, 2.0, -3.0, 4.0])).tolist() == [2.0, 3.0, 5.0]


def test_kernels_are_those_of_the_best_model(tmp_path: Path) -> None:
    assert run_task.main(tiny_arguments(tmp_path)) == 0
    results = Results(tmp_path / "results")
    (run,) = results.records
    folder = results.path(run) / "checkpoints"
    state = read_newest(folder)
    assert state is not None
    best = state["trainer"]["best"]
    assert best is not None
    best["model"] = {name: torch.zeros_like(weight) for name, weight in best["model"].items()}
    save_checkpoint(folder, 21, state)
    assert all((kernel.matrices == 0).all() for kernel in kernels_of(results, run))
