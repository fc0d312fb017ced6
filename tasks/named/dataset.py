"""What data sets of all libraries have in common: columns, splits, and how examples are made."""

import abc
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import PositiveInt

from lra.common.errors import DataError, UnknownName
from lra.common.untrusted import explain_errors
from lra.tasks.base import SPLITS
from lra.tasks.documents import NUM_CODE_POINTS, Alphabet, Unit, code_points
from lra.tasks.goals import ExampleClass, ExampleLabels, ExampleValues
from lra.tasks.random_words import permutation
from lra.tasks.sources.releases import choose_rows

VOCABULARY = 256
"""Number of different bytes, and of ids of characters at most."""
INPUTS = ("text", "image")
GOALS = {"class": ExampleClass, "values": ExampleValues, "labels": ExampleLabels}
USUAL = ("text", "sentence", "image", "img", "label", "labels")
"""Names of the columns that are taken where several would do."""
VALIDATION = ("validation", "valid", "val", "dev")
"""Names of splits to select on."""


class Column(NamedTuple):
    """A column: its type, as the library writes it, and what of INPUTS and GOALS it can be read as.

    The likeliest of `kinds` is the first. `size` counts classes, values or labels, and `shape` is
    (height, width, channels) of images; what is not known is None.
    """

    described: str
    kinds: tuple[str, ...] = ()
    size: int | None = None
    shape: tuple[int | None, ...] = ()


class NamedDataset(abc.ABC):
    """A data set of texts or images, as a task of a user's own.

    Args:
        input: column of the texts or images; if not given, the one that fits.
        label: column of the labels; if not given, the one that fits.
        unit: whether a token of a text is a byte (default) or a character.
        sequence_length: positions read of a text; 1,024, if not given.
        side: height and width that images are resized to; if not given, they keep theirs.
        train: examples to train on; all, if not given.
        val: examples to select on; if not given, all of the split validation or, without such a
            split, a tenth of the training set.
        test: examples to test on; if not given, as many as `val` says, of the split test.
        test_split: another split to test on.
    Raises: DataError for a data set that is not there or does not fit; ValueError for an option of
        texts where inputs are images, or the reverse.
    """

    origin: ClassVar[str]
    """The name that `--task` takes, LIBRARY:NAME."""
    dataset: ClassVar[str]
    """The name in the library."""
    input = ""
    columns: Mapping[str, Column]
    sizes: Mapping[str, int]
    """Number of examples of each split; `bytes` is about its size."""
    bytes: Mapping[str, int]
    preferred: Sequence[str] = ()
    """The columns of input and label that the data set itself names."""
    data_files: Sequence[Path] | None = None

    def __init__(
        self,
        *,
        input: str | None = None,
        label: str | None = None,
        unit: Unit | None = None,
        sequence_length: PositiveInt | None = None,
        side: PositiveInt | None = None,
        train: PositiveInt | None = None,
        val: PositiveInt | None = None,
        test: PositiveInt | None = None,
        test_split: str | None = None,
    ) -> None:
        self.open()
        for name in ("train", test_split or "train"):
            if name not in self.sizes:
                raise UnknownName("split", name, self.sizes, self.origin)
        self.counts = {"train": train, "val": val, "test": test}
        tested = test_split or ("test" if "test" in self.sizes else None)
        validating = (name for name in VALIDATION if name in self.sizes and name != tested)
        self.sources = {"train": "train", "val": next(validating, None), "test": tested}
        self.input = self._choose("input", input, INPUTS)
        self.label = self._choose("label", label, GOALS)
        inputs, answers = self.columns[self.input], self.columns[self.label]
        self.is_text = "text" in inputs.kinds
        for_text = {"unit": unit, "sequence_length": sequence_length}
        for name, value in ({"side": side} if self.is_text else for_text).items():
            if value is not None:
                raise ValueError(f"{name} has no effect: inputs are {inputs.described}")
        if self.is_text:
            self.max_length, self.vocab_size = sequence_length or 1024, VOCABULARY
        else:
            height, width = side or inputs.shape[0], side or inputs.shape[1]
            if height is None or width is None:
                raise DataError(f"{self.origin}: its images have several sizes; set task.side=32")
            self.grid, self.channels = (height, width), 1 if inputs.shape[2] == 1 else 3
            self.max_length = height * width
        self.is_characters = unit == "characters"
        self.ids: np.ndarray | None = None
        """Ids of all code points, once the characters of the training examples are counted."""
        self.answer = answers.kinds[-1]
        found = () if answers.size or self.answer != "class" else self.list_classes()
        self.classes = {name: number for number, name in enumerate(found)}
        self.num_answers = answers.size or len(found)
        self.goal = GOALS[self.answer](self.num_answers) if self.num_answers else None
        most, self.data_bytes = self.max_length * getattr(self, "channels", 1), 0
        for source, rows in (self._locate(split, 0) for split in SPLITS):
            mean = self.bytes[source] // max(1, self.sizes[source]) if self.is_text else most
            self.data_bytes += 4 * len(rows) * min(most, mean)

    @abc.abstractmethod
    def open(self) -> None:
        """Find the data set, and set what it holds: `columns`, `sizes`, `bytes`."""

    @abc.abstractmethod
    def read(self, split: str, rows: np.ndarray) -> Iterator[tuple[Any, Any]]:
        """Read the inputs, texts or files of images, and the labels of some rows of a split."""

    def list_classes(self) -> Sequence[Any]:
        """List the different labels; none where they are numbers of classes already."""
        return ()

    def examples(self, split: str, rng: np.random.Generator) -> tuple[list[np.ndarray], list[Any]]:
        """Return the sequences and the labels of a split."""
        seed = rng.bit_generator.seed_seq.entropy[0]  # pyright: ignore  # task.data_seed
        if self.is_characters and self.ids is None:
            rows = self.read(*self._locate("train", seed))
            texts = np.concatenate([self._encode_text(text or "") for text, _ in rows])
            alphabet = Alphabet("characters", self.max_length, False, None, VOCABULARY)
            counts = np.bincount(texts, minlength=NUM_CODE_POINTS)
            self.ids = alphabet.number(alphabet.choose(counts))
        encode: Any = self._encode_text if self.is_text else self._encode_image
        sequences, labels = [], []
        for content, label in self.read(*self._locate(split, seed)):
            labels.append(None if content is None or label is None else self._encode_label(label))
            if labels[-1] is None:
                raise DataError(
                    f"{self.origin}: an example lacks {self.input} or {self.label}; leave it out, "
                    f"or set task.test_split to a split with labels"
                )
            sequences.append(encode(content))
        return sequences, labels

    def _choose(self, option: str, given: str | None, kinds: Iterable[str]) -> str:
        """Choose the column of inputs or labels."""
        if given is not None and given not in self.columns:
            raise UnknownName("column", given, self.columns, f"task.{option} of {self.origin}")
        others = {name: one.kinds for name, one in self.columns.items() if name != self.input}
        fitting = [name for name, read_as in others.items() if {*read_as} & {*kinds}]
        named = [name for name in (*self.preferred, *USUAL) if name in fitting]
        likely = [name for name in fitting if self.columns[name].kinds[0] in kinds]
        found = [name for name in fitting if name == given] if given else named[:1] or likely
        if len(found) == 1:
            return found[0]
        fault = f"task.{option} is {given}" if given else "no column fits"
        if found:
            fault = f"several columns fit, choose one by task.{option}"
        shown = ", ".join(f"{name} ({column.described})" for name, column in self.columns.items())
        what = "texts or images" if option == "input" else "classes, numbers or several labels"
        raise DataError(
            f"{self.origin}: {fault}; expected {what}, which are not nested or ragged, from the "
            f"columns {shown}"
        )

    def _locate(self, split: str, seed: int) -> tuple[str, np.ndarray]:
        """Return the split of the data set that a split's examples are in, and their rows."""
        rest = permutation(seed, len(SPLITS), self.sizes["train"])
        for name in ("test", "val"):
            if self.sources[name] is None:
                count = self.counts[name] or self.sizes["train"] // 10
                if name == split:
                    return "train", np.sort(rest[:count])
                rest = rest[count:]
        source = str(self.sources[split])
        rows = np.sort(rest) if split == "train" else np.arange(self.sizes[source])
        stream, count = SPLITS.index(split), self.counts[split]
        return source, rows[choose_rows(seed, stream, len(rows), count, f"task.{split}")]

    def _encode_label(self, label: Any) -> Any:
        """Return a label as the goal takes it; None for -1, which stands for a hidden class."""
        if self.answer == "values":
            return label
        if self.answer == "labels":
            return np.isin(range(self.num_answers), label)
        number: Any = self.classes.get(label, label)
        return None if number < 0 else number

    def _encode_text(self, text: str | bytes) -> np.ndarray:
        """Return the tokens of a text, (length,); an empty one is one blank."""
        content = text.encode(errors="replace") if isinstance(text, str) else text
        if not self.is_characters:
            return np.frombuffer(content[: self.max_length] or b" ", dtype=np.uint8)
        characters = content[: 4 * self.max_length].decode(errors="replace")[: self.max_length]
        points = code_points((characters or " ").encode())
        return points if self.ids is None else self.ids[points]

    def _encode_image(self, content: bytes) -> np.ndarray:
        """Return the pixels of an image file, (height * width, channels) float32 from -1 to 1."""
        from PIL import Image

        with explain_errors(f"an image of {self.origin}"), Image.open(io.BytesIO(content)) as image:
            converted = image.convert("L" if self.channels == 1 else "RGB")
            converted = converted.resize((self.grid[1], self.grid[0]))
            return np.asarray(converted, np.float32).reshape(-1, self.channels) / 127.5 - 1
