"""Languages: labels by Python's own arithmetic, lengths, distributions, and what is refused."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import DataError
from lra.runtime.errors import UserError
from requested import compose_task
from tasks.generated import GROUP
from tasks.languages import Languages
from tasks.languages.brackets import draw_brackets
from tasks.languages.law import LANGUAGES, draw
from tasks.random_words import RandomWords

SYMBOLS = "01234+-*=()"


def parity(tokens: list[int]) -> int:
    return int(tokens.count(1) % 2 == 1)


def even_pairs(tokens: list[int]) -> int:
    return sum(one != other for one, other in itertools.pairwise(tokens)) % 2


def cycle_navigation(tokens: list[int]) -> int:
    place = 0
    for token in tokens:
        place = {0: place, 1: place + 1, 2: place - 1}[token]
        place = {-1: 4, 5: 0}.get(place, place)
    return place


def arithmetic(tokens: list[int]) -> int:
    text = "".join(SYMBOLS[token] for token in tokens)
    assert text.endswith("=") and text.count("=") == 1
    return eval(text[:-1]) % 5


ORACLES = {
    "parity": parity,
    "even-pairs": even_pairs,
    "cycle-navigation": cycle_navigation,
    "modular-arithmetic": arithmetic,
    "modular-arithmetic-brackets": arithmetic,
}


def sequences_of(name: str, lengths: np.ndarray, stream: int = 0) -> list[tuple[list[int], int]]:
    drawn = draw(LANGUAGES[name], lengths, 3, stream)
    ends = drawn.offsets.tolist()
    tokens = drawn.tokens.tolist()
    return [
        (tokens[first:end], label)
        for (first, end), label in zip(itertools.pairwise(ends), drawn.labels.tolist(), strict=True)
    ]


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("limits", [(1, 12), (3, 40), (40, 90)])
def test_labels_are_what_python_says(name: str, limits: tuple[int, int]) -> None:
    language = LANGUAGES[name]
    lengths = language.lengths(*limits)
    found = sequences_of(name, lengths)
    assert len(found) == GROUP
    for tokens, label in found:
        assert ORACLES[name](tokens) == label
        assert max(tokens) < language.vocab_size
    assert {label for _, label in found} == set(range(language.num_classes))
    assert {len(tokens) for tokens, _ in found} == set(lengths.tolist())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("parity", list(range(3, 11))),
        ("modular-arithmetic", [4, 6, 8, 10]),
        ("modular-arithmetic-brackets", list(range(3, 11))),
    ],
)
def test_lengths_are_equally_likely(name: str, expected: list[int]) -> None:
    lengths = LANGUAGES[name].lengths(3, 10)
    assert lengths.tolist() == expected
    found = Counter(len(tokens) for n in range(10) for tokens, _ in sequences_of(name, lengths, n))
    assert set(found) == set(expected)
    mean = 10 * GROUP / len(expected)
    assert all(abs(count - mean) < 5 * math.sqrt(mean) for count in found.values())


def test_symbols_are_uniform_and_independent() -> None:
    for name, size in (("parity", 2), ("even-pairs", 2), ("cycle-navigation", 3)):
        found = Counter(
            tuple(tokens) for n in range(20) for tokens, _ in sequences_of(name, np.array([3]), n)
        )
        assert len(found) == size**3
        mean = 20 * GROUP / len(found)
        assert all(abs(count - mean) < 5 * math.sqrt(mean) for count in found.values())
    found = Counter(
        tuple(tokens)
        for n in range(20)
        for tokens, _ in sequences_of("modular-arithmetic", np.array([4]), n)
    )
    mean = 20 * GROUP / 75
    assert len(found) == 5 * 3 * 5
    chi_square = sum((count - mean) ** 2 / mean for count in found.values())
    assert abs(chi_square - 74) < 6 * math.sqrt(2 * 74)


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


@pytest.mark.parametrize("length", [1, 2, 4, 5, 6, 7])
def test_brackets_have_the_probabilities_of_their_grammar(length: int) -> None:
    expected = expressions(length)
    assert sum(expected.values()) == pytest.approx(1)
    total = 2**15
    tokens, _ = draw_brackets(RandomWords(0, length), np.full(total, length + 1))
    found = Counter("".join(SYMBOLS[token] for token in row[:-1]) for row in tokens.tolist())
    assert found.keys() <= expected.keys()
    chi_square = sum(
        (found[text] - total * chance) ** 2 / (total * chance) for text, chance in expected.items()
    )
    freedom = len(expected) - 1
    assert abs(chi_square - freedom) < 6 * math.sqrt(2 * freedom)


def test_the_laws_draw_the_same_for_good() -> None:
    """Digests of what the first version drew: other ones would be other data."""
    found = {}
    for name, language in LANGUAGES.items():
        drawn = draw(language, language.lengths(3, 40), 7, 2)
        content = drawn.lengths.astype("<i4").tobytes() + drawn.tokens.tobytes()
        content += drawn.labels.tobytes()
        found[name] = hashlib.sha256(content).hexdigest()[:16]
    assert found == {
        "parity": "87873c2bdefc0d9a",
        "even-pairs": "2522041645877d2b",
        "cycle-navigation": "f7881dac7d273374",
        "modular-arithmetic": "53de78c0e2f27f62",
        "modular-arithmetic-brackets": "ecbe082658920484",
    }


def small(**options: Any) -> Languages:
    return Languages(**{"train": 1500, "val": 20, "test": 700, **options})


def test_longer_sequences_are_tested(tmp_path: Path) -> None:
    task = small()
    dataset = task.prepare(tmp_path)
    assert dataset.sizes == {"train": 1500, "val": 20, "test": 700}
    lengths = {name: split.lengths for name, split in dataset.splits.items()}
    assert lengths["train"].min() == 3 and lengths["train"].max() == 40
    assert lengths["test"].min() >= 40 and 250 < lengths["test"].max() <= 256
    assert task.info.max_length == 256
    bands = dataset.splits["test"].metadata()["length up to"]
    expected = [math.ceil(length / 40) * 40 for length in lengths["test"].tolist()]
    assert bands.tolist() == expected
    assert dataset.baselines["chance"] == 50
    assert len(task.verify(dataset)) == 2
    assert small().prepare(tmp_path / "again").fingerprint == dataset.fingerprint
    more = small(train=1600).prepare(tmp_path)
    rows = np.arange(1500)
    assert more.splits["train"].batch(rows).inputs.equal(dataset.splits["train"].batch(rows).inputs)
    first = {
        name: split.batch(np.arange(10)).inputs.tolist() for name, split in dataset.splits.items()
    }
    assert first["val"][:100] != first["test"][:100]


@pytest.mark.parametrize("name", LANGUAGES)
def test_chance_is_stored(name: str, tmp_path: Path) -> None:
    dataset = small(language=name).prepare(tmp_path)
    assert dataset.baselines["chance"] == (50 if LANGUAGES[name].num_classes == 2 else 20)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"language": "pairity"}, "valid: cycle-navigation, even-pairs, modular-arithmetic,"),
        ({"train_min": 41}, "train_min is 41, expected at most train_max, which is 40"),
        (
            {"language": "modular-arithmetic", "test_min": 255, "test_max": 255},
            r"test_min is 255 and test_max is 255.*modular-arithmetic has only.*2, 4, 6, \.\.\.",
        ),
        ({"train_max": 0}, "train_max.*0"),
        ({"test": 0}, "test.*0"),
    ],
)
def test_bad_options_get_one_line(options: dict[str, Any], words: str) -> None:
    overrides = [f"task.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=words) as raised:
        compose_task("languages", overrides=overrides)
    assert "\n" not in str(raised.value)


def test_fresh_data_may_be_longer() -> None:
    options = {"language": "parity", "data_seed": 4}
    assert Languages.fresh(options, length=None, examples=9) == {
        "data_seed": 5, "train": 1000, "val": 1, "test": 9,
    }  # fmt: skip
    task = Languages(**{**options, **Languages.fresh(options, length=400, examples=9)})
    assert (task.lengths["test"][0], task.lengths["test"][-1]) == (300, 400)
    assert task.lengths["train"][-1] == 40


def test_verification_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small(language="modular-arithmetic-brackets")
    dataset = task.prepare(tmp_path)
    monkeypatch.setattr("tasks.languages.brackets.TIMES", 6)
    with pytest.raises(DataError, match="train examples are not what their law draws"):
        task.verify(dataset)
