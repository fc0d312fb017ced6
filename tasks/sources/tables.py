"""Text files with tab-separated fields."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

from common.errors import DataError


def read_rows(file: IO[bytes], shown: str, *, longest: int) -> Iterator[list[bytes]]:
    """Read the fields of each line; lines end in LF or CRLF, and a byte order mark is left out.

    Quotes belong to the text. Spreadsheets and pandas put a field that contains quotes into quotes
    and double those within; a file is refused if most of its fields with quotes are like that.

    Args:
        file: the open file.
        shown: its path, for messages.
        longest: most bytes of a line.
    Yields: the fields.
    Raises: DataError for a line that is too long, and for a file that was saved with quotes.
    """
    quoted = unquoted = 0
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), start=1):
        if len(line) > longest:
            raise DataError(f"{shown}:{number}: the line is longer than {longest:,} bytes")
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        fields = text.rstrip(b"\r\n").split(b"\t")
        # The first field may be the end of a text that has line breaks.
        for field in fields[1:] if b'"' in line else ():
            if b'"' in field:
                inner = field[1:].replace(b'""', b"")[:-1]
                is_quoted = field.startswith(b'"') and b'"' not in inner
                quoted, unquoted = quoted + is_quoted, unquoted + (not is_quoted)
        yield fields
    if quoted > unquoted:
        raise DataError(
            f"{shown}: its fields are in quotes, so another program, such as a spreadsheet or "
            f"pandas, saved this file again; get the original file, or write it without quotes"
        )
