"""The scripts behind the findings on the results page."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lra.classifier.classifier import Classifier
from lra.config.registry import MIXERS
from lra.record.run import folder_of
from lra.report.boards import finding_runs
from lra.report.boards.rate_search import NAMES, rate_searches, shipped_rate_searches
from lra.report.boards.results import Results
from lra.report.chapters import ReportData, ReportOptions
from lra.report.figures.learning_rates import rate_figure
from lra.report.page.readme import make_block
from lra.report.tables.learning_rates import rate_table
from made_results import record, save
from requested import compose, resolve
from results.findings.train_padded import PaddedClassifier


def _colours_in_legend(figure: Any) -> set[str]:
    return {handle.get_markerfacecolor() for handle in figure.legends[0].legend_handles}


def test_of_a_search_the_best_rate_is_taken(tmp_path: Path) -> None:
    accuracies = {"tnn": (40.0, 50.0, 45.0), "s4": (55.0, 55.0, 20.0), "mega": (50.0, 60.0, 70.0)}
    for mixer, values in accuracies.items():
        for number, value in enumerate(values):
            status = "stopped" if value == 70.0 else "done"
            rate = 3.0**number / 1000
            run = record(mixer=mixer, run_id=f"{number}-s0", val_accuracy=value, status=status,
                         settings={"train.lr": rate})  # fmt: skip
            save(tmp_path, run)
    searches = rate_searches(Results(tmp_path))
    assert [(one.task, one.mixer, one.best_rate) for one in searches] == [
        ("listops", "s4", 0.001), ("listops", "tnn", 0.003),
    ]  # fmt: skip
    assert searches[1].accuracies == [40.0, 50.0, 45.0]
    assert rate_table("listops", searches).rows[1] == ["tnn", "40.0", "50.0", "45.0", "0.003"]
    (axes,) = rate_figure("listops", searches).draw().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["s4", "tnn"]
    assert {text.get_text() for text in axes.figure.legends[0].get_texts()} == {*NAMES}
    assert _colours_in_legend(axes.figure) == {"white"}
    best = [np.asarray(line.get_xdata()).tolist() for line in axes.lines if _is_filled(line)]
    assert best == [[55.0], [50.0]]


def test_every_mixer_of_the_leaderboard_has_the_best_rate_of_the_search() -> None:
    searches = shipped_rate_searches()
    assert {one.mixer for one in searches if one.task == "listops"} == {*MIXERS.classes}
    for one in searches:
        config = compose(one.task, one.mixer, preset="budget")
        assert config.train.lr == one.best_rate, (one.task, one.mixer)


def _is_filled(line: Any) -> bool:
    return line.get_marker() != "None" and line.get_markerfacecolor() != "white"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportData:
    """A leaderboard of three mixers on two tasks, and made-up runs of every finding."""
    monkeypatch.setattr(finding_runs, "FINDINGS", tmp_path / "findings")
    number = itertools.count()

    def add(folder: str, settings: Mapping[str, object], **changes: Any) -> None:
        run = record(
            **{"preset": "budget", "run_id": f"{next(number)}-s0", "config_hash": "b", **changes},
            settings={"train.lr": 0.1, **settings},
        )
        save(tmp_path / folder, run)
        place = folder_of(tmp_path / folder, run)
        steps = [
            {"step": 10 * k, "seconds": k, name: 50.0 + k}
            for k in (1, 2, 3)
            for name in ("accuracy", "val_accuracy")
        ]
        (place / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in steps))

    for task, mixer in itertools.product(("listops", "image"), ("tnn", "s4d", "transformer")):
        add("shipped", {}, task=task, mixer=mixer, test_accuracy=60.0, config_hash="a")
    add("findings/padding", {}, mixer="tnn", label="padding mixed in", test_accuracy=55.0)
    for steps, accuracy in ((10, 61.0), (20, 65.0), (40, 66.0)):
        before = {"objective": "masked", "masked_share": 0.1, "steps": steps, "epochs": 1.0,
                  "seconds": 1.0, "val_loss": 1.0}  # fmt: skip
        add("findings/pretraining-steps", {}, mixer="tnn", test_accuracy=accuracy,
            pretraining=before, steps=20 + steps, total_steps=20 + steps)  # fmt: skip
    add("findings/pretraining-steps", {}, mixer="tnn", test_accuracy=62.0, steps=40, total_steps=40)
    for width, accuracy in ((5, 40.0), (15, 50.0), (61, 55.0)):
        where = ("shipped", "a") if width == 5 else ("findings/locality", f"width {width}")
        for task in ("listops", "image"):
            add(where[0], {"mixer.width": width}, mixer="conv", task=task,
                test_accuracy=accuracy, config_hash=where[1])  # fmt: skip
    for mixer, accuracy in (("conv", 20.0), ("s4d", 30.0)):
        settings = {"mixer.width": 5} if mixer == "conv" else {}
        add("findings/locality", settings, mixer=mixer, task="image", test_accuracy=accuracy,
            overrides=["task.permutation=1"])  # fmt: skip
    for mixer, seed in itertools.product(("s4d", "tnn"), range(5)):
        add("shipped", {}, mixer=mixer, task="pathfinder", seed=seed)
    add("shipped", {}, mixer="transformer", task="pathfinder")
    return ReportData(Results(tmp_path / "shipped"), ReportOptions())


def test_a_repeated_row_is_drawn_over_all_of_its_steps(data: ReportData, tmp_path: Path) -> None:
    steps = {1: 30, 2: 120}
    for attempt, made in steps.items():
        run = record(task="text", mixer="tnn", preset="paper", status="stopped", test_accuracy=None,
                     val_accuracy=85.0 + attempt, best_step=20, steps=made,
                     total_steps=120)  # fmt: skip
        folder = tmp_path / "findings" / "repeated-rows" / f"attempt-{attempt}"
        save(folder, run)
        lines = [{"step": k, "seconds": k, "val_accuracy": 60 + k / 4} for k in (10, made)]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder_of(folder, run) / "metrics.jsonl").write_text(text)
    (figure,) = make_block(data, ["repeated-rows"]).figures.values()
    (axes,) = figure.draw().axes
    first, second, *published = (np.asarray(line.get_ydata()).tolist() for line in axes.lines)
    assert (first, second) == ([62.5, 67.5], [62.5, 90.0])
    assert published == [[87.9, 87.9], [86.39, 86.39]]
    assert axes.get_xlim() == (0, 120)
    assert "Attempt 1 made 30 of its 120 steps (25 %)" in figure.caption
    assert "Attempt 2 made all of its 120 steps" in figure.caption
    assert "validation accuracy is 86.00 %, at step 20." in figure.caption
    assert "test accuracy is" not in figure.caption


def test_each_finding_has_its_figure(data: ReportData, tmp_path: Path) -> None:
    names = ["locality", "pathfinder-seeds", "padding", "pretraining-steps"]
    figures = {figure.slug: figure for figure in make_block(data, names).figures.values()}
    assert [*figures] == names
    drawn = {name: figure.draw().axes for name, figure in figures.items()}
    (padding,) = drawn["padding"]
    assert [label.get_text() for label in padding.get_yticklabels()] == ["tnn, listops"]
    assert {60.0, 55.0} <= {x for line in padding.lines for x in np.asarray(line.get_xdata())}
    (pretraining,) = drawn["pretraining-steps"]
    names = [text.get_text() for text in pretraining.figure.legends[0].get_texts()]
    pretrained = [f"pretrained for {ratio} x the steps" for ratio in ("0.5", "1", "2")]
    assert names == ["labels only", *pretrained, "labels only, 2 x the steps"]
    heights = [
        np.asarray(line.get_ydata())[0] for line in pretraining.lines if line.get_marker() != "None"
    ]
    assert len(heights) == len({*heights}) == 5, "below each other"
    assert _colours_in_legend(pretraining.figure) != {"white"}
    listops, image = drawn["locality"]
    assert (listops.get_title(), image.get_title()) == ("listops", "image")
    points = next(line for line in listops.lines if len(np.asarray(line.get_xdata())) == 3)
    assert [*np.asarray(points.get_ydata())] == [40.0, 50.0, 55.0]
    dashed = [line for line in image.lines if line.get_linestyle() == "--"]
    assert {y for line in dashed for y in np.asarray(line.get_ydata())} == {20.0, 30.0}
    (best,) = (line for line in listops.lines if line.get_linestyle() == ":")
    assert {*np.asarray(best.get_ydata())} == {60.0}
    assert [axes.get_title() for axes in drawn["pathfinder-seeds"]] == ["s4d", "tnn"]
    assert len(drawn["pathfinder-seeds"][0].lines) == 5 + 1


def test_without_runs_there_are_no_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding_runs, "FINDINGS", tmp_path / "findings")
    data = ReportData(Results(tmp_path), ReportOptions())
    assert make_block(data, ["locality", "learning-rates", "padding"]).figures == {}


PADDED = ("tnn", "s4", "transformer")


@pytest.mark.parametrize("mixer", PADDED)
def test_padding_matters_only_where_sequences_have_different_lengths(mixer: str) -> None:
    config = resolve("listops", mixer, preset="quick")
    info = config.build_task().info
    torch.manual_seed(0)
    ours = Classifier(config, info).eval()
    padded = PaddedClassifier(config, info).eval()
    padded.load_state_dict(ours.state_dict())
    tokens = torch.randint(1, info.vocab_size or 0, (60,))
    for lengths, is_equal in (
        (torch.tensor([[30], [30]]), True),
        (torch.tensor([[20], [40]]), False),
    ):
        with torch.no_grad():
            a, b = ours(tokens, lengths), padded(tokens, lengths)
        # The longest sequence has no padding.
        torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=1e-5)
        assert torch.allclose(a[0], b[0], rtol=1e-4, atol=1e-5) == is_equal
