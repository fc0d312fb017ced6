"""Data sets of other libraries by their names: files that the libraries wrote, and mistakes."""

import io
import json
import lzma
import pickle
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image as PillowImage
from sklearn.datasets import load_digits
from tensorflow_datasets.core import hashing
from tensorflow_datasets.core.download import extractor

import lra
from conftest import python_example
from lra import run_task
from lra.common.errors import KnownError
from lra.record.run import load_record
from lra.report import __main__ as report
from lra.tasks.base import SPLITS, Task
from lra.tasks.image.task import Image
from lra.tasks.pixels import Pixels
from lra.tasks.sources.prepared import order_as_prepared
from lra.tasks.splits import PackedSequences
from lra.tasks.text import Text
from made_data import real_data
from requested import compose_task

pytestmark = [
    pytest.mark.usefixtures("own_folder", "libraries"),
    # Of the libraries' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TINY = ["model.dim=8", "model.depth=1", "train.steps=2", "train.batch_size=16"]
CHANGES = [part for text in TINY for part in ("--set", text)]
Examples = Iterable[tuple[Any, Mapping[str, Any]]]


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries keep their files in the test's folder, and reach no network."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "prepared"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # pyright: ignore
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)  # pyright: ignore


def png(pixels: np.ndarray) -> io.BytesIO:
    """Write an image as TFDS takes one without TensorFlow."""
    file = io.BytesIO()
    PillowImage.fromarray(pixels).save(file, "png", compress_level=1)
    file.seek(0)
    return file


def write_prepared(builder: Any, splits: Mapping[str, Examples]) -> Path:
    """Let a builder of TFDS write examples as array_record; return its folder."""
    builder._split_generators = lambda manager: splits
    builder.download_and_prepare()
    return Path(builder.data_path)


def prepare_own(name: str, features: Any, splits: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write a data set of the test's own by TFDS."""

    class Own(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager: Any) -> Any: ...

        def _generate_examples(self) -> Any: ...

    Own.name = name  # pyright: ignore
    builder = Own(data_dir="prepared", file_format="array_record")
    return write_prepared(builder, {split: enumerate(rows) for split, rows in splits.items()})


def prepare_digits(count: int = 300) -> Path:
    """Write scikit-learn's handwritten digits, all in the split train."""
    images, labels = load_digits(return_X_y=True)
    rows = [
        {"image": png((16 * image.reshape(8, 8)).clip(0, 255).astype(np.uint8)), "label": label,
         "levels": {"of": [1, 2]}, "words": "eight by eight"}
        for image, label in zip(images[:count], labels.tolist(), strict=False)
    ]  # fmt: skip
    types = tfds.features
    features = {
        "image": types.Image(shape=(8, 8, 1)), "label": types.ClassLabel(num_classes=10),
        "levels": {"of": types.Sequence(np.int64)}, "words": types.Text(),
    }  # fmt: skip
    return prepare_own("digits", features, {"train": rows})


def prepare_phrases() -> Path:
    """Write texts with a number and with several labels, in two splits."""
    texts = [f"{'fine ' * (i % 4)}{'dull ' * (i % 3)}film {i}" for i in range(200)]
    rows = [
        {"phrase": text, "grade": i % 4 - i % 3 + 0.5, "pair": [i, i % 2],
         "tags": [tag for tag in (0, 1) if ("fine", "dull")[tag] in text]}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    types = tfds.features
    tags = types.Sequence(types.ClassLabel(names=["fine", "dull"]))
    pair = types.Tensor(shape=(2,), dtype=np.float32)
    features = {"phrase": types.Text(), "grade": np.float32, "tags": tags, "pair": pair}
    return prepare_own("phrases", features, {"train": rows[:150], "validation": rows[150:]})


def write_reviews(form: str) -> Path:
    """Write a folder of reviews in two splits."""
    folder = Path("reviews")
    folder.mkdir()
    for split, count in (("train", 60), ("test", 20)):
        rows = {
            "text": [f"{'good' if i % 2 else 'bad'} ☃ {split} {i}" for i in range(count)],
            "label": ["pos" if i % 2 else "neg" for i in range(count)],
            "stars": [i % 5 + 1 for i in range(count)],
            "nested": [{"a": [i]} for i in range(count)],
        }
        if form == "txt":
            for i, (text, label) in enumerate(zip(rows["text"], rows["label"], strict=True)):
                path = folder / split / str(label) / f"{i}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(text))
        else:
            table = datasets.Dataset.from_dict(rows)
            if form == "csv":
                table.remove_columns("nested").to_csv(folder / f"{split}.csv")
            else:
                table.to_parquet(folder / f"{split}.parquet")
    return folder


def write_pictures() -> Path:
    """Write a folder of images in Parquet, each larger than the one before."""
    images = [PillowImage.new("RGB", (8 + i, 8), (0, 0, 90 * (i % 2))) for i in range(40)]
    rows = {"img": images, "label": [i % 2 for i in range(40)]}
    types = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(2))
    Path("pictures").mkdir()
    datasets.Dataset.from_dict(rows, features=types).to_parquet("pictures/train.parquet")
    return Path("pictures")


SETS = {
    "tfds:digits": (prepare_digits, []),
    "tfds:phrases:1.0.0": (prepare_phrases, ["task.label=grade", "task.sequence_length=16"]),
    "tfds:phrases": (prepare_phrases, ["task.label=tags", "task.unit=characters"]),
    "hf:reviews": (lambda: write_reviews("csv"), ["task.unit=characters"]),
    "hf:./reviews": (lambda: write_reviews("txt"), []),
    "hf:pictures": (write_pictures, ["task.side=4"]),
}


@pytest.mark.parametrize("name", SETS)
def test_data_sets_train_and_have_rows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, settings = SETS[name]
    make()
    start = ["--task", name, "--mixer", "mean", "--preset", "quick", "--device", "cpu"]
    changes = [part for text in settings for part in ("--set", text)]
    assert run_task.main([*start, *CHANGES, *changes]) == 0
    (path,) = Path("results/runs").glob("*/mean/*/result.json")
    record = load_record(path)
    assert (record.task_from, record.task_code, record.data.source) == (name, None, "own")
    assert report.main([]) == 0
    assert record.task in capsys.readouterr().out
    if name == "tfds:digits":
        assert lra.load(path.parent).record.task == "tfds-digits"


def split_of(task: Task, name: str) -> PackedSequences:
    split = task.prepare(Path("data")).splits[name]
    assert isinstance(split, PackedSequences)
    return split


def texts_of(split: PackedSequences) -> list[str]:
    inputs = [split.batch([i]).inputs.reshape(-1).tolist() for i in range(len(split))]
    return [bytes(tokens).decode() for tokens in inputs]


def test_missing_splits_are_parts_of_the_training_split() -> None:
    prepare_phrases()
    settings = ["task.label=grade", "task.test=7"]
    task = compose_task("tfds:phrases", overrides=settings)
    parts = {name: texts_of(split_of(task, name)) for name in ("train", "val", "test")}
    assert {name: len(part) for name, part in parts.items()} == {"train": 143, "val": 50, "test": 7}
    assert len({text for part in parts.values() for text in part}) == 200
    other = compose_task("tfds:phrases", overrides=[*settings, "task.data_seed=1"])
    assert texts_of(split_of(other, "test")) != parts["test"]
    tested = compose_task(
        "tfds:phrases", overrides=["task.label=grade", "task.test_split=validation"]
    )
    assert sorted(texts_of(split_of(tested, "test"))) == sorted(parts["val"])
    assert len(split_of(tested, "val")) == 15


def test_labels_are_read_as_the_features_say() -> None:
    prepare_phrases()
    for label, expected in {"pair": [160, 0], "grade": [-0.5], "tags": [0, 1]}.items():
        split = split_of(compose_task("tfds:phrases", overrides=[f"task.label={label}"]), "val")
        assert split.labels.shape == (50, len(expected))
        text = texts_of(split).index("dull film 160")
        assert split.labels[text].tolist() == expected


def test_images_and_labels_are_those_of_the_data_set() -> None:
    prepare_digits(100)
    task = compose_task("tfds:digits")
    assert (task.info.grid, task.info.channels) == ((8, 8), 1)
    images, labels = load_digits(return_X_y=True)
    digits = zip(images, labels, strict=True)
    known = {tuple((16 * image).clip(0, 255)): label for image, label in digits}
    split = split_of(task, "train")
    for i in range(len(split)):
        pixels = (split.batch([i]).inputs.numpy().reshape(-1) + 1) * 127.5
        assert known[tuple(pixels.round())] == split.labels[i]


def test_characters_are_numbered_by_frequency_and_texts_are_cut() -> None:
    write_reviews("parquet")
    settings = ["task.unit=characters", "task.sequence_length=6", "task.label=label"]
    split = split_of(compose_task("hf:reviews", overrides=settings), "train")
    assert set(split.lengths.tolist()) == {6}
    tokens = np.concatenate(
        [split.batch([i]).inputs.reshape(-1).numpy() for i in range(len(split))]
    )
    counts = np.bincount(tokens)
    assert not counts[:3].any() and (np.diff(counts[3:]) <= 0).all()


def test_classes_are_numbered_in_the_order_of_their_names() -> None:
    write_reviews("csv")
    split = split_of(compose_task("hf:reviews"), "test")
    assert split.labels.tolist() == [i % 2 for i in range(20)]
    stars = compose_task("hf:reviews", overrides=["task.label=stars"])
    assert stars.info.goal.outputs == 5
    assert split_of(stars, "test").labels.tolist() == [i % 5 for i in range(20)]


def test_changed_files_are_other_data() -> None:
    path = write_reviews("csv") / "test.csv"
    first = compose_task("hf:reviews").prepare(Path("data"))
    path.write_text(path.read_text().replace("bad", "sad"))
    second = compose_task("hf:reviews").prepare(Path("data"))
    assert first.fingerprint != second.fingerprint


MISTAKES = {
    "tfds:digit": "neither in .*prepared nor in .*catalog; did you mean tfds:digits?",
    "tfds:imdb_review": "did you mean tfds:imdb_reviews?",
    "tfds:mnist": r"is not in .*prepared; prepare it by: python -c .*data_source\('mnist'\)",
    "tfds:": r"expected tfds:NAME\[/CONFIG\]\[:VERSION\]",
    "tfds:digits task.label=levels": "task.label is levels; expected classes.* levels ",
    "tfds:digits task.label=lable": "unknown column 'lable'; did you mean label?",
    "tfds:digits task.input=levels": "task.input is levels; expected texts or images",
    "tfds:digits task.input=words task.side=3": "side has no effect: inputs are Text",
    "tfds:phrases": "several columns fit, choose one by task.label; expected classes",
    "tfds:digits task.test_split=tset task.input=image": "unknown split 'tset'",
    "tfds:digits task.side=20000 task.input=image": "cannot make its examples, which take .* left",
    "hf:./review": "there is no folder review; did you mean hf:reviews?",
    "hf:nobody/reviews": "is no folder here.*cannot be reached; run this command once with a netw",
    "hf:reviews task.label=nested": "task.label is nested; expected classes",
    "hf:pictures": "its images have several sizes; set task.side=32",
    "hf:hidden": "an example lacks text or label; leave it out",
    "hf:code": "Dataset scripts are no longer supported, but found code.py",
    "hf:lines": "no column fits; expected classes",
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the data sets of MISTAKES once."""
    folder = tmp_path_factory.mktemp("mistaken")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare_digits(40)
        prepare_phrases()
        write_reviews("parquet")
        write_pictures()
        Path("hidden").mkdir()
        hidden = {"text": ["a", "b"] * 20, "label": [0, 1] * 19 + [1, None]}
        datasets.Dataset.from_dict(hidden).to_parquet("hidden/train.parquet")
        for name, file in (("code", "code.py"), ("lines", "train.txt")):
            Path(name).mkdir()
            Path(name, file).write_text("open('run', 'w')\n")
    return folder


@pytest.mark.parametrize("command", MISTAKES)
def test_mistakes_are_one_line(
    command: str, mistaken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mistaken)
    monkeypatch.setenv("TFDS_DATA_DIR", "prepared")
    name, *settings = command.split(" ")
    with pytest.raises(KnownError, match=MISTAKES[command]) as caught:
        compose_task(name, overrides=settings).prepare(Path("data"))
    assert "\n" not in str(caught.value)
    assert not Path("run").exists()


def test_other_formats_end_in_the_command_that_prepares_them() -> None:
    folder = prepare_digits(20)
    path = folder / "dataset_info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fileFormat": "tfrecord"}))
    for shard in folder.glob("*array_record*"):
        shard.rename(folder / shard.name.replace("array_record", "tfrecord"))
    with pytest.raises(KnownError, match=r"has tfrecord files.*run: python -c .*data_source"):
        compose_task("tfds:digits")


def test_damaged_files_are_named() -> None:
    folder = prepare_digits(20)
    (shard,) = folder.glob("*array_record*")
    shard.write_bytes(shard.read_bytes()[:-900])
    settings = ["task.input=image"]
    with pytest.raises(KnownError, match=r"digits/1.0.0 is damaged or incomplete"):
        compose_task("tfds:digits", overrides=settings).prepare(Path("data"))


def test_incomplete_reviews_are_no_release() -> None:
    builder: Any = tfds.builder("imdb_reviews", data_dir="prepared", file_format="array_record")
    reviews = [(f"aclImdb/train/neg/{i}_1.txt", {"text": "dull", "label": 0}) for i in range(9)]
    write_prepared(builder, {"train": reviews, "test": reviews})
    with pytest.raises(KnownError, match=r"is damaged or incomplete.*is it complete"):
        Text(source="tfds").prepare(Path("data"))


def test_the_example_with_arrays_runs() -> None:
    Path("signals.py").write_text(python_example("docs/your_task.md", "Data that you have"))
    arrays = {f"{split}_signals": np.random.default_rng(i).normal(size=(20, 8, 2))
              for i, split in enumerate(SPLITS)}  # fmt: skip
    labels = {f"{split}_labels": np.arange(20) % 2 for split in SPLITS}
    np.savez("signals.npz", **arrays, **labels)  # pyright: ignore
    dataset = compose_task("signals.py:Signals").prepare(Path("data"))
    assert dataset.sizes == dict.fromkeys(SPLITS, 20)


def test_the_order_is_that_of_tfds() -> None:
    hasher = hashing.Hasher("train")
    expected = sorted(range(3000), key=hasher.hash_key)
    assert order_as_prepared("train", range(3000)).tolist() == expected


@pytest.mark.thorough
def test_reviews_that_tfds_prepared_are_the_archive() -> None:
    """TFDS's own builder reads the archive; its download is replaced."""
    path = real_data("aclImdb.tar.xz")
    builder: Any = tfds.builder("imdb_reviews", data_dir="prepared", file_format="array_record")
    generators = builder._split_generators(Manager(path))[:2]  # the archive lacks the others
    write_prepared(
        builder, {one.name: builder._generate_examples(**one.gen_kwargs) for one in generators}
    )
    Path("archive").mkdir()
    Path("archive/aclImdb.tar.xz").symlink_to(path)
    for options in ({}, {"unit": "bytes", "sequence_length": 1000}):
        archive = Text(source="official", **options).prepare(Path("archive"))
        prepared = Text(source="tfds", **options).prepare(Path("data"))
        assert prepared.source == archive.source == "official"
        assert prepared.fingerprint == archive.fingerprint


class Manager:
    """Gives TFDS the archive of the reviews that is here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def download(self, url: str) -> Path:
        return self.path

    def iter_archive(self, path: Path) -> Any:
        return extractor.iter_archive(
            cast("Any", lzma.open(path)), tfds.download.ExtractMethod.TAR_STREAM
        )


@pytest.mark.thorough
def test_images_that_tfds_prepared_are_the_archive() -> None:
    """TFDS's builder would encode images by TensorFlow, so it gets them as PNG files."""
    path = real_data("cifar-10-batches-py.tar.xz")
    builder: Any = tfds.builder("cifar10", data_dir="prepared", file_format="array_record")
    with tarfile.open(path) as archive:
        archive.extractall(".", filter="data")

    def read(split: str, names: list[str]) -> Examples:
        index = 0
        for name in names:
            batch = pickle.loads(Path("cifar-10-batches-py", name).read_bytes(), encoding="bytes")
            images = batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            for image, label in zip(images, batch[b"labels"], strict=True):
                row = {"id": f"{split}_{index:05d}", "image": png(image), "label": label}
                yield index, row
                index += 1

    batches = [f"data_batch_{number}" for number in range(1, 6)]
    splits = {"train": read("train", batches), "test": read("test", ["test_batch"])}
    write_prepared(builder, splits)
    archive = Image(source="official").prepare(Path())
    prepared = Image(source="tfds").prepare(Path("data"))
    assert isinstance(prepared.splits["test"], Pixels)
    assert prepared.source == archive.source == "official"
    assert prepared.fingerprint == archive.fingerprint
