"""Languages: labels by Python's own arithmetic, lengths, distributions."""

import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.tasks.generated import GROUP
from lra.tasks.languages import LANGUAGES, Languages, draw_brackets
from lra.tasks.random_words import RandomWords

SYMBOLS = "01234+-*=()"


def navigate(tokens: list[int]) -> int:
    place = 0
    for token in tokens:
        place = {0: place, 1: place + 1, 2: place - 1}[token]
        place = {-1: 4, 5: 0}.get(place, place)
    return place


def calculate(tokens: list[int]) -> int:
    text = "".join(SYMBOLS[token] for token in tokens)
    assert text.endswith("=") and text.count("=") == 1
    return eval(text[:-1]) % 5


ORACLES = {
    "parity": lambda tokens: int(tokens.count(1) % 2 == 1),
    "even-pairs": lambda tokens: sum(a != b for a, b in itertools.pairwise(tokens)) % 2,
    "cycle-navigation": navigate,
    "modular-arithmetic": calculate,
    "modular-arithmetic-brackets": calculate,
}


def limited(name: str, least: int, most: int) -> Languages:
    options: dict[str, Any] = {"language": name, "train_min": least, "train_max": most}
    return Languages(**options, data_seed=3)


def sequences_of(task: Languages, stream: int = 0) -> list[tuple[list[int], int]]:
    drawn = task.draw_group(task.lengths["train"], RandomWords(3, stream))
    tokens, ends = drawn.tokens.tolist(), itertools.pairwise(drawn.offsets.tolist())
    parts = [tokens[first:end] for first, end in ends]
    return list(zip(parts, drawn.labels.tolist(), strict=True))


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("limits", [(1, 12), (40, 90)])
def test_labels_are_what_python_says(name: str, limits: tuple[int, int]) -> None:
    language, task = LANGUAGES[name], limited(name, *limits)
    found = sequences_of(task)
    for tokens, label in found:
        assert ORACLES[name](tokens) == label
        assert max(tokens) < language.vocab_size
    assert {label for _, label in found} == set(range(language.num_classes))
    assert {len(tokens) for tokens, _ in found} == set(task.lengths["train"].tolist())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("parity", [*range(3, 11)]), ("modular-arithmetic", [4, 6, 8, 10])],
)
def test_lengths_are_equally_likely(name: str, expected: list[int]) -> None:
    task = limited(name, 3, 10)
    assert task.lengths["train"].tolist() == expected
    found = Counter(len(tokens) for n in range(10) for tokens, _ in sequences_of(task, n))
    mean = 10 * GROUP / len(expected)
    assert all(abs(count - mean) < 5 * math.sqrt(mean) for count in found.values())


@pytest.mark.parametrize(
    ("name", "length", "kinds"),
    [("parity", 3, 8), ("even-pairs", 3, 8), ("cycle-navigation", 3, 27),
     ("modular-arithmetic", 4, 75)],
)  # fmt: skip
def test_symbols_are_uniform_and_independent(name: str, length: int, kinds: int) -> None:
    task = limited(name, length, length)
    found = Counter(tuple(tokens) for n in range(20) for tokens, _ in sequences_of(task, n))
    assert len(found) == kinds
    mean = 20 * GROUP / kinds
    chi_square = sum((count - mean) ** 2 / mean for count in found.values())
    assert abs(chi_square - (kinds - 1)) < 6 * math.sqrt(2 * (kinds - 1))


def expressions(length: int) -> dict[str, float]:
    """Tabulate every expression in brackets with its probability, by recursion."""
    short = {1: "d", 2: "-d", 3: "(d)", 4: "(-d)"}
    if length in short:
        return {short[length].replace("d", str(digit)): 0.2 for digit in range(5)}
    found: dict[str, float] = defaultdict(float)
    for left in range(1, length - 3):
        pairs = itertools.product(
            expressions(left).items(), expressions(length - left - 3).items(), "+-*"
        )
        for (first, p), (second, q), operator in pairs:
            found[f"({first}{operator}{second})"] += p * q / 3 / (length - 4)
    return found


@pytest.mark.parametrize("length", [1, 4, 5, 7])
def test_brackets_have_the_probabilities_of_their_grammar(length: int) -> None:
    expected, total = expressions(length), 2**15
    assert sum(expected.values()) == pytest.approx(1)
    tokens, _ = draw_brackets(RandomWords(0, length), np.full(total, length + 1))
    found = Counter("".join(SYMBOLS[token] for token in row[:-1]) for row in tokens.tolist())
    assert found.keys() <= expected.keys()
    chi_square = sum(
        (found[text] - total * chance) ** 2 / (total * chance) for text, chance in expected.items()
    )
    freedom = len(expected) - 1
    assert abs(chi_square - freedom) < 6 * math.sqrt(2 * freedom)


def test_longer_sequences_are_tested(tmp_path: Path) -> None:
    task = Languages(train=1500, val=20, test=700)
    dataset = task.prepare(tmp_path)
    lengths = {name: split.lengths for name, split in dataset.splits.items()}
    assert lengths["train"].min() == 3 and lengths["train"].max() == 40
    assert lengths["test"].min() >= 40 and 250 < lengths["test"].max() <= 256
    assert task.info.max_length == 256 and dataset.baselines["chance"] == 50
    bands = dataset.splits["test"].metadata()["length up to"]
    assert bands.tolist() == [math.ceil(length / 40) * 40 for length in lengths["test"].tolist()]
    val, test = (dataset.splits[name].batch(np.arange(10)).inputs for name in ("val", "test"))
    assert val[:100].tolist() != test[:100].tolist()
