"""What holds for all tasks that draw their examples: the law of each, options, verification."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lra.common.errors import DataError, UserError
from lra.config.registry import TASKS
from lra.tasks.cache import file_facts
from lra.tasks.flip_flop import FlipFlop
from lra.tasks.groups import Groups
from lra.tasks.languages import Languages
from lra.tasks.periodic import Periodic
from lra.tasks.recall import Recall, Segment
from requested import compose_task

SIZES = {"train": 1500, "val": 30, "test": 70}

FINGERPRINTS: list[tuple[str, dict[str, Any], str]] = [
    ("listops", {"min_length": 8, "max_length": 60, **SIZES}, "3ccc783406fa8cef"),
    ("listops", {"train": 60, "val": 10, "test": 10, "end_token": False}, "649e5b697eb626ee"),
    ("periodic", {"sequence_length": 64, **SIZES}, "afcf4ca78342143b"),
    (
        "periodic",
        {"sequence_length": 128, "vocab_size": 300, "noise": 0.3, "periods": "other", **SIZES},
        "7b3815c8597e7bb1",
    ),
    ("recall", SIZES, "87ec9a686f1fddd4"),
    (
        "recall",
        {"fill": "random", "length": 128, "pairs": 16, "data_seed": 2, **SIZES},
        "892d9e920f448d78",
    ),
    ("languages", {"language": "parity", **SIZES}, "1a2d8a8e0eee3399"),
    ("languages", {"language": "even-pairs", **SIZES}, "2c475dc7a9aa1300"),
    ("languages", {"language": "cycle-navigation", **SIZES}, "4937202169382d36"),
    ("languages", {"language": "modular-arithmetic", **SIZES}, "eb48c1d22933a45c"),
    ("languages", {"language": "modular-arithmetic-brackets", **SIZES}, "63416a91a802401b"),
    ("groups", {"group": "S5", **SIZES}, "504da16139176d6e"),
    (
        "groups",
        {"inputs": "swaps", "train_length": 6, "test_length": 6, **SIZES},
        "c97b3fb16579a872",
    ),
    ("groups", {"group": "A5", "inputs": "generators", **SIZES}, "a3efd0e6cff68fe8"),
    ("flip-flop", {"distance": 24, "length": 100, **SIZES}, "2f538b2d2cc8e5a3"),
    ("flip-flop", {"mode": "one", "distance": 16, "length": 64, **SIZES}, "e43cdc15a1fa55b2"),
    ("flip-flop", {"mode": "published", "length": 64, "data_seed": 2, **SIZES}, "bed6b54a0ecfd20f"),
]
"""Of data that the first versions drew, on any machine: others are other data."""


@pytest.mark.parametrize(("task", "options", "fingerprint"), FINGERPRINTS)
def test_the_laws_draw_the_same_for_good(
    task: str, options: dict[str, Any], fingerprint: str, tmp_path: Path
) -> None:
    made = TASKS.classes[task](**options)
    dataset = made.prepare(tmp_path)
    assert dataset.fingerprint[:16] == fingerprint
    assert made.verify(dataset)


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("listops", {"min_length": 70, "max_length": 60}, "min_length 70 is above max_length 60"),
        ("listops", {"source": "official", "test": 9}, "source is official.*leave them out, or"),
        ("groups", {"group": "A5", "inputs": "swaps"}, "A5 has no element that exchanges two"),
        ("groups", {"group": "S3", "inputs": "all", "train_length": 2, "train": 19},
         "19 different sequences of length 2 are asked for, but 6 elements have 36"),
        ("languages", {"train_min": 41}, "train_min is 41 and train_max is 40, but parity has no"),
        ("recall", {"pairs": 17}, "pairs is 17, too many for length 64.*at most 16 pairs, or a le"),
        ("recall", {"mixture": "true", "val": 6}, "val is 6, expected at least 7, so that each of"),
        ("recall", {"longest": 64}, "longest 64 has no effect without mixture"),
        ("flip-flop", {"mode": "last", "distance": 500}, "distance is 500.* lower one is 384"),
        ("flip-flop", {"mode": "one", "distance": 768}, "length is 512, .* at least 3072, four"),
        ("flip-flop", {"mode": "published", "distance": 8}, "distance 8 has no effect in mode pu"),
        ("flip-flop", {"mode": "published", "length": 513}, "length is 513 and test is .* an even"),
        ("flip-flop", {"mode": "published", "test": 2}, "test is 2, expected .* at least 3 test"),
        ("lm", {"stride": 600}, "stride is 600, above sequence_length 512"),
        ("lm", {"vocab_size": 100}, "vocab_size has no effect for unit byte"),
        ("periodic", {"noise": 0.9375}, r"noise is 0.9375, expected at least 0 and below 0.9375"),
    ],
)  # fmt: skip
def test_bad_options_get_one_line(task: str, options: dict[str, Any], words: str) -> None:
    overrides = [f"task.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=words) as raised:
        compose_task(task, overrides=overrides)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["listops", "periodic", "recall", "languages", "groups", "flip-flop", "pathfinder"]
)
def test_data_without_room_is_refused_and_large_data_is_announced(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = "examples" if name == "pathfinder" else "train"
    too_large = compose_task(name, overrides=[f"task.{size}={10**13}", "task.data_seed=1"])
    plan = too_large.plan(tmp_path)
    for action in (plan.describe, plan.open_or_build):
        with pytest.raises(
            DataError, match=r"cannot generate 10,000,\d.* GiB or more: (the disk|memory) has"
        ):
            action()
    small = compose_task(name, overrides=[f"task.{size}=1000", "task.data_seed=1"]).plan(tmp_path)
    small.build, small.bytes = lambda _: None, 2**30
    with caplog.at_level("INFO"):
        small.open_or_build()
    (said,) = caplog.messages
    assert re.fullmatch(rf"{name}: generate [\d,]+ .* \(1.0 GiB\)", said)


def test_fresh_data_may_be_longer() -> None:
    few = {"data_seed": 5, "train": 1000, "val": 1, "test": 9}
    groups = {"group": "S5", "inputs": "swaps", "data_seed": 4}
    assert Groups.fresh(groups, length=None, examples=9) == few
    task = Groups(**{**groups, **Groups.fresh(groups, length=700, examples=9)})
    assert task.positions == {"train": 32, "val": 700, "test": 700}
    parity = {"language": "parity", "data_seed": 4}
    task = Languages(**{**parity, **Languages.fresh(parity, length=400, examples=9)})
    assert (task.lengths["test"][0], task.lengths["test"][-1]) == (300, 400)
    assert task.lengths["train"][-1] == 40
    recall = {"length": 64, "pairs": 4, "mixture": False, "longest": 1024, "data_seed": 4}
    task = Recall(**{**recall, **Recall.fresh(recall, length=128, examples=9)})
    assert task.shares["test"] == {Segment(128, 4): 1} and task.counts["test"] == 9
    mixed = {**recall, "mixture": True}
    assert (
        len(Recall(**{**mixed, **Recall.fresh(mixed, length=None, examples=70)}).shares["test"])
        == 7
    )
    flip_flop = {"mode": "last", "distance": 512, "length": 2048, "data_seed": 4}
    task = FlipFlop(**{**flip_flop, **FlipFlop.fresh(flip_flop, length=8200, examples=9)})
    assert (task.distances[-1], task.info.max_length) == (2048, 8200)
    periodic = {"sequence_length": 64, "periods_of_length": None, "data_seed": 4}
    for length in (3, 100):  # shorter than the periods, too, which stay those of training
        longer = Periodic.fresh(periodic, length=length, examples=90)
        again = Periodic(
            **{**periodic, **Periodic.fresh({**periodic, **longer}, length=300, examples=9)}
        )
        assert again.law.periods == (4, 5, 8, 9) and again.info.max_length == 300


@pytest.mark.parametrize("name", ["val_tokens", "ideal_predictions"])
def test_verification_draws_again(name: str, tmp_path: Path) -> None:
    """An array is changed, and its checksum made to fit."""
    task = Periodic(sequence_length=64, train=70, val=20, test=30)
    dataset = task.prepare(tmp_path)
    path, manifest = dataset.folder / f"{name}.npy", dataset.folder / "manifest.json"
    digest = file_facts(path).sha256
    array = np.load(path)
    array[3, 5] += 1
    np.save(path, array)
    manifest.write_text(manifest.read_text().replace(digest, file_facts(path).sha256))
    with pytest.raises(DataError, match=f"{name} is not what its law draws; delete that folder"):
        task.verify(task.prepare(tmp_path))


def test_generated_data_has_no_official_files(tmp_path: Path) -> None:
    task = Periodic(sequence_length=64, train=150, val=20, test=70)
    with pytest.raises(DataError, match="no official file structure"):
        task.export(task.prepare(tmp_path), tmp_path)
