"""ListOps: the generator's law, the official files, the cache."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import DataError
from conftest import ROOT
from made_data import write_archive
from tasks.base import Dataset
from tasks.listops.format import write_official
from tasks.listops.generate import generate
from tasks.listops.interpreter import (
    ExpressionStatistics,
    check_answers,
    compute_statistics,
    evaluate_expression,
)
from tasks.listops.law import OFFICIAL_LAW, TOKENS, Expressions, Law, grow
from tasks.listops.official import describe_excess, describe_shortfall
from tasks.listops.task import ListOps, PackedExpressions
from tasks.splits import Sequences

SHORT = Law(min_length=8, max_length=60, max_depth=10, max_arguments=10)
COUNTS = {"train": 300, "val": 50, "test": 60}


def texts(expressions: Expressions) -> list[list[str]]:
    ends = np.cumsum(expressions.lengths)
    words = [TOKENS[token - 1] for token in expressions.tokens]
    return [words[end - n : end] for end, n in zip(ends, expressions.lengths, strict=True)]


def answer(words: list[str]) -> int:
    """Evaluate by recursive descent, independently of the package's evaluators."""

    def parse(at: int) -> tuple[int, int, int]:
        if words[at].isdigit():
            return int(words[at]), at + 1, 1
        operator, arguments, at, depth = words[at], [], at + 1, 0
        while words[at] != "]":
            value, at, below = parse(at)
            arguments.append(value)
            depth = max(depth, below)
        assert 2 <= len(arguments) <= 10
        result = {
            "[MIN": np.min,
            "[MAX": np.max,
            "[MED": lambda a: int(np.median(a)),
            "[SM": lambda a: np.sum(a) % 10,
        }[operator](arguments)
        return int(result), at + 1, depth + 1

    value, end, depth = parse(0)
    assert end == len(words)
    assert depth <= 10
    return value


@pytest.mark.parametrize("law", [SHORT, OFFICIAL_LAW], ids=["short", "official"])
def test_answers_are_right(law: Law) -> None:
    expressions = grow(law, seed=5, group=0)
    assert len(expressions.lengths) > 50
    for words, label in zip(texts(expressions), expressions.labels, strict=True):
        assert law.min_length <= len(words) <= law.max_length
        assert answer(words) == label


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**60), group=st.integers(0, 2**40))
def test_answers_are_right_for_any_seed(seed: int, group: int) -> None:
    expressions = grow(SHORT, seed, group)
    for words, label in zip(texts(expressions)[:20], expressions.labels, strict=False):
        assert answer(words) == label


def test_law_has_the_measured_statistics() -> None:
    """Over 10,000 trees; tolerances are about 4 sigma of the published law's figures."""
    groups = [grow(OFFICIAL_LAW, seed=0, group=group) for group in range(32)]
    lengths = np.concatenate([group.lengths for group in groups])
    labels = np.concatenate([group.labels for group in groups])
    roots = np.concatenate([g.tokens[np.cumsum(g.lengths) - g.lengths] for g in groups])
    assert len(lengths) / (32 * 1024) == pytest.approx(0.331, abs=0.012)
    assert lengths.mean() == pytest.approx(1035.2, abs=16)
    assert lengths.std() == pytest.approx(394.5, abs=12)
    assert np.median(lengths) == pytest.approx(954, abs=22)
    expected = [0.1698, 0.0908, 0.0772, 0.0827, 0.0902, 0.0857, 0.0769, 0.0722, 0.0866, 0.1679]
    np.testing.assert_allclose(np.bincount(labels) / len(labels), expected, atol=0.016)
    np.testing.assert_allclose(np.bincount(roots)[11:15] / len(roots), 0.25, atol=0.018)


def test_generation_depends_on_law_seed_and_counts_alone() -> None:
    one, four = (generate(SHORT, 3, COUNTS, workers=n) for n in (1, 4))
    other = generate(SHORT, 4, COUNTS)
    for name, count in COUNTS.items():
        assert len(one[name].labels) == count
        assert np.array_equal(one[name].tokens, four[name].tokens)
        assert not np.array_equal(one[name].tokens, other[name].tokens)


def test_an_interrupt_while_its_threads_end_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: ThreadPoolExecutor, *arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(OFFICIAL_LAW, 0, {"train": 1}, workers=1)


def test_generation_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """The fingerprint of a small set, as first made; PYTHONHASHSEED does not matter."""
    code = (
        "import sys; from pathlib import Path; from tasks.listops.task import ListOps;"
        "print(ListOps(min_length=8, max_length=60, train=300, val=50, test=60)"
        ".prepare(Path(sys.argv[1])).fingerprint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "77")],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == FINGERPRINT
    task = ListOps(min_length=8, max_length=60, train=300, val=50, test=60)
    assert task.prepare(tmp_path / "here").fingerprint == FINGERPRINT


FINGERPRINT = "08729b3500e5c5a7eecdb8ca23ebe469407aa268347735a0ea61920c97092e07"


def test_no_expression_occurs_twice() -> None:
    tiny = Law(min_length=4, max_length=5, max_depth=3, max_arguments=3)
    splits = generate(tiny, 0, {"train": 1500, "val": 100, "test": 100})
    every = [" ".join(words) for split in splits.values() for words in texts(split)]
    assert len(set(every)) == len(every) == 1700


def test_exhausted_laws_are_refused() -> None:
    tiny = Law(min_length=4, max_length=4, max_depth=2, max_arguments=2)
    with pytest.raises(DataError, match="only 400 distinct expressions"):
        generate(tiny, 0, {"train": 500, "val": 1, "test": 1})


def small_task(**options: object) -> ListOps:
    return ListOps(min_length=8, max_length=60, **COUNTS, **options)  # pyright: ignore[reportArgumentType]


READ_SMALL = ListOps(**COUNTS)  # pyright: ignore[reportArgumentType]


def write_small_official(
    folder: Path, law: Law = SHORT, seed: int = 1, counts: Mapping[str, int] = COUNTS
) -> dict[str, Expressions]:
    folder.mkdir(parents=True, exist_ok=True)
    splits = generate(law, seed, counts)
    for name, split in splits.items():
        offsets = np.concatenate([[0], np.cumsum(split.lengths)])
        write_official(folder / f"basic_{name}.tsv", split.tokens, offsets, split.labels)
    return splits


def test_official_format_to_the_letter(tmp_path: Path) -> None:
    words = ["[MAX", "3", "[SM", "1", "2", "9", "]", "1", "]"]
    tokens = np.array([TOKENS.index(word) + 1 for word in words], dtype=np.uint8)
    write_official(tmp_path / "x.tsv", tokens, np.array([0, len(words)]), np.array([3]))
    expected = b"( ( ( ( [MAX 3 ) ( ( ( ( [SM 1 ) 2 ) 9 ) ] ) ) 1 ) ] )\t3\r\n"
    assert (tmp_path / "x.tsv").read_bytes() == b"Source\tTarget\r\n" + expected


@pytest.mark.parametrize("place", ["", "listops-1000", "lra_release/lra_release/listops-1000"])
@pytest.mark.parametrize("is_archive", [False, True])
def test_official_files_are_found_and_read(tmp_path: Path, place: str, is_archive: bool) -> None:
    folder = tmp_path / "written" if is_archive else tmp_path / place
    written = write_small_official(folder)
    if is_archive:
        files = {f"{place}/{path.name}": path.read_bytes() for path in folder.iterdir()}
        archive = write_archive(tmp_path / "a.tar.gz", {**files, "lra_release/readme": b"x"})
        archive.rename(tmp_path / "lra_release.gz")
        shutil.rmtree(folder)
    dataset = ListOps().prepare(tmp_path)
    assert dataset.fingerprint == ListOps().prepare(tmp_path).fingerprint
    assert dataset.source == "unofficial"
    for name, split in dataset.splits.items():
        assert np.array_equal(split.labels, written[name].labels)
        inputs = split.batch(np.arange(len(split))).inputs.numpy()
        assert np.array_equal(inputs[inputs != 16], written[name].tokens)


def test_export_reads_back_to_the_same_data(tmp_path: Path) -> None:
    task = small_task()
    dataset = task.prepare(tmp_path / "a")
    task.export(dataset, tmp_path / "b")
    again = READ_SMALL.prepare(tmp_path / "b")
    assert dataset.source == "generated"
    assert again.source == "unofficial", "an export is not the release, nor of another law"
    assert again.unofficial_because.startswith("its expressions have 8 to")
    READ_SMALL.verify(again)
    for name, split in dataset.splits.items():
        everything = np.arange(len(split))
        assert np.array_equal(again.splits[name].labels, split.labels)
        assert again.splits[name].batch(everything).inputs.equal(split.batch(everything).inputs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"( ( [MAX 3 ) ] )", "1 tab-separated fields, expected 2"),
        (b"( ( [MAP 3 ) ] )\t3", r"unknown token '\[MAP'"),
        (b"( ( [MAX 12 ) ] )\t3", "unknown token '12'"),
        (b"( ( [MAX 3 ) ] )\t12", "expected a digit"),
        (b"\t3", "the expression is empty"),
        (b"5\t5", "is malformed: token 1, '5', stands outside the brackets of an operator"),
        (b"( ( ( [MAX 3 ) 4 )\t4", "3 parentheses open, but 2 close"),
        (b"[MAX 3 4\t4", "the brackets do not match: 1 operators are not closed"),
        (b"[MAX 3 4 ] [MIN 1 2 ]\t4", "token 4, '\\]', ends the expression, but more follows"),
        (b"[MAX [MIN ] 4 ]\t4", "token 3, '\\]', closes an operator that has no arguments"),
        (b"[MED 3 4 9 8 ]\t7", "the expression is worth 6, but its label is 7"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, line: bytes, message: str) -> None:
    write_small_official(tmp_path)
    path = tmp_path / "basic_val.tsv"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = line + b"\r\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=f"basic_val.tsv:8: .*{message}"):
        READ_SMALL.prepare(tmp_path)
    assert not list((tmp_path / "listops").glob("*/manifest.json"))


def test_incomplete_official_files_are_not_passed_over(tmp_path: Path) -> None:
    write_small_official(tmp_path)
    (tmp_path / "basic_test.tsv").unlink()
    with pytest.raises(DataError, match=r"lacks basic_test.tsv"):
        ListOps().prepare(tmp_path)


def test_truncated_official_files_are_not_official(tmp_path: Path) -> None:
    write_small_official(tmp_path)
    path = tmp_path / "basic_test.tsv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    with pytest.raises(DataError, match=r"other data than the official.*test 57; expected"):
        ListOps(source="official").prepare(tmp_path)
    dataset = ListOps().prepare(tmp_path)
    assert (dataset.source, dataset.sizes["test"]) == ("unofficial", 57)


def test_official_files_that_change_are_noticed(tmp_path: Path) -> None:
    write_small_official(tmp_path)
    first = READ_SMALL.prepare(tmp_path)
    path = tmp_path / "basic_test.tsv"
    content = path.read_bytes()
    path.write_bytes(content)  # another time, the same content
    assert READ_SMALL.prepare(tmp_path).fingerprint == first.fingerprint
    last = content.rstrip()[-1:]
    path.write_bytes(content.rstrip()[:-1] + (b"1" if last == b"0" else b"0") + b"\r\n")
    with pytest.raises(DataError, match=r"basic_test.tsv has changed since"):
        READ_SMALL.prepare(tmp_path)


def test_expressions_longer_than_the_model_are_refused_by_line(tmp_path: Path) -> None:
    write_small_official(tmp_path)
    path = tmp_path / "basic_val.tsv"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = b"[MAX " + b"3 " * 2500 + b"]\t3\r\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(DataError) as caught:
        READ_SMALL.prepare(tmp_path)
    for text in (f"{path}:8: ", "2,503 positions", "task.sequence_length=2048"):
        assert text in str(caught.value)
    longer = ListOps(sequence_length=2503, **COUNTS)  # pyright: ignore[reportArgumentType]
    assert longer.prepare(tmp_path).splits["val"].lengths.max() == 2503


RESAVED: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "a column of numbers": (lambda text: text.replace(b"Sou", b"\tSou"), r"header is '\\tSource"),
    "quotes": (lambda text: text.replace(b"Source", b'"Source"'), "its fields are in quotes"),
    "commas": (lambda text: text.replace(b"\t", b","), "header is 'Source,Target'"),
    "two bytes a character": (lambda text: text.decode().encode("utf-16"), "it is UTF-16 text"),
}


@pytest.mark.parametrize("case", RESAVED)
def test_files_that_another_program_saved_again_are_refused(tmp_path: Path, case: str) -> None:
    write_small_official(tmp_path)
    change, trace = RESAVED[case]
    path = tmp_path / "basic_val.tsv"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"basic_val.tsv: .*{trace}.*saved this file again"):
        ListOps().prepare(tmp_path)


def test_a_byte_order_mark_and_other_line_ends_change_nothing(tmp_path: Path) -> None:
    write_small_official(tmp_path / "a")
    write_small_official(tmp_path / "b")
    for path in (tmp_path / "b").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\n", b"\n"))
    one, other = (ListOps().prepare(tmp_path / folder) for folder in "ab")
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    "name", ["Basic_train.TSV", "basic_train (1).tsv", "basic_train.tsv.txt", "lra_release.tar"]
)
def test_a_name_that_is_nearly_right_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "listops" / name
    path.parent.mkdir()
    path.touch()
    with pytest.raises(DataError, match=rf"almost such a name: {re.escape(str(path))}\..*generate"):
        ListOps().prepare(tmp_path)
    assert list(tmp_path.iterdir()) == [path.parent]
    assert small_task().prepare(tmp_path).source == "generated", "of another law"


def test_operators_without_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no arguments"):
        evaluate_expression(bytes([13, 15]))
    with pytest.raises(ValueError, match="do not match"):
        evaluate_expression(bytes([13, 1]))


def expressions_of(*rows: list[int], labels: list[int] | None = None) -> Expressions:
    tokens = np.array([token for row in rows for token in row], dtype=np.uint8)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return Expressions(tokens, lengths, np.array(labels or [0] * len(rows), dtype=np.uint8))


@pytest.mark.parametrize(
    "text",
    [
        "5 [MAX 1 2 ]",
        "[MAX 1 2 ] [MIN 3 4 ]",
        "[MAX 1 2 ] ]",
        "5",
        "",
        "]",
        "[MAX ]",
        "[MAX 1 2 ] 3",
    ],
)
def test_malformed_expressions_have_no_value(text: str) -> None:
    tokens = [TOKENS.index(word) + 1 for word in text.split()]
    with pytest.raises(ValueError, match=r"token|brackets"):
        evaluate_expression(bytes(tokens))
    assert compute_statistics(expressions_of(tokens)).values.tolist() == [-1]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(st.integers(1, 15), max_size=12), min_size=1, max_size=4))
def test_compiled_evaluation_is_the_plain_one_for_any_tokens(rows: list[list[int]]) -> None:
    def value(row: list[int]) -> int:
        try:
            return evaluate_expression(bytes(row))
        except ValueError:
            return -1

    assert compute_statistics(expressions_of(*rows)).values.tolist() == [value(row) for row in rows]


@pytest.mark.parametrize("law", [SHORT, OFFICIAL_LAW], ids=["short", "official"])
def test_compiled_evaluation_is_the_plain_one_on_the_law(law: Law) -> None:
    expressions = grow(law, seed=3, group=1)
    found = compute_statistics(expressions)
    ends = np.cumsum(expressions.lengths)
    starts = ends - expressions.lengths
    parts = [expressions.tokens[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]
    assert found.values.tolist() == [evaluate_expression(part) for part in parts]
    assert (found.values == expressions.labels).all()
    assert found.fewest.min() == 2
    assert found.most.max() == 10
    steps = [np.cumsum([(t >= 11) - 2 * (t == 15) for t in part]) for part in parts]
    assert found.depths.tolist() == [int(step.max()) for step in steps]


def test_wrong_answers_are_counted() -> None:
    rows = [[12, 3, 4, 15]] * 3
    expressions = expressions_of(*rows, labels=[3, 9, 8])
    with pytest.raises(DataError, match=r"here 1: .* worth 3, but its label is 9 \(2 such"):
        check_answers(expressions, compute_statistics(expressions), lambda i: f"here {i}")


OFFICIAL_FEW = {"train": 400, "val": 20, "test": 20}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small numbers for those of the release."""
    for module in ("official", "task"):
        monkeypatch.setattr(f"tasks.listops.{module}.OFFICIAL_COUNTS", OFFICIAL_FEW)


def prepared_few(folder: Path, source: str = "auto") -> Dataset:
    return ListOps(source=source, **OFFICIAL_FEW).prepare(folder)  # pyright: ignore


@pytest.mark.usefixtures("few")
def test_files_with_the_numbers_and_the_law_are_official(tmp_path: Path) -> None:
    write_small_official(tmp_path, OFFICIAL_LAW, 10**6, OFFICIAL_FEW)
    dataset = prepared_few(tmp_path, "official")
    assert (dataset.source, dataset.unofficial_because) == ("official", "")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"min_length": 490}, "its expressions have 49. to 1,9.. tokens, those of the release 501"),
        ({"max_length": 2020}, "to 2,0.. tokens, those of the release 501 to 1,999"),
        ({"max_arguments": 8}, "its operators have 2 to 8 arguments, those of the release 2 to 10"),
        ({"max_depth": 20}, "its operators are nested up to 1[0-9] deep, those of the release up"),
    ],
)
def test_files_of_another_law_are_not_official(
    tmp_path: Path, change: dict[str, int], reason: str
) -> None:
    """As expressions of Nangia and Bowman's law, with the numbers of the release."""
    law = dataclasses.replace(OFFICIAL_LAW, **change)
    write_small_official(tmp_path, law, 10**6, OFFICIAL_FEW)
    dataset = prepared_few(tmp_path)
    assert dataset.source == "unofficial"
    assert re.search(reason, dataset.unofficial_because)
    with pytest.raises(DataError, match=reason):
        prepared_few(tmp_path, "official")


def test_an_export_of_the_official_law_is_generated_again(tmp_path: Path) -> None:
    counts = {"train": 5, "val": 1, "test": 1}
    task = ListOps(data_seed=10**6, **counts)  # pyright: ignore[reportArgumentType]
    task.export(task.prepare(tmp_path / "a"), tmp_path / "b")
    again = ListOps(**counts).prepare(tmp_path / "b")  # pyright: ignore[reportArgumentType]
    assert (again.source, again.unofficial_because) == ("generated", "")
    with pytest.raises(DataError, match="other data than the official"):
        ListOps(source="official").prepare(tmp_path / "b")


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", [7, 99])
def test_our_expressions_are_known_without_a_mark(tmp_path: Path, seed: int) -> None:
    write_small_official(tmp_path, OFFICIAL_LAW, seed, OFFICIAL_FEW)
    path = tmp_path / "basic_train.tsv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:], lines[1]]))
    reason = f"it holds what this suite generates with task.data_seed={seed}"
    assert prepared_few(tmp_path).unofficial_because == reason


def surveyed(
    **changes: list[int],
) -> tuple[dict[str, Expressions], dict[str, ExpressionStatistics]]:
    """Make two examples a split that meet the official law, and change those of the test split."""
    splits, surveys = {}, {}
    for name in COUNTS:
        facts = {"lengths": [501, 1999], "depths": [9, 8], "fewest": [2, 2], "most": [10, 9]}
        facts |= {"labels": [0, 1]} | (changes if name == "test" else {})
        arrays = {key: np.array(values) for key, values in facts.items()}
        tokens, labels = np.zeros(0, np.uint8), arrays.pop("labels")
        splits[name] = Expressions(tokens, arrays.pop("lengths"), labels)
        surveys[name] = ExpressionStatistics(values=labels, **arrays)
    return splits, surveys


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lengths": [500, 1999]}, "have 500 to 1,999 tokens"),
        ({"lengths": [501, 2000]}, "have 501 to 2,000 tokens"),
        ({"fewest": [1, 2]}, "have 1 to 10 arguments"),
        ({"most": [11, 9]}, "have 2 to 11 arguments"),
        ({"depths": [10, 9]}, "nested up to 10 deep"),
    ],
)
def test_one_split_beyond_the_law_is_enough(changes: dict[str, list[int]], reason: str) -> None:
    assert reason in describe_excess(*surveyed(**changes))
    assert describe_excess(*surveyed()) == ""


def test_what_falls_short_of_the_law_is_named() -> None:
    splits, surveys = surveyed()
    assert describe_shortfall(splits, surveys).startswith("its examples are of 2 classes")
    whole = {**splits, "val": dataclasses.replace(splits["val"], labels=np.arange(10))}
    assert describe_shortfall(whole, surveys) == ""
    for field, value, reason in (
        ("depths", 8, "nested up to 8 deep"),
        ("fewest", 3, "have 3 to 10 arguments"),
        ("most", 9, "have 2 to 9 arguments"),
    ):
        changed = {name: s._replace(**{field: np.full(2, value)}) for name, s in surveys.items()}
        assert reason in describe_shortfall(whole, changed)


def test_marks_count_for_the_files_that_they_were_written_for(tmp_path: Path) -> None:
    dataset = small_task().prepare(tmp_path / "a")
    small_task().export(dataset, tmp_path / "b")
    path = tmp_path / "b" / "basic_val.tsv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    again = READ_SMALL.prepare(tmp_path / "b")
    assert again.source == "unofficial"
    assert "exported-from" in again.unofficial_because


def test_exports_never_overwrite_other_files(tmp_path: Path) -> None:
    write_small_official(tmp_path / "theirs")
    before = (tmp_path / "theirs/basic_val.tsv").read_bytes()
    dataset = small_task().prepare(tmp_path)
    with pytest.raises(DataError, match="which an export would overwrite"):
        small_task().export(dataset, tmp_path / "theirs")
    assert (tmp_path / "theirs/basic_val.tsv").read_bytes() == before
    for _ in range(2):
        small_task().export(dataset, tmp_path / "ours")


def test_missing_official_files_are_listed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"basic_train.tsv .with basic_val.tsv and .*lra_rel"):
        ListOps(source="official").prepare(tmp_path)


def test_official_source_needs_the_official_law(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"leave\s+min_length"):
        small_task(source="official").prepare(tmp_path)


@pytest.mark.parametrize("options", [{"data_seed": 1}, {"test": 30}])
def test_official_files_never_stand_in_for_other_settings(
    tmp_path: Path, options: dict[str, int]
) -> None:
    write_small_official(tmp_path)
    small = ListOps(**{**COUNTS, **options})  # pyright: ignore[reportArgumentType]
    for _ in ("before and", "after they are read"):
        assert ListOps()._official(tmp_path)
        assert READ_SMALL._official(tmp_path)
        assert small._official(tmp_path) is None
        ListOps().prepare(tmp_path)


def test_manifest_says_what_the_data_is(tmp_path: Path) -> None:
    dataset = small_task().prepare(tmp_path)
    manifest = json.loads((dataset.folder / "manifest.json").read_text())
    assert manifest["source"] == "generated"
    assert manifest["request"]["law"]["max_length"] == 60
    assert manifest["request"]["seed"] == 0
    assert manifest["sizes"] == COUNTS == dataset.sizes
    assert len(manifest["files"]) == 9
    assert dataset.baselines.keys() == {"majority class", "root operator"}


def test_baselines_are_what_they_say(tmp_path: Path) -> None:
    dataset = small_task().prepare(tmp_path)
    train, test = dataset.splits["train"], dataset.splits["test"]
    first = {"train": [], "test": []}
    for name, split in (("train", train), ("test", test)):
        batch = split.batch(np.arange(len(split)))
        starts = np.cumsum(batch.lengths.numpy()[:, 0]) - batch.lengths.numpy()[:, 0]
        first[name] = batch.inputs.numpy()[starts].tolist()
    by_root = {
        root: np.bincount(train.labels[np.array(first["train"]) == root]).argmax()
        for root in set(first["train"])
    }
    hits = [by_root[r] == y for r, y in zip(first["test"], test.labels, strict=True)]
    assert dataset.baselines["root operator"] == pytest.approx(100 * np.mean(hits))
    majority = np.bincount(train.labels).argmax()
    accuracy = (test.labels == majority).mean()
    assert dataset.baselines["majority class"] == pytest.approx(100 * accuracy)


def test_verify_passes_and_notices_wrong_answers(tmp_path: Path) -> None:
    task = small_task()
    dataset = task.prepare(tmp_path)
    assert any("410 answers" in line for line in task.verify(dataset))
    labels = np.load(dataset.folder / "val_labels.npy")
    labels[3] = (labels[3] + 1) % 10
    np.save(dataset.folder / "val_labels.npy", labels)
    with pytest.raises(DataError, match=r"checksum of val_labels.npy differs"):
        task.verify(dataset)


def test_protocol_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    with_end = small_task(end_token=True).prepare(tmp_path)
    without = small_task(end_token=False).prepare(tmp_path)
    assert with_end.folder == without.folder
    assert with_end.fingerprint != without.fingerprint
    assert (with_end.splits["val"].lengths == without.splits["val"].lengths + 1).all()


@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 70, "max_length": 60},
        {"max_length": 60, "sequence_length": 60, "min_length": 8},
    ],
)
def test_contradicting_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="length"):
        ListOps(**options)  # pyright: ignore[reportArgumentType]


def test_metadata_is_that_of_the_expressions() -> None:
    texts = ["[MIN 1 2 ]", "[SM 4 [MAX 1 [MED 3 4 5 ] ] [MIN 1 2 ] ]", "[MAX 9 [SM 1 2 ] ]"]
    rows = [[TOKENS.index(word) + 1 for word in text.split()] for text in texts]
    offsets = np.cumsum([0, *map(len, rows)])
    tokens = np.concatenate(rows).astype(np.uint8)
    split = PackedExpressions(Sequences(tokens, offsets), np.zeros(3, np.uint8))
    metadata = split.metadata()
    assert metadata["depth"].tolist() == [1, 3, 2]
    assert metadata["root operator"].tolist() == ["MIN", "SM", "MAX"]


def test_the_vocabulary_can_have_a_token_for_the_unknown() -> None:
    """18 as in S4's pipeline, which no expression holds the last of."""
    assert ListOps().info.vocab_size == 17
    assert ListOps(unknown_token=True).info.vocab_size == 18
