"""The official ListOps files: `basic_{train,val,test}.tsv` of the Long Range Arena release.

After the header `Source<TAB>Target`, each line holds an expression and its value and ends in
CRLF. An expression is written as a left-nested binary tree, `( ( ( [MAX 3 ) 7 ) ] )`; its
parentheses carry no information and readers drop them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.errors import DataError
from tasks.files import name_file_in_errors
from tasks.listops.law import CLOSE_ID, OPERATOR_ID, TOKENS, Expressions
from tasks.progress import progress
from tasks.untrusted import open_regular

FILES = {name: f"basic_{name}.tsv" for name in ("train", "val", "test")}
FOLDERS = (
    "",
    "listops*",
    "lra_release/lra_release",
    "lra_release/lra_release/listops*",
    "lra_release",
    "lra_release/listops*",
)
"""Folders, under the data folder, where the files may be; the first that has them counts. Of the
archive lra_release.gz the inner folder is preferred, as for the other tasks (`copy_order`)."""

CHUNK = 1000
"""Number of expressions that are written at a time."""

LARGEST_FILE = 4 * 2**30
LONGEST_LINE = 2**24
"""Most bytes of a file, and of a line of it."""

_HEADER = b"Source\tTarget"
_TOKEN_IDS = {token.encode(): i for i, token in enumerate(TOKENS, start=1)}
_LABELS = {str(digit).encode(): digit for digit in range(10)}


def find_official(data_dir: Path) -> list[dict[str, Path]]:
    """List the copies of the three files under a data folder, each as paths by split.

    The copy to read comes first.

    Raises: DataError if the first folder that holds some of them does not hold all.
    """
    copies: list[dict[str, Path]] = []
    for pattern in FOLDERS:
        for folder in sorted(data_dir.glob(pattern)) if pattern else [data_dir]:
            paths = {name: folder / file for name, file in FILES.items()}
            missing = [path.name for path in paths.values() if not path.is_file()]
            if not missing:
                copies.append(paths)
            elif len(missing) < len(paths) and not copies:
                raise DataError(
                    f"{folder} holds official ListOps files but lacks {', '.join(missing)}; "
                    f"put it there, or use task.source=generate to ignore those files"
                )
    return copies


def read_official(path: Path) -> Expressions:
    """Read an official file.

    Raises: DataError naming file and line of anything malformed.
    """
    tokens: list[bytes] = []
    labels = bytearray()
    with (
        open_regular(path, largest=LARGEST_FILE) as file,
        progress(f"reading {path}", total=path.stat().st_size, unit="B") as bar,
    ):
        if (header := file.readline(LONGEST_LINE)).rstrip(b"\r\n") != _HEADER:
            raise DataError(f"{path}:1: got header {header[:60]!r}, expected {_HEADER!r}")
        lines = iter(lambda: file.readline(LONGEST_LINE), b"")
        for number, line in enumerate(lines, start=2):
            ids, label = _parse(line, f"{path}:{number}")
            tokens.append(ids)
            labels.append(label)
            bar.update(len(line))
    if not tokens:
        raise DataError(f"{path}: no examples after the header; is the file complete?")
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    return Expressions(
        np.frombuffer(b"".join(tokens), dtype=np.uint8), lengths, np.frombuffer(labels, np.uint8)
    )


def _parse(line: bytes, where: str) -> tuple[bytes, int]:
    fields = line.rstrip(b"\r\n").split(b"\t")
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
