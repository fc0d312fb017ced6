"""Text by trained models: what is drawn, what is written, and one line for every mistake."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lra
from lra import run_task
from lra.common.errors import UserError
from lra.generate import draw_token, main, write_tokens
from lra.tasks.lm.words import Bytes
from lra.tasks.random_words import RandomWords
from own_tasks import PARITY

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


def command(run: Path, *more: str, prompt: str = "the cat") -> list[str]:
    data = run.parents[4] / "data"
    return ["--run", str(run), "--prompt", prompt, "--device", "cpu", "--data-dir", str(data),
            *more]  # fmt: skip


def written(
    run: Path, capsys: pytest.CaptureFixture[str], *more: str, prompt: str = "the cat"
) -> Any:
    capsys.readouterr()
    assert main(command(run, *more, prompt=prompt)) == 0
    return capsys.readouterr()


def test_text_goes_on_from_the_prompt(by_bytes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = written(by_bytes, capsys, "--tokens", "60", "--temperature", "0")
    model, tokens = lra.load(by_bytes).model, list(b"the cat")
    for _ in range(60):
        logits = model(torch.tensor(tokens), torch.tensor([[len(tokens)]]))
        tokens.append(int(logits[-1].argmax()))
    assert told.out == bytes(tokens).decode(errors="replace") + "\n"
    assert "decoding by the recurrence" in told.err
    assert re.search(r"the first token after \S+ s, then 59 at \S+ tokens/s", told.err)


def test_characters_are_written_when_they_are_whole(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once nobody reads, no more are drawn."""
    assert written(by_bytes, capsys, "--tokens", "1", prompt="Él ").out.startswith("Él ")
    write_tokens(Bytes(), [], [0xC3])
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER}\n"
    monkeypatch.setattr("lra.generate.write_out", lambda text: False)
    assert "then" not in written(by_bytes, capsys, "--tokens", "2000").err


def test_words_have_a_vocabulary(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.unit=word", "task.vocab_size=50"]
    run = train(text, "lm", "s4d", *corpus, "task.sequence_length=16")
    told = written(run, capsys, "--tokens", "8", "--temperature", "0", prompt="the  cat sat")
    assert told.out == "the cat sat on the mat . Él no ! \n\n"
    assert main(command(run, prompt="the dog sat")) == 2
    assert "got 'dog', expected some of the 11 tokens that the model" in capsys.readouterr().err


def test_learned_positions_are_not_exceeded(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.sequence_length=32", "train.steps=10"]
    run = train(text, "lm", "synthesizer", *corpus)
    told = written(run, capsys, "--tokens", "26")  # 7 and 25 positions are 32
    assert "decoding by full passes" in told.err
    assert main(command(run, "--tokens", "27")) == 2
    assert "parameters for 32 positions, expected data of at most" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "prompt", "part"),
    [
        ((), "", "--prompt '': it has no tokens, expected at least one"),
        ((), "a\ud800", "--prompt: got '\\ud800', which no bytes stand for"),
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


def test_a_run_that_predicts_no_next_token_cannot_generate(
    own_folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PARITY)
    run = train(Path.cwd(), "own.py:Parity", "conv", "train.steps=5", "train.warmup_steps=1")
    capsys.readouterr()
    assert main(["--run", str(run), "--prompt", "a"]) == 2
    assert (
        "Parity predicts classes of examples, so there is nothing to generate"
        in capsys.readouterr().err
    )


def shares(logits: Tensor, temperature: float, count: int = 4000) -> np.ndarray:
    """Draw tokens; return how often each was drawn."""
    words = RandomWords(3, stream=0)
    drawn = [draw_token(logits, temperature, words) for _ in range(count)]
    return np.bincount(drawn, minlength=len(logits)) / count


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1e300])
def test_tokens_are_drawn_as_often_as_their_probabilities_say(temperature: float) -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05], dtype=torch.float64)
    logits = probabilities.clamp(min=1e-300).log()
    expected = torch.softmax(logits / temperature, 0).numpy()
    found = shares(logits, temperature)
    assert np.abs(found - expected).max() < 0.03
    assert temperature > 1 or found[1] == 0


@pytest.mark.parametrize("cold", [0.0, 5e-324])
def test_the_likeliest_token_is_drawn_near_temperature_0(cold: float) -> None:
    assert shares(torch.tensor([0.0, 1.0, 0.5]), cold, 50).tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(UserError, match="logits are not finite"):
        draw_token(torch.tensor([0.0, torch.nan]), cold, RandomWords(0, stream=0))


def test_tokens_that_are_no_text_are_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = [f"task.{name}=20" for name in ("train", "val", "test")]
    run = train(tmp_path, "periodic", "conv", "train.steps=5", "train.warmup_steps=1", *smaller)
    assert re.fullmatch(
        r"0 11 3 (\d+ ){4}\n", written(run, capsys, "--tokens", "4", prompt=" 0 11  3").out
    )
    for wrong in ("16", "-1", "1.0", "a", "9" * 5000):
        assert main([*command(run, prompt=f"1 {wrong}")]) == 2
        assert f"got '{wrong[:40]}', expected some of the 16 tokens" in capsys.readouterr().err
