"""Sweeps on a Ray cluster: skipped where Ray is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import run_task
from common.errors import DataError
from conftest import PATIENCE, TINY
from lra.runtime.cli import STOPPED, USER_ERROR
from lra.sweep.__main__ import main
from lra.sweep.plan import Limits, plan
from lra.sweep.ray_connection import choose_needs, count_room
from lra.sweep.ray_node import pack, unpack
from lra.sweep.work import LaunchOptions
from run_checks import assert_same_run
from test_lra_sweep import SLOW, arguments, start, sweep_options, wait_for_step

pytest.importorskip("ray")

CPUS = [{"CPU": 8.0, "memory": 1e9}, {"CPU": 4.0, "memory": 1e9}]
GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("changes", "nodes", "asked", "room"),
    [
        ({"per_device": 2}, CPUS, {"num_cpus": 2}, 6),
        ({"cluster": ["num_cpus=3", "memory=5e8"]}, CPUS, {"num_cpus": 3, "memory": 5e8}, 3),
        ({"per_device": 3}, GPUS, {"num_cpus": 1, "num_gpus": 0.3333}, 9),
        ({"device": "cuda"}, CPUS, {"num_cpus": 1, "num_gpus": 1}, 0),
        ({"gpus_per_run": 2}, GPUS, {"num_cpus": 1, "num_gpus": 2}, 1),
        ({"cluster": ["resources.fast=1"]}, [*GPUS, {"CPU": 1, "GPU": 1, "fast": 1}],
         {"num_cpus": 1, "num_gpus": 1}, 1),
        ({"cluster": ["accelerator_type=H100"]},
         [*GPUS, {"CPU": 1, "GPU": 2, "accelerator_type:H100": 1}],
         {"num_cpus": 1, "num_gpus": 1, "accelerator_type": "H100"}, 1),
    ],
)  # fmt: skip
def test_what_a_run_takes_of_a_node(
    changes: dict[str, Any], nodes: list[dict[str, float]], asked: dict[str, Any], room: int
) -> None:
    values = {"device": "auto", "results_dir": Path(), "limits": Limits(), **changes}
    needs = choose_needs(LaunchOptions(**values), nodes)
    assert {name: value for name, value in needs.items() if name != "resources"} == asked
    assert sum(count_room(needs, node) for node in nodes) == room


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--device", "cuda:3"], "Ray chooses the GPU of each run"),
        (["--cluster", "cpus=3"], "expected num_cpus, num_gpus, memory or resources.NAME"),
        (["--cluster", "num_cpus=1.5"], "a share or a whole number"),
        (["--cluster", "memory=1e30"], "a share or a whole number"),
        (["--cluster", "resources.GPU=1"], "num_gpus"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], part: str
) -> None:
    assert main([*arguments(tmp_path), "--launcher", "ray", *more]) == USER_ERROR
    shown = capsys.readouterr().err
    assert part in shown
    assert "Traceback" not in shown


def test_a_run_travels_with_its_newest_checkpoint(tmp_path: Path) -> None:
    changes = [*TINY, "log.checkpoint_minutes=0.00001"]
    (run,) = plan(sweep_options(tmp_path / "here", mixers=["mean"], seeds=[0], overrides=changes))
    assert run_task.main([*run.arguments(), "--device", "cpu", "--max-steps", "7"]) == STOPPED
    parcel = pack(run.folder.path)
    first, *others = parcel
    assert first.startswith("checkpoints/step-000000007-")
    assert others[-1] == "result.json"
    assert not [name for name in others if name.startswith("checkpoints")]
    there = tmp_path / "there" / run.folder.path.name
    (there / "checkpoints").mkdir(parents=True)
    (there / "checkpoints" / "step-000000003-0123456789abcdef.pt").write_bytes(b"older")
    unpack(parcel, there)
    assert pack(there) == parcel
    assert len(list((there / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize(
    "name", ["../result.json", "/etc/passwd", "checkpoints/../../x.pt", "lock", "checkpoints/a.pt"]
)
def test_nothing_is_unpacked_outside_a_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="is no file of a run"):
        unpack({"result.json": b"{}", name: b""}, tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["log.txt", "checkpoints"])
def test_links_in_a_run_are_not_followed(tmp_path: Path, name: str) -> None:
    """Neither files of somebody else are sent, nor checkpoints of another run removed."""
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    (other / "checkpoints").mkdir(parents=True)
    (other / "checkpoints" / "step-000000003-0123456789abcdef.pt").touch()
    (other / "log.txt").touch()
    (run / name).symlink_to(other / name)
    newer = {"checkpoints/step-000000004-0123456789abcdef.pt": b"", "result.json": b"{}"}
    for action in (lambda: pack(run), lambda: unpack(newer, run)):
        with pytest.raises(DataError, match=f"run/{name} is a link, which is not followed"):
            action()
    assert len([path for path in other.rglob("*") if path.is_file()]) == 2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start three nodes on this machine, of which the first makes no runs."""
    monkeypatch.setenv("RAY_worker_niceness", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a run has there
    yield made, nodes
    torch.set_num_threads(threads)
    made.shutdown()


HAND_BACK = {"shared": [], "handed back": ["--hand-back", "0.02"]}


@pytest.mark.thorough
def test_runs_survive_the_loss_of_a_node(tmp_path: Path, cluster: Any) -> None:
    """Two sweeps on one cluster: one with a shared results folder, and one without."""
    made, nodes = cluster
    where = ("--seeds", "0", "--launcher", "ray", "--ray-address", made.address)
    sweeps = {name: start(tmp_path / name, *where, *more) for name, more in HAND_BACK.items()}
    for name in sweeps:
        wait_for_step(tmp_path / name)
    made.remove_node(nodes[0], allow_graceful=False)
    made.add_node(num_cpus=1)
    ends = {name: process.communicate(timeout=PATIENCE) for name, process in sweeps.items()}
    for name, (out, err) in ends.items():
        assert sweeps[name].returncode == 0, (out, err)
        assert "2 runs: 2 done" in out
        assert "Token" not in err
    assert "lost: " in "".join(err for _, err in ends.values())
    changes = [*TINY, *SLOW[1::2]]
    for alone in plan(sweep_options(tmp_path / "alone", overrides=changes, seeds=[0])):
        assert run_task.main([*alone.arguments(), "--device", "cpu"]) == 0
        place = alone.folder.path.relative_to(tmp_path / "alone")
        for name in sweeps:
            assert_same_run(tmp_path / name / place, alone.folder.path)
