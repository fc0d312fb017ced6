"""Recall: which value belonged to this key? Many times in one sequence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from tasks.base import NOT_SCORED, TaskInfo
from tasks.generated import (
    SPLITS,
    Drawn,
    SequenceTask,
    draw_in_groups,
    join_drawn,
)
from tasks.labelled import LabelledTokens
from tasks.recall.law import Fill, Law, Segment, draw

COUNTS = {"train": 100_000, "val": 3_000, "test": 3_000}
MIXTURE = {
    "train": {(64, 4): 100, (128, 8): 20, (256, 16): 20, (256, 32): 20, (256, 64): 20},
    "test": {
        (64, 4): 1, (64, 8): 1, (64, 16): 1, (128, 32): 1, (256, 64): 1, (512, 128): 1,
        (1024, 256): 1,
    },
}  # fmt: skip
"""Segments (length, pairs) of the mixture and their shares, as in HazyResearch/zoology,
mqar_example_configs/original_mqar_configs.py."""
LENGTH, PAIRS, LONGEST = 64, 4, 1024


class Recall(SequenceTask):
    """Say at each query which value its key had: multi-query associative recall.

    The score is the mean accuracy over the segments of the test set. Without `train.bucketing`,
    batches are drawn from the whole training set, so that with `mixture` they hold sequences of
    several segments. (Zoology fills each batch from one segment.)

    Args:
        length: positions of a sequence.
        pairs: pairs of a key and a value in a sequence.
        mixture: whether to train and test on several lengths and numbers of pairs instead: on 5
            segments, of 64x4 (length x pairs) to 256x64, with 5 times as many sequences of the
            first one, and on 7, of 64x4 to 1024x256, with equally many of each.
        longest: largest length of the mixture's segments; longer ones are left out.
        fill: tokens at positions without a key, a value or a query: "zero", or "random" tokens of
            the whole vocabulary. A random token may by chance be a key of its sequence, and then
            looks like a query although it has no label.
        vocab_size: different tokens.
        train: sequences to train on.
        val: sequences to select on.
        test: sequences to test on.
        data_seed: seed of the generator.
    Raises: ValueError for pairs that do not fit into the length or the vocabulary, for a length or
        a number of pairs beside a mixture, and for splits smaller than their segments.
    """

    name = "recall"
    default_counts = COUNTS

    def __init__(
        self,
        *,
        length: Annotated[int, Field(ge=4, lt=2**16)] = LENGTH,
        pairs: PositiveInt = PAIRS,
        mixture: bool = False,
        longest: PositiveInt = LONGEST,
        fill: Fill = "zero",
        vocab_size: Annotated[int, Field(ge=8, le=2**16)] = 8192,
        train: PositiveInt = COUNTS["train"],
        val: PositiveInt = COUNTS["val"],
        test: PositiveInt = COUNTS["test"],
        data_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0,
    ) -> None:
        if mixture and (length, pairs) != (LENGTH, PAIRS):
            raise ValueError(
                f"length {length} and pairs {pairs} have no effect with mixture, whose segments "
                f"have their own; leave them out, or use mixture=false"
            )
        if not mixture and longest != LONGEST:
            raise ValueError(f"longest {longest} has no effect without mixture; leave it out")
        self.law = Law(vocab_size=vocab_size, fill=fill)
        self.counts = {"train": train, "val": val, "test": test}
        self.data_seed = data_seed
        self.shares = _choose_segments(longest) if mixture else _one_segment(length, pairs)
        segments = {segment for shares in self.shares.values() for segment in shares}
        for segment in sorted(segments, key=lambda one: -one.length):
            _check_segment(segment, vocab_size)
        for split, shares in self.shares.items():
            if min(_divide(self.counts[split], list(shares.values()))) < 1:
                raise ValueError(
                    f"{split} is {self.counts[split]}, expected at least "
                    f"{sum(shares.values()) // min(shares.values())}, so that each of its "
                    f"{len(shares)} segments has a sequence"
                )
        if not mixture:
            self.advice = _advise_mixture(Segment(length, pairs), vocab_size)
        self.info = TaskInfo(
            name=self.name,
            num_classes=vocab_size,
            max_length=max(segment.length for segment in segments),
            vocab_size=vocab_size,
            targets="token",
        )

    def describe_law(self) -> dict[str, Any]:
        """See `GeneratedTask.describe_law`."""
        segments = {
            split: {segment.name: share for segment, share in shares.items()}
            for split, shares in self.shares.items()
        }
        return {**vars(self.law), "segments": segments, "version": 1}

    def describe_sequences(self) -> str:
        """See `GeneratedTask.describe_sequences`."""
        return f"sequences of up to {self.info.max_length:,} tokens"

    def draw(self) -> dict[str, Drawn]:
        """See `SequenceTask.draw`."""
        return {split: self._draw_split(split) for split in SPLITS}

    def _draw_split(self, split: str) -> Drawn:
        shares = self.shares[split]
        counts = _divide(self.counts[split], list(shares.values()))
        parts: list[Drawn] = []
        for number, (segment, count) in enumerate(zip(shares, counts, strict=True)):
            first = (SPLITS.index(split) << 8 | number) << 32
            parts.append(
                draw_in_groups(
                    f"drawing {split} {segment.name}",
                    count,
                    lambda group, segment=segment, first=first: draw(
                        self.law, segment, self.data_seed, first | group
                    ),
                )
            )
        return join_drawn(parts)

    def open_split(self, drawn: Drawn) -> LabelledTokens:
        """See `SequenceTask.open_split`."""
        is_query = drawn.labels != NOT_SCORED
        pairs = np.add.reduceat(is_query, drawn.offsets[:-1], dtype=np.int64)
        kinds, which = np.unique([drawn.lengths, pairs], axis=1, return_inverse=True)
        names = np.array([Segment(*map(int, kind)).name for kind in kinds.T])
        fields = {"segment": names[which], "pairs": pairs}
        return LabelledTokens(drawn.tokens, drawn.offsets, drawn.labels, fields)

    def simple_baselines(self, test: Drawn) -> dict[str, float]:
        """See `SequenceTask.simple_baselines`."""
        pairs = [segment.pairs for segment in self.shares["test"]]
        return {
            "random value": 100 / (self.law.vocab_size - self.law.vocab_size // 2),
            "random value of the sequence": 100 * float(np.mean([1 / count for count in pairs])),
        }

    @classmethod
    def fresh(
        cls, options: Mapping[str, Any], *, length: int | None, examples: int
    ) -> dict[str, Any]:
        """See `Task.fresh`: draws new sequences; those of a length have `pairs` pairs."""
        drawn = super().fresh(options, length=length, examples=examples)
        drawn["val"] = len(MIXTURE["test"]) if options["mixture"] else 1
        if length is None:
            return drawn
        return {**drawn, "length": length, "mixture": False, "longest": LONGEST}


def _one_segment(length: int, pairs: int) -> dict[str, dict[Segment, int]]:
    return {split: {Segment(length, pairs): 1} for split in SPLITS}


def _choose_segments(longest: int) -> dict[str, dict[Segment, int]]:
    """Choose segments of the mixture up to a length: their shares, by split."""
    chosen = {
        split: {Segment(*key): share for key, share in shares.items() if key[0] <= longest}
        for split, shares in MIXTURE.items()
    }
    if not all(chosen.values()):
        raise ValueError(f"longest is {longest}, expected at least {LENGTH}, the shortest segment")
    return {"train": chosen["train"], "val": chosen["test"], "test": chosen["test"]}


def _advise_mixture(segment: Segment, vocab_size: int) -> str:
    """Say how to train on the mixture instead of one segment (HazyResearch/zoology, issue 24)."""
    lengths = [length for length, _ in MIXTURE["test"] if length < vocab_size]
    if not lengths:
        return ""
    changes = {
        "mixture=true": True,
        f"longest={max(lengths)}": max(lengths) < LONGEST,
        f"length={LENGTH}": segment.length != LENGTH,  # a mixture takes no other
        f"pairs={PAIRS}": segment.pairs != PAIRS,
    }
    flags = " ".join(f"--set task.{change}" for change, is_needed in changes.items() if is_needed)
    return f"train on several lengths (docs/probes.md): {flags}"


def _check_segment(segment: Segment, vocab_size: int) -> None:
    length, pairs = segment.length, segment.pairs
    if length % 2:
        raise ValueError(f"length is {length}, expected an even number")
    if 4 * pairs > length:
        raise ValueError(
            f"pairs is {pairs}, too many for length {length}: each pair takes four positions; use "
            f"at most {length // 4} pairs, or a length of at least {4 * pairs}"
        )
    if vocab_size <= length:
        raise ValueError(
            f"vocab_size is {vocab_size}, expected more than the length {length}; use a larger "
            f"vocab_size or shorter sequences"
        )


def _divide(total: int, shares: Sequence[int]) -> list[int]:
    """Divide a number in given proportions: whole numbers with this sum."""
    ends = [0, *(total * end // sum(shares) for end in itertools.accumulate(shares))]
    return [stop - start for start, stop in itertools.pairwise(ends)]
