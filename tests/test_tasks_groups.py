"""Groups: products by composing permutations as functions, distinct sequences, what is refused."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import DataError
from lra.runtime.errors import UserError
from requested import compose_task
from tasks.base import Split
from tasks.generated import GROUP
from tasks.groups import Groups
from tasks.groups.law import GROUPS, draw, list_swaps, multiplication_table, running_products
from tasks.groups.task import hash_sequences

ORDERS = {"S3": 6, "A4": 12, "A5": 60, "S5": 120, "Z60": 60}


def small(**options: Any) -> Groups:
    given = {"group": "S3", "train_length": 8, "test_length": 12, "train": 300, "val": 20}
    return Groups(**{**given, "test": 50, **options})


def signs(elements: np.ndarray) -> list[int]:
    """Return the determinants of permutation matrices."""
    return [round(np.linalg.det(np.eye(len(one))[one])) for one in elements]


def test_groups_have_their_orders_and_elements() -> None:
    assert {name: len(elements) for name, elements in GROUPS.items()} == ORDERS
    for name, elements in GROUPS.items():
        rows = elements.tolist()
        assert rows == sorted(rows) and len({*map(tuple, rows)}) == len(rows)
        assert rows[0] == sorted(rows[0]), "0 is the identity"
        assert all(sorted(row) == rows[0] for row in rows)
        if name.startswith("A"):
            assert set(signs(elements)) == {1}


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_is_that_of_a_group(group: str) -> None:
    table, order = multiplication_table(group), len(GROUPS[group])
    each = list(range(order))
    assert table[0].tolist() == table[:, 0].tolist() == each, "the identity"
    assert all(sorted(line) == each for line in [*table.tolist(), *table.T.tolist()])
    assert np.array_equal(table[table], table[:, table]), "associative"
    is_commutative = np.array_equal(table, table.T)
    assert is_commutative == (group == "Z60")
    if group == "Z60":
        assert table.tolist() == [[(x + y) % 60 for y in each] for x in each]


@pytest.mark.parametrize("group", GROUPS)
def test_labels_are_permutations_composed_as_functions(group: str) -> None:
    """First the first element, then the next one: follow each point through all of them."""
    elements = GROUPS[group].tolist()
    tokens = draw(np.arange(len(elements)), 20, 3, 1)
    labels = running_products(group, tokens)
    assert labels.max() == len(elements) - 1 <= np.iinfo(labels.dtype).max
    for one, products in zip(tokens[:60].tolist(), labels[:60].tolist(), strict=True):
        for place, product in enumerate(products):
            after = [
                functools.reduce(
                    lambda point, token: elements[token][point], one[: place + 1], point
                )
                for point in range(len(elements[0]))
            ]
            assert elements[product] == after


def test_swaps_exchange_two_points() -> None:
    counts = {name: len(list_swaps(name)) for name in GROUPS}
    assert counts == {"S3": 1 + 3, "A4": 1, "A5": 1, "S5": 1 + 10, "Z60": 1}
    elements = GROUPS["S5"]
    swaps = [elements[0].tolist()]
    for first, second in itertools.combinations(range(5), 2):
        swapped = list(range(5))
        swapped[first], swapped[second] = second, first
        swaps.append(swapped)
    assert sorted(swaps) == elements[list_swaps("S5")].tolist()


def test_elements_are_uniform_and_independent() -> None:
    inputs = list_swaps("S5")
    tokens = np.concatenate([draw(inputs, 2, 0, stream) for stream in range(20)])
    pairs = np.searchsorted(inputs, tokens) @ [len(inputs), 1]
    counts = np.bincount(pairs, minlength=121)
    assert len(counts) == 121 and set(np.unique(tokens)) == set(inputs)
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 120) < 6 * math.sqrt(2 * 120)


def test_the_law_draws_the_same_for_good() -> None:
    """A digest of what the first version drew: another one would be other data."""
    tokens = draw(np.arange(120), 32, 7, 2)
    content = tokens.tobytes() + running_products("S5", tokens).tobytes()
    assert tokens.shape == (GROUP, 32)
    assert hashlib.sha256(content).hexdigest()[:16] == "0836a96edd7a7361"


def rows_of(split: Split) -> list[tuple[int, ...]]:
    batch = split.batch(np.arange(len(split)))
    return [tuple(row.tolist()) for row in batch.inputs.split(batch.lengths[:, 0].tolist())]


def test_no_sequence_occurs_twice(tmp_path: Path) -> None:
    """Half of all sequences are asked for, so that most draws have to be rejected in the end."""
    task = small(train_length=4, test_length=4, train=400, val=48, test=200)
    dataset = task.prepare(tmp_path)
    rows = {name: rows_of(split) for name, split in dataset.splits.items()}
    assert {name: len(found) for name, found in rows.items()} == task.counts
    every = [row for found in rows.values() for row in found]
    assert len(set(every)) == len(every) == 648 == 6**4 // 2
    counts = np.bincount(np.array(every)[:, 0])
    assert np.abs(counts - 108).max() < 5 * math.sqrt(108), "no element is preferred"


def test_lengths_and_labels_of_splits(tmp_path: Path) -> None:
    task = small(group="A5")
    dataset = task.prepare(tmp_path)
    lengths = {name: {*split.lengths.tolist()} for name, split in dataset.splits.items()}
    assert lengths == {"train": {8}, "val": {12}, "test": {12}}
    assert task.info.max_length == 12 and task.info.num_classes == task.info.vocab_size == 60
    batch = dataset.splits["test"].batch(np.arange(50))
    tokens = batch.inputs.reshape(50, 12).numpy()
    assert batch.labels.reshape(50, 12).tolist() == running_products("A5", tokens).tolist()
    assert dataset.baselines["chance"] == pytest.approx(100 / 60)
    assert len(task.verify(dataset)) == 2
    assert small(group="A5").prepare(tmp_path / "again").fingerprint == dataset.fingerprint


def test_equal_hashes_are_equal_sequences() -> None:
    every = np.array(list(itertools.product(range(6), repeat=6)), dtype=np.uint8)
    assert len(np.unique(hash_sequences(every))) == len(every)
    assert np.array_equal(hash_sequences(every), hash_sequences(every.copy()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": "S4"}, "valid: A4, A5, S3, S5, Z60"),
        ({"group": "A5", "inputs": "swaps"}, "A5 has no element that exchanges two points; use"),
        ({"group": "Z60", "inputs": "swaps"}, "Z60 has no element that exchanges two points"),
        ({"inputs": "some"}, "valid: all, swaps"),
        (
            {"group": "S3", "inputs": "all", "train_length": 2, "train": 19},
            "19 different sequences of length 2 are asked for, but 6 elements have 36",
        ),
        (
            {"group": "S3", "inputs": "swaps", "train_length": 3, "test_length": 3, "train": 9,
             "val": 9, "test": 15},
            "33 different sequences of length 3 are asked for, but 4 elements have 64",
        ),
        ({"train_length": 0}, "train_length.*0"),
    ],
)  # fmt: skip
def test_bad_options_get_one_line(options: dict[str, Any], words: str) -> None:
    overrides = [f"task.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=words) as raised:
        compose_task("groups", overrides=overrides)
    assert "\n" not in str(raised.value)


def test_fresh_data_may_be_longer() -> None:
    options = {"group": "S5", "inputs": "swaps", "data_seed": 4}
    task = Groups(**{**options, **Groups.fresh(options, length=700, examples=9)})
    assert task.positions == {"train": 32, "val": 700, "test": 700}
    assert task.counts == {"train": 1000, "val": 1, "test": 9} and task.data_seed == 5
    assert "test_length" not in Groups.fresh(options, length=None, examples=9)


def test_verification_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels by a table whose products are the other way round."""
    task = small()
    dataset = task.prepare(tmp_path)
    table = multiplication_table("S3").T
    monkeypatch.setattr("tasks.groups.law.multiplication_table", lambda group: table)
    with pytest.raises(DataError, match="train examples are not what their law draws"):
        task.verify(dataset)
