"""The scripts behind the findings on the results page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lra.classifier.classifier import Classifier
from lra.record.run import folder_of
from lra.report.boards.rate_search import NAMES, rate_searches
from lra.report.boards.results import Results
from lra.report.figures.learning_rates import rate_figure
from lra.report.tables.learning_rates import rate_table
from made_results import record, save
from requested import resolve
from results.findings.padding import PaddedClassifier


def test_of_a_search_the_best_rate_is_taken(tmp_path: Path) -> None:
    accuracies = {"tnn": (40.0, 50.0, 45.0), "s4": (55.0, 55.0, 20.0), "mega": (50.0, 60.0)}
    for mixer, values in accuracies.items():
        for number, value in enumerate(values):
            run = record(mixer=mixer, run_id=f"{number}-s0", val_accuracy=value)
            save(tmp_path, run)
            rate = 3.0**number / 1000
            (folder_of(tmp_path, run) / "config.yaml").write_text(f"train:\n  lr: {rate}\n")
    searches = rate_searches(Results(tmp_path))
    assert [(one.mixer, one.best_rate) for one in searches] == [("s4", 0.001), ("tnn", 0.003)]
    assert searches[1].accuracies == [40.0, 50.0, 45.0]
    assert rate_table(searches).rows[1] == ["tnn", "40.0", "50.0", "45.0", "0.003"]
    (axes,) = rate_figure(searches).draw().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["s4", "tnn"]
    assert {text.get_text() for text in axes.figure.legends[0].get_texts()} == {*NAMES}
    best = [list(line.get_xdata()) for line in axes.lines if _is_filled(line)]
    assert best == [[55.0], [50.0]]


def _is_filled(line: Any) -> bool:
    return line.get_marker() != "None" and line.get_markerfacecolor() != "white"


MIXERS = ("tnn", "s4", "transformer")


@pytest.mark.parametrize("mixer", MIXERS)
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
