"""Text by trained models: what is drawn, what is written, and one line for every mistake."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import lra
import run_task
from common.errors import DataError
from lra.classifier.decoders import FullPassDecoder, RecurrentDecoder
from lra.generate.__main__ import TextPrinter, main
from lra.generate.sampling import TokenSampler
from lra.runtime.errors import UserError
from made_results import record as made_record
from own_tasks import PARITY
from tasks.lm.words import Words
from tasks.vocabulary import Bytes, Numbers

LINE = "the cat sat on the mat . Él no !\n"


def train(folder: Path, task: str, mixer: str, *changes: str) -> Path:
    """Train a small model for a second; return its run's folder."""
    settings = [
        "model.dim=16", "model.depth=2", "model.causal=true", "model.norm=layer",
        "train.batch_size=8", "train.steps=60", "train.warmup_steps=5", "train.lr=1e-2",
        "train.evaluate_every=60", *changes,
    ]  # fmt: skip
    places = ["--data-dir", str(folder / "data"), "--results-dir", str(folder / "results")]
    arguments = ["--task", task, "--mixer", mixer, "--preset", "quick", "--device", "cpu", *places]
    before = set(folder.glob(f"results/runs/*/{mixer}/*"))
    assert run_task.main([*arguments, *(part for c in settings for part in ("--set", c))]) == 0
    (run,) = set(folder.glob(f"results/runs/*/{mixer}/*")) - before
    return run


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "own.txt").write_text(LINE * 200)
    return folder


@pytest.fixture(scope="module")
def by_bytes(text: Path) -> Path:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.sequence_length=32"]
    return train(text, "lm", "tnn", *corpus)


@pytest.fixture(scope="module")
def by_words(text: Path) -> Path:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.unit=word", "task.vocab_size=50"]
    return train(text, "lm", "s4d", *corpus, "task.sequence_length=16")


def command(run: Path, *more: str, prompt: str = "the cat") -> list[str]:
    data = run.parents[4] / "data"
    return ["--run", str(run), "--prompt", prompt, "--device", "cpu", "--data-dir", str(data),
            *more]  # fmt: skip


def output(
    run: Path, capsys: pytest.CaptureFixture[str], *more: str, prompt: str = "the cat"
) -> str:
    assert main(command(run, *more, prompt=prompt)) == 0
    return capsys.readouterr().out


def test_text_goes_on_from_the_prompt(by_bytes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(by_bytes, "--tokens", "60", "--temperature", "0")) == 0
    told = capsys.readouterr()
    model, tokens = lra.load(by_bytes).model, list(b"the cat")
    for _ in range(60):
        logits = model(torch.tensor(tokens), torch.tensor([[len(tokens)]]))
        tokens.append(int(logits[-1].argmax()))
    assert told.out == bytes(tokens).decode(errors="replace") + "\n"
    assert "66 positions: beyond the 32 of the training" in told.err
    speed = r"by the recurrence: the first token after \S+ s, then 59 at \S+ tokens/s"
    assert re.search(speed, told.err)
    assert main(command(by_bytes, "--tokens", "1", prompt=LINE[:31])) == 0
    told = capsys.readouterr()
    assert "beyond" not in told.err and "then" not in told.err, "32 positions"


def test_characters_are_written_when_they_are_whole(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once nobody reads, no more are drawn."""
    assert output(by_bytes, capsys, "--tokens", "1", prompt="Él ").startswith("Él ")
    text = TextPrinter(Bytes())
    text.write(0xC3)
    assert capsys.readouterr().out == ""
    text.close()
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER}\n"
    monkeypatch.setattr("lra.generate.__main__.write_out", lambda text: False)
    assert main(command(by_bytes, "--tokens", "2000")) == 0
    assert "then" not in capsys.readouterr().err


def test_words_have_a_vocabulary(by_words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output(by_words, capsys, "--tokens", "8", "--temperature", "0", prompt="the  cat sat")
    assert found == "the cat sat on the mat . Él no ! \n\n"
    assert main(command(by_words, prompt="the dog sat")) == 2
    assert "got 'dog', expected some of the 11 words that the corpus" in capsys.readouterr().err
    path = by_words / "result.json"
    kept = path.read_text()
    path.write_text(re.sub(r'"fingerprint": "\w+"', f'"fingerprint": "{"0" * 64}"', kept))
    try:
        assert main(command(by_words)) == 2
    finally:
        path.write_text(kept)
    assert "that of the run was own (00000000); give the folder" in capsys.readouterr().err


def test_both_ways_are_compared(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(command(by_bytes, "--compare", "--tokens", "50")) == 0
    told = capsys.readouterr()
    assert "all 50 tokens are equal" in told.err
    assert told.err.count("tokens/s") == 2
    take = FullPassDecoder.take

    def wrong(self: FullPassDecoder, tokens: Tensor) -> Tensor:
        logits = take(self, tokens)
        assert self.tokens is not None
        return logits + 99 * torch.eye(256)[ord("#")] * (len(self.tokens) >= 9)

    monkeypatch.setattr(FullPassDecoder, "take", wrong)
    assert main(command(by_bytes, "--compare", "--tokens", "9", "--temperature", "0")) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    pattern = (
        r"differ from number 3 on: by the recurrence \d+ \('.'\), of probability 0\.\d+, "
        r"by full passes 35 \('#'\), of probability 1$"
    )
    assert re.search(pattern, line)


def test_a_long_prompt_is_read_before_anything_is_written(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "the cat " * 200
    assert main(command(by_bytes, "--tokens", "3", prompt=long)) == 0
    told = capsys.readouterr()
    assert told.out.startswith(long)

    def fail(self: RecurrentDecoder, tokens: Tensor) -> Tensor:
        raise MemoryError

    monkeypatch.setattr(RecurrentDecoder, "take", fail)
    assert main(command(by_bytes)) == 5
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("mixer", "changes"), [("conv", ["model.positions=learned"]), ("synthesizer", [])]
)
def test_learned_positions_are_not_exceeded(
    text: Path, capsys: pytest.CaptureFixture[str], mixer: str, changes: list[str]
) -> None:
    """Those of the embedding, and those of the mixer; neither has a recurrence."""
    corpus = [f"task.corpus={text / 'own.txt'}", "task.sequence_length=32", "train.steps=10"]
    run = train(text, "lm", mixer, *corpus, *changes)
    capsys.readouterr()
    assert main(command(run, "--tokens", "26")) == 0, "7 and 25 positions are 32"
    assert "by full passes: the first token after" in capsys.readouterr().err
    assert main(command(run, "--tokens", "27")) == 2
    assert (
        "33 positions, and the model has learned 32; expected at most 33 tokens, prompt included"
        in capsys.readouterr().err
    )
    assert main(command(run, "--compare", "--tokens", "9")) == 2
    assert f"mixer {mixer} has no recurrence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "prompt", "part"),
    [
        ((), "", "--prompt '': it has no tokens, expected at least one"),
        ((), "a\ud800", "--prompt: got '\\ud800', which no bytes stand for"),
        (("--tokens", "2000000"), "a", "--tokens 2000000: expected 1 to 1,048,576"),
        (("--temperature", "-0.1"), "a", "--temperature: got -0.1, expected a finite number of at"),
    ],
)
def test_mistakes_are_one_line(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], prompt: str,
    part: str,
) -> None:  # fmt: skip
    try:
        code = main(command(by_bytes, *more, prompt=prompt))
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert part in told.err
    assert told.err.count("\n") == 1


def test_runs_that_cannot_generate(
    by_bytes: Path, own_folder: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(run: Path) -> str:
        assert main(["--run", str(run), "--prompt", "a"]) == 2
        return capsys.readouterr().err

    assert "expected the folder of a run" in told(tmp_path)
    made_record(status="stopped", message="").save(tmp_path)
    assert "the run is stopped, expected a finished one" in told(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(by_bytes, copy)
    shutil.rmtree(copy / "checkpoints")
    assert "there is no checkpoint of this run" in told(copy)
    Path("own.py").write_text(PARITY)
    run = train(Path.cwd(), "own.py:Parity", "conv", "train.steps=5", "train.warmup_steps=1")
    capsys.readouterr()
    assert "targets of Parity are examples: nothing to generate" in told(run)


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


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UserError, match="logits are not finite"):
        TokenSampler(1.0, 0).draw(torch.tensor([0.0, torch.nan]))


def test_a_model_may_have_more_words_than_its_text() -> None:
    words = Words([b"<unk>", b"<eos>", b"cat"])
    assert b"".join(map(words.decode, [2, 0, 1, 3])) == b"cat <unk> \n<unk> "
    assert words.encode("cat <unk>\n") == [2, 0, 1]
    with pytest.raises(DataError, match="got 'dog', '\N{REPLACEMENT CHARACTER}', 'c' and 1 more, "):
        words.encode("cat dog \udcff dog c d")


def test_tokens_that_are_no_text_are_numbers() -> None:
    assert Numbers(12).encode(" 0 11\n3 ") == [0, 11, 3]
    assert b"".join(map(Numbers(12).decode, [8, 11])) == b"8 11 "
    for wrong in ("12", "-1", "1.0", "a", "9" * 5000):
        with pytest.raises(DataError, match="expected numbers of tokens, 0 to 11"):
            Numbers(12).encode(wrong)
