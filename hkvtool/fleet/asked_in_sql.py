"""A fleet asked in SQL: the events of every instance in one view."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from hkvtool.fleet.instances import PARTITIONS, Instance
from hkvtool.fleet.objects import is_remote, opened, plain
from hkvtool.model.errors import HkvError
from hkvtool.store.parquet import is_our_schema, is_ours
from hkvtool.store.signals import duckdb_loaded, heard

VIEW = "event_log"
"""As the view of a single trace is called; it has `host`, `rank`, `time` and `instance` besides."""


_KEPT = "(file VARCHAR, instance VARCHAR, " + ", ".join(f'"{p}" VARCHAR' for p in PARTITIONS) + ")"


class FleetTables:
    """A DuckDB that reaches the Parquet files of a fleet and nothing else. A context.

    Those of an object store are read by Arrow, column by column as a query needs them: DuckDB's
    own reader of such would have to be downloaded.
    """

    def __init__(self, fleet: Sequence[Instance]) -> None:
        duckdb = duckdb_loaded()
        for one in fleet:
            if not (one.path.partition("?")[0].endswith(".parquet") and _ours(one.path)):
                raise HkvError(
                    f"{one.name} is not Parquet that hkvtool wrote; SQL over a fleet reads that",
                    hint="`hkvtool fleet ingest FOLDER/* -o OTHER` makes it of traces and "
                    "recordings",
                )
        self._con = duckdb.connect(":memory:")
        local = [os.path.abspath(one.path) for one in fleet if not is_remote(one.path)]
        self._con.execute(f"SET allowed_paths = [{', '.join(map(_quoted, local))}]")
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            self._con.execute(f"SET {setting}")
        self._con.execute(f"CREATE TABLE instances {_KEPT}")
        self._con.executemany(
            "INSERT INTO instances VALUES (?, ?, ?, ?, ?)",
            [(i.path if is_remote(i.path) else os.path.abspath(i.path), i.name, i.host, i.rank,
              i.time) for i in fleet],
        )  # fmt: skip
        parts = [_REMOTE.format(self._remote(n, one.path), _quoted(one.path))
                 for n, one in enumerate(fleet) if is_remote(one.path)]  # fmt: skip
        if local:
            parts.append(_LOCAL.format(", ".join(map(_quoted, local))))
        self._con.execute(
            f"CREATE TEMP VIEW {VIEW} AS SELECT i.instance, i.host, i.rank, i.time, "
            f'e.* EXCLUDE ("file") FROM ({" UNION ALL BY NAME ".join(parts)}) e '
            'JOIN instances i ON i."file" = e."file"'
        )

    def _remote(self, number: int, uri: str) -> str:
        """A table of one file in an object store."""
        from pyarrow.dataset import dataset

        system, path = opened(uri)
        name = f"instance_{number}"
        self._con.register(name, dataset(path, filesystem=system, format="parquet"))
        return name

    def select(self, query: str) -> Any:
        """The result of a query, as DuckDB gives it. DuckDB's errors pass through."""
        return heard(lambda: self._con.execute(query), self._con.interrupt)

    def __enter__(self) -> FleetTables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._con.close()


_LOCAL = (
    'SELECT * RENAME (filename AS "file") FROM read_parquet([{}], filename = true, '
    "union_by_name = true, hive_partitioning = false)"
)
_REMOTE = 'SELECT *, {1} AS "file" FROM {0}'


def _ours(path: str) -> bool:
    if not is_remote(path):
        return is_ours(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    system, inner = opened(path)
    try:
        return is_our_schema(pq.read_schema(inner, filesystem=system))
    except (OSError, pa.ArrowException) as e:
        raise HkvError(f"{plain(path)} cannot be read as Parquet: {e}") from e


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
