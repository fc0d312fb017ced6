"""Text by trained models: what is drawn, what is written, and one line for every mistake."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import lra
import run_task
from attack import Place
from conftest import ROOT
from lra.classifier.decoders import FullPassDecoder, RecurrentDecoder
from lra.generate.__main__ import TextPrinter, main
from lra.runtime.cli import INTERRUPTED
from made_results import record as made_record
from own_tasks import PARITY
from tasks.vocabulary import Bytes

LINE = "the cat sat on the mat . Él no !\n"

COUNTING = '''
import numpy as np

from tasks.base import Dataset, Task, TaskInfo
from tasks.next_token import NextToken, windows


class Counting(Task):
    """Count to eleven again and again."""

    name = "counting"

    def __init__(self, *, length: int = 16):
        self.info = TaskInfo(name=self.name, num_classes=12, vocab_size=12, max_length=length,
                             targets="position")

    def prepare(self, data_dir):
        tokens = (np.arange(600) % 12).astype(np.uint8)
        starts, lengths, skipped = windows(600, self.info.max_length)
        split = NextToken(tokens, starts, lengths, skipped=skipped)
        return Dataset(splits=dict.fromkeys(("train", "val", "test"), split), source="own",
                       fingerprint="0" * 64, baselines={"majority class": 9.0}, folder=data_dir)

    def verify(self, dataset):
        return []

    def split_sizes(self, examples):
        return {}
'''


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
    assert re.search(r"by the recurrence: the first token after \S+ s, then 59 at \S+ tokens/s",
                     told.err)  # fmt: skip


def test_characters_are_written_when_they_are_whole(
    by_bytes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output(by_bytes, capsys, "--tokens", "1", prompt="Él ").startswith("Él ")
    text = TextPrinter(Bytes())
    text.write(0xC3)
    assert capsys.readouterr().out == ""
    text.close()
    assert capsys.readouterr().out == "\N{REPLACEMENT CHARACTER}\n"


def test_seeds_repeat_and_differ(by_bytes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hot = ("--tokens", "40", "--temperature", "3")
    texts = [output(by_bytes, capsys, *hot, "--seed", seed) for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    assert output(by_bytes, capsys, *hot) != texts[0]


def test_one_token_needs_no_further_position(
    by_bytes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = LINE[:31]
    assert len(prompt.encode()) == 32
    assert main(command(by_bytes, "--tokens", "1", prompt=prompt)) == 0
    told = capsys.readouterr()
    assert "beyond" not in told.err
    assert "then" not in told.err


def test_words_have_a_vocabulary(by_words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output(by_words, capsys, "--tokens", "8", "--temperature", "0", prompt="the  cat sat")
    assert found == "the cat sat on the mat . Él no ! \n\n"
    assert main(command(by_words, prompt="the dog sat")) == 2
    assert "got 'dog', expected some of the 11 words that the corpus" in capsys.readouterr().err
    other = [*command(by_words)[:-1], str(by_words / "empty")]
    assert main([*other, "--tokens", "2"]) == 0, "the text itself is where it was"


def test_a_vocabulary_of_other_data_is_refused(
    by_words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = by_words / "result.json"
    kept = path.read_text()
    path.write_text(re.sub(r'"fingerprint": "\w+"', f'"fingerprint": "{"0" * 64}"', kept))
    try:
        assert main(command(by_words)) == 2
    finally:
        path.write_text(kept)
    assert "that of the run was own (00000000); give the folder" in capsys.readouterr().err


def test_both_ways_are_compared(by_bytes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(by_bytes, "--compare", "--tokens", "50")) == 0
    told = capsys.readouterr()
    assert "all 50 tokens are equal" in told.err
    assert told.err.count("tokens/s") == 2
    assert told.out.count("the cat") >= 1


def test_a_long_prompt_is_read_before_anything_is_written(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "the cat " * 200
    assert main(command(by_bytes, "--tokens", "3", prompt=long)) == 0
    told = capsys.readouterr()
    assert told.out.startswith(long)
    lines = told.err.splitlines()
    reading = lines.index("reading the prompt, 1,600 positions ...")
    assert lines[reading + 1] == "by the recurrence ..."
    assert main(command(by_bytes, "--tokens", "3")) == 0
    assert "reading" not in capsys.readouterr().err, "a short prompt takes no time"

    def fail(self: RecurrentDecoder, tokens: Tensor) -> Tensor:
        raise MemoryError

    monkeypatch.setattr(RecurrentDecoder, "take", fail)
    assert main(command(by_bytes)) == 5
    assert capsys.readouterr().out == ""


def test_progress_is_shown_where_the_text_is_not(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_terminal in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(sys.stdout, "isatty", lambda shown=is_terminal: shown, raising=False)
            assert main(command(by_bytes, "--tokens", "3")) == 0
        assert ("by the recurrence ...\n" in capsys.readouterr().err) != is_terminal


def test_a_difference_is_named(
    by_bytes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_mixers_without_a_recurrence_compute_full_passes(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.sequence_length=32"]
    run = train(text, "lm", "conv", *corpus, "model.positions=learned", "train.steps=10")
    capsys.readouterr()
    assert main(command(run, "--tokens", "20")) == 0
    told = capsys.readouterr()
    assert told.out.startswith("the cat")
    assert "by full passes: the first token after" in told.err
    assert main(command(run, "--tokens", "26")) == 0, "7 and 25 positions are 32"
    assert main(command(run, "--tokens", "27")) == 2
    assert (
        "33 positions, and the model has learned 32; expected at most 33 tokens, prompt included"
        in (capsys.readouterr().err)
    )
    assert main(command(run, "--compare", "--tokens", "9")) == 2
    assert "mixer conv has no recurrence" in capsys.readouterr().err


def test_a_mixer_with_parameters_for_positions_reaches_no_further(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = [f"task.corpus={text / 'own.txt'}", "task.sequence_length=32"]
    run = train(text, "lm", "synthesizer", *corpus, "train.steps=10")
    assert main(command(run, "--tokens", "26")) == 0
    assert main(command(run, "--tokens", "27")) == 2
    assert "expected at most 33 tokens, prompt included" in capsys.readouterr().err


def test_tokens_that_are_no_text_are_numbers(
    own_folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("counting.py").write_text(COUNTING)
    run = train(Path.cwd(), "counting.py:Counting", "tnn")
    capsys.readouterr()
    found = output(run, capsys, "--tokens", "5", "--temperature", "0", prompt="8 9  10")
    assert found == "8 9 10 11 0 1 2 3 \n"
    assert main(command(run, prompt="8 12")) == 2
    assert "--prompt: got '12', expected numbers of tokens, 0 to 11" in capsys.readouterr().err
    Path("counting.py").write_text(COUNTING + "# changed\n")
    assert main(command(run, prompt="8")) == 2
    assert "--trust-code runs it as it is now" in capsys.readouterr().err
    assert main(command(run, "--trust-code", "--tokens", "2", prompt="8")) == 0


def test_tasks_of_examples_are_refused(
    own_folder: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(PARITY)
    run = train(Path.cwd(), "own.py:Parity", "conv", "train.steps=5", "train.warmup_steps=1")
    assert main(command(run, prompt="0 1")) == 2
    assert "targets of Parity are examples: nothing to generate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "prompt", "part"),
    [
        ((), "", "--prompt '': it has no tokens, expected at least one"),
        ((), "a\ud800", "--prompt: got '\\ud800', which no bytes stand for"),
        (("--tokens", "0"), "a", "--tokens: got 0, expected 1 to"),
        (("--tokens", "2000000"), "a", "--tokens 2000000: expected 1 to 1,048,576"),
        (("--temperature", "-0.1"), "a", "--temperature: got -0.1, expected a finite number of at"),
        (("--device", "abacus"), "a", "--device: no device 'abacus'"),
    ],
)
def test_mistakes_are_one_line(
    by_bytes: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    prompt: str,
    part: str,
) -> None:
    try:
        code = main(command(by_bytes, *more, prompt=prompt))
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert part in told.err
    assert told.err.count("\n") == 1


def test_runs_that_cannot_generate(
    by_bytes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


def test_what_is_piped_and_shown(by_bytes: Path) -> None:
    """A reader may go, a terminal may know ASCII alone, and bytes may be no UTF-8."""

    def ended(
        prompt: bytes, pipe: str = "", **environment: str
    ) -> subprocess.CompletedProcess[bytes]:
        line = [os.fsencode(part) for part in command(by_bytes, "--tokens", "2000")]
        line[line.index(b"the cat")] = prompt
        return subprocess.run(
            ["bash", "-c", f'"$@" {pipe}; exit ${{PIPESTATUS[0]}}', "-", sys.executable, "-m",
             "lra.generate", *line],
            cwd=ROOT, env={**os.environ, **environment}, capture_output=True, check=False,
        )  # fmt: skip

    gone = ended(b"the cat", "| head -c 7")
    assert (gone.returncode, gone.stdout) == (0, b"the cat")
    assert b"Error" not in gone.stderr
    assert b"then 1999 at" not in gone.stderr, "nobody reads: it ends"
    plain = ended("Él\xff\x1b".encode("latin-1"), PYTHONIOENCODING="ascii")
    assert plain.returncode == 0
    assert plain.stdout.startswith(b"\\ufffdl\\ufffd\\x1b")


def test_an_interrupt_ends_it_in_a_line(place: Place, by_words: Path) -> None:
    arguments = command(by_words, "--tokens", "1000000")
    ended = place.attack("lra.generate.__main__", arguments, {INTERRUPTED}, interrupt_after=1.5)
    assert ended.err.splitlines()[-1] == "lra.generate: error: interrupted"
