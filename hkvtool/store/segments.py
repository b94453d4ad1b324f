"""The sealed segments of a recording: Parquet, one row an event, one row group a ring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.model.manifest import COLUMNS, Sealed


def rows_differ(column: list[Any], kind: type) -> bool:
    """Whether a column holds anything but values of one type."""
    return set(map(type, column)) - {kind} != set()


def segment_rows(path: str, sealed: Sealed, group: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, sequence number, time and payload of each row that a ring has in a segment. Raises
    OSError where the file cannot be read, or is not what the manifest says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=list(COLUMNS))
            if table.num_rows != sealed.rows:
                raise OSError(f"{table.num_rows} rows where {sealed.rows} were sealed")
            if table.schema.names != list(COLUMNS) or any(c.null_count for c in table.columns):
                raise OSError("its columns are not those of a segment")
            columns = [column.to_pylist() for column in table.columns]
    except (pa.ArrowException, LookupError, ValueError, TypeError, ArithmeticError) as e:
        # pyarrow says of damage whatever it stumbles over.
        raise OSError(f"it is damaged: {e}") from e
    kinds, seqs, times, payloads = columns
    if rows_differ(payloads, bytes) or any(rows_differ(c, int) for c in (kinds, seqs, times)):
        raise OSError("its columns are not those of a segment")
    yield from zip(*columns, strict=True)
