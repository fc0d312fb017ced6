"""Groups: products by composing permutations as functions, distinct sequences."""

import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from lra.tasks.groups import (
    GROUPS,
    Groups,
    draw_elements,
    hash_sequences,
    list_generators,
    list_swaps,
    multiplication_table,
    running_products,
)

ORDERS = {"S3": 6, "A4": 12, "A5": 60, "S5": 120, "Z60": 60}


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_is_that_of_a_group(group: str) -> None:
    elements, table = GROUPS[group].tolist(), multiplication_table(group)
    each = list(range(ORDERS[group]))
    assert elements == sorted(elements) and len({*map(tuple, elements)}) == len(each)
    assert all(sorted(element) == elements[0] for element in elements), "0 is the identity"
    if group.startswith("A"):
        signs = {round(np.linalg.det(np.eye(len(one))[one])) for one in elements}
        assert signs == {1}
    assert table[0].tolist() == table[:, 0].tolist() == each
    assert all(sorted(line) == each for line in [*table.tolist(), *table.T.tolist()])
    assert np.array_equal(table[table], table[:, table]), "associative"
    assert np.array_equal(table, table.T) == (group == "Z60")


@pytest.mark.parametrize("group", GROUPS)
def test_labels_are_permutations_composed_as_functions(group: str) -> None:
    """First the first element, then the next one: follow each point through all of them."""
    elements = GROUPS[group].tolist()
    tokens = draw_elements(np.arange(len(elements)), 20, 3, 1)
    labels = running_products(group, tokens)
    assert labels.max() == len(elements) - 1 <= np.iinfo(labels.dtype).max
    for one, products in zip(tokens[:20].tolist(), labels[:20].tolist(), strict=True):
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
    swaps = [[0, 1, 2, 3, 4]]
    for first, second in itertools.combinations(range(5), 2):
        swapped = list(range(5))
        swapped[first], swapped[second] = second, first
        swaps.append(swapped)
    assert sorted(swaps) == GROUPS["S5"][list_swaps("S5")].tolist()


@pytest.mark.parametrize("group", GROUPS)
def test_products_of_generators_are_all_elements(group: str) -> None:
    inputs = list_generators(group)
    assert len(set(inputs.tolist())) == 2
    table, reached = multiplication_table(group), {0}
    while more := {table[one, other] for one in reached for other in inputs} - reached:
        reached |= more
    assert reached == set(range(ORDERS[group]))


def test_elements_are_uniform_and_independent() -> None:
    inputs = list_swaps("S5")
    tokens = np.concatenate([draw_elements(inputs, 2, 0, stream) for stream in range(20)])
    counts = np.bincount(np.searchsorted(inputs, tokens) @ [len(inputs), 1], minlength=121)
    assert len(counts) == 121 and set(np.unique(tokens)) == set(inputs)
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 120) < 6 * math.sqrt(2 * 120)


def test_no_sequence_occurs_twice(tmp_path: Path) -> None:
    """Half of all sequences are asked for, so that most draws have to be rejected in the end."""
    task = Groups(group="S3", train_length=4, test_length=4, train=400, val=48, test=200)
    dataset = task.prepare(tmp_path)
    every = [
        tuple(row)
        for split in dataset.splits.values()
        for row in split.batch(np.arange(len(split))).inputs.reshape(-1, 4).tolist()
    ]
    assert len(set(every)) == len(every) == 648 == 6**4 // 2
    counts = np.bincount(np.array(every)[:, 0])
    assert np.abs(counts - 108).max() < 5 * math.sqrt(108), "no element is preferred"


def test_lengths_and_labels_of_splits(tmp_path: Path) -> None:
    task = Groups(group="A5", train_length=8, test_length=12, train=300, val=20, test=50)
    dataset = task.prepare(tmp_path)
    lengths = {name: {*split.lengths.tolist()} for name, split in dataset.splits.items()}
    assert lengths == {"train": {8}, "val": {12}, "test": {12}}
    assert task.info.max_length == 12 and task.info.goal.outputs == task.info.vocab_size == 60
    batch = dataset.splits["test"].batch(np.arange(50))
    tokens = batch.inputs.reshape(50, 12).numpy()
    assert batch.labels.reshape(50, 12).tolist() == running_products("A5", tokens).tolist()
    assert dataset.baselines["chance"] == pytest.approx(100 / 60)


def test_equal_hashes_are_equal_sequences() -> None:
    every = np.array(list(itertools.product(range(6), repeat=6)), dtype=np.uint8)
    assert len(np.unique(hash_sequences(every))) == len(every)
