"""The commands in docs/reproduce.md that repeat published rows: each of them trains."""

from __future__ import annotations

import functools
import math
import shlex
from pathlib import Path

import pytest
import torch
import yaml

import run_task
from lra.classifier import packing
from lra.config.schema import RunConfig
from lra.report.published import SOURCES, PublishedRow, choose_published, published_rows
from lra.report.repeats import Repeat, repeats
from lra.report.scores import FIVE
from lra.report.tables.results import published_table
from lra.train.trainer import Trainer
from made_data import SMALLER, place_made_data
from tasks.base import BENCHMARK, Dataset

SHORTER = {
    "listops": [
        "task.min_length=10", "task.max_length=60", "task.sequence_length=80", "train.batch_size=3",
    ],
    "text": ["task.sequence_length=80", "train.batch_size=3"],
    "retrieval": ["task.sequence_length=80", "train.batch_size=2"],
}  # fmt: skip
"""Settings by which a step takes little; other tasks have images of 1,024 pixels, at least."""


@functools.cache
def rows() -> list[Repeat]:
    return list(repeats())


def config_of(row: Repeat, *changes: str) -> RunConfig:
    """Read the settings of a row's command, with changes."""
    _, _, *words = shlex.split(row.command())
    words += [part for text in changes for part in ("--set", text)]
    return run_task.configure(run_task.parse_arguments(words))


def fault_of_a_step(row: Repeat, config: RunConfig, dataset: Dataset) -> str | None:
    """Make a training step, and say what is wrong with it."""
    try:
        trainer = Trainer(config, config.build_task().info, dataset, 0, torch.device("cpu"))
        before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
        trainer.train_step()
    except Exception as error:
        return f"{row.command()}: {error!r}"
    if all(map(torch.equal, before, trainer.model.parameters())):
        return f"{row.command()}: a step changes nothing"
    return None


@pytest.mark.thorough
@pytest.mark.parametrize("task", BENCHMARK)
def test_every_row_makes_a_step_on_short_sequences(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has two blocks, and published settings otherwise.

    A batch is three texts, two pairs or an image: mixers are called for several groups of like
    length.
    """
    monkeypatch.setattr(packing, "SMALLEST_GROUP", 1)
    monkeypatch.setattr(packing, "SHORTEST_OVER_LONGEST", 1)
    place_made_data(task, tmp_path)
    changes = [*SMALLER[task], *SHORTER.get(task, ["train.batch_size=1"])]
    faults = []
    for row in rows():
        if row.task == task:
            config = config_of(row, *changes, "model.depth=2", "train.micro_batch=null")
            faults.append(fault_of_a_step(row, config, config.build_task().prepare(tmp_path)))
    assert faults
    assert not any(faults), [fault for fault in faults if fault]


def average_by(row: PublishedRow, rule: str) -> float | None:
    """Recompute the average of a row by a rule, as `mean_over` would not."""
    tasks = {"of 5": FIVE, "of 5, no ListOps": BENCHMARK[1:]}.get(rule, BENCHMARK)
    fail = 50.0 if rule == "of 6, FAIL as 50" else None
    values = [fail if row.printed[task] == "FAIL" else row.values[task] for task in tasks]
    return None if None in values else math.fsum(filter(None, values)) / len(values)


def test_each_printed_average_follows_from_its_rule() -> None:
    for row in published_rows():
        rounding = 1.01 * 10.0 ** -len(row.printed_average.partition(".")[2])  # or cut off
        fitting = [
            rule
            for rule in ("of 6", "of 5", "of 5, no ListOps", "of 6, FAIL as 50")
            if row.printed_average
            and (value := average_by(row, rule)) is not None
            and abs(value - float(row.printed_average)) <= rounding
        ]
        if not row.printed_average or not any(row.printed.values()):
            assert row.average_rule == "", row.method
        elif row.average_rule == "wrong":
            assert not fitting, row.method
        else:
            assert row.average_rule in fitting, row.method


def test_published_rows_have_sources_and_no_average_over_a_hole() -> None:
    rows = published_rows()
    sources = yaml.safe_load(SOURCES.read_text())
    assert {row.source for row in rows} - {"chance level"} == sources.keys()
    for row, line in zip(rows, published_table(rows).rows, strict=True):
        assert all(text in ("", "FAIL") or 0 < float(text) < 100 for text in row.printed.values())
        for text, rule in zip(line[7:9], ("of 5", "of 6"), strict=True):
            mean = average_by(row, rule)
            assert text == "-" if mean is None else float(text) == pytest.approx(mean, abs=0.006)


def test_published_methods_are_chosen_by_name() -> None:
    chosen = choose_published("tnn, MRConv")
    assert [row.method for row in chosen] == ["TNN", "MRConv"] and choose_published("none") == []
