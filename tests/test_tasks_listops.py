"""ListOps: the generator's law, the official files, the cache."""

import dataclasses
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lra.common.errors import DataError
from lra.tasks.base import Dataset
from lra.tasks.listops.files import write_official
from lra.tasks.listops.law import OFFICIAL_LAW, TOKENS, Expressions, Law, evaluate, generate, grow
from lra.tasks.listops.task import ListOps, PackedExpressions
from lra.tasks.splits import Sequences
from made_data import write_archive

SHORT = Law(min_length=8, max_length=60, max_depth=10, max_arguments=10)
COUNTS: dict[str, Any] = {"train": 300, "val": 50, "test": 60}
OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda arguments: int(np.median(arguments)),
    "[SM": lambda arguments: sum(arguments) % 10,
}


def encode(text: str) -> list[int]:
    return [TOKENS.index(word) + 1 for word in text.split()]


def answer(tokens: bytes) -> tuple[int, list[int]]:
    """Evaluate by recursive descent: the value, and all numbers of arguments, the root's last.

    Raises: AssertionError, IndexError or KeyError for an expression that is malformed.
    """
    words = [TOKENS[token - 1] for token in tokens]

    def parse(at: int) -> tuple[int, int, list[int]]:
        if words[at].isdigit():
            return int(words[at]), at + 1, []
        operation, found, numbers, end = OPERATIONS[words[at]], [], [], at + 1
        while words[end] != "]":
            value, end, inner = parse(end)
            found.append(value)
            numbers += inner
        assert found
        return operation(found), end + 1, [*numbers, len(found)]

    value, end, numbers = parse(0)
    assert end == len(words) and numbers
    return value, numbers


def value_of(tokens: bytes) -> int:
    try:
        return answer(tokens)[0]
    except (AssertionError, IndexError, KeyError):
        return -1


@pytest.mark.parametrize("law", [SHORT, OFFICIAL_LAW], ids=["short", "official"])
def test_answers_are_right(law: Law) -> None:
    expressions = grow(law, seed=5, group=0)
    values = [answer(text)[0] for text in expressions.list_texts()]
    assert values == expressions.labels.tolist() == evaluate(expressions).tolist()
    lengths = expressions.lengths
    assert len(values) > 50
    assert law.min_length <= lengths.min() <= lengths.max() <= law.max_length


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(st.integers(1, 15), min_size=1, max_size=12), min_size=1, max_size=4))
def test_evaluation_is_the_plain_one_for_any_tokens(rows: list[list[int]]) -> None:
    tokens = np.array([token for row in rows for token in row], dtype=np.uint8)
    lengths = np.array([len(row) for row in rows])
    found = evaluate(Expressions(tokens, lengths, np.zeros(len(rows), dtype=np.uint8)))
    assert found.tolist() == [value_of(bytes(row)) for row in rows]


def test_nodes_are_as_likely_as_published() -> None:
    """A quarter of the nodes between root and leaves is an operator; all choices are uniform."""
    law = Law(min_length=1, max_length=10**6, max_depth=3, max_arguments=10)
    expressions = grow(law, seed=0, group=0)
    numbers = np.concatenate([answer(text)[1] for text in expressions.list_texts()])
    children = sum(answer(text)[1][-1] for text in expressions.list_texts())
    assert (len(numbers) - 1024) / children == pytest.approx(0.25, abs=0.02)
    np.testing.assert_allclose(np.bincount(numbers)[2:] / len(numbers), 1 / 9, atol=0.025)
    kinds = np.bincount(expressions.tokens)
    np.testing.assert_allclose(kinds[1:11] / kinds[1:11].sum(), 0.1, atol=0.01)
    np.testing.assert_allclose(kinds[11:15] / kinds[15], 0.25, atol=0.03)


def test_generation_depends_on_law_seed_and_counts_alone() -> None:
    one, four = (generate(SHORT, 3, COUNTS, workers=n) for n in (1, 4))
    other = generate(SHORT, 4, COUNTS)
    for name, count in COUNTS.items():
        assert len(one[name].labels) == count
        assert np.array_equal(one[name].tokens, four[name].tokens)
        assert not np.array_equal(one[name].tokens, other[name].tokens)


def test_no_expression_occurs_twice() -> None:
    tiny = Law(min_length=4, max_length=5, max_depth=3, max_arguments=3)
    splits = generate(tiny, 0, {"train": 1500, "val": 100, "test": 100})
    every = [text for split in splits.values() for text in split.list_texts()]
    assert len(set(every)) == len(every) == 1700
    four = dataclasses.replace(tiny, max_length=4, max_depth=2)
    with pytest.raises(DataError, match="only 400 distinct expressions"):
        generate(four, 0, {"train": 500, "val": 1, "test": 1})


def small_task(**options: Any) -> ListOps:
    return ListOps(min_length=8, max_length=60, **COUNTS, **options)


def write_small(
    folder: Path, law: Law = SHORT, seed: int = 1, counts: Mapping[str, int] = COUNTS
) -> dict[str, Expressions]:
    """Write files in the official format."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = generate(law, seed, counts)
    for name, split in splits.items():
        write_official(folder / f"basic_{name}.tsv", split)
    return splits


def edit_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_official_format_to_the_letter(tmp_path: Path) -> None:
    tokens = np.array(encode("[MAX 3 [SM 1 2 9 ] 1 ]"), dtype=np.uint8)
    write_official(tmp_path / "x.tsv", Expressions(tokens, np.array([9]), np.array([3])))
    expected = b"( ( ( ( [MAX 3 ) ( ( ( ( [SM 1 ) 2 ) 9 ) ] ) ) 1 ) ] )\t3\r\n"
    assert (tmp_path / "x.tsv").read_bytes() == b"Source\tTarget\r\n" + expected


@pytest.mark.parametrize(
    ("place", "is_archive"),
    [("lra_release/listops-1000", False), ("lra_release/lra_release/listops", True)],
)
def test_official_files_are_found_and_read(tmp_path: Path, place: str, is_archive: bool) -> None:
    folder = tmp_path / "written" if is_archive else tmp_path / place
    written = write_small(folder)
    if is_archive:
        files = {f"{place}/{path.name}": path.read_bytes() for path in folder.iterdir()}
        archive = write_archive(tmp_path / "a.tar.gz", {**files, "lra_release/readme": b"x"})
        archive.rename(tmp_path / "lra_release.gz")
        shutil.rmtree(folder)
    dataset = ListOps().prepare(tmp_path)
    assert dataset.source == "unofficial"
    for name, split in dataset.splits.items():
        assert np.array_equal(split.labels, written[name].labels)
        inputs = split.batch(np.arange(len(split))).inputs.numpy()
        assert np.array_equal(inputs[inputs != 16], written[name].tokens)


def test_export_reads_back_to_the_same_data(tmp_path: Path) -> None:
    dataset = small_task().prepare(tmp_path / "a")
    for _ in range(2):  # over its own files, too
        small_task().export(dataset, tmp_path / "b")
    again = ListOps().prepare(tmp_path / "b")
    assert dataset.source == "generated"
    assert again.source == "unofficial", "an export is not the release, nor of another law"
    assert again.unofficial_because == "its expressions follow another law than the release"
    assert ListOps().verify(again)
    for name, split in dataset.splits.items():
        everything = np.arange(len(split))
        assert np.array_equal(again.splits[name].labels, split.labels)
        assert again.splits[name].batch(everything).inputs.equal(split.batch(everything).inputs)


def test_an_export_of_the_official_law_is_generated(tmp_path: Path) -> None:
    counts: dict[str, Any] = {"train": 5, "val": 1, "test": 1}
    task = ListOps(data_seed=10**6, **counts)
    task.export(task.prepare(tmp_path / "a"), tmp_path / "b")
    again = ListOps().prepare(tmp_path / "b")
    assert (again.source, again.unofficial_because) == ("generated", "")
    with pytest.raises(DataError, match="other data than the official"):
        ListOps(source="official").prepare(tmp_path / "b")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"( ( [MAX 3 ) ] )", "got .*, expected an expression of 0 1 .*, a tab and a digit"),
        (b"( ( [MAX 3 ) ] )\t12", "unknown token b'12'"),
        (b"\t3", "the expression is empty"),
        (b"[MAX 3 4\t4", "is malformed"),
        (b"[MED 3 4 9 8 ]\t7", "the expression is worth 6, but its label is 7"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, line: bytes, message: str) -> None:
    write_small(tmp_path)
    path = tmp_path / "basic_val.tsv"
    edit_lines(path, lambda lines: [*lines[:7], line + b"\r\n", *lines[8:]])
    with pytest.raises(DataError, match=f"basic_val.tsv:8: .*{message}"):
        ListOps().prepare(tmp_path)
    assert not list((tmp_path / "listops").glob("*/manifest.json"))


def test_incomplete_files_are_neither_passed_over_nor_official(tmp_path: Path) -> None:
    write_small(tmp_path)
    path = tmp_path / "basic_test.tsv"
    edit_lines(path, lambda lines: lines[:-3])
    with pytest.raises(DataError, match=r"other data than the official.*test 57; expected"):
        ListOps(source="official").prepare(tmp_path)
    dataset = ListOps().prepare(tmp_path)
    assert (dataset.source, dataset.sizes["test"]) == ("unofficial", 57)
    shutil.rmtree(tmp_path / "listops")
    path.unlink()
    with pytest.raises(DataError, match=r"lacks basic_test.tsv"):
        ListOps().prepare(tmp_path)


def test_expressions_longer_than_the_model_are_refused(tmp_path: Path) -> None:
    write_small(tmp_path)
    line = b"[MAX " + b"3 " * 2500 + b"]\t3\r\n"
    edit_lines(tmp_path / "basic_val.tsv", lambda lines: [*lines, line])
    with pytest.raises(DataError, match=r"2,503 positions, .* use task.sequence_length=2503"):
        ListOps().prepare(tmp_path)
    longer = ListOps(sequence_length=2503)
    assert longer.prepare(tmp_path).splits["val"].lengths.max() == 2503


def test_missing_files_and_nearly_right_names_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"basic_train.tsv .with basic_val.tsv and .*lra_rel"):
        ListOps(source="official").prepare(tmp_path)
    (tmp_path / "Basic_train.TSV").touch()
    with pytest.raises(DataError, match=r"almost such a name: .*Basic_train\.TSV\. .*generate"):
        ListOps().prepare(tmp_path)
    assert small_task().prepare(tmp_path).source == "generated", "of another law"


FEW: dict[str, Any] = {"train": 400, "val": 20, "test": 20}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small numbers for those of the release."""
    for module in ("files", "task"):
        monkeypatch.setattr(f"lra.tasks.listops.{module}.OFFICIAL_COUNTS", FEW)


def read_few(folder: Path, source: Any = "auto") -> Dataset:
    return ListOps(source=source, **FEW).prepare(folder)


@pytest.mark.usefixtures("few")
def test_official_files_have_the_numbers_and_the_lengths_of_the_release(tmp_path: Path) -> None:
    write_small(tmp_path / "a", OFFICIAL_LAW, 10**6, FEW)
    dataset = read_few(tmp_path / "a", "official")
    assert (dataset.source, dataset.unofficial_because) == ("official", "")
    write_small(tmp_path / "b", dataclasses.replace(OFFICIAL_LAW, max_length=2020), 10**6, FEW)
    reason = "to 2,0.. tokens, those of the release 501 to 1,999"
    assert re.search(reason, read_few(tmp_path / "b").unofficial_because)
    with pytest.raises(DataError, match=reason):
        read_few(tmp_path / "b", "official")


@pytest.mark.usefixtures("few")
def test_our_expressions_are_known_without_a_mark(tmp_path: Path) -> None:
    write_small(tmp_path, OFFICIAL_LAW, 99, FEW)
    edit_lines(tmp_path / "basic_train.tsv", lambda lines: [*lines[:1], *lines[2:], lines[1]])
    reason = "it holds what this suite generates with task.data_seed=99"
    assert read_few(tmp_path).unofficial_because == reason


@pytest.mark.parametrize("options", [{"data_seed": 1}, {"test": 30}, {"max_depth": 9}])
def test_official_files_never_stand_in_for_other_settings(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    write_small(tmp_path)
    for _ in ("before and", "after they are read"):
        assert ListOps().plan(tmp_path).describe()[:4] in ("read", "")
        assert ListOps(**options).plan(tmp_path).describe().startswith("generate")
        ListOps().prepare(tmp_path)


def test_baselines_are_what_they_say(tmp_path: Path) -> None:
    dataset = small_task().prepare(tmp_path)
    labels, roots = {}, {}
    for name in ("train", "test"):
        split = dataset.splits[name]
        labels[name], roots[name] = split.labels, split.metadata()["root operator"]
    best = {
        root: np.bincount(labels["train"][roots["train"] == root]).argmax()
        for root in set(roots["train"])
    }
    hits = [best[root] == y for root, y in zip(roots["test"], labels["test"], strict=True)]
    assert dataset.baselines["root operator"] == pytest.approx(100 * np.mean(hits))


def test_verify_evaluates_again(tmp_path: Path) -> None:
    task = small_task()
    dataset = task.prepare(tmp_path)
    assert any("410 answers" in line for line in task.verify(dataset))
    labels = np.load(dataset.folder / "val_labels.npy")
    labels[3] = (labels[3] + 1) % 10
    np.save(dataset.folder / "val_labels.npy", labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lra.tasks.cache.Cache.check_files", lambda *_, **__: None)
        with pytest.raises(DataError, match="val example 3: the expression is worth"):
            task.verify(dataset)


def test_protocol_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    with_end, without = (small_task(end_token=end).prepare(tmp_path) for end in (True, False))
    assert with_end.folder == without.folder
    assert with_end.fingerprint != without.fingerprint
    assert (with_end.splits["val"].lengths == without.splits["val"].lengths + 1).all()
    sizes = [ListOps(unknown_token=unknown).info.vocab_size for unknown in (False, True)]
    assert sizes == [17, 18], "18 as in S4's pipeline, which no expression holds the last of"


def test_metadata_is_that_of_the_expressions() -> None:
    texts = ["[MIN 1 2 ]", "[SM 4 [MAX 1 [MED 3 4 5 ] ] [MIN 1 2 ] ]", "[MAX 9 [SM 1 2 ] ]"]
    rows = [encode(text) for text in texts]
    offsets = np.cumsum([0, *map(len, rows)])
    tokens = np.concatenate(rows).astype(np.uint8)
    metadata = PackedExpressions(Sequences(tokens, offsets), np.zeros(3, np.uint8)).metadata()
    assert metadata["depth"].tolist() == [1, 3, 2]
    assert metadata["root operator"].tolist() == ["MIN", "SM", "MAX"]
