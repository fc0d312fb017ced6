"""Checkpoints where memory or the disk runs out: one line, and the last good one stays."""

import errno
import resource
import tracemalloc
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from conftest import tiny_arguments
from lra import run_task
from lra.record.schema import SHIPPED_RESULTS
from lra.runtime.cli import OUT_OF_MEMORY
from lra.train.checkpoint import read_newest, save_checkpoint
from lra.train.metrics import Sums

MIB = 2**20


def test_no_copy_of_a_checkpoint_is_held_in_memory(tmp_path: Path) -> None:
    state = {"model": {"weight": torch.zeros(8 * MIB)}}
    tracemalloc.start()
    try:
        save_checkpoint(tmp_path, 1, state)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MIB, "the file has 32 MiB"


def test_a_full_disk_names_the_checkpoint_and_keeps_the_last(tmp_path: Path) -> None:
    kept = save_checkpoint(tmp_path, 1, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            save_checkpoint(tmp_path, 2, {"weight": torch.zeros(MIB)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "step-000000002.pt")
    assert [*tmp_path.iterdir()] == [kept]


def test_a_run_without_memory_for_a_checkpoint_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "save", fail)
    assert run_task.main(tiny_arguments(tmp_path, "--max-steps", "5")) == OUT_OF_MEMORY
    said = capsys.readouterr().err
    assert "out of memory" in said and "Traceback" not in said


def test_shipped_checkpoints_are_loaded() -> None:
    folders = [*(SHIPPED_RESULTS / "runs").glob("*/*/*/checkpoints")]
    assert folders
    assert all(read_newest(folder) is not None for folder in folders)


def test_a_diverging_run_keeps_its_checkpoints() -> None:
    """Their losses have no bound but infinity."""
    sums = {"loss": 9e25, "correct": 1.0, "seen": 2.0, "steps": 1.0, "seconds": 0.5}
    assert TypeAdapter(Sums).validate_python(sums) == sums
