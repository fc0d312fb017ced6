"""What range of its inputs a model uses: `lra.range`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import tiny_arguments
from lra import run_task
from lra.api.trained import load
from lra.common.errors import UserError
from lra.goals.registry import scorer_of
from lra.models.base import Mixer
from lra.range.__main__ import main
from lra.range.influence import Influence, Replaced, measure_influence
from lra.range.order import measure_order
from lra.runtime.cli import USER_ERROR
from lra.tasks.base import Split, TaskInfo
from lra.tasks.goals import NOT_SCORED, ExampleClass, Goal, PositionLabels
from lra.tasks.splits import LabelledTokens, PackedSequences, Sequences
from lra.train.evaluation import Evaluator
from own_tasks import OWN_TASKS

VALUES, NOISE, READ = 8, 16, 24
"""Tokens below VALUES are written values, the NOISE next ones are noise, and READ asks."""
LENGTH, LONGEST = 64, 16
"""Positions of a sequence, and the longest distance from a write to a read."""
FLIP_FLOP = f'''
class FlipFlop:
    """Which value was written last? at reads."""

    def __init__(self, *, length: int = {LENGTH}, train: int = 100):
        self.length, self.train = length, train

    def examples(self, split, rng):
        count = self.train if split == "train" else 60
        tokens = rng.integers({VALUES}, {VALUES + NOISE}, (count, self.length))
        labels = 0 * tokens - 1
        for row, label in zip(tokens, labels):
            start = 0
            while start < self.length:
                gap = int(np.exp(rng.uniform(0, np.log(2 * {LONGEST}))))
                row[start] = rng.integers({VALUES})
                for distance in (1, 2, 3, 4, 6, 8, 12, {LONGEST}):
                    if distance <= gap and start + distance < self.length:
                        row[start + distance] = {READ}
                        label[start + distance] = row[start]
                start += gap + 1
        return list(tokens), list(labels)
'''


class Memory(nn.Module):
    """Answers a read with the last value written at most `reach` positions before it."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor) -> Tensor:
        logits = torch.zeros(len(inputs), VALUES)
        starts = lengths.cumsum(0).flatten().tolist()
        for place in scored.tolist():
            first = max([0, place - self.reach, *(s for s in starts if s <= place)])
            value = last_value(inputs[first:place].tolist())
            if value is not None:
                logits[place, value] = 40
        return logits[scored]


class Products(nn.Module):
    """The sum over positions of x[i] * x[i + lag], or of x[i] alone with a lag of 0."""

    def __init__(self, lag: int) -> None:
        super().__init__()
        self.lag = lag

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        parts = [part.float() for part in inputs.split(lengths.flatten().tolist())]
        if self.lag:
            parts = [part[self.lag :] * part[: -self.lag] for part in parts]
        sums = torch.stack([part.sum() for part in parts])
        return torch.stack([sums, -sums], dim=1)


def last_value(tokens: list[int]) -> int | None:
    return next((token for token in reversed(tokens) if token < VALUES), None)


def evaluator(model: nn.Module) -> Evaluator:
    return Evaluator(model=model, batch_size=64, device=torch.device("cpu"), precision="fp32")


@pytest.fixture(scope="module")
def flip_flop() -> LabelledTokens:
    namespace: dict[str, Any] = {"np": np}
    exec(FLIP_FLOP, namespace)
    task = namespace["FlipFlop"]()
    tokens, labels = task.examples("test", np.random.default_rng(0))
    labels = np.concatenate(labels)
    labels[labels < 0] = NOT_SCORED
    offsets = LENGTH * np.arange(len(tokens) + 1)
    return LabelledTokens(Sequences(np.concatenate(tokens).astype(np.uint8), offsets), labels)


def influence_of(model: nn.Module, goal: Goal, split: Split) -> Influence:
    return measure_influence(evaluator(model), goal, split)


@pytest.mark.parametrize("reach", [2, 6, LENGTH])
def test_the_influence_on_flip_flop_is_that_of_the_law(
    flip_flop: LabelledTokens, reach: int
) -> None:
    """Counted anew: which answers change if a token is that of the next example."""
    influence = influence_of(Memory(reach), PositionLabels(VALUES), flip_flop)
    chosen = np.random.default_rng(0).permutation(len(flip_flop))[:32]
    rows = np.asarray(flip_flop.sequences.tokens).reshape(-1, LENGTH)[chosen].tolist()
    expected: list[tuple[int, bool]] = []
    for row, donor in zip(rows, [*rows[1:], rows[-2]], strict=True):
        for place in range(LENGTH):
            changed = [*row[:place], donor[place], *row[place + 1 :]]
            for read in (i for i in range(place + 1, LENGTH) if row[i] == READ):
                answers = [last_value(x[max(0, read - reach) : read]) for x in (row, changed)]
                expected.append((read - place, answers[0] != answers[1]))
    # An answer that is lost is one of equal probabilities.
    distances, changes = np.array(expected).T
    assert len(influence.changes) == len(changes)
    counted = np.bincount(distances, changes)
    measured = np.bincount(influence.distances.astype(int), influence.changes > 0)
    np.testing.assert_array_equal(measured, counted)
    assert not influence.changes[influence.distances > reach].any()
    assert influence.changes[influence.distances == min(reach, 16)].any()
    assert influence.even_distance == pytest.approx(distances.mean())
    if reach == LENGTH:
        assert influence.changes.max() == pytest.approx(1)
        mean = (distances * changes).sum() / changes.sum()
        assert influence.mean_distance == pytest.approx(mean)
        low, high = influence.interval
        assert low < mean < high


@pytest.mark.parametrize("lag", [0, 1, 7, 20])
def test_only_inputs_that_a_model_relates_interact(lag: int) -> None:
    draw = np.random.default_rng(1)
    lengths = draw.integers(20, 60, 40)
    tokens = draw.integers(0, 50, lengths.sum()).astype(np.uint8)
    split = PackedSequences(
        Sequences(tokens, np.append(0, lengths.cumsum())), np.zeros(40, dtype=np.uint8)
    )
    influence = influence_of(Products(lag), ExampleClass(2), split)
    if lag == 0:
        assert influence.mean_distance is None
        assert influence.interval == (0, 0)
    else:
        assert influence.mean_distance == pytest.approx(lag)
        assert influence.changes[influence.distances == lag].any()
    kept = np.random.default_rng(0).permutation(40)[:32]
    pairs = {d: np.maximum(lengths[kept] - d, 0).sum() for d in range(1, 60)}
    even = sum(d * n for d, n in pairs.items()) / sum(pairs.values())
    assert influence.even_distance == pytest.approx(even, rel=0.03)
    first, _, shares = zip(*influence.by_octave(), strict=True)
    assert first == (1, 2, 4, 8, 16, 32)
    assert sum(shares) == pytest.approx(float(lag > 0))


def test_a_copy_differs_at_the_replaced_positions_alone() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(30, 2)).astype(np.float32)
    offsets = np.array([0, 8, 17, 30])
    split = PackedSequences(Sequences(values, offsets), np.zeros(3, dtype=np.uint8))
    positions = np.array([[2, 7], [0, 0], [8, 1]])
    copies = Replaced(split, np.arange(3), np.array([0, 2, 1]), positions)
    batch = copies.batch([2, 0, 1])
    assert batch.lengths.flatten().tolist() == [9, 8, 13]
    for part, (number, donor), places in zip(
        batch.inputs.split([9, 8, 13]), ((1, 2), (0, 1), (2, 1)), ([8, 1], [2, 7], [0]), strict=True
    ):
        expected = values[offsets[number] : offsets[number + 1]].copy()
        expected[places] = values[offsets[donor] :][places]
        np.testing.assert_array_equal(part, expected)
    np.testing.assert_array_equal(split.tokens, values)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([5], "two examples or more"), ([5, 1, 1], "two positions or more"), ([5, 5], "scored after")],
)
def test_a_test_set_without_pairs_of_positions_is_refused(counts: list[int], expected: str) -> None:
    labels = np.full(sum(counts), NOT_SCORED)
    offsets = np.append(0, np.cumsum(counts))
    labels[offsets[:-1]] = 0
    tokens = np.ones(sum(counts), dtype=np.uint8)
    split = LabelledTokens(Sequences(tokens, offsets), labels)
    with pytest.raises(UserError, match=expected):
        influence_of(Memory(3), PositionLabels(VALUES), split)


def test_order_is_measured_with_labels_that_move(flip_flop: LabelledTokens) -> None:
    info = TaskInfo(name="flip-flop", goal=PositionLabels(VALUES), max_length=LENGTH, vocab_size=25)
    scores = measure_order(evaluator(Memory(LENGTH)), scorer_of(info), flip_flop)
    assert [*scores] == [1, 4, 16, 64]
    assert scores[64] == 100
    assert scores[1] < scores[4] < scores[16] < 100
    assert scores[1] < 50

    class Own(nn.Module):
        """Answers with the label of the position itself, which stands in the token."""

        def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor) -> Tensor:
            return nn.functional.one_hot(inputs[scored], VALUES).float()

    tokens = np.where(flip_flop.position_labels < 0, 0, flip_flop.position_labels)
    seen = Sequences(tokens.astype(np.uint8), flip_flop.sequences.offsets)
    split = LabelledTokens(seen, flip_flop.position_labels)
    assert {*measure_order(evaluator(Own()), scorer_of(info), split).values()} == {100}


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("mixer", "options", "reach"),
    [
        ("conv", ["mixer.width=3"], 4),
        ("sparse", ["mixer.window_size=4", "mixer.num_global=0"], 2),
        ("s4d", [], None),
    ],
)
def test_nothing_beyond_the_reach_of_a_causal_model_has_influence(
    mixer: str, options: list[str], reach: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(f"import numpy as np\n{FLIP_FLOP}")
    settings = ["model.dim=8", "model.depth=2", "model.causal=true", "train.steps=2", *options]
    changes = [part for text in settings for part in ("--set", text)]
    start = ["--task", "own.py:FlipFlop", "--mixer", mixer, "--preset", "quick", "--device", "cpu"]
    assert run_task.main([*start, *changes]) == 0
    (folder,) = Path("results/runs/FlipFlop").glob("*/*")
    run = load(folder)
    influence = influence_of(run.model, PositionLabels(VALUES), run.dataset.splits["test"])
    inside = influence.distances <= (reach or LENGTH)
    assert not influence.changes[~inside].any()
    assert influence.changes[influence.distances == (reach or 40)].any()
    capsys.readouterr()
    assert main(["--run", str(folder), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "what changes if an earlier input is replaced" in " ".join(shown.split())
    assert ("16 to 31  0 " in shown) == (reach is not None)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_pooled_head_is_global_by_itself(head: str, tmp_path: Path) -> None:
    """With a linear one, inputs do not interact if no receptive field has both."""
    settings = ["mixer.width=3", "model.depth=2", f"model.head={head}", "train.steps=2"]
    assert run_task.main(tiny_arguments(tmp_path, mixer="conv", settings=settings)) == 0
    (folder,) = (tmp_path / "results/runs/listops/conv").iterdir()
    run = load(folder, data_dir=tmp_path / "data")
    influence = influence_of(run.model, ExampleClass(10), run.dataset.splits["test"])
    assert any(isinstance(module, Mixer) for module in run.model.modules())
    assert influence.changes[influence.distances <= 4].any()
    assert influence.changes[influence.distances > 4].any() == (head == "mlp")


@pytest.mark.usefixtures("own_folder")
def test_a_pair_of_sequences_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN_TASKS["Same"])
    settings = ["--set", "model.dim=8", "--set", "train.steps=2"]
    start = ["--task", "own.py:Same", "--mixer", "mean", "--preset", "quick", "--device", "cpu"]
    assert run_task.main([*start, *settings]) == 0
    (folder,) = Path("results/runs/Same/mean").iterdir()
    capsys.readouterr()
    assert main(["--run", str(folder), "--device", "cpu"]) == USER_ERROR
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "has 2 sequences per example, expected a task with one" in error
