"""Flip-flop: its law against plain loops, and proofs that its score measures range."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from lra.goals.distances import DistanceResult
from lra.goals.registry import scorer_of
from lra.goals.scorer import Output
from lra.tasks.base import Dataset
from lra.tasks.flip_flop import (
    GROUP,
    READ,
    VALUES,
    FlipFlop,
    draw_gaps,
    draw_language,
    draw_sequences,
    list_distances,
)
from lra.tasks.generated import Drawn
from lra.tasks.goals import NOT_SCORED
from lra.tasks.random_words import RandomWords
from lra.tasks.splits import LabelledTokens
from lra.train.trainer import Trainer
from requested import compose_task, resolve


class Read(NamedTuple):
    """What a plain reader of a sequence notes at a read."""

    place: int
    distance: int
    value: int
    commonest: int
    """The value that was written most often so far, of several the first one."""


def read_plainly(tokens: Sequence[int]) -> list[Read]:
    """Read a sequence as the task's description says, with a variable for the last write."""
    found: list[Read] = []
    value, written, counts = -1, -1, Counter[int]()
    for place, token in enumerate(tokens):
        if token < 8:
            value, written = token, place
            counts[token] += 1
        elif token == 24:
            found.append(Read(place, place - written, value, counts.most_common(1)[0][0]))
    return found


def draw_plainly(mode: str, longest: int, length: int, rng: random.Random) -> list[int]:
    """Draw a sequence from the description, with Python's own random numbers."""
    asked = [
        d
        for d in range(1, longest + 1)
        if d & (d - 1) == 0 or (d % 3 == 0 and (d // 3) & (d // 3 - 1) == 0)
    ]
    tokens: list[int] = []
    if mode == "one":
        tokens += [rng.randrange(8, 24) for _ in range(rng.randrange(length - longest))]
    while len(tokens) < length:
        gap = (
            length if mode == "one" else math.floor(math.exp(rng.uniform(0, math.log(2 * longest))))
        )
        tokens.append(rng.randrange(8))
        tokens += [24 if d in asked else rng.randrange(8, 24) for d in range(1, gap + 1)]
    return tokens[:length]


@cache
def drawn_of(mode: str, longest: int, length: int) -> Drawn:
    return draw_sequences(mode, longest, length, RandomWords(3, 5))


@pytest.mark.parametrize("mode", ["last", "one"])
def test_labels_are_what_a_plain_reader_says(mode: str) -> None:
    drawn = drawn_of(mode, 48, 200)
    rows = zip(drawn.tokens.reshape(GROUP, 200), drawn.labels.reshape(GROUP, 200), strict=True)
    for tokens, labels in [*rows][:200]:
        reads = read_plainly(tokens.tolist())
        expected = np.full(200, NOT_SCORED)
        expected[[read.place for read in reads]] = [read.value for read in reads]
        assert np.array_equal(labels, expected)
        writes = np.flatnonzero(tokens < VALUES)
        ends = [*writes[1:].tolist(), 200]
        assert [read.place for read in reads] == [
            start + d
            for start, end in zip(writes.tolist(), ends, strict=True)
            for d in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
            if start + d < end
        ], "a read at every distance before the next write"


@pytest.mark.parametrize("mode", ["last", "one"])
def test_sequences_are_distributed_like_those_of_a_plain_generator(mode: str) -> None:
    """Numbers of each token, and where values are written."""
    rng = random.Random(0)
    drawn = drawn_of(mode, 48, 200).tokens.reshape(GROUP, 200)
    plain = np.array([draw_plainly(mode, 48, 200, rng) for _ in range(GROUP)])
    for here, there in (
        (np.bincount(drawn.ravel(), minlength=25), np.bincount(plain.ravel(), minlength=25)),
        ((drawn < VALUES).sum(axis=0), (plain < VALUES).sum(axis=0)),
    ):
        used = here + there > 0
        squares = (here[used] - there[used]) ** 2 / (here[used] + there[used])
        assert squares.sum() < used.sum() + 6 * math.sqrt(2 * used.sum()) * (
            1 + 3 * (mode == "last")
        )
    assert (drawn[:, 0] < VALUES).all() == (mode == "last")


def test_gaps_have_logarithms_that_are_uniform() -> None:
    gaps = draw_gaps(RandomWords(0, 0), 8, 100_000)
    expected = [math.log((gap + 1) / gap) / math.log(16) * len(gaps) for gap in range(1, 16)]
    counts = np.bincount(gaps, minlength=16)
    assert len(counts) == 16 and counts[0] == 0
    squares = ((counts[1:] - expected) ** 2 / expected).sum()
    assert squares < 14 + 6 * math.sqrt(28)
    assert draw_gaps(RandomWords(0, 0), 1, 1000).tolist() == [1] * 1000


@pytest.mark.parametrize("preset", ["quick", "budget"])
@pytest.mark.parametrize("mode", ["last", "one"])
def test_the_test_set_asks_often_enough_at_every_distance(preset: str, mode: str) -> None:
    task = compose_task("flip-flop", preset=preset, overrides=[f"task.mode={mode}"])
    assert isinstance(task, FlipFlop)
    longest = task.distances[-1]
    assert task.length >= 4 * longest and longest == (128 if preset == "quick" else 512)
    test = draw_sequences(mode, longest, task.length, RandomWords(0, 1 << 40))
    test = test.first(task.counts["test"])
    reads = np.flatnonzero(test.tokens == READ)
    writes = np.flatnonzero(test.tokens < VALUES)
    distances = reads - writes[np.searchsorted(writes, reads) - 1]
    places, counts = np.unique(distances, return_counts=True)
    assert tuple(places.tolist()) == list_distances(longest)
    assert counts.min() >= 500


@pytest.mark.parametrize("ignored", [80, 98, 10])
def test_the_published_language_is_that_of_its_definition(ignored: int) -> None:
    drawn = draw_language(ignored, 512, RandomWords(1, 2))
    tokens, labels = (x.reshape(GROUP, 256, 2) for x in (drawn.tokens, drawn.labels))
    kinds, bits = tokens[..., 0], tokens[..., 1]
    assert (kinds[:, 0] == 3).all() and (kinds[:, -1] == 4).all()
    assert (labels[..., 1] == NOT_SCORED).all()
    for row in range(100):
        bit = -1
        for kind, after, label in zip(kinds[row], bits[row], labels[row, :, 0], strict=True):
            bit = after if kind == 3 else bit
            assert label == (bit if kind == 4 else NOT_SCORED)
            assert kind != 4 or after == bit, "what is read is an input of what follows"
    shares = np.bincount(kinds[:, 1:-1].ravel(), minlength=5)[2:] / (GROUP * 254)
    rest = (1 - ignored / 100) / 2
    assert shares == pytest.approx([ignored / 100, rest, rest], abs=4e-3)
    assert bits[kinds != 4].mean() == pytest.approx(0.5, abs=5e-3)


def test_published_tests_are_segments(tmp_path: Path) -> None:
    task = FlipFlop(mode="published", length=64, train=40, val=10, test=31)
    dataset = task.prepare(tmp_path)
    segments = dataset.splits["test"].metadata()["segment"].tolist()
    assert Counter(segments) == {"80 % ignored": 10, "98 % ignored": 10, "10 % ignored": 11}
    assert {*dataset.splits["val"].metadata()["segment"]} == {"80 % ignored"}


# The score ---------------------------------------------------------------------------------------

Oracle = Callable[[Read, random.Random], int]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Data with distances of up to 256, by mode."""
    folder = tmp_path_factory.mktemp("data")
    return {
        mode: FlipFlop(
            mode=mode, distance=256, length=1024, train=5, val=5, test=200
        ).prepare(folder)
        for mode in ("last", "one")
    }  # fmt: skip


def score_oracle(dataset: Dataset, oracle: Oracle) -> DistanceResult:
    """Score what an oracle answers, in batches out of order."""
    split, rng = dataset.splits["test"], random.Random(0)
    scorer = scorer_of(FlipFlop(distance=256).info)
    outputs: list[Output] = []
    for indices in np.array_split(np.random.default_rng(0).permutation(len(split)), 7):
        batch = split.batch(indices)
        assert batch.scored is not None
        reads = [
            read for row in batch.inputs.reshape(-1, 1024).tolist() for read in read_plainly(row)
        ]
        answers = torch.tensor([oracle(read, rng) for read in reads])
        logits = torch.nn.functional.one_hot(answers, VALUES).float()
        kept = scorer.keep(logits, batch)
        outputs.append(
            Output(indices, batch.lengths[:, 0].numpy(), batch.label_counts.numpy(), kept)
        )
    score = scorer.score(outputs, split, lambda numbers: numbers)
    result = scorer.describe(score, dataset, {})
    assert isinstance(result, DistanceResult)
    columns = {**score.predictions, "length": split.lengths}
    assert result.read_predictions(columns).merits.mean() > 0
    return result


def remember(memory: int) -> Oracle:
    """Know what was written up to some positions before, and guess beyond."""
    return lambda read, rng: read.value if read.distance <= memory else rng.randrange(8)


@pytest.mark.parametrize("memory", [4, 32, 128])
def test_the_window_of_a_perfect_memory_is_its_length(
    memory: int, datasets: dict[str, Dataset]
) -> None:
    for dataset in datasets.values():
        result = score_oracle(dataset, remember(memory))
        assert result.window == memory and result.interval == (memory, memory)
        for one, gain in zip(result.distances, result.gains, strict=True):
            assert gain == (1 if one.distance <= memory else pytest.approx(0, abs=0.15))


def test_what_is_known_at_all_distances_has_a_bound_alone(datasets: dict[str, Dataset]) -> None:
    result = score_oracle(datasets["last"], remember(256))
    assert result.window == 256 and result.mean_gain == 100
    assert result.text == "effective window at least 256 of 256 positions"
    result = score_oracle(datasets["last"], remember(0))
    assert result.window == 0 and result.is_at_chance
    assert result.text == "effective window below 1 of 256 positions"
    assert result.mean_gain == pytest.approx(0, abs=4)


def test_errors_everywhere_are_no_forgetting(datasets: dict[str, Dataset]) -> None:
    """Half of all reads wrong: no window, and the same gain at every distance."""

    def err(read: Read, rng: random.Random) -> int:
        return read.value if rng.random() < 0.5 else (read.value + 1) % 8

    result = score_oracle(datasets["last"], err)
    assert result.window == 0 and not result.is_at_chance
    assert result.gains == pytest.approx(3 / 7, abs=0.12)
    assert result.mean_gain == pytest.approx(300 / 7, abs=3)


def test_only_overwriting_needs_more_than_a_mean(datasets: dict[str, Dataset]) -> None:
    windows = {
        mode: score_oracle(dataset, lambda read, _: read.commonest).window
        for mode, dataset in datasets.items()
    }
    assert windows["one"] == 256 and windows["last"] in (0, 1, 2)


# What a bounded reach means ----------------------------------------------------------------------

SMALL = [
    "task.distance=32", "task.length=128", "task.train=3200", "task.val=100", "task.test=500",
    "train.steps=200", "train.evaluate_every=200", "train.lr=0.005",
]  # fmt: skip
BOUNDED = [
    ("conv", ["mixer.width=5"], 8),
    ("conv", ["mixer.width=9"], 16),
    ("transformer", ["mixer.window=5"], 8),
    ("transformer", ["mixer.window=9"], 16),
]
"""Mixers, and how far two blocks of them reach."""


def trainer_of(mixer: str, changes: Sequence[str], data: Path) -> Trainer:
    config = resolve("flip-flop", mixer, preset="quick", overrides=[*SMALL, *changes])
    task = config.build_task()
    return Trainer(config, task.info, task.prepare(data), 0, torch.device("cpu"))


@pytest.mark.parametrize(("mixer", "changes", "reach"), BOUNDED)
def test_no_value_is_seen_beyond_the_reach_of_all_blocks(
    mixer: str, changes: list[str], reach: int, tmp_path: Path
) -> None:
    """Reads and noise are drawn without values, so a mixer is at chance where it sees none."""
    trainer = trainer_of(mixer, [*changes, "task.train=2", "task.val=2"], tmp_path)
    model = trainer.model.eval()
    tokens, lengths = torch.randint(8, 24, (128,)), torch.tensor([[128]])
    write = 40
    results: list[torch.Tensor] = []
    for value in (2, 5):
        tokens[write] = value
        with torch.no_grad():
            results.append(model(tokens, lengths))
    seen = (results[0] - results[1]).abs().amax(dim=1).nonzero().ravel() - write
    assert (int(seen.min()), int(seen.max())) == (0, reach)


@pytest.mark.thorough
@pytest.mark.parametrize(("mixer", "changes", "reach"), BOUNDED)
def test_a_trained_mixer_steps_at_its_reach(
    mixer: str, changes: list[str], reach: int, tmp_path: Path
) -> None:
    """Its window is the last distance within reach, and beyond it is at chance."""
    trainer = trainer_of(mixer, changes, tmp_path)
    for _ in range(200):
        trainer.train_step()
    result = score_trained(trainer)
    within = [one for one in result.distances if one.distance <= reach]
    assert result.window == within[-1].distance
    for one in result.distances[len(within) :]:
        assert abs(one.right / one.asked - 1 / 8) < 5 * math.sqrt(7 / 64 / one.asked)
    split = trainer.dataset.splits["test"]
    assert isinstance(split, LabelledTokens)
    noise = split.sequences.tokens.copy()
    noise[noise < VALUES] = VALUES  # one symbol, which says nothing of the value
    split.tokens = torch.from_numpy(noise)
    for gain in score_trained(trainer).gains:
        assert abs(gain) < 0.1, "without writes there is nothing to recall"


def score_trained(trainer: Trainer) -> DistanceResult:
    result = trainer.scorer.describe(trainer.score("test", lambda: None), trainer.dataset, {})
    assert isinstance(result, DistanceResult)
    return result
