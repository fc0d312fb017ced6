"""The scripts in results/findings: their figures and tables are those of the shipped runs."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from conftest import ROOT
from figure_checks import overlaps
from lra.classifier.classifier import Classifier
from lra.config.registry import MIXERS
from lra.report.figures.drawing import style
from requested import compose, resolve
from results.findings import learning_rates, shared
from results.findings.train_padded import PaddedClassifier

FOLDER = ROOT / "results" / "findings"
SCRIPTS = sorted({path.stem for path in FOLDER.glob("*.py")} - {"shared", "train_padded"})
PAGES = [ROOT / "docs" / f"{n}.md" for n in ("results", "language_modelling", "reproduce")]


def script(name: str) -> ModuleType:
    return importlib.import_module(f"results.findings.{name}")


def words_and_numbers(svg: Path) -> tuple[list[str], list[float]]:
    """Read the texts of a figure, and all coordinates in points."""
    text = svg.read_text()
    words = re.findall(r"<!-- (.*?) -->", text)
    return words, [float(number) for number in re.findall(r"-?\d+\.\d+", text)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_figure_shows_the_shipped_runs(name: str, tmp_path: Path) -> None:
    script(name).main(tmp_path)
    (drawn,) = tmp_path.iterdir()
    committed = FOLDER / drawn.name
    words, numbers = words_and_numbers(drawn)
    expected_words, expected_numbers = words_and_numbers(committed)
    stale = f"{committed} is stale: python -m results.findings.{name}"
    assert words == expected_words, stale
    assert len(numbers) == len(expected_numbers), stale
    # Another processor may round a coordinate in another way.
    np.testing.assert_allclose(numbers, expected_numbers, atol=0.01, err_msg=stale)
    assert {path.stem for path in FOLDER.glob("*.svg")} == {*SCRIPTS}
    assert any(f"findings/{drawn.name})" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_text_of_a_figure_overlaps(name: str) -> None:
    with style():
        figure: Figure = script(name).draw()
        assert overlaps(figure) == []


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    for file in ("first.svg", "second.svg"):
        shared.save_figure(script("padding").draw, tmp_path / file)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


def test_every_mixer_of_the_leaderboard_has_the_best_rate_of_the_search() -> None:
    for task in learning_rates.TASKS:
        for mixer, rate in learning_rates.load_search(task)["best rate"].items():
            config = compose(task, str(mixer), preset="budget")
            assert config.train.lr == rate, (task, mixer)
    assert {*learning_rates.load_search("listops").index} == {*MIXERS.classes}


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
