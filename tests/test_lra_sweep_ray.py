"""Sweeps on a Ray cluster: skipped where Ray is not installed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lra.sweep.launcher import LaunchOptions
from lra.sweep.parcel import pack, unpack
from lra.sweep.ray_needs import Needs, read_parameters

import run_task
from common.errors import DataError
from conftest import PATIENCE, TINY
from lra.runtime.cli import STOPPED, USER_ERROR
from lra.runtime.errors import UserError
from lra.sweep.__main__ import main
from lra.sweep.plan import OPEN, Limits, plan
from lra.sweep.ray_cluster import PROOF, shared_folder
from lra.sweep.ray_connection import check_address
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
        ({"parameters": ["accelerator_type=H100"]},
         [*GPUS, {"CPU": 1, "GPU": 2, "accelerator_type:H100": 1}], {"CPU": 1, "GPU": 1}, 1),
    ],
)  # fmt: skip
def test_what_a_run_takes_of_a_node(
    changes: dict[str, Any], nodes: list[dict[str, float]], amounts: dict[str, float], room: int
) -> None:
    needs = Needs.choose(launch_options(**changes), nodes)
    assert needs.amounts() == pytest.approx(amounts)
    assert sum(map(needs.count, nodes)) == room
    if room:
        needs.refuse_too_much(nodes)
    else:
        with pytest.raises(UserError, match="a run takes 1 CPU, 1 GPU, and this machine has 8 CPU"):
            needs.refuse_too_much(nodes)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("num_cpus", "expected NAME=VALUE"),
        ("num_cpu=2", "did you mean num_cpus?"),
        ("num_cpus=many", "expected a number from 0 to 9.2e+14"),
        ("num_gpus=-1", "expected a number from 0 to 9.2e+14"),
        ("num_cpus=1e400", "expected a number from 0 to 9.2e+14"),
        ("memory=1e30", "expected a number from 0 to 9.2e+14"),
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
    with pytest.raises(DataError, match="is no file of a run"):
        unpack({"result.json": b"{}", name: b""}, tmp_path / "run")
    assert not list(tmp_path.iterdir())


CHECKPOINT = "checkpoints/step-000000003-0123456789abcdef.pt"


@pytest.mark.parametrize("name", ["config.yaml", "log.txt", "checkpoints", CHECKPOINT])
def test_links_in_a_run_are_not_followed(tmp_path: Path, name: str) -> None:
    """Neither files of somebody else are sent, nor checkpoints of another run removed."""
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        (folder / "checkpoints").mkdir(parents=True)
        for file in ("config.yaml", "log.txt", CHECKPOINT):
            (folder / file).write_text(folder.name)
    if name == "checkpoints":
        (run / CHECKPOINT).unlink()
        (run / name).rmdir()
    else:
        (run / name).unlink()
    (run / name).symlink_to(other / name)
    newer = CHECKPOINT.replace("3-0", "4-0")
    for action in (lambda: pack(run), lambda: unpack({newer: b"", "result.json": b"{}"}, run)):
        with pytest.raises(DataError, match=f"run/{name} is a link, which is not followed"):
            action()
    assert {path.read_text() for path in other.rglob("*") if path.is_file()} == {"other"}
    assert len([path for path in other.rglob("*") if path.is_file()]) == 3


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


def test_no_address_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither that of a cluster of the past, nor one at which something else listens."""
    pytest.importorskip("ray")
    monkeypatch.setattr("lra.sweep.ray_connection.SECONDS_TO_ANSWER", 2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with pytest.raises(UserError, match=f"--ray-address {address}: no Ray cluster answered"):
            check_address(address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=f"answered at RAY_ADDRESS={address} within 2 seconds"):
        check_address("auto")


def test_what_killed_sweeps_left_in_the_results_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{PROOF}killed").touch()
    with shared_folder(tmp_path / f"{PROOF}one"), shared_folder(tmp_path / f"{PROOF}two"):
        assert {path.name for path in tmp_path.iterdir()} == {f"{PROOF}one", f"{PROOF}two"}
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_ray_on_this_machine_does_not_wait_for_what_it_cannot_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    more = ["--launcher", "ray", "--cluster", "num_cpus=999"]
    assert main([*arguments(tmp_path), *more]) == USER_ERROR
    assert "a run takes 999 CPU, and this machine has" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("folder", ["x" * 90, "tëmp"])
def test_a_folder_that_ray_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / folder))
    assert main([*arguments(tmp_path), "--launcher", "ray"]) == USER_ERROR
    shown = capsys.readouterr().err
    assert f"RAY_TMPDIR={tmp_path / folder}, which has to be a short path of ASCII" in shown


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
        assert "(raylet)" not in out
        assert not list((tmp_path / name / "results").glob(".shared-*"))
    assert "lost: " in "".join(err for _, err in ends.values())
    changes = [*TINY, *SLOW[1::2]]
    for alone in plan(sweep_options(tmp_path / "alone", overrides=changes, seeds=[0])):
        assert run_task.main([*alone.arguments(), "--device", "cpu"]) == 0
        place = alone.folder.path.relative_to(tmp_path / "alone")
        for name in sweeps:
            assert_same_run(tmp_path / name / place, alone.folder.path)
