"""Models of like size."""

import functools
import re
import sys
from pathlib import Path

import pytest

import requested
from lra import run_task
from lra.common.errors import UserError
from lra.resolve import count_parameters, match_parameters
from requested import run_request

SHAPES = """
import torch
from torch import nn


class Whole(nn.Module):
    def __init__(self, context, widths: list = [], heads: int = 1, extra: int = 0):
        super().__init__()
        assert context.dim % heads == 0, "heads must divide"
        if widths and context.dim not in widths:
            raise ValueError("not one of widths")
        self.linear = nn.Linear(context.dim, context.dim)
        self.extra = nn.Parameter(torch.zeros(extra))
        self.frozen = nn.Parameter(torch.zeros(10000), requires_grad=False)

    def forward(self, x, mask):
        return self.linear(x)
"""

quick = functools.partial(requested.resolve, "listops", preset="quick")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("shapes.py").write_text(SHAPES)


def matched(mixer: str, reference: str, *overrides: str) -> int:
    """Choose a dim, check that it is the best one in reach, and return it."""
    request = run_request("listops", mixer, preset="quick", overrides=overrides)
    dim = match_parameters(request, reference).changes[-1].value
    common = [o for o in overrides if not o.startswith("mixer.")]
    goal = count_parameters(quick(reference, overrides=common))

    def distance(dim: int) -> float:
        changes = [*overrides, f"model.dim={dim}"]
        return abs(count_parameters(quick(mixer, overrides=changes)) - goal) / goal

    near: list[float] = []
    for other in range(max(1, dim - 8), dim + 9):
        try:
            near.append(distance(other))
        except (UserError, AssertionError):
            continue
    assert distance(dim) == min(near) <= 0.05
    return dim


@pytest.mark.parametrize(
    ("mixer", "reference", "overrides"),
    [
        ("transformer", "tnn", ("model.depth=1",)),
        ("shapes.py:Whole", "tnn", ("mixer.heads=4", "mixer.extra=100")),
    ],
)
def test_the_nearest_dim_is_found(mixer: str, reference: str, overrides: tuple[str, ...]) -> None:
    dim = matched(mixer, reference, *overrides)
    if "mixer.heads=4" in overrides:
        assert dim % 4 == 0


def test_what_cannot_be_matched_says_why() -> None:
    widths = ["mixer.widths=[64, 100]"]
    request = run_request("listops", "shapes.py:Whole", preset="quick", overrides=widths)
    nearest = (
        r"--match-params tnn: no model.dim .*; the nearest: Whole [\d,]+ at model.dim \d+, tnn"
    )
    with pytest.raises(UserError, match=nearest):
        match_parameters(request, "tnn")
    with pytest.raises(UserError, match=r"tnn chooses model.dim, and --set model.dim=8 sets it"):
        match_parameters(run_request("listops", "s4", overrides=["model.dim=8"]), "tnn")
    with pytest.raises(UserError, match="--match-params tn: --mixer: unknown mixer 'tn'"):
        match_parameters(request, "tn")


def test_the_run_is_that_of_the_dim(capsys: pytest.CaptureFixture[str]) -> None:
    heads = ("--set", "mixer.num_heads=1")
    start = ["--task", "listops", "--mixer", "transformer", "--preset", "quick", *heads]
    assert run_task.main([*start, "--match-params", "tnn", "--show-config"]) == 0
    captured = capsys.readouterr()
    said = re.match(r"parameters: transformer [\d,]+ at model.dim (\d+), tnn [\d,]+", captured.err)
    assert said is not None
    assert f"# --match-params tnn model.dim={said[1]}\n" in captured.out
