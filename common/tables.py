"""Parquet files that somebody else may have written: no more is unpacked than their size allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from common.untrusted import most_unpacked, open_regular, refuse_growth

MOST_ROWS = 1024
"""Most rows that are unpacked at a time."""
LARGEST_HEADER = 2**18
"""Most bytes of the header of a page."""
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
        offsets = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
        place = min(offset for offset in offsets if offset > 0)
        end = place + chunk.total_compressed_size
        while place < end:
            file.seek(place)
            numbers, length = _read_header(file.read(LARGEST_HEADER), 0)
            unpacked, packed = numbers[2], numbers[3]
            if min(unpacked, packed) < 0:
                raise ValueError("a page has a negative size")
            yield unpacked
            place += length + packed


def _read_header(content: bytes, place: int) -> tuple[dict[int, int], int]:
    """Read the whole numbers of a structure in Thrift's compact form, and find where it ends."""

    def read_number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:  # noqa: PLR2004 (the last byte of a number)
                return value

    numbers: dict[int, int] = {}
    field = 0
    while (head := content[place]) != 0:
        place += 1
        field = field + (head >> 4) if head >> 4 else read_number() >> 1
        match head & 15:
            case 1 | 2:  # true and false
                pass
            case 4 | 5 | 6:
                value = read_number()
                numbers[field] = (value >> 1) ^ -(value & 1)
            case 8:  # a text
                length = read_number()
                place += length
            case 12:
                _, place = _read_header(content, place)
            case kind:
                raise ValueError(f"a page's header has a field of kind {kind}")
    return numbers, place + 1
