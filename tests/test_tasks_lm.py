"""Language modelling: texts of every file structure in bytes and words, in windows."""

import gzip
import lzma
import math
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.common.errors import DataError
from lra.tasks.base import Dataset
from lra.tasks.lm import LanguageModelling, baselines
from made_data import real_data, wikitext, write_archive, write_files, write_zip

SPLITS = ("train", "val", "test")
FILES = wikitext()
TEXTS = {
    split: FILES[f"wikitext-2/wiki.{name}.tokens"]
    for split, name in zip(SPLITS, ("train", "valid", "test"), strict=True)
}
PLAY = b"".join(b"ROMEO: line %d of the play,\nand on.\n\n" % i for i in range(100))


def small(**options: Any) -> LanguageModelling:
    """Make a task that a few lines are enough for."""
    return LanguageModelling(**{"sequence_length": 16, **options})


def tokens(dataset: Dataset, split: str) -> np.ndarray:
    """Put the tokens of a split together again: the first input, and all labels."""
    found = dataset.splits[split]
    first = found.batch(np.array([0])).inputs[:1].numpy()
    return np.concatenate([first, found.labels.astype(np.int64)])


def text(dataset: Dataset, split: str) -> bytes:
    """Turn a split of bytes back into text."""
    return tokens(dataset, split).astype(np.uint8).tobytes()


def written(task: LanguageModelling, dataset: Dataset, numbers: np.ndarray) -> bytes:
    vocabulary = task.vocabulary(lambda: dataset)
    return b"".join(vocabulary.decode(number) for number in numbers.tolist())


def place(data_dir: Path, kind: str) -> Path:
    """Put the same text somewhere that people have it."""
    short = {name.replace("wiki.", "").replace("tokens", "txt"): c for name, c in FILES.items()}
    deep = {name.replace("wikitext-2", "wikitext-2-v1/wikitext-2"): c for name, c in FILES.items()}
    if kind == "zip":
        return write_zip(data_dir / "wikitext-2-v1.zip", {"wikitext-2/": b"", **FILES})
    if kind.startswith("tar"):
        return write_archive(data_dir / "deep" / f"wikitext-2.{kind}", short)
    return write_files(data_dir, {"short names": short, "nested": deep}[kind])


@pytest.mark.parametrize("kind", ["tar.gz", "nested"])
def test_every_file_structure_gives_the_same_data(tmp_path: Path, kind: str) -> None:
    place(tmp_path / "one", kind)
    dataset = small().prepare(tmp_path / "one")
    assert {split: text(dataset, split) for split in SPLITS} == TEXTS
    assert dataset.source == "unofficial"
    assert dataset.unofficial_because.startswith("the checksum is not that of the release")
    place(tmp_path / "two", "zip")
    assert small().prepare(tmp_path / "two").fingerprint == dataset.fingerprint
    assert dataset.fingerprint.startswith("89d3f8fe"), "the same in any version"


def test_the_raw_version_is_another_text(tmp_path: Path) -> None:
    write_zip(tmp_path / "wikitext-2-raw-v1.zip", FILES)
    with pytest.raises(DataError, match=r"expected wikitext-2\*\.zip .* Get https://wikitext"):
        small().prepare(tmp_path)


def expected_words(content: bytes) -> list[bytes]:
    """Split a text as others do: line by line."""
    lines = content.split(b"\n")
    words = [word for line in lines[:-1] for word in [*line.split(), b"<eos>"]]
    return words + lines[-1].split()


def test_words_are_numbered_by_how_often_they_occur(tmp_path: Path) -> None:
    write_zip(tmp_path / "wikitext-2.zip", FILES | {
        "wikitext-2/wiki.test.tokens": TEXTS["test"] + b" \n a new fox \n"
    })  # fmt: skip
    task = small(unit="word")
    dataset = task.prepare(tmp_path)
    assert task.info.vocab_size == task.info.goal.outputs == 33_278
    counts = Counter(expected_words(TEXTS["train"]))
    common = [word for word, _ in counts.most_common() if word not in (b"<unk>", b"<eos>")]
    names = [b"<unk>", b"<eos>", *common]
    assert [names[i] for i in tokens(dataset, "val")] == expected_words(TEXTS["val"])
    end = tokens(dataset, "test")[-5:]
    assert [names[i] for i in end] == [b"<eos>", b"<unk>", b"<unk>", b"fox", b"<eos>"]
    assert written(task, dataset, end) == b"\n<unk> <unk> fox \n"
    vocabulary = task.vocabulary(lambda: dataset)
    assert vocabulary.encode(" the fox\n") == [names.index(b"the"), names.index(b"fox"), 1]
    expected = expected_words(TEXTS["test"]).count(b"<unk>") + 2
    assert dataset.notes["words of test that are <unk>"] == expected
    assert len(task.verify(dataset)) == 5


@pytest.mark.parametrize("limit", [None, 17])
def test_targets_stand_for_the_bytes_behind_the_first(tmp_path: Path, limit: int | None) -> None:
    place(tmp_path, "zip")
    of_bytes = small(test=limit).prepare(tmp_path).splits["test"]
    assert of_bytes.text_bytes == len(TEXTS["test"][:limit]) - 1
    words = expected_words(TEXTS["test"])[:limit]
    of_words = small(unit="word", test=limit).prepare(tmp_path).splits["test"]
    assert len(of_words.labels) == len(words) - 1
    ends = [0]
    for word in words:
        found = b"\n" if word == b"<eos>" else word
        ends.append(TEXTS["test"].index(found, ends[-1]) + len(found))
    assert of_words.text_bytes == ends[-1] - ends[1]


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("shakespeare", "deep/tinyshakespeare.txt.xz"),
        ("shakespeare", "nanoGPT/data/shakespeare_char/input.txt"),
        ("text8", "a/text8.gz"),
    ],
)
def test_a_corpus_in_one_file_is_divided_in_order(tmp_path: Path, corpus: str, name: str) -> None:
    pack = {".xz": lzma.compress, ".gz": gzip.compress}.get(Path(name).suffix, bytes)
    write_files(tmp_path, {name: pack(PLAY)})
    dataset = small(corpus=corpus).prepare(tmp_path)
    parts = [text(dataset, split) for split in SPLITS]
    assert parts[0] == PLAY[: len(PLAY) * 9 // 10] and dataset.source == "unofficial"
    if corpus == "shakespeare":
        assert parts[1] == parts[2] == PLAY[len(PLAY) * 9 // 10 :]
        assert dataset.selected_on == "test"
    else:
        assert b"".join(parts) == PLAY and dataset.selected_on == "val"
        assert abs(len(parts[1]) - len(parts[2])) <= 1


def test_an_own_text_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(PLAY)
    dataset = small(corpus=str(path)).prepare(tmp_path / "data")
    assert dataset.source == "own" and not dataset.unofficial_because
    assert b"".join(text(dataset, split) for split in SPLITS) == PLAY
    moved = tmp_path / "moved.txt.xz"
    moved.write_bytes(lzma.compress(PLAY))
    assert small(corpus=str(moved)).prepare(tmp_path / "data").fingerprint == dataset.fingerprint
    path.write_bytes(PLAY.replace(b"ROMEO", b"JULIA"))
    changed = small(corpus=str(path)).prepare(tmp_path / "data")
    assert changed.fingerprint != dataset.fingerprint and b"JULIA" in text(changed, "train")


@pytest.mark.parametrize("names", ["{}.txt", "{}"])
def test_an_own_text_in_splits(tmp_path: Path, names: str) -> None:
    parts = {"train": PLAY, "valid": PLAY[:200], "test": PLAY[200:500]}
    files = {names.format(part): content for part, content in parts.items()}
    folder = write_files(tmp_path / "own", {**files, "README.md": b"about"})
    archive = write_zip(tmp_path / "own.zip", files)
    for path in (folder, archive):
        dataset = small(corpus=str(path)).prepare(tmp_path / "data")
        assert [text(dataset, split) for split in SPLITS] == list(parts.values())


def test_limits_take_the_first_tokens_of_the_same_cache(tmp_path: Path) -> None:
    place(tmp_path, "zip")
    whole = small().prepare(tmp_path)
    part = small(train=100, val=50, test=10_000).prepare(tmp_path)
    assert text(part, "train") == TEXTS["train"][:100]
    assert text(part, "val") == TEXTS["val"][:50]
    assert text(part, "test") == TEXTS["test"], "a limit, no demand"
    assert part.folder == whole.folder and part.fingerprint != whole.fingerprint


def test_other_lengths_see_the_same_test_text(tmp_path: Path) -> None:
    place(tmp_path, "zip")
    change = LanguageModelling.fresh({"unit": "byte"}, length=64, examples=5)
    assert change == {"sequence_length": 64}
    short, long = (small(**options).prepare(tmp_path) for options in ({}, change))
    assert np.array_equal(short.splits["test"].labels, long.splits["test"].labels)
    assert short.baseline_bits == long.baseline_bits


def xz_bits(train: bytes, test: bytes) -> float:
    sizes = [len(lzma.compress(train + rest, preset=9)) for rest in (test, b"")]
    return 8 * (sizes[0] - sizes[1]) / len(test)


@pytest.mark.parametrize("limits", [{}, {"train": 300, "test": 90}])
def test_baselines_are_of_what_is_used(tmp_path: Path, limits: dict[str, int]) -> None:
    place(tmp_path, "zip")
    dataset = small(**limits).prepare(tmp_path)
    train, test = TEXTS["train"][: limits.get("train")], TEXTS["test"][: limits.get("test")]
    counts = Counter(train[1:])
    chances = {byte: (counts[byte] + 1) / (len(train) - 1 + 256) for byte in range(256)}
    order_0 = -sum(math.log2(chances[byte]) for byte in test[1:]) / (len(test) - 1)
    assert dataset.baseline_bits == pytest.approx({"order-0": order_0, "xz": xz_bits(train, test)})
    ((common, _),) = counts.most_common(1)
    share = 100 * test[1:].count(common) / (len(test) - 1)
    assert dataset.baselines == {"majority class": pytest.approx(share)}


OWN_FAULTS = {
    "empty": (b"", {}, "the train split of .* has 0 bytes to use, expected at least 17"),
    "few words": (b" " * 300 + PLAY[:60], {"unit": "word"}, "train split of .* has 6 words"),
    "no text": (PLAY + b"\xff" + PLAY, {"unit": "word"}, r"own\.txt: byte 3,690 is not UTF-8"),
}


@pytest.mark.parametrize("name", OWN_FAULTS)
def test_texts_that_will_not_do(tmp_path: Path, name: str) -> None:
    content, options, message = OWN_FAULTS[name]
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        small(corpus=str(path), **options).prepare(tmp_path / "data")


def test_names_of_nothing_and_folders_that_lack_or_repeat_a_file(tmp_path: Path) -> None:
    lacking = write_files(tmp_path / "lacking", {"train.txt": PLAY, "test.txt": PLAY})
    twice = write_files(tmp_path / "twice", {"valid.txt": PLAY, "val": PLAY, "test": PLAY})
    for corpus, message in (
        ("wikitext2", "no file or folder; did you mean wikitext-2"),
        (str(lacking), r"has no file of val; expected train\.txt, valid\.txt"),
        (str(twice), r"has val twice: val and valid\.txt"),
    ):
        with pytest.raises(DataError, match=message):
            small(corpus=corpus).prepare(tmp_path)


def test_sizes_that_are_known_beforehand() -> None:
    assert LanguageModelling().training_examples() == 21_089
    assert LanguageModelling(train=1025).training_examples() == 2
    assert LanguageModelling(unit="word").training_examples() == math.ceil(2_088_627 / 512)
    assert LanguageModelling(corpus="own.txt").training_examples() is None


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real texts."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("wikitext-2.tar.xz", "tinyshakespeare.txt.xz"):
        (folder / name).symlink_to(real_data(name))
    return folder


@pytest.mark.thorough
def test_the_bytes_of_wikitext_2(real: Path) -> None:
    dataset = LanguageModelling(source="official").prepare(real)
    assert dataset.source == "official"
    found = {name: len(split.labels) + 1 for name, split in dataset.splits.items()}
    assert found == {"train": 10_797_148, "val": 1_121_681, "test": 1_256_449}
    assert {name: round(bits, 3) for name, bits in dataset.baseline_bits.items()} == {
        "order-0": 4.624, "xz": 1.857
    }  # fmt: skip


@pytest.mark.thorough
def test_the_words_of_wikitext_2(real: Path) -> None:
    task = LanguageModelling(source="official", unit="word", train=100_000)
    dataset = task.prepare(real)
    stored = {name: len(np.load(dataset.folder / f"{name}_tokens.npy")) for name in SPLITS}
    assert stored == {"train": 2_088_628, "val": 217_646, "test": 245_569}
    words = (dataset.folder / "vocabulary.npy").read_bytes().count(b"\n")
    assert words >= 33_277 and task.info.vocab_size == 33_278
    assert int(np.load(dataset.folder / "train_tokens.npy").max()) == 33_277
    test = dataset.splits["test"]
    assert test.text_bytes is not None
    assert test.text_bytes / len(test.labels) == pytest.approx(5.116, abs=0.001)


@pytest.mark.thorough
def test_tiny_shakespeare(real: Path) -> None:
    task = LanguageModelling(corpus="shakespeare", source="official")
    dataset = task.prepare(real)
    assert dataset.source == "official" and dataset.selected_on == "test"
    assert len(dataset.splits["train"].labels) + 1 == 1_003_854
    assert len(dataset.splits["test"].labels) + 1 == 111_540
    assert text(dataset, "train").startswith(b"First Citizen:\nBefore we proceed")
    assert task.training_examples() == len(dataset.splits["train"])


def test_an_interruption_ends_the_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until the whole text is compressed, in pieces that change no size."""
    text = np.arange(40_000, dtype=np.uint64).astype(np.uint8)
    expected = baselines.xz(text, text[:5000])
    monkeypatch.setattr(baselines, "XZ_PIECE", 100)
    assert baselines.xz(text, text[:5000]) == expected
    pieces: list[bytes] = []

    class Interrupted:
        def __init__(self, **_: object) -> None: ...

        def compress(self, piece: bytes) -> bytes:
            pieces.append(piece)
            if len(pieces) == 3:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.01)
            return b""

        def flush(self) -> bytes:
            return b""

    monkeypatch.setattr("lzma.LZMACompressor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        baselines.xz(text, text[:5000])
    assert len(pieces) < 400
