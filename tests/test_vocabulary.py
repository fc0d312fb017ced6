"""One word, one meaning: words that this repository has given up stay away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import ROOT

RETIRED = {
    "prediction": r"guess(es|ed|ing)?",
    "out-of-distribution, or the place by its name": r"elsewhere",
    "compose": r"(lay|lays|laid|laying)[ _]up",
    "arrange": r"(lay|lays|laid|laying)[ _]out",
    "packing, or file structure": r"(?<!\.)(?<!in_)layouts?(?!_engine|=\"constrained\"|engine)",
    "interleaved rounds": r"(in|takes?|took|taking) turns(?![\])])",
    "loggers": r"scalars(?!\"\]|\(tag)",
    "metadata": r"traits?",
    "figure, or image": r"pictures?",
    "reference": r"plain[ _]forms?|\w+_(plain|dense)\(|textbook|at_once|both_orders",
    "bit-exact": r"to the bit",
    "running out of memory": r"want of memory",
    "ProcessGroup": r"(?-i:World)",
    "options": r"(?-i:Wanted)",
}
"""What stands in the way of each word, by the word that is used."""

FOLDERS = ("lra", "models", "tasks", "tests", "configs", "results/shipped", ".ci")
KINDS = {".py", ".md", ".yaml", ".toml", ".html", ".csv", ".json", ""}
FILES = [
    path
    for path in [
        *ROOT.glob("*.*"),
        *(ROOT / "results").glob("*.*"),
        *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))),
    ]
    if path.is_file() and path.suffix in KINDS and path != Path(__file__)
]


@pytest.mark.parametrize("word", RETIRED)
def test_retired_words_stay_away(word: str) -> None:
    pattern = re.compile(rf"(?<![^\W_]){RETIRED[word]}(?![^\W_])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"say {word}:\n" + "\n".join(found)


def test_sentences_can_be_read_alone() -> None:
    """No docstring begins with what it leaves out."""
    starts = re.compile(r'^\s*"""(of|whose|that of) ', re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in FILES
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if starts.search(line)
    ]
    assert not found, "\n".join(found)
