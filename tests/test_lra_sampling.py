"""Drawing tokens by logits, and what tokens are written as."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.errors import DataError
from lra.generate.sampling import Generation, TokenSampler
from lra.runtime.errors import UserError
from tasks.lm.words import Words
from tasks.vocabulary import Bytes, Numbers


def test_tokens_are_drawn_as_often_as_their_probabilities_say() -> None:
    shares = np.array([0.5, 0.0, 0.3, 0.15, 0.05, 0.0])
    logits = torch.tensor(np.where(shares > 0, np.log(np.maximum(shares, 1e-9)), -1e4))
    sampler = TokenSampler(1.0, seed=3)
    draws = [sampler.draw(logits) for _ in range(4000)]
    counts = np.bincount([token for token, _ in draws], minlength=6) / 4000
    assert np.abs(counts - shares).max() < 0.03
    assert counts[[1, 5]].sum() == 0
    assert {round(probability, 6) for token, probability in draws if token == 2} == {0.3}


def test_temperature_sharpens_and_flattens() -> None:
    logits = torch.tensor([0.0, 1.0, 0.5])

    def probability(temperature: float) -> float:
        sampler = TokenSampler(temperature, seed=0)
        return next(p for token, p in (sampler.draw(logits) for _ in range(99)) if token == 1)

    assert probability(0.5) == pytest.approx(torch.softmax(logits / 0.5, 0)[1].item())
    assert probability(1e300) == pytest.approx(1 / 3)
    for cold in (0.0, 5e-324, 1e-9):
        sampler = TokenSampler(cold, seed=0)
        assert {sampler.draw(logits)[0] for _ in range(50)} == {1}


def test_rounding_of_logits_changes_no_token() -> None:
    logits = torch.randn(1000, 300, dtype=torch.float64)
    one, two = TokenSampler(1.0, seed=5), TokenSampler(1.0, seed=5)
    pairs = [(one.draw(row), two.draw((row + 1e-7 * torch.randn(300)).float())) for row in logits]
    assert all(a[0] == b[0] for a, b in pairs)
    assert len({a[0] for a, _ in pairs}) > 200


def test_random_numbers_are_those_for_good() -> None:
    sampler = TokenSampler(1.0, seed=7)
    assert [sampler.draw(torch.zeros(1000))[0] for _ in range(5)] == [163, 972, 314, 694, 495]


def test_logits_that_are_not_finite_are_told() -> None:
    with pytest.raises(UserError, match="logits are not finite"):
        TokenSampler(1.0, 0).draw(torch.tensor([0.0, torch.nan]))


def test_differences_are_found() -> None:
    assert Generation([1, 2, 3]).first_difference(Generation([1, 2, 3])) is None
    assert Generation([1, 2, 3]).first_difference(Generation([1, 0, 0])) == 1


def test_a_model_may_have_more_words_than_its_text() -> None:
    words = Words([b"<unk>", b"<eos>", b"cat"])
    assert b"".join(map(words.decode, [2, 0, 1, 3])) == b"cat <unk> \n<unk> "
    assert words.encode("cat <unk>\n") == [2, 0, 1]
    with pytest.raises(DataError, match="got 'dog', '\N{REPLACEMENT CHARACTER}', 'c' and 1 more, "):
        words.encode("cat dog \udcff dog c d")


def test_vocabularies() -> None:
    assert Bytes().encode("é\udcff") == [*"é".encode(), 255]
    assert b"".join(map(Bytes().decode, [195, 169])) == "é".encode()
    assert Numbers(12).encode(" 0 11\n3 ") == [0, 11, 3]
    for wrong in ("12", "-1", "1.0", "١", "a", "9" * 5000):
        with pytest.raises(DataError, match="expected numbers of tokens, 0 to 11"):
            Numbers(12).encode(wrong)
