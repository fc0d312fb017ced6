"""Language modelling: each position of a text predicts the byte or the word that comes next."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from lra.common.errors import DataError
from lra.tasks.base import SPLITS, Dataset, Task, TaskInfo
from lra.tasks.cache import Cache, read_cache
from lra.tasks.goals import NextToken
from lra.tasks.lm.baselines import View, open_baselines
from lra.tasks.lm.corpora import (
    CORPORA,
    MORE_WORDS,
    TextFiles,
    Unit,
    differences,
    divide,
    read_own,
    read_texts,
)
from lra.tasks.lm.words import Bytes, Vocabulary, Words, check_utf8, first_words
from lra.tasks.next_token import TokenWindows, windows
from lra.tasks.preparation import Build, Preparation
from lra.tasks.sources.releases import ReleaseCache

BYTES = 256
OWN = "own"
"""Stands for the name of a user's own text in names of caches."""


class LanguageModelling(Task):
    """Say at each position of a text what comes next.

    Args:
        corpus: wikitext-2, wikitext-103, enwik8, text8 or shakespeare, or the path of a text of
            one's own: a file, of which 90, 5 and 5 % in order are for training, validation and
            test, or a folder or archive with train.txt, valid.txt and test.txt.
        source: official for files in the data folder, download to fetch them, or auto for either.
        unit: whether a token is a byte, or a word as WikiText has them, with line ends among them.
        vocab_size: most words, the unknown one among them; if not given, as many as the corpus is
            known to have, else 50,000.
        sequence_length: positions of a window.
        stride: positions from one window to the next one in validation and test, where what both
            hold is scored in the earlier; if not given, they do not overlap.
        train: tokens to train on, the first ones; all, if not given.
        val: tokens to select on, the first ones; all, if not given.
        test: tokens to test on, the first ones; all, if not given.
    Raises: ValueError for a stride above the window, a vocabulary of bytes, or an official text of
        one's own.
    """

    name = "lm"

    def __init__(
        self,
        *,
        corpus: Annotated[str, Field(min_length=1)] = "wikitext-2",
        source: Literal["auto", "official", "download"] = "auto",
        unit: Unit = "byte",
        vocab_size: Annotated[int, Field(ge=3, le=2**24)] | None = None,
        sequence_length: PositiveInt = 512,
        stride: PositiveInt | None = None,
        train: PositiveInt | None = None,
        val: PositiveInt | None = None,
        test: PositiveInt | None = None,
    ) -> None:
        if stride is not None and stride > sequence_length:
            raise ValueError(
                f"stride is {stride}, above sequence_length {sequence_length}: tokens between "
                f"windows would not be scored"
            )
        if unit == "byte" and vocab_size is not None:
            raise ValueError("vocab_size has no effect for unit byte; use null")
        if corpus not in CORPORA and source != "auto":
            raise ValueError(
                f"source is {source}, but only {', '.join(CORPORA)} have one, and corpus is "
                f"{corpus!r}; use auto"
            )
        self.corpus = corpus
        self.known = CORPORA.get(corpus)
        self.source = source
        self.unit: Unit = unit
        self.stride = stride
        self.counts = {"train": train, "val": val, "test": test}
        known = MORE_WORDS if self.known is None else self.known.vocab_size
        self.vocab_size = size = BYTES if unit == "byte" else vocab_size or known
        self.held_out_once = self.known is not None and self.known.held_out_once
        self.info = TaskInfo(
            name=self.name, goal=NextToken(size), max_length=sequence_length, vocab_size=size
        )

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: reads the same text in other windows."""
        return {} if length is None else {"sequence_length": length}

    def plan(self, data_dir: Path) -> Preparation:
        """See `Task.plan`; a user's own text is requested by its content."""
        if self.known is not None:
            return ReleaseCache(
                release=self.known.release,
                data_dir=data_dir,
                name=f"{self.corpus}-{self.unit}",
                option=self.source,
                request=self._request(self.corpus),
                read=self._read,
            )
        texts = read_own(self.corpus)
        digests = {split: text.digest("sha256") for split, text in sorted(texts.items())}
        return Preparation(
            data_dir=data_dir,
            task=self.name,
            name=f"{OWN}-{self.unit}",
            source=OWN,
            request=self._request(digests),
            build=lambda made: self._save(made, texts),
            description=f"read {self.corpus}",
        )

    def _request(self, corpus: object) -> dict[str, Any]:
        size = {"vocab_size": self.vocab_size} if self.unit == "word" else {}
        return {"corpus": corpus, "unit": self.unit, **size}

    def open_dataset(self, cache: Cache) -> Dataset:
        """See `Task.open_dataset`."""
        views = {name: self._view(cache, name) for name in SPLITS}
        baselines, bits = open_baselines(cache, views, self.vocab_size)
        view = {**self.counts, "length": self.info.max_length, "stride": self.stride}
        return Dataset.from_cache(
            cache,
            {name: self._split(name, used) for name, used in views.items()},
            view,
            baselines=baselines,
            baseline_bits=bits,
            selected_on="test" if self.held_out_once else "val",
        )

    def _read(self, made: Build, path: Path) -> None:
        assert self.known is not None
        texts = read_texts(path, self.known.files)
        if other := differences(texts, self.known.digests):
            made.mark_unofficial(f"the checksum is not that of the release: {', '.join(other)}")
        self._save(made, texts)

    def _save(self, made: Build, texts: TextFiles) -> None:
        """Write the bytes of each split, and its words where these are the tokens."""
        if self.unit == "word":
            for text in texts.values():
                check_utf8(text)
        splits = divide(texts, held_out_once=self.held_out_once)
        for name, text in splits.items():
            self._check_length(name, len(text), "bytes")
            made.save(f"{name}_text", text)
            made.sizes[name] = len(text)
        if self.unit == "byte":
            return
        vocabulary = Words.of(splits["train"], self.vocab_size)
        made.save("vocabulary", vocabulary.as_array())
        for name, text in splits.items():
            tokens = vocabulary.number(text)
            self._check_length(name, len(tokens), "words")
            made.save(f"{name}_tokens", tokens)
            made.sizes[name] = len(tokens)
            made.notes[f"words of {name} that are <unk>"] = int((tokens == 0).sum())

    def _check_length(self, split: str, count: int, unit: str) -> None:
        needed = self.info.max_length + 1
        if count < needed:
            raise DataError(
                f"the {split} split of {self.corpus} has {count:,} {unit} to use, expected at "
                f"least {needed:,}, those of a window and the one after it; use a longer text, or "
                f"a smaller task.sequence_length"
            )

    def _stored(self, split: str) -> str:
        """Name the split that the arrays of a split are stored by."""
        return "test" if self.held_out_once and split == "val" else split

    def _view(self, cache: Cache, split: str) -> View:
        """Take the tokens of a split that are used."""
        name = self._stored(split)
        text = cache.array(f"{name}_text")
        tokens = text if self.unit == "byte" else cache.array(f"{name}_tokens")
        count = min(len(tokens), self.counts[split] or len(tokens))
        self._check_length(split, count, f"{self.unit}s")
        if count < len(tokens):
            text = text[:count] if self.unit == "byte" else first_words(text, count)
        first = text[:1] if self.unit == "byte" else first_words(text, 1)
        return View(tokens[:count], text, len(text) - len(first))

    def _split(self, name: str, view: View) -> TokenWindows:
        stride = None if name == "train" else self.stride
        starts, lengths, skipped = windows(len(view.tokens), self.info.max_length, stride)
        return TokenWindows(
            view.tokens, starts, lengths, skipped=skipped, text_bytes=view.text_bytes
        )

    def check(self, cache: Cache, dataset: Dataset) -> list[str]:
        """See `Task.check`: every word, and that windows score each token once."""
        checks: list[str] = []
        if self.unit == "word":
            vocabulary = Words.of_array(cache.array("vocabulary"))
            for name in dict.fromkeys(map(self._stored, SPLITS)):
                tokens = vocabulary.number(cache.array(f"{name}_text"))
                if not np.array_equal(tokens, cache.array(f"{name}_tokens")):
                    raise DataError(f"{dataset.folder}: the words of {name} are not its tokens")
            checks.append(f"the words of all splits are numbered as {len(vocabulary.words):,} are")
        for name, split in dataset.splits.items():
            assert isinstance(split, TokenWindows)
            scored = int((split.lengths - split.skipped).sum())
            if scored != len(self._view(cache, name).tokens) - 1:
                raise DataError(f"{dataset.folder}: windows of {name} score {scored:,} tokens")
            checks.append(f"{name} has {len(split):,} windows, which score {scored:,} tokens once")
        return checks

    def vocabulary(self, prepared: Callable[[], Dataset]) -> Vocabulary:
        """Return the vocabulary; that of words is stored with the data, so this is prepared."""
        if self.unit == "byte":
            return Bytes()
        return Words.of_array(read_cache(prepared().folder).array("vocabulary"))

    def training_examples(self) -> int | None:
        """See `Task.training_examples`."""
        known = None if self.known is None else self.known.training_tokens.get(self.unit)
        if known is None:
            return None
        tokens = min(known, self.counts["train"] or known)
        return len(windows(tokens, self.info.max_length)[0])
