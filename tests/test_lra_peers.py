"""Processes of torchrun that do not match, fail, freeze or vanish: all end, with one line."""

from __future__ import annotations

import json
import resource
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

import run_task
from conftest import PATIENCE, ROOT, tiny_arguments
from lra.runtime import peers
from lra.runtime.errors import UserError
from lra.runtime.repository import code_digest
from lra.train.checkpoint import load_newest
from lra.train.setup import common_facts
from own_tasks import PARITY
from ranks import ends, started, torchrun_environment
from requested import resolve

LONG = ("--set", "train.steps=100000", "--set", "log.checkpoint_minutes=0.005")
SILENCE = 4.0

SEVERAL = """
import json, os, sys
import run_task
for number, arguments in enumerate(json.loads(sys.argv[1])):
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)  # each has its own part of the store
    try:
        code = run_task.main(arguments)
    except SystemExit as ended:
        code = ended.code
    print(json.dumps(code))
    print(f"end of {number}", file=sys.stderr, flush=True)
"""

IMPATIENT = f"""
import sys, threading, time
from pathlib import Path
import run_task
from lra.runtime import peers
from lra.runtime.repository import code_digest

def lose_patience(sign):
    while not sign.exists():
        time.sleep(0.05)
    peers.LONGEST_SILENCE = {SILENCE}

peers.LONGEST_SILENCE = 60.0  # processes may start one after the other on a busy machine
threading.Thread(target=lose_patience, args=[Path(sys.argv.pop())], daemon=True).start()
sys.exit(run_task.main())
"""

RANKED = PARITY.replace("self.length // 2", 'int(os.environ["RANK"]) + 2').replace(
    "class", "import os\n\n\nclass"
)


def cases(folder: Path) -> dict[str, tuple[list[str], list[str], str]]:
    """List command lines of two ranks that must not train, and what their one error says."""
    for name, code in {"a": PARITY, "b": f"{PARITY}\n# other code\n", "ranked": RANKED}.items():
        (folder / name).mkdir()
        (folder / name / "own.py").write_text(code)
    tiny = tiny_arguments(folder)
    a, b, ranked = (
        ["--task", f"{folder / name}/own.py:Parity", "--mixer", "mean", "--preset", "quick",
         "--device", "cpu", "--results-dir", str(folder / "results"), "--set", "train.steps=4"]
        for name in ("a", "b", "ranked")
    )  # fmt: skip
    data = "--data-dir"
    return {
        "a misspelt flag": ([*tiny, "--sed", "1"], [*tiny, "--sed", "1"], "unknown flag --sed"),
        "a wrong value": ([*tiny, "--set", "train.lr=x"], [*tiny, "--set", "train.lr=x"],
                          "train.lr: got 'x'"),
        "settings and seed": (
            [*tiny, "--set", "train.lr=0.01"], [*tiny, "--set", "train.lr=0.02", "--seed", "1"],
            "seed is 0 on rank 0 and 1 on rank 1; train.lr is 0.01 on rank 0 and 0.02 on rank 1.",
        ),
        "log": (tiny, [*tiny, "--set", "log.checkpoint_minutes=3"], "log.checkpoint_minutes is 5"),
        "plug-ins": ([*a, data, str(folder / "data")], [*b, data, str(folder / "data")],
                     "the processes of torchrun differ: task_code is "),
        "data": ([*ranked, data, str(folder / "0")], [*ranked, data, str(folder / "1")],
                 "the processes of torchrun differ: data fingerprint is "),
    }  # fmt: skip


def test_ranks_that_differ_or_share_a_mistake_end_with_one_line(tmp_path: Path) -> None:
    found = cases(tmp_path)
    script = tmp_path / "several.py"
    script.write_text(SEVERAL)
    lines = [json.dumps([case[rank] for case in found.values()]) for rank in range(2)]
    with started(script, [[line] for line in lines]) as ranks:
        codes, out, err = ends(ranks)
    assert codes == [0, 0], err
    assert [each.split() for each in out] == [["2"] * len(found)] * 2, (out, err)
    parts = [[part.splitlines() for part in each.split("end of ")] for each in err]
    for number, (name, (_, _, says)) in enumerate(found.items()):
        written = [line for rank in parts for line in rank[number] if "error:" in line]
        assert len(written) == 1, (name, written)
        assert says in written[0], (name, written)
        assert "Traceback" not in "".join(err)
    assert not list(tmp_path.glob("results/**/result.json"))


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("results/runs/*/*/*/checkpoints/step-*.pt"))


def wait_for_checkpoint(folder: Path, after: int = 0) -> int:
    """Wait for a checkpoint after a step, and return its step."""
    for _ in range(20 * PATIENCE):
        newest = max((int(path.name[5:14]) for path in checkpoints(folder)), default=0)
        if newest > after:
            return newest
        time.sleep(0.05)
    raise AssertionError("no checkpoint came")


def errors_in(err: list[str]) -> list[str]:
    """List the errors that ranks wrote, of whom none wrote a traceback."""
    assert "Traceback" not in "".join(err), err
    return [line for each in err for line in each.splitlines() if "error:" in line]


@pytest.mark.thorough
def test_a_frozen_rank_and_then_a_full_disk_end_all_and_the_run_resumes(tmp_path: Path) -> None:
    script = tmp_path / "impatient.py"
    script.write_text(IMPATIENT)
    command = [tiny_arguments(tmp_path, *LONG)] * 2
    sign = tmp_path / "sign"
    with started(script, [[*line, str(sign)] for line in command]) as ranks:
        step = wait_for_checkpoint(tmp_path)
        sign.touch()
        ranks[1].send_signal(signal.SIGSTOP)
        start = time.monotonic()
        assert ranks[0].wait(timeout=30) == 2
        assert time.monotonic() - start > 0.5 * SILENCE
        ranks[1].send_signal(signal.SIGCONT)
        codes, _, err = ends(ranks)
    assert codes == [2, 2]
    assert [line.partition(": its")[0] for line in errors_in(err)] == [
        f"run_task.py: error: rank 1 of 2 gave no sign of life for {SILENCE:g} seconds"
    ]
    with started(ROOT / "run_task.py", command) as ranks:
        step = wait_for_checkpoint(tmp_path, step)
        # Only rank 0 writes into the folder of a run.
        resource.prlimit(ranks[0].pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
        codes, _, err = ends(ranks)
    assert codes == [2, 2]
    (line,) = errors_in(err)
    assert line.endswith("File too large")
    assert str(tmp_path) in line
    assert "resumed at step" in err[0]
    last = load_newest(checkpoints(tmp_path)[0].parent)
    assert last is not None
    assert last["trainer"]["sampler"]["next_step"] >= step
    more = last["trainer"]["sampler"]["next_step"] + 1
    assert run_task.main([*command[0], "--max-steps", str(more)]) == 3


def test_silence_is_noticed_and_a_regular_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LONGEST_SILENCE", 1.0)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in torchrun_environment(store.port, 3).items():
        monkeypatch.setenv(name, value)
    lost: list[list[str]] = [[], [], []]
    group = [
        peers.Peers(
            rank, 3, peers.connect(), lambda error, rank=rank: lost[rank].append(str(error))
        )
        for rank in range(3)
    ]
    time.sleep(0.2)
    group[1].leave(regularly=True)
    time.sleep(1.5)
    assert lost == [[], [], []]
    group[2].leave(regularly=False)
    deadline = time.monotonic() + 30
    while not lost[0] and time.monotonic() < deadline:
        time.sleep(0.05)
    (error,) = lost[0]
    assert str(error).startswith("rank 2 of 3 gave no sign of life for 1 seconds: ")
    group[0].leave(regularly=False)


def test_errors_of_torch_about_others_are_named() -> None:
    for error in (RuntimeError("[gloo/x.cc:1] Connection closed by peer"), dist.DistError("gone")):
        named = pytest.raises(peers.LostPeer, match="another process of this run ended")
        with named, peers.explain_lost_peers():
            raise UserError("own.py: the run failed") from error
    with pytest.raises(RuntimeError, match="shapes"), peers.explain_lost_peers():
        raise RuntimeError("shapes do not match")


def test_facts_name_versions_and_code() -> None:
    config = resolve("listops", "mean", preset="quick")
    facts = common_facts(config, 3, torch.device("cpu"))
    assert facts["the version of torch"] == torch.__version__
    assert facts["the code of lra"] == code_digest()
    assert {"seed", "mixer_name", "train.lr", "log.every_steps", "the device"} <= facts.keys()
    other = {**facts, "the version of torch": "2.0", "the code of lra": "0"}
    assert peers.list_differences(facts, facts, 1) == []
    assert len(peers.list_differences(facts, other, 1)) == 2
