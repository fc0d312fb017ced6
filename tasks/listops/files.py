"""The official ListOps files: `basic_{train,val,test}.tsv` of the Long Range Arena release.

After the header `Source<TAB>Target`, each line holds an expression and its value and ends in
CRLF. An expression is written as a left-nested binary tree, `( ( ( [MAX 3 ) 7 ) ] )`; its
parentheses carry no information and readers drop them.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from lra.common.errors import DataError
from lra.common.files import name_file_in_errors
from lra.common.progress import progress
from lra.tasks.listops.law import (
    CLOSE_ID,
    OFFICIAL_COUNTS,
    OFFICIAL_LAW,
    OPERATOR_ID,
    TOKENS,
    Expressions,
    evaluate,
    example_digest,
    grow,
    join_examples,
)
from lra.tasks.sources.archives import read_rows, walk
from lra.tasks.sources.releases import describe_size_difference

FILES = {name: f"basic_{name}.tsv" for name in ("train", "val", "test")}
INSIDE = "basic_*.tsv"
"""Pattern of the files of a folder."""

LARGEST_FILE = 4 * 2**30
LONGEST_LINE = 2**24
"""Most bytes of a file, and of a line of it."""

SEEDS_TRIED = 100
"""Seeds of our generator, from 0 on, whose first examples are looked for in what is read."""

_HEADER = b"Source\tTarget"
_FILE = re.compile(r"(?:^|/)basic_(train|val|test)\.tsv\Z")
_TOKEN_IDS = {token.encode(): i for i, token in enumerate(TOKENS, start=1)}
_LABELS = {str(digit).encode(): digit for digit in range(10)}


def read_official(path: Path) -> dict[str, Expressions]:
    """Read the three official files of a folder or an archive: expressions, by split.

    Raises: DataError naming a file that is missing, or file and line of anything malformed.
    """
    splits: dict[str, Expressions] = {}
    for match, file in walk(path, _FILE, inside=INSIDE, largest=LARGEST_FILE):
        shown = f"{path}/{match.string}"
        splits[match[1]] = _read(file, shown)
        check_answers(splits[match[1]], lambda i, shown=shown: f"{shown}:{i + 2}")
    if missing := [file for name, file in FILES.items() if name not in splits]:
        raise DataError(
            f"{path} lacks {', '.join(missing)}; get all three files, or use "
            f"task.source=generate to ignore what is there"
        )
    return {name: splits[name] for name in FILES}


def _read(file: IO[bytes], shown: str) -> Expressions:
    rows = read_rows(file, shown, longest=LONGEST_LINE)
    header = b"\t".join(next(rows, []))
    if header != _HEADER:
        shown_header = header[:60].decode(errors="replace")
        raise DataError(f"{shown}:1: its header is {shown_header!r}, expected {_HEADER.decode()!r}")
    examples = [_parse(fields, f"{shown}:{number}") for number, fields in enumerate(rows, start=2)]
    if not examples:
        raise DataError(f"{shown}: no examples after the header; is the file complete?")
    return join_examples(examples)


def _parse(fields: list[bytes], where: str) -> tuple[bytes, int]:
    try:
        expression, value = fields
        ids = bytes([_TOKEN_IDS[token] for token in expression.translate(None, b"()").split()])
        label = _LABELS[value]
    except (KeyError, ValueError) as error:
        what = f"unknown token {error.args[0]!r}" if isinstance(error, KeyError) else f"{fields}"
        raise DataError(
            f"{where}: got {what[:80]}, expected an expression of {' '.join(TOKENS)}, a tab and a "
            f"digit"
        ) from None
    if not ids:
        raise DataError(f"{where}: the expression is empty")
    return ids, label


def write_official(path: Path, expressions: Expressions) -> None:
    """Write expressions in the official format."""
    partial = path.with_name(f"{path.name}.partial")
    with name_file_in_errors(path), partial.open("wb") as file:
        file.write(_HEADER + b"\r\n")
        examples = progress(f"writing {path}", expressions.list_texts(), unit="examples")
        for text, label in zip(examples, expressions.labels.tolist(), strict=True):
            file.write(b"%s\t%d\r\n" % (_format(text), label))
    partial.replace(path)


def _format(tokens: bytes) -> bytes:
    """Write an expression as a binary tree, whose nodes are in parentheses.

    An operator with n arguments opens n + 1 parentheses. Each argument closes one, and the closing
    token the last.
    """
    words: list[str] = []
    arguments = [0]
    for token in reversed(tokens):  # so that arguments are counted before their operator is written
        name = TOKENS[token - 1]
        if token == CLOSE_ID:
            words.append(f"{name} ) )")
            arguments[-1] += 1
            arguments.append(0)
        elif token < OPERATOR_ID:
            words.append(f"{name} )")
            arguments[-1] += 1
        else:
            words.append("( " * (arguments.pop() + 1) + name)
    return " ".join(reversed(words)).removesuffix(" )").encode()


def check_answers(expressions: Expressions, locate: Callable[[int], str]) -> None:
    """Compare labels with the values of expressions; `locate` says where one is from, by its index.

    Raises: DataError naming the first that is malformed, or whose label is wrong.
    """
    values = evaluate(expressions)
    wrong = np.flatnonzero(values != expressions.labels)
    if not len(wrong):
        return
    value, label = int(values[wrong[0]]), expressions.labels[wrong[0]]
    what = f"is worth {value}, but its label is {label}"
    if value < 0:
        what = "is malformed: its brackets do not match, or an operator has no arguments"
    more = f" ({len(wrong):,} such expressions in all)" if len(wrong) > 1 else ""
    raise DataError(f"{locate(int(wrong[0]))}: the expression {what}{more}")


def describe_doubt(splits: Mapping[str, Expressions]) -> str:
    """Say why splits are not those of the release; empty if nothing speaks against it."""
    sizes = {name: len(split.labels) for name, split in splits.items()}
    if sizes != OFFICIAL_COUNTS:
        return describe_size_difference(sizes, OFFICIAL_COUNTS, "examples")
    lengths = np.concatenate([split.lengths for split in splits.values()])
    law, shortest, longest = OFFICIAL_LAW, int(lengths.min()), int(lengths.max())
    if shortest < law.min_length or longest > law.max_length:
        return (
            f"its expressions have {shortest:,} to {longest:,} tokens, those of the release "
            f"{law.min_length} to {law.max_length:,}"
        )
    known = {example_digest(text) for split in splits.values() for text in split.list_texts()}
    for seed in range(SEEDS_TRIED):
        if not known.isdisjoint(map(example_digest, grow(OFFICIAL_LAW, seed, 0).list_texts())):
            return f"it holds what this suite generates with task.data_seed={seed}"
    return ""
