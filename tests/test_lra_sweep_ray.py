"""Sweeps on a Ray cluster: skipped where Ray is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import run_task
from conftest import PATIENCE, TINY
from lra.runtime.cli import USER_ERROR
from lra.sweep.__main__ import main
from lra.sweep.plan import plan
from lra.sweep.ray_cluster import choose_needs
from run_checks import assert_same_run
from test_lra_sweep import SLOW, arguments, start, sweep_options, wait_for_step

pytest.importorskip("ray")

CPUS = [{"CPU": 8.0, "memory": 1e9}, {"CPU": 4.0, "memory": 1e9}]
GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("changes", "nodes", "asked"),
    [
        ({"per_device": 2}, CPUS, {"num_cpus": 2}),
        ({"cluster": {"num_cpus": 3, "memory": 5e8}}, CPUS, {"num_cpus": 3, "memory": 5e8}),
        ({"per_device": 3}, GPUS, {"num_cpus": 1, "num_gpus": 0.3333}),
        ({"device": "cuda"}, CPUS, {"num_cpus": 1, "num_gpus": 1}),
        ({"gpus_per_run": 2}, GPUS, {"num_cpus": 1, "num_gpus": 2}),
    ],
)
def test_what_a_run_takes_of_a_node(
    changes: dict[str, Any], nodes: list[dict[str, float]], asked: dict[str, Any]
) -> None:
    needs = choose_needs(sweep_options(Path(), **changes), nodes)
    assert {name: value for name, value in needs.items() if name != "resources"} == asked


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--device", "cuda:3"], "Ray chooses the GPU of each run"),
        (["--cluster", "cpus=3"], "Invalid option keyword cpus"),
        (["--ray-address", "localhost:1"], "no Ray cluster answered"),
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


@pytest.mark.thorough
def test_runs_survive_the_loss_of_a_node(tmp_path: Path, cluster: Any) -> None:
    made, nodes = cluster
    where = ("--seeds", "0", "--launcher", "ray", "--ray-address", made.address)
    sweep = start(tmp_path, *where)
    wait_for_step(tmp_path, 2)
    made.remove_node(nodes[0], allow_graceful=False)
    made.add_node(num_cpus=1)
    out, err = sweep.communicate(timeout=PATIENCE)
    assert sweep.returncode == 0, (out, err)
    assert "2 runs: 2 done" in out
    assert "Token" not in err and "lost: " in err
    changes = [*TINY, *SLOW[1::2]]
    for alone in plan(sweep_options(tmp_path / "alone", overrides=changes, seeds=[0])):
        assert run_task.main(alone.arguments("cpu")) == 0
        place = alone.folder.path.relative_to(tmp_path / "alone")
        assert_same_run(tmp_path / place, alone.folder.path)
