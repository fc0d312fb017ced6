"""All trials of a mixer or a task at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import python_example
from lra.check.__main__ import main
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


@pytest.mark.parametrize("name", OWN_TASKS)
def test_sound_tasks_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN_TASKS[name])
    assert main([f"own.py:{name}"]) == 0
    shown = capsys.readouterr().out
    assert "FAILED" not in shown and re.search(r"\n\d+ passed, 0 failed\n", shown)
    assert not list(Path().glob("data*"))


NEXT = """
import numpy as np
from tasks.base import Dataset, Task, TaskInfo
from tasks.next_token import NextToken, windows

class Alphabet(Task):
    name = "alphabet"

    def __init__(self, *, length: int = 32):
        self.info = TaskInfo(
            name="alphabet", num_classes=9, vocab_size=9, max_length=length, targets="position"
        )

    def prepare(self, data_dir):
        tokens = (np.arange(400) % 8).astype(np.uint8)
        starts, lengths, skipped = windows(400, self.info.max_length, 20)
        split = NextToken(tokens, starts, lengths, skipped=skipped)
        splits = {name: split for name in ("train", "val", "test")}
        return Dataset(splits=splits, source="own", fingerprint="0" * 64, folder=data_dir,
                       baselines={"majority class": 12.5})

    def verify(self, dataset):
        return ["nothing"]

    def split_sizes(self, examples):
        return {}
"""


def test_a_task_whose_targets_are_positions_passes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(NEXT)
    assert main(["own.py:Alphabet"]) == 0
    shown = capsys.readouterr().out
    assert "7 passed, 0 failed" in shown
    assert "every class is in the training split: but for 1 of 9" in shown


def test_a_sound_mixer_passes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(python_example("docs/your_mixer.md"))
    assert main(["own.py:GatedMean", "--set", "bias=false"]) == 0
    shown = capsys.readouterr().out
    assert "not tried, as it says that it cannot be (mixer GatedMean: the mean over all" in shown
    assert "480 parameters" not in shown and "512 parameters at 16 channels" in shown


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("return self.linear(x).cumsum(1).flip(1)", ["padding changes no real position"]),
        ("return x.cumsum(1)", ["gradients reach every parameter: none reaches linear.weight, "]),
        ("return self.linear(x.detach())", ["gradients reach every parameter: none reaches x"]),
        ("return self.linear(x) + (x * 0).square().sum().sqrt()",
         ["gradients reach every parameter: those of x are not finite"]),
        ("mask is None or mask.fill_(True); return self.linear(x)",
         ["forward and backward pass, 5 positions, with a mask: forward writes to its mask",
          "padding changes no real position in evaluation, 83 positions: forward writes to its"]),
        ("self.training or x.mul_(2); return self.linear(x)",
         ["padding changes no real position in evaluation, 5 positions: forward writes to its",
          "it takes 1 positions: forward writes to its input", "it computes under bf16"]),
        ("return self.linear(x)[:, :1]", ["forward and back", "it takes 96 positions"]),
        ("return self.linear(x) - self.linear(x).mean(0)", ["sequences of a batch"]),
        ("return self.linear(x) + torch.rand(1)", ["evaluated twice", "saved weights give"]),
        ("return self.linear(x) * (x.shape[1] > 1 or 1 / 0)", ["it takes 1 positions"]),
        ("return self.linear(x.cumsum(1) if mask is None else x) + x.roll(1, 1) * (mask is None)",
         ["where model.causal is true"]),
    ],
)  # fmt: skip
def test_every_failure_is_named_and_the_rest_goes_on(
    result: str, failed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(SCALE.replace("RETURN", result))
    assert main(["own.py:Scale"]) == 1
    shown = capsys.readouterr().out
    assert "Traceback" not in shown and "\npassed  it can be constructed" in shown
    for name in failed:
        assert f"FAILED  {name}" in shown, shown


@pytest.mark.parametrize(
    ("old", "new", "failed"),
    [
        ("rng.integers(0, 2, n)", "rng.integers(0, 1, n)", "it can be constructed"),
        ("% 2 for", "% 2 * 2 for", "every class is in the training split"),
        ("rng.integers(0, 2, n)", "__import__('numpy').random.randint(0, 2, n)",
         "the same seed gives the same examples"),
        ("self.length = length",
         "Parity.made = getattr(Parity, 'made', 0) + 1\n        self.length = length + Parity.made",
         "prepared again, the data is the same"),
        ("self.sizes[split])", "self.sizes[split] if split == 'train' else 0)",
         "it can be constructed"),
        ("self.length // 2, self.length + 1", "1, 3",
         "val examples are others than those of training"),
    ],
)  # fmt: skip
def test_failures_of_tasks(
    old: str, new: str, failed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in PARITY
    Path("own.py").write_text(PARITY.replace(old, new))
    assert main(["own.py:Parity"]) == 1
    shown = capsys.readouterr().out
    assert f"FAILED  {failed}" in shown
    assert "the next trial" not in shown, "what it lacks has been said already"


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["tnn"], "tnn: expected path/to/file.py:ClassName"),
        (["own.py:Nothing"], "expected a mixer (a subclass of torch.nn.Module) or a task (one"),
        (["own.py:Parity", "--set", "lenght=3"], "did you mean length?"),
        (["own.py:Parity", "--set", "train.lr=3"], "unknown option of Parity 'train.lr'"),
        (["own.py:Parities"], "unknown class 'Parities'; did you mean Parity?"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    command: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(f"{PARITY}\nclass Nothing: ...\n")
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert part in shown and shown.count("\n") == 1
