"""The sealed segments of a recording: Parquet, one row an event, one row group a ring."""

from __future__ import annotations

from collections.abc import Iterator

from hkvtool.model.manifest import COLUMNS, Sealed
from hkvtool.model.regular import regular


def segment_rows(path: str, sealed: Sealed, group: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, sequence number, time and payload of each row that a ring has in a segment. Raises
    OSError where the file cannot be read, or is not what the manifest says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open(path, "rb", opener=regular) as whole, pq.ParquetFile(whole) as file:
            table = file.read_row_group(group, columns=list(COLUMNS))
            if table.num_rows != sealed.rows:
                raise OSError(f"{table.num_rows} rows where {sealed.rows} were sealed")
            columns = [table.column(name).to_pylist() for name in COLUMNS]
    except (pa.ArrowException, LookupError, ValueError, TypeError, ArithmeticError) as e:
        # pyarrow says of damage whatever it stumbles over.
        raise OSError(f"it is damaged: {e}") from e
    for column, kind in zip(columns, (int, int, int, bytes), strict=True):
        if set(map(type, column)) - {kind}:
            raise OSError("its columns are not those of a segment")
    yield from zip(*columns, strict=True)
