"""Parquet files that somebody else may have written: no more is unpacked than their size allows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lra.common.untrusted import most_unpacked, open_regular, refuse_growth

MOST_ROWS = 1024
"""Most rows that are unpacked at a time."""
ROW_BYTES = 64
"""Memory that the smallest row takes."""


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Read columns of text, bytes or numbers from a Parquet file, row by row.

    Of a column of images as files these files are read. The footer of the file says how large its
    columns are, before anything is unpacked.

    Raises: DataError for more than `most_unpacked`; errors of many kinds for a damaged file.
    """
    import pyarrow.parquet as pq
    from pyarrow import types

    left = most = most_unpacked(path.stat().st_size)
    with open_regular(path) as file:
        table = pq.ParquetFile(file, buffer_size=2**20, pre_buffer=False)
        refused = types.is_nested, types.is_fixed_size_binary, types.is_dictionary
        kinds = {name: table.schema_arrow.field(name).type for name in columns}
        images = {name for name, kind in kinds.items() if types.is_struct(kind)}
        kinds |= {name: kinds[name].field("bytes").type for name in images}
        for name, kind in kinds.items():
            if any(is_kind(kind) for is_kind in refused):
                raise TypeError(f"{name} is {kind}, expected text, bytes or numbers")
        leaves = [f"{name}.bytes" if name in images else name for name in columns]
        facts = table.metadata
        groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        sizes = [c.total_uncompressed_size for c in chunks if c.path_in_schema in leaves]
        if sum(sizes) > most:
            refuse_growth(path)
        # A column may have a text once that many rows share.
        rows = max(1, min(MOST_ROWS, most // max(1, *sizes, 1)))
        for batch in table.iter_batches(rows, columns=leaves):
            arrays = (batch.column(name) for name in columns)
            cells = [c.field("bytes") if types.is_struct(c.type) else c for c in arrays]
            for row in zip(*cells, strict=True):
                values = tuple(cell.as_py() for cell in row)
                left -= ROW_BYTES + sum(len(v) for v in values if isinstance(v, (str, bytes)))
                if left < 0:
                    refuse_growth(path)
                yield values
