"""Sweeps on a Ray cluster: skipped where Ray is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import run_task
from conftest import PATIENCE, TINY
from lra.runtime.cli import STOPPED, USER_ERROR
from lra.runtime.errors import UserError
from lra.sweep.__main__ import main
from lra.sweep.launcher import LaunchOptions
from lra.sweep.parcel import pack, unpack
from lra.sweep.plan import OPEN, Limits, plan
from lra.sweep.ray_needs import Needs, read_parameters
from lra.sweep.ray_node import copy_once
from run_checks import assert_same_run
from test_lra_sweep import SLOW, arguments, start, sweep_options, wait_for_step


def launch_options(**changes: Any) -> LaunchOptions:
    values = {"device": "auto", "results_dir": Path(), "limits": Limits(), "states": OPEN}
    return LaunchOptions(**{**values, **changes})


CPUS = [{"CPU": 8.0, "memory": 1e9}, {"CPU": 4.0, "memory": 1e9}]
GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    ("changes", "nodes", "amounts", "room"),
    [
        ({}, CPUS, {"CPU": 4}, 3),
        ({"per_device": 2}, CPUS, {"CPU": 2}, 6),
        ({"per_device": 100}, CPUS, {"CPU": 1}, 12),
        ({"parameters": ["num_cpus=3", "memory=5e8"]}, CPUS, {"CPU": 3, "memory": 5e8}, 3),
        ({}, GPUS, {"CPU": 1, "GPU": 1}, 3),
        ({"per_device": 3}, GPUS, {"CPU": 1, "GPU": 0.3333}, 9),
        ({"per_device": 7}, GPUS, {"CPU": 1, "GPU": 0.1428}, 15),
        ({"device": "cuda"}, CPUS, {"CPU": 1, "GPU": 1}, 0),
        ({"gpus_per_run": 2}, GPUS, {"CPU": 1, "GPU": 2}, 1),
        ({"device": "cpu"}, GPUS, {"CPU": 2}, 9),
        ({"parameters": ["resources.fast=1"]}, [*GPUS, {"CPU": 1, "GPU": 1, "fast": 1}],
         {"CPU": 1, "GPU": 1, "fast": 1}, 1),
    ],
)  # fmt: skip
def test_what_a_run_takes_of_a_node(
    changes: dict[str, Any], nodes: list[dict[str, float]], amounts: dict[str, float], room: int
) -> None:
    needs = Needs.choose(launch_options(**changes), nodes)
    assert needs.amounts() == pytest.approx(amounts)
    assert sum(map(needs.count, nodes)) == room


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("num_cpus", "expected NAME=VALUE"),
        ("num_cpu=2", "did you mean num_cpus?"),
        ("num_cpus=many", "expected a number of at least 0"),
        ("num_gpus=-1", "expected a number of at least 0"),
        ("accelerator_type=1", "expected a name, for example A100"),
        ("resources.=1", "a run has no parameter 'resources.'"),
        ("resources.GPU=1", "a run has no parameter 'resources.GPU'"),
        ("num_gpus=0.00001", "expected a whole number, or 0.0001 to 1"),
        ("num_cpus=1.5", "expected a whole number, or 0.0001 to 1"),
    ],
)
def test_mistakes_about_the_cluster_are_one_line(text: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        read_parameters([text])
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_travels_with_its_newest_checkpoint(tmp_path: Path) -> None:
    changes = [*TINY, "log.checkpoint_minutes=0.00001"]
    (run,) = plan(sweep_options(tmp_path / "here", mixers=["mean"], seeds=[0], overrides=changes))
    assert run_task.main([*run.arguments(), "--device", "cpu", "--max-steps", "7"]) == STOPPED
    parcel = pack(run.folder.path)
    names = list(parcel)
    assert names[0].startswith("checkpoints/step-000000007-")
    assert names[-1] == "result.json"
    assert not [name for name in names[1:] if name.startswith("checkpoints")]
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
    with pytest.raises(ValueError, match="is no file of a run"):
        unpack({"result.json": b"{}", name: b""}, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_data_is_copied_to_a_node_once(tmp_path: Path) -> None:
    (tmp_path / "from" / "inner").mkdir(parents=True)
    (tmp_path / "from" / "inner" / "a.tsv").write_text("a")
    copy_once(tmp_path / "from", tmp_path / "data")
    assert (tmp_path / "data" / "inner" / "a.tsv").read_text() == "a"
    (tmp_path / "data" / "inner" / "a.tsv").write_text("b")
    copy_once(tmp_path / "from", tmp_path / "data")
    assert (tmp_path / "data" / "inner" / "a.tsv").read_text() == "b"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--device", "cuda:3"], "Ray chooses the GPU of each run"),
        (["--cluster", "cpus=3"], "did you mean num_cpus?"),
        (["--ray-address", "127.0.0.1:1"], "--ray-address 127.0.0.1:1: no answer"),
        (["--ray-address", "ray://here:1"], "expected auto, or HOST:PORT of the head node"),
        (["--ray-address", "here"], "expected auto, or HOST:PORT of the head node"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], part: str
) -> None:
    pytest.importorskip("ray")
    assert main([*arguments(tmp_path), "--launcher", "ray", *more]) == USER_ERROR
    shown = capsys.readouterr().err
    assert part in shown
    assert "Traceback" not in shown


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start three nodes on this machine, of which the first makes no runs."""
    pytest.importorskip("ray")
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


@pytest.mark.slow
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
        assert "(raylet)" not in out
        assert not list((tmp_path / name / "results").glob(".shared-*"))
    assert "lost: " in "".join(err for _, err in ends.values())
    changes = [*TINY, *SLOW[1::2]]
    for alone in plan(sweep_options(tmp_path / "alone", overrides=changes, seeds=[0])):
        assert run_task.main([*alone.arguments(), "--device", "cpu"]) == 0
        place = alone.folder.path.relative_to(tmp_path / "alone")
        for name in sweeps:
            assert_same_run(tmp_path / name / place, alone.folder.path)
