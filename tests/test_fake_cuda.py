"""Training on a fake CUDA device: devices agree, and launches, waits and memory do not grow."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fake_cuda
from fake_cuda_cases import GROUPS, SMALL, CountingProcess, case
from lra.config.registry import MIXERS

GOLDEN = Path(__file__).parent / "golden" / "fake_cuda.csv"
"""What each case may cost; `pytest --write-golden` after a change that is meant."""

FIELDS: tuple[str, ...] = ("group", "case", "part", "launches", "waits", "peak_bytes")
TOLERANCE = 1.05

pytestmark = pytest.mark.skipif(
    fake_cuda.find_compiler() is None, reason="needs a C++ compiler for the fake CUDA device"
)


def run_alone(arguments: Sequence[str], request: object) -> Any:
    """Run Python in a process of its own, which reads and writes JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        input=json.dumps(request),
        cwd=Path(__file__).parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def name_case(case: dict[str, Any]) -> str:
    """Write a case in a line."""
    kind = (case.get("preset", "quick"), case.get("protocol", "s4"))
    return " ".join([case["task"], case["mixer"], *kind, *case["overrides"]])


def read_golden() -> list[dict[str, str]]:
    """Read the table of what each case may cost."""
    if not GOLDEN.exists():
        return []
    with GOLDEN.open(newline="") as file:
        return list(csv.DictReader(file))


def write_golden(group: str, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of a group."""
    kept = [row for row in read_golden() if row["group"] != group]
    order = list(GROUPS)
    with GOLDEN.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*kept, *rows], key=lambda row: order.index(row["group"])))


@pytest.mark.thorough
@pytest.mark.parametrize("group", GROUPS)
def test_costs_do_not_grow(
    group: str, counting: CountingProcess, request: pytest.FixtureRequest
) -> None:
    """A run of each case works, and costs at most what is recorded, and 5 % more."""
    cases = GROUPS[group]
    found = dict(zip(map(name_case, cases), counting.count(cases), strict=True))
    errors = [f"{name}:\n{parts['error']}" for name, parts in found.items() if "error" in parts]
    assert not errors, "\n".join(errors)
    rows = [
        {"group": group, "case": name, "part": part, **{k: counts[k] for k in FIELDS[3:]}}
        for name, parts in found.items()
        for part, counts in parts.items()
    ]
    if request.config.getoption("--write-golden"):
        write_golden(group, rows)
    recorded = {(row["case"], row["part"]): row for row in read_golden() if row["group"] == group}
    assert recorded.keys() == {(row["case"], row["part"]) for row in rows}
    grown = [
        f"{row['case']}, {row['part']}: {row[key]:,} {key}, recorded {int(before):,}"
        for row in rows
        for key in FIELDS[3:]
        if row[key] > TOLERANCE * int(before := recorded[row["case"], row["part"]][key])
    ]
    assert not grown, "\n".join(grown)


def test_tensors_on_two_devices_are_an_error(counting: CountingProcess) -> None:
    """Parts of the model that are left on the CPU by mistake are noticed."""
    forgotten = ["", "embedding.learned", "embedding.table", "blocks.0.mixer", "output"]
    settings = (*SMALL, "model.positions=learned")
    options = {"protocol": "lra", "is_step_only": True}
    whole, *others = counting.count(
        [case("listops", "transformer", *settings, forgotten=part, **options) for part in forgotten]
    )
    assert whole["step"]["launches"] > 0
    for part, found in zip(forgotten[1:], others, strict=True):
        assert "device" in found["error"].splitlines()[-1], part


@pytest.mark.thorough
def test_a_captured_step_neither_waits_nor_copies(counting: CountingProcess) -> None:
    """A replay would not do it again: a graph has kernels and copies within the device alone."""
    graphs = ("train.cuda_graphs=true", *SMALL)
    cases = [case("image", mixer, *graphs) for mixer in sorted(MIXERS.classes)]
    cases += [
        case("image", "s4", *graphs, "train.batch_size=8", "train.micro_batch=4"),
        case("pathfinder", "tnn", *graphs, "train.precision=bf16", "model.dropout=0.1"),
        case("pathx", "transformer", *graphs, "model.pooling=cls"),
    ]
    for name, found in zip(map(name_case, cases), counting.count(cases), strict=True):
        assert found.keys() == {"replay", "capture"}, f"{name}: {found}"
        assert found["capture"]["launches"] > 50, name
        assert found["capture"]["waits"] == found["capture"]["transfers"] == 0, name
        assert found["replay"]["launches"] < 20, name
        assert found["replay"]["waits"] == 0, name


RULES: dict[str, tuple[int, int] | None] = {
    "gpu + 1": (1, 0),
    "gpu[0].unsqueeze(0).T": (0, 0),
    "torch.empty(3, device='cuda')": (0, 0),
    "gpu.sum().item()": (1, 1),
    "gpu.tolist()": (0, 1),
    "bool((gpu > 0).all())": (2, 1),
    "gpu[gpu > 0]": (2, 1),
    "gpu.nonzero()": (1, 1),
    "gpu[index.cuda()]": (2, 1),
    "gpu[index]": (1, 1),
    "cpu.to('cuda', non_blocking=True)": (1, 1),
    "cpu.pin_memory().to('cuda')": (1, 1),
    "cpu.pin_memory()[1:].to('cuda', non_blocking=True)": (1, 0),
    "torch.empty(2, 3, pin_memory=True).to('cuda', non_blocking=True)": (1, 0),
    "torch.empty(2, 3, pin_memory=True).copy_(gpu[:2], non_blocking=True)": (1, 0),
    "gpu.cpu()": (1, 1),
    "gpu.to('cpu', non_blocking=True)": (1, 0),
    "torch.cuda.current_stream().synchronize()": (0, 1),
    "torch.tensor([1.0], device='cuda')": (1, 1),
    "cpu + 1": (0, 0),
    "gpu * torch.tensor(2.0)": (1, 0),
    "gpu + cpu": None,
    "gpu @ cpu.T": None,
    "torch.cat([gpu, cpu])": None,
    "torch.where(cpu > 0, gpu, gpu)": None,
    "gpu.index_select(0, index)": None,
    "cpu[index.cuda()]": None,
    "gpu.add_(cpu)": None,
    "torch.nn.functional.embedding(index.cuda(), cpu)": None,
}
"""Launches and waits of expressions; None where devices disagree."""

CHECK_RULES = """
import json, sys
import fake_cuda
fake_cuda.load_stub()
import torch
from fake_cuda_torch import use_fake_cuda

found = {}
with use_fake_cuda() as mode:
    cpu, index = torch.ones(3, 3), torch.tensor([0, 2])
    gpu = cpu.cuda()
    for expression in json.load(sys.stdin):
        with mode.counting() as counts:
            try:
                eval(expression)
            except RuntimeError:
                found[expression] = None
            else:
                found[expression] = (counts.launches, counts.waits)
    with mode.counting() as counts:
        held = torch.zeros(2**20, device="cuda")
        for _ in range(3):
            held = held * 2
found["bytes"] = (counts.bytes // 2**20, counts.peak_bytes // 2**20)
json.dump(found, sys.stdout)
"""


def test_rules_of_counting() -> None:
    """Launches, waits and memory of single expressions, and devices that disagree."""
    found = run_alone(["-c", CHECK_RULES], list(RULES))
    assert found.pop("bytes") == [4 * 7, 2 * 4]
    assert {k: v and tuple(v) for k, v in found.items()} == RULES
