"""The scripts behind the findings on the results page."""

from __future__ import annotations

import pytest
import torch

from lra.classifier.classifier import Classifier
from requested import resolve
from results.findings.padding import PaddedClassifier

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
