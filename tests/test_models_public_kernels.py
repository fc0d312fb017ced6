"""Public kernels, which run on a GPU alone: in Triton's interpreter, and by stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import ROOT
from lra.runtime.environment import versions
from models.fast import public_kernels
from models.fast.public_kernels import installed_packages
from models.ops.recurrences import Selection, decaying_attention, delta_rule, selective_scan
from models.ops.reference import KERNEL_CHOICE
from references import assert_equal_with_gradients, by_reference

KERNELS = [
    public_kernels.DELTA_RULE,
    public_kernels.DECAYING_ATTENTION,
    public_kernels.SELECTIVE_SCAN,
]

STAND_IN = """
import torch
from models.ops.recurrences import Selection, selective_scan

CALLS = []

def selective_scan_fn(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False,
                      return_last_state=False):
    (batch, dim, length), (groups, states) = u.shape, B.shape[1:3]
    assert delta.shape == u.shape and A.shape == (dim, states)
    assert B.shape == C.shape == (batch, groups, states, length)
    assert all(x.is_contiguous() and x.dtype == torch.float32 for x in (u, delta, A, B, C))
    CALLS.append(u.shape)
    into, out = (x.permute(0, 3, 1, 2) for x in (B, C))
    return selective_scan.__wrapped__(Selection(u.mT, delta.mT, into, out), A).mT
"""
"""A module with the interface of mamba-ssm's, whose kernel is in CUDA C++."""

needs_triton = pytest.mark.skipif(
    find_spec("fla") is None or find_spec("triton") is None,
    reason="fla-core or triton is not installed: pip install -e '.[kernels]'",
)


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was said of kernels, in a process that has used none, and allows them on a CPU."""

    def forget() -> None:
        installed_packages.cache_clear()
        public_kernels._describe.cache_clear()
        for kernel in KERNELS:
            vars(kernel).pop("entry", None)

    forget()
    said: list[str] = []
    monkeypatch.setattr(public_kernels.logger, "debug", said.append)
    monkeypatch.setattr(KERNEL_CHOICE, "used", {})
    KERNEL_CHOICE.device = "cpu"
    yield said
    KERNEL_CHOICE.device = None
    forget()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], int]:
    """Install a stand-in for mamba-ssm; the function returns how often it was called."""
    name = "mamba_ssm.ops.selective_scan_interface"
    folder = tmp_path / "mamba_ssm" / "ops"
    folder.mkdir(parents=True)
    (folder / "selective_scan_interface.py").write_text(STAND_IN)
    facts = tmp_path / "mamba_ssm-2.3.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mamba-ssm\nVersion: 2.3.2\n")
    for loaded in [key for key in sys.modules if key.partition(".")[0] == "mamba_ssm"]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.syspath_prepend(tmp_path)

    def calls() -> int:
        module: Any = sys.modules.pop(name, None)
        return 0 if module is None else len(module.CALLS)

    return calls


def draw_selective(states: int = 4, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    x, step = torch.randn(2, 2, 20, 6, dtype=dtype)
    into, out = torch.randn(2, 2, 20, 2, states, dtype=dtype)
    poles = -torch.rand(6, states, dtype=dtype)
    return [part.requires_grad_() for part in (x, step.abs(), into, out, poles)]


def scan_selective(*given: Tensor, bias: Tensor | None = None) -> Tensor:
    return selective_scan(Selection(*given[:4]), given[4], bias)


def draw_heads(size: int = 16, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = torch.randn(3, 1, 2, 5, size, dtype=dtype)
    return query, key, value


def test_selective_scans_run_by_mamba_ssm(messages: list[str], stand_in: Callable[[], int]) -> None:
    """Its kernel is in CUDA C++, so the interface alone is tested, by a stand-in."""
    given = draw_selective()

    def compute() -> Tensor:
        return scan_selective(*given)

    assert_equal_with_gradients(compute, by_reference(compute), given, 1e-5)
    assert stand_in() == 1
    assert messages == ["selective_scan: computed by selective_scan_fn of mamba-ssm 2.3.2"]
    assert versions()["mamba-ssm"] == "2.3.2"


def test_a_package_that_is_not_there_is_named(
    messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(public_kernels, "version", missing)
    given = draw_selective()
    found = scan_selective(*given)
    scan_selective(*given)  # named once
    torch.testing.assert_close(found, by_reference(lambda: scan_selective(*given))())
    assert messages == [
        "selective_scan: computed by our form instead of selective_scan_fn: mamba-ssm is not "
        "installed"
    ]


DOUBLE = torch.float64
REFUSED: dict[str, tuple[Callable[[], Tensor], str]] = {
    "double precision": (lambda: scan_selective(*draw_selective(dtype=DOUBLE)), "torch.float64"),
    "biases": (lambda: scan_selective(*draw_selective(), bias=torch.ones(6, 4)), "B has a bias"),
    "small heads": (
        lambda: decaying_attention(*draw_heads(8), torch.zeros(1, 2, 5)),
        "heads have 8 channels, expected 16 to 256",
    ),
    "TF32": (
        lambda: delta_rule(*draw_heads(), torch.ones(1, 2, 5), torch.zeros(1, 2, 5)),
        "which train.tf32=true allows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_our_form_runs_where_a_kernel_does_not_support_the_arguments(
    case: str, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kernel in KERNELS:
        monkeypatch.setitem(vars(kernel), "entry", lambda *args: pytest.fail("it ran"))
    compute, reason = REFUSED[case]
    compute()
    assert reason in messages[0]
    assert "computed by our form instead of" in messages[0]


def test_a_process_multiplies_in_one_precision(
    messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that are compiled keep theirs, and backward passes run after the setting changed."""
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setitem(vars(public_kernels.DECAYING_ATTENTION), "entry", pytest.fail)
    decaying_attention(*draw_heads(), torch.zeros(1, 2, 5))
    assert messages[0].endswith("Triton multiplies in tf32 in this process, expected ieee")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Errors of public kernels in float32, relative to our references in float64."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_F32_DEFAULT", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "interpreted_kernels.py")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_triton
@pytest.mark.thorough
def test_public_kernels_equal_our_references(interpreted: dict[str, Any]) -> None:
    """In values and gradients, on sequences with padding too."""
    assert interpreted["used"].keys() == {"fla-core", "triton"}
    wrong = {
        name: found
        for name, found in interpreted["cases"].items()
        if found["values"] > 1e-6 or found["gradients"] > 7e-6 or found["calls"] == 0
    }
    assert wrong == {}
