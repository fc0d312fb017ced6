"""The official ListOps files: `basic_{train,val,test}.tsv` of the Long Range Arena release.

After the header `Source<TAB>Target`, each line holds an expression and its value and ends in
CRLF. An expression is written as a left-nested binary tree, `( ( ( [MAX 3 ) 7 ) ] )`; its
parentheses carry no information and readers drop them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO

import numpy as np

from common.errors import DataError
from common.files import name_file_in_errors
from common.progress import progress
from common.untrusted import open_regular
from tasks.listops.law import CLOSE_ID, OPERATOR_ID, TOKENS, Expressions
from tasks.sources.archives import walk
from tasks.sources.copies import copy_order
from tasks.sources.tables import describe_saved_again, read_rows

FILES = {name: f"basic_{name}.tsv" for name in ("train", "val", "test")}
INSIDE = "basic_*.tsv"
"""Pattern of the files of a folder."""
CHUNK = 1000
"""Number of expressions that are written at a time."""

LARGEST_FILE = 4 * 2**30
LONGEST_LINE = 2**24
"""Most bytes of a file, and of a line of it."""

_HEADER = b"Source\tTarget"
_FILE = re.compile(r"^((?:.*/)?)basic_(train|val|test)\.tsv\Z")
_TOKEN_IDS = {token.encode(): i for i, token in enumerate(TOKENS, start=1)}
_LABELS = {str(digit).encode(): digit for digit in range(10)}


def read_official(path: Path) -> tuple[str, dict[str, Expressions], list[str]]:
    """Read the three official files of a folder or an archive.

    Args:
        path: the folder or archive, which may hold several copies of the files.
    Returns: the folder of the copy that is to be read, within the path; its expressions by split;
        and the folders of the other copies.
    Raises: DataError naming a file that is missing or there twice, or file and line of anything
        malformed.
    """
    copies: dict[str, dict[str, Expressions]] = {}
    for match, file in walk(path, _FILE, inside=INSIDE, largest=LARGEST_FILE):
        splits = copies.setdefault(match[1], {})
        if match[2] in splits:
            raise DataError(f"{path}/{match.string} occurs more than once; unpack the archive, and "
                            f"keep one of these files")  # fmt: skip
        splits[match[2]] = _read(file, f"{path}/{match.string}")
    folder, *others = sorted(copies, key=copy_order) or [""]
    splits = copies.get(folder, {})
    if missing := [file for name, file in FILES.items() if name not in splits]:
        raise DataError(
            f"{path / folder} lacks {', '.join(missing)}; get all three files, or use "
            f"task.source=generate to ignore what is there"
        )
    return folder, {name: splits[name] for name in FILES}, others


def _read(file: IO[bytes], shown: str) -> Expressions:
    tokens: list[bytes] = []
    labels = bytearray()
    rows = read_rows(file, shown, longest=LONGEST_LINE)
    _check_header(next(rows, [b""]), shown)
    for number, fields in enumerate(rows, start=2):
        ids, label = _parse(fields, f"{shown}:{number}")
        tokens.append(ids)
        labels.append(label)
    if not tokens:
        raise DataError(f"{shown}: no examples after the header; is the file complete?")
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    return Expressions(
        np.frombuffer(b"".join(tokens), dtype=np.uint8), lengths, np.frombuffer(labels, np.uint8)
    )


def _check_header(fields: list[bytes] | None, shown: str) -> None:
    found = b"\t".join(fields or [])
    if found == _HEADER:
        return
    text = found[:60].decode(errors="replace")
    if '"' in text:
        raise describe_saved_again(shown, "its fields are in quotes")
    if "source" in text.lower():  # with other separators, more columns, or other line ends
        raise describe_saved_again(shown, f"its header is {text!r}, expected {_HEADER.decode()!r}")
    raise DataError(f"{shown}:1: got header {text!r}, expected {_HEADER.decode()!r}")


def _parse(fields: list[bytes] | None, where: str) -> tuple[bytes, int]:
    if fields is None:
        raise DataError(f"{where}: the line is longer than {LONGEST_LINE:,} bytes")
    if len(fields) != 2:  # noqa: PLR2004
        raise DataError(f"{where}: got {len(fields)} tab-separated fields, expected 2")
    expression, value = fields
    opened, closed = expression.count(b"("), expression.count(b")")
    if opened != closed:
        raise DataError(f"{where}: {opened} parentheses open, but {closed} close")
    try:
        ids = bytes([_TOKEN_IDS[token] for token in expression.translate(None, b"()").split()])
    except KeyError as error:
        token = error.args[0].decode(errors="replace")
        raise DataError(f"{where}: unknown token {token!r}; known: {' '.join(TOKENS)}") from None
    if value not in _LABELS:
        raise DataError(f"{where}: got target {value[:20]!r}, expected a digit 0 to 9")
    if not ids:
        raise DataError(f"{where}: the expression is empty")
    return ids, _LABELS[value]


def count_examples(path: Path) -> int:
    """Count the lines of an official file but for the header."""
    with open_regular(path, largest=LARGEST_FILE) as file:
        return sum(1 for _ in file) - 1


def write_official(path: Path, tokens: np.ndarray, offsets: np.ndarray, labels: np.ndarray) -> None:
    """Write expressions, stored end to end as in `PackedTokens`, in the official format."""
    words = _words()
    partial = path.with_name(f"{path.name}.partial")
    with name_file_in_errors(path), partial.open("wb") as file:
        file.write(_HEADER + b"\r\n")
        chunks = range(0, len(labels), CHUNK)
        for start in progress(f"writing {path}", chunks, unit="thousand"):
            stop = min(start + CHUNK, len(labels))
            chunk = np.asarray(tokens[offsets[start] : offsets[stop]])
            ends = offsets[start : stop + 1] - offsets[start]
            texts = words[_word_numbers(chunk, ends)].tolist()
            for i in range(stop - start):
                expression = b" ".join(texts[ends[i] : ends[i + 1]])
                file.write(b"%s\t%d\r\n" % (expression, labels[start + i]))
    partial.replace(path)


def _words() -> np.ndarray:
    """List how tokens are written, by word number (see `_word_numbers`): (256,) bytes.

    An operator with n arguments opens n + 1 parentheses, each argument closes one and the
    closing token the last.
    """
    words = np.full(256, None, dtype=object)
    for token, name in enumerate(TOKENS[: OPERATOR_ID - 1], start=1):
        words[token] = f"{name} )".encode()
    words[CLOSE_ID] = b"] ) )"
    words[0] = b"] )"
    for token, name in enumerate(TOKENS[OPERATOR_ID - 1 : CLOSE_ID - 1]):
        for count in range(1, 60):
            words[16 + 4 * count + token] = b"( " * (count + 1) + name.encode()
    return words


def _word_numbers(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Number the words of expressions, (total,) int64.

    The number is the token id, but 0 for the token that closes a root, and 16 + 4 n + k for
    operator k with n arguments.
    """
    numbers = tokens.astype(np.int64)
    is_operator = (tokens >= OPERATOR_ID) & (tokens < CLOSE_ID)
    is_close = tokens == CLOSE_ID
    # Depth of each node's first token; every expression ends at the depth it began with.
    depth = np.cumsum(is_operator.astype(np.int64) - is_close) - is_operator
    numbers[offsets[1:] - 1] = 0
    starts = np.flatnonzero(~is_close)
    for level in range(int(depth.max()) + 1):
        operators = np.flatnonzero(is_operator & (depth == level))
        children = starts[depth[starts] == level + 1]
        parent = np.searchsorted(operators, children) - 1
        counts = np.bincount(parent, minlength=len(operators))
        numbers[operators] = 16 + 4 * counts + (tokens[operators] - OPERATOR_ID)
    return numbers
