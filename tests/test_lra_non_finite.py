"""Logits that are not finite in an evaluation alone: warned of, counted, recorded and marked."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import tiny_arguments
from lra import run_task
from lra.goals.registry import scorer_of
from lra.record.run import load_record
from lra.tasks.base import Batch, TaskInfo
from lra.tasks.goals import NextToken
from lra.train.evaluation import Evaluator

MIXER = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(context.dim))
        self.steps = 0

    def forward(self, x, mask=None):
        self.steps += self.training
        late = not self.training and self.steps > 12
        return x * self.scale * (float("nan") if late else 1.0)
"""
"""A mixer that fails in evaluations alone, from the second one on."""


def test_a_run_counts_what_it_could_not_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(MIXER)
    assert run_task.main(tiny_arguments(tmp_path, mixer=f"{own}:Own")) == 0
    told = capsys.readouterr()
    for what in ("val: the logits of 40 of 40", "test: the logits of 50 of 50"):
        assert f"warning: evaluating on {what} examples are not finite" in told.err
    assert "the logits of 50 of 50 test examples are not finite" in told.out
    (folder,) = tmp_path.glob("results/runs/*/*/*")
    found = load_record(folder / "result.json")
    assert (found.result.model_dump()["test_correct"], found.result.test_non_finite) == (0, 50)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    counts = {ln["step"]: ln.get("val_non_finite") for ln in lines if "val_accuracy" in ln}
    assert counts == {10: None, 20: 40}


class Half(nn.Module):
    """Gives positions of odd tokens no logits."""

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.where(inputs % 2 == 1, math.nan, torch.zeros(len(inputs), 4))


def test_positions_are_counted_and_nan_is_never_right() -> None:
    class Windows:
        """Two windows of four positions, whose next token is 0."""

        lengths = np.array([[4], [4]])
        ideal_bits = None

        def __len__(self) -> int:
            return 2

        def metadata(self) -> dict[str, np.ndarray]:
            return {}

        def batch(self, indices: np.ndarray) -> Batch:
            count = len(indices)
            inputs = torch.tensor([[0], [1], [2], [3]]).repeat(count, 1)
            lengths = torch.full((count, 1), 4)
            each = torch.full((count,), 4)
            return Batch(inputs, lengths, torch.zeros(4 * count).long(), each, each)

    info = TaskInfo(name="own", goal=NextToken(4), max_length=4, vocab_size=4)
    evaluator = Evaluator(
        model=Half(), batch_size=1, device=torch.device("cpu"), precision="fp32", title="test"
    )
    score = evaluator.score(Windows(), scorer_of(info))  # pyright: ignore
    assert (score.total, score.non_finite, score.result["test_correct"]) == (8, 4, 4)
