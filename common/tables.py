"""Parquet files that somebody else may have written: no more is unpacked than their size allows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from common.untrusted import most_unpacked, open_regular, refuse_growth

MOST_ROWS = 1024
"""Most rows that are unpacked at a time."""
ROW_BYTES = 64
"""Memory that the smallest row takes."""


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Read columns of text, bytes or numbers from a Parquet file, row by row.

    Of a column of images as files these files are read.

    Raises: DataError for more than `most_unpacked`; errors of many kinds for a damaged file.
    """
    import pyarrow.parquet as pq
    from pyarrow import types

    left = most = most_unpacked(path.stat().st_size)
    with open_regular(path) as file, open_regular(path) as pages:
        table = pq.ParquetFile(file, buffer_size=2**20, pre_buffer=False)
        refused = types.is_nested, types.is_fixed_size_binary, types.is_dictionary
        kinds = {name: table.schema_arrow.field(name).type for name in columns}
        images = {name for name, kind in kinds.items() if types.is_struct(kind)}
        kinds |= {name: kinds[name].field("bytes").type for name in images}
        for name, kind in kinds.items():
            if any(is_kind(kind) for is_kind in refused):
                raise TypeError(f"{name} is {kind}, expected text, bytes or numbers")
        leaves = [f"{name}.bytes" if name in images else name for name in columns]
        sizes = list(_page_sizes(pages, table.metadata, leaves))
        if sum(sizes) > most:
            refuse_growth(path)
        # A page may have a text once that many rows share, or begin with.
        rows = max(1, min(MOST_ROWS, most // max(1, *sizes, 1)))
        for batch in table.iter_batches(rows, columns=leaves):
            found = (batch.column(name) for name in columns)
            cells = [c.field("bytes") if types.is_struct(c.type) else c for c in found]
            for row in zip(*cells, strict=True):
                values = tuple(cell.as_py() for cell in row)
                left -= ROW_BYTES + sum(len(v) for v in values if isinstance(v, (str, bytes)))
                if left < 0:
                    refuse_growth(path)
                yield values


def _page_sizes(file: IO[bytes], facts: Any, leaves: Sequence[str]) -> Iterator[int]:
    """List the unpacked sizes of pages in bytes, by their headers: the footer may say others."""
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    for chunk in (group.column(i) for group in groups for i in range(group.num_columns)):
        if chunk.path_in_schema not in leaves:
            continue
        first = chunk.data_page_offset
        end = file.seek(min(first, chunk.dictionary_page_offset or first))
        end += chunk.total_compressed_size
        while file.tell() < end:
            header = _read_header(file)
            yield header[2]
            file.seek(header[3], os.SEEK_CUR)


def _read_header(file: IO[bytes]) -> dict[int, int]:
    """Read the numbers of 32 bits of a structure in Thrift's compact form, by their fields."""
    numbers: dict[int, int] = {}
    field = 0
    while head := file.read(1)[0]:
        field = field + (head >> 4) if head >> 4 else _read_number(file) >> 1
        match head & 15:
            case 1 | 2:  # true and false
                pass
            case 4 | 6:
                _read_number(file)
            case 5:
                numbers[field] = _read_number(file) >> 1  # no size is negative
            case 8:  # a text
                file.seek(_read_number(file), os.SEEK_CUR)
            case 12:
                _read_header(file)
            case kind:
                raise ValueError(f"a page's header has a field of kind {kind}")
    return numbers


def _read_number(file: IO[bytes]) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 (the last one)
            return value
    raise ValueError("a page's header has a number that is too large")
