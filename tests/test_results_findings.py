"""The scripts in results/findings: their figures and tables are those of the shipped runs."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from lra.config.registry import MIXERS
from lra.results.findings import learning_rates, window_order
from lra.results.findings.shared import save_figure
from requested import compose

FOLDER = ROOT / "results" / "findings"
SCRIPTS = sorted(p.stem for p in FOLDER.glob("*.py") if "\ndef draw()" in p.read_text())
PAGES = [ROOT / "docs" / f"{n}.md" for n in ("results", "language_modelling", "reproduce", "range")]


def words_and_numbers(svg: Path) -> tuple[list[str], list[float]]:
    """Read the texts of a figure, and all coordinates in points."""
    text = svg.read_text()
    words = re.findall(r"<!-- (.*?) -->", text)
    return words, [float(number) for number in re.findall(r"-?\d+\.\d+", text)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_figure_shows_the_shipped_runs(name: str, tmp_path: Path) -> None:
    committed = FOLDER / f"{name}.svg"
    drawn = tmp_path / committed.name
    save_figure(importlib.import_module(f"lra.results.findings.{name}").draw, drawn)
    words, numbers = words_and_numbers(drawn)
    expected_words, expected_numbers = words_and_numbers(committed)
    stale = f"{committed} is stale: python -m results.findings.{name}"
    assert words == expected_words, stale
    assert len(numbers) == len(expected_numbers), stale
    # Another processor may round a coordinate in another way.
    np.testing.assert_allclose(numbers, expected_numbers, atol=0.01, err_msg=stale)
    assert {path.stem for path in FOLDER.glob("*.svg")} == {*SCRIPTS}
    assert any(f"findings/{drawn.name})" in page.read_text() for page in PAGES)


def test_the_page_has_the_agreement_of_orders(capsys: pytest.CaptureFixture[str]) -> None:
    window_order.main()
    page = (ROOT / "docs" / "results.md").read_text()
    section = page[page.index("## How far mixers remember") :].split("\n## ")[0]
    numbers = re.findall(r"-?\d\.\d\d", capsys.readouterr().out)
    assert len(numbers) == 12 and {*numbers} <= {*re.findall(r"-?\d\.\d\d", section)}


def test_every_mixer_has_the_best_rate_of_the_search() -> None:
    for task in learning_rates.TASKS:
        for mixer, rate in learning_rates.load_search(task)["best rate"].items():
            config = compose(task, str(mixer), preset="budget")
            assert config.train.lr == rate, (task, mixer)
    search = learning_rates.load_search("listops")[[*learning_rates.RATES]]
    highest = [*search.idxmax(axis=1)].count(learning_rates.RATES[-1])  # pyright: ignore
    assert (
        f"[{highest} of the {len(search)} mixers](docs/results" in (ROOT / "README.md").read_text()
    )
    assert {*learning_rates.load_search("listops").index} == {*MIXERS.classes}
