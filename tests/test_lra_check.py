"""All checks of a mixer or a task at once."""

import re
from pathlib import Path

import pytest

from conftest import python_example
from lra.check.__main__ import main
from lra.check.checks import carry_out, contract_checks
from lra.config.compose import compose_options
from lra.config.registry import MIXERS, find_mixer
from lra.models.base import MixerContext
from own_tasks import OWN_TASKS, PARITY

pytestmark = pytest.mark.usefixtures("own_folder")

SCALE = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, context, *, by: float = 1.0):
        super().__init__()
        self.by, self.linear = by, nn.Linear(context.dim, context.dim)

    def forward(self, x, mask=None):
        RETURN
"""


def shown_in_one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed, which fits the terminal, with single spaces for all white space."""
    shown = capsys.readouterr().out
    # A path never breaks.
    assert all(len(line) <= 80 or str(Path.cwd()) in line for line in shown.splitlines())
    return " ".join(shown.split())


@pytest.mark.parametrize("name", OWN_TASKS)
def test_sound_tasks_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN_TASKS[name])
    assert main([f"own.py:{name}"]) == 0
    shown = shown_in_one_line(capsys)
    assert "FAILED" not in shown and re.search(rf"own.py:{name}: all \d+ checks passed", shown)
    assert f"next: python run_task.py --task own.py:{name} --mixer tnn --preset quick" in shown
    assert not list(Path().glob("data*"))


def test_a_task_whose_targets_are_positions_passes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(
        "from lra.tasks.periodic import Periodic\n\nclass Own(Periodic):\n    name = 'own'\n"
    )
    sizes = ["sequence_length=32", "vocab_size=999", "train=40", "val=10", "test=10"]
    assert main(["own.py:Own", *(part for size in sizes for part in ("--set", size))]) == 0
    shown = shown_in_one_line(capsys)
    assert "all 7 checks passed" in shown
    assert "every class is in the training split: except " in shown


def test_a_sound_mixer_passes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(python_example("docs/your_mixer.md"))
    assert main(["own.py:GatedMean", "--set", "bias=false"]) == 0
    shown = shown_in_one_line(capsys)
    assert "does not apply, as it refuses a causal model (mixer GatedMean: the mean over" in shown
    assert shown.endswith("--mixer own.py:GatedMean \\ --preset quick --set mixer.bias=false")
    assert "480 parameters" not in shown and "512 parameters at 16 channels" in shown


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("return self.linear(x).cumsum(1).flip(1)", ["padding changes no real position"]),
        ("return self.linear(x.detach())", ["every parameter has a gradient: none reaches x"]),
        ("return self.linear(x) + torch.rand(1)", ["two evaluations", "saved weights give"]),
        ("return self.linear(x.cumsum(1) if mask is None else x) + x.roll(1, 1) * (mask is None)",
         ["with model.causal=true"]),
    ],
)  # fmt: skip
def test_every_failure_is_named_and_the_rest_goes_on(
    result: str, failed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(SCALE.replace("RETURN", result))
    assert main(["own.py:Scale"]) == 1
    shown = shown_in_one_line(capsys)
    assert "Traceback" not in shown and " passed its constructor works" in shown
    assert "next: correct what failed, and check it again" in shown
    for name in failed:
        assert f"FAILED {name}" in shown, shown


@pytest.mark.parametrize(
    ("old", "new", "failed"),
    [
        ("rng.integers(0, 2, n)", "rng.integers(0, 1, n)",
         "examples(split, rng) returns sequences and labels: Parity: all labels are 0"),
        ("rng.integers(0, 2, n)", "__import__('numpy').random.randint(0, 2, n)",
         "examples depend on the seed alone"),
        ("self.length // 2, self.length + 1", "1, 3",
         "val examples are not in the training split"),
    ],
)  # fmt: skip
def test_failures_of_tasks(
    old: str, new: str, failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in PARITY
    Path("own.py").write_text(PARITY.replace(old, new))
    assert main(["own.py:Parity"]) == 1
    shown = shown_in_one_line(capsys)
    assert f"FAILED {failed}" in shown
    assert "the next check" not in shown, "what it lacks has been said already"


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["tnn"], "tnn: expected path/to/file.py:ClassName"),
        (["own.py:Parity", "--set", "lenght=3"], "did you mean length?"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    command: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PARITY)
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert part in shown and shown.count("\n") == 1


SHIFT = """
import torch
from torch import nn
from lra.models.base import Mixer

class Shift(Mixer):
    '''Adds the position before. Args: scale: of what is added.'''
    name = "shift"
    REACH

    def __init__(self, context, *, scale: float = 1.0):
        super().__init__()
        self.scale, self.weight = scale, nn.Parameter(torch.ones(context.dim))

    def forward(self, x, mask=None):
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0)
        return x + self.scale * self.weight * nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
"""


@pytest.mark.parametrize(
    ("old", "new", "failed"),
    [
        ("REACH", "reach, looks_ahead = (1, 0), False", ""),
        ("REACH", "reach = (1, 0)", "it mixes as many positions as `reach` says: looks_ahead is"),
        ("scale: of what is added.", "", "its docstring explains every option: the docstring of"),
        ("x = x.masked_fill(~mask[..., None], 0)",
         "x = x * mask[..., None] + 0 * x.sum(1, keepdim=True)",
         "padding may hold infinities and NaN: forward returned numbers that are not finite"),
        ("x = x.masked_fill(~mask[..., None], 0)",
         "x = (x * self.weight).masked_fill(~mask[..., None], 0) / self.weight",
         "padding may hold infinities and NaN: what stands at padded positions (mask False) "
         "changes the gradient of weight in evaluation by up to nan"),
    ],
)  # fmt: skip
def test_a_subclass_of_mixer_is_held_to_the_contract(
    old: str, new: str, failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    right = (
        SHIFT if old == "REACH" else SHIFT.replace("REACH", "reach, looks_ahead = (1, 0), False")
    )
    assert old in right
    Path("own.py").write_text(right.replace(old, new))
    assert main(["own.py:Shift"]) == (1 if failed else 0)
    shown = shown_in_one_line(capsys)
    assert f"FAILED {failed}" in shown if failed else "checks passed" in shown


@pytest.mark.thorough
@pytest.mark.parametrize("name", MIXERS.classes)
def test_the_suite_s_mixers_pass_the_checks_of_the_contract(name: str) -> None:
    component = find_mixer(name, "--mixer")
    context = MixerContext(dim=16, max_length=96, layer=0, depth=2)
    checks = contract_checks(component, compose_options(component, ()), context)
    failed, passed = carry_out(component, checks)
    assert len(passed) >= 8
    assert failed == []
